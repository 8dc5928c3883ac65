"""Sets and intervals: exactly the answers whose score reaches the threshold."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ibcl.conformal import (
    CLASS_SCORES,
    component_intervals,
    component_scores,
    cumulative_scores,
    disjoint,
    hull,
    inside,
    label_scores,
    label_sets,
    prediction_set,
    residual_intervals,
    residual_scores,
    smaller_class_score,
    union_set,
)

numbers = st.floats(-5, 5)
positive = st.floats(0.1, 5)
masses = arrays(np.float64, (3, 5), elements=st.floats(0.01, 1))


@given(arrays(np.float64, 3, elements=numbers), arrays(np.float64, 3, elements=positive), numbers)
def test_an_interval_holds_what_its_score_says(mean: np.ndarray, std: np.ndarray, y: float) -> None:
    scores = residual_scores(y, mean, std)
    for tau in (-2.0, float(scores[0]), 0.0):
        held = inside(residual_intervals(mean, std, tau), np.full(3, y))
        clear = np.abs(scores - tau) > 1e-4
        assert (held == (scores >= tau))[clear].all()
        assert held[scores == tau].all()


@given(masses, masses, masses, numbers, st.floats(-10, 3))
def test_a_union_of_intervals_holds_what_its_score_says(
    shares: np.ndarray, means: np.ndarray, stds: np.ndarray, y: float, tau: float
) -> None:
    logs = np.log(shares / shares.sum(1, keepdims=True))
    scores = component_scores(np.full(3, y), logs, 5 * means, stds)
    intervals = component_intervals(logs, 5 * means, stds, tau)
    clear = np.abs(scores - tau) > 1e-4
    assert (inside(intervals, np.full(3, y)) == (scores >= tau))[clear].all()
    # Whatever is in the union is in its parts that do not meet, and in the hull.
    for row, parts, (lower, upper) in zip(
        intervals, disjoint(intervals), hull(intervals), strict=True
    ):
        held = bool(inside(row[None], [y])[0])
        assert held == any(a <= y <= b for a, b in parts)
        assert not held or lower <= y <= upper
        assert all(left[1] < right[0] for left, right in pairwise(parts))
        assert bool(parts) == bool(np.isfinite(lower))


def test_every_task_may_have_a_threshold_of_its_own() -> None:
    intervals = component_intervals(np.zeros(2), [0.0, 10.0], [1.0, 1.0], [-2.0, np.inf])
    np.testing.assert_allclose(intervals[0], [-2, 2], atol=1e-5)
    assert np.isnan(intervals[1]).all()
    assert disjoint(component_intervals(np.zeros(1), [0.0], [1.0], 0.5)[None]) == [[]]


@given(masses)
def test_cumulative_scores_are_the_mass_of_better_classes(mass: np.ndarray) -> None:
    p = np.round(mass / mass.sum(1, keepdims=True), 6)
    expected = -np.where(p[:, None, :] > p[:, :, None], p[:, None, :], 0).sum(2)
    np.testing.assert_allclose(cumulative_scores(p), expected, atol=1e-6)
    assert prediction_set(cumulative_scores(p), 0.0)[np.arange(3), p.argmax(1)].all()


def test_probabilities_that_rounding_parts_are_tied() -> None:
    third = np.array([1 / 3, 1 / 3 + 1e-12, 1 / 3 - 1e-12])
    assert (cumulative_scores(third) == 0).all()


@given(masses, st.permutations(range(5)))
def test_scores_follow_their_classes(mass: np.ndarray, order: list[int]) -> None:
    p = mass / mass.sum(1, keepdims=True)
    for score in CLASS_SCORES.values():
        np.testing.assert_allclose(score(p)[:, order], score(p[:, order]), atol=1e-6)


def test_rounding_in_single_precision_loses_no_answer() -> None:
    scores = np.random.default_rng(0).random((1000, 1))
    shaken = (scores * (1 + 3e-8)).astype(np.float32)
    for table in (scores, np.log(scores)):
        noisy = shaken if table is scores else np.log(shaken)
        assert all(prediction_set(row, tau)[0] for row, tau in zip(noisy, table[:, 0], strict=True))


def test_a_union_holds_what_any_task_holds_for_every_preference() -> None:
    rng = np.random.default_rng(0)
    scores, taus = rng.random((7, 3, 4)), rng.random((5, 3))
    taus[2, 1] = np.inf
    expected = [(scores >= own[:, None]).any(1) for own in taus]
    assert (union_set(scores, taus) == np.stack(expected)).all()
    assert (union_set(scores, taus[0]) == expected[0]).all()


def test_sets_of_many_preferences_have_a_threshold_each() -> None:
    scores = np.random.default_rng(0).random((2, 6, 3))
    both = prediction_set(scores, [0.2, 0.7])
    assert (both[0] == (scores[0] >= 0.2)).all()
    assert (both[1] == (scores[1] >= 0.7)).all()


def test_scores_of_the_right_answers() -> None:
    scores = np.arange(24.0).reshape(2, 4, 3)
    assert label_scores(scores, [0, 2, 1, 0]).tolist() == [[0, 5, 7, 9], [12, 17, 19, 21]]
    with pytest.raises(ValueError, match="one label per sample"):
        label_scores(scores, [0, 1])
    with pytest.raises(ValueError, match="numbers of the 3 classes"):
        label_scores(scores, [0, 1, 2, 3])


def test_the_smaller_score_is_the_one_with_smaller_sets() -> None:
    """One task is easy and one is a guess: only there the cumulative score spends its classes."""
    rng = np.random.default_rng(3)
    p = rng.dirichlet(np.full(20, 0.15), size=3000)
    y = (p.cumsum(1) > rng.random((3000, 1))).argmax(1)
    task = np.repeat([0, 1], 1500)
    chosen = smaller_class_score(p, y, task, [0.5, 0.5], 0.05)
    sizes = {}
    for name, score in CLASS_SCORES.items():
        tau = np.sort(label_scores(score(p), y))[150]
        sizes[name] = prediction_set(score(p), tau).sum()
    assert chosen == min(sizes, key=lambda name: sizes[name]) == "probability"


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="do not fit 3 classes"):
        label_sets([[True, False]], ["a", "b", "c"])
    with pytest.raises(ValueError, match="finite and positive"):
        residual_scores([0.0], [0.0], [0.0])
    with pytest.raises(ValueError, match="threshold is not a number"):
        prediction_set([[0.5]], np.nan)
