"""Thresholds: against their definition, against split conformal prediction, and bad input."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from ibcl.conformal import (
    GUARANTEES,
    joint_threshold,
    mixture_threshold,
    smallest_alpha,
    task_thresholds,
    uniform_thresholds,
    union_thresholds,
)


def split_conformal(scores: np.ndarray, alpha: float) -> float:
    """The usual quantile of nonconformity, of rank ⌈(n + 1)(1 − α)⌉."""
    rank = int(np.ceil((len(scores) + 1) * (1 - alpha) - 1e-9))
    return -float(np.sort(-scores)[rank - 1])


@pytest.mark.parametrize("n", [19, 20, 99, 100, 257])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 1 / 3])
def test_one_task_is_split_conformal_prediction(n: int, alpha: float) -> None:
    scores = np.random.default_rng(n).random(n)
    zeros = np.zeros(n, int)
    expected = split_conformal(scores, alpha)
    assert mixture_threshold(scores, zeros, [1.0], alpha) == expected
    assert task_thresholds(scores, zeros, 1, alpha) == [expected]
    assert union_thresholds(scores, zeros, [1.0], alpha) == [expected]


def test_a_vertex_is_its_task_alone() -> None:
    rng = np.random.default_rng(0)
    scores, task = rng.random(150), np.repeat([0, 1, 2], 50)
    for k, vertex in enumerate(np.eye(3)):
        alone = split_conformal(scores[task == k], 0.1)
        assert mixture_threshold(scores, task, vertex, 0.1) == alone
        expected = np.where(vertex > 0, alone, np.inf)
        assert (union_thresholds(scores, task, vertex, 0.1) == expected).all()


def test_a_task_without_weight_needs_no_samples() -> None:
    scores = np.arange(50.0)
    alone = mixture_threshold(scores, np.zeros(50, int), [1.0], 0.1)
    assert mixture_threshold(scores, np.zeros(50, int), [1.0, 0.0], 0.1) == alone


def test_near_a_vertex_the_threshold_is_the_vertex_s() -> None:
    scores, task = np.arange(200.0), np.repeat([0, 1], 100)
    near = mixture_threshold(scores, task, [1 - 1e-9, 1e-9], 0.105)
    assert near == mixture_threshold(scores, task, [1.0, 0.0], 0.105)


samples = st.integers(1, 4).flatmap(
    lambda tasks: st.tuples(
        st.lists(st.tuples(st.integers(0, tasks - 1), st.integers(-3, 3)), min_size=1, max_size=60),
        st.lists(st.integers(0, 5), min_size=tasks, max_size=tasks).filter(any),
        st.floats(0.02, 0.9),
    )
)


@settings(deadline=None)
@given(samples)
def test_it_is_the_largest_that_one_of_the_corrections_allows(drawn: Any) -> None:
    pairs, parts, alpha = drawn
    task, scores = np.array(pairs).T
    w = np.array(parts) / sum(parts)
    counts = np.bincount(task, minlength=len(w))
    if (counts[w > 0] == 0).any() or alpha < smallest_alpha(counts, w) + 1e-9:
        with pytest.raises(ValueError, match=r"calibrat"):
            mixture_threshold(scores, task, w, min(alpha, smallest_alpha(counts, w) - 1e-6))
        return
    shared = (w / np.maximum(counts, 1), alpha - (w / np.maximum(counts, 1)).max())
    each = (w / (counts + 1), alpha - (w / (counts + 1)).sum())
    largest = []
    for v, beta in (shared, each):
        allowed = [
            t
            for t in (*np.unique(scores), np.inf)
            if (v * [(scores[task == k] < t).sum() for k in range(len(w))]).sum() <= beta + 1e-12
        ]
        largest.append(max(allowed, default=-np.inf))
    assert mixture_threshold(scores, task, w, alpha) in largest


@settings(deadline=None, max_examples=50)
@given(samples, st.floats(0.1, 10), st.floats(-5, 5))
def test_it_moves_with_the_scores_and_not_with_their_order(
    drawn: Any, scale: float, shift: float
) -> None:
    pairs, parts, _ = drawn
    task, scores = np.array(pairs).T
    w = np.array(parts) / sum(parts)
    counts = np.bincount(task, minlength=len(w))
    least = smallest_alpha(counts, w)
    if least >= 0.98:
        return
    alpha = least + 0.01
    tau = mixture_threshold(scores, task, w, alpha)
    assert mixture_threshold(scores[::-1], task[::-1], w, alpha) == tau
    assert mixture_threshold(scores * scale + shift, task, w, alpha) == tau * scale + shift


def test_many_preferences_are_answered_as_each_alone() -> None:
    rng = np.random.default_rng(1)
    task = np.repeat(np.arange(4), [30, 60, 25, 80])
    scores, w = rng.random((6, 195)), rng.dirichlet(np.ones(4), size=6)
    w[0], w[1] = [1, 0, 0, 0], [0.5, 0, 0, 0.5]
    for threshold in (joint_threshold, union_thresholds):
        for guarantee in GUARANTEES:
            together = threshold(scores, task, w, 0.2, guarantee)
            alone = [
                threshold(own, task, weights, 0.2, guarantee)
                for own, weights in zip(scores, w, strict=True)
            ]
            np.testing.assert_array_equal(together, np.stack(alone))
    # One table of scores serves all preferences.
    shared = mixture_threshold(scores[0], task, w, 0.15)
    assert shared.tolist() == [float(mixture_threshold(scores[0], task, v, 0.15)) for v in w]


def test_more_is_asked_by_each_guarantee_than_by_the_one_before() -> None:
    rng = np.random.default_rng(2)
    task = np.repeat(np.arange(3), 200)
    for _ in range(20):
        scores, w = rng.random(600), rng.dirichlet(np.ones(3))
        mixture, each, uniform = (joint_threshold(scores, task, w, 0.1, g) for g in GUARANTEES)
        assert mixture >= each > uniform


@pytest.mark.parametrize(("n", "alpha", "delta"), [(60, 0.1, 0.05), (200, 0.05, 0.1)])
def test_uniform_misses_are_the_most_that_the_binomial_allows(
    n: int, alpha: float, delta: float
) -> None:
    task = np.repeat([0, 1], n)
    missed = int(uniform_thresholds(np.tile(np.arange(n), 2), task, 2, alpha, delta)[0])
    assert binom.cdf(missed, n, alpha) <= delta / 2 < binom.cdf(missed + 1, n, alpha)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_the_smallest_alpha_is_where_the_error_begins(guarantee: Any) -> None:
    counts, w = np.array([20, 35]), np.array([0.6, 0.4])
    scores, task = np.arange(55.0), np.repeat([0, 1], counts)
    least = smallest_alpha(counts, w, guarantee)
    joint_threshold(scores, task, w, least + 1e-9, guarantee)
    with pytest.raises(ValueError, match=r"^20 calibration samples of the task 'a' are too few"):
        joint_threshold(scores, task, w, least - 1e-6, guarantee, names=["a", "b"])


def test_twenty_samples_are_too_few_for_one_in_a_hundred() -> None:
    sentence = (
        "20 calibration samples of the task 'ward' are too few for alpha=0.01 with "
        "guarantee='mixture'; calibrate with more, or ask for an alpha of at least 0.0477."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        mixture_threshold(np.arange(20), np.zeros(20, int), [1.0], 0.01, names=["ward"])


GOOD: dict[str, Any] = {
    "scores": np.arange(40.0),
    "task": np.repeat([0, 1], 20),
    "weights": [0.5, 0.5],
    "alpha": 0.2,
}
BAD = {
    "alpha of 0": ({"alpha": 0.0}, "alpha must lie between"),
    "alpha of 1": ({"alpha": 1}, "alpha must lie between"),
    "alpha is no number": ({"alpha": np.nan}, "alpha must lie between"),
    "alpha is a text": ({"alpha": "0.1"}, "alpha must lie between"),
    "alpha is None": ({"alpha": None}, "alpha must lie between"),
    "negative weight": ({"weights": [1.5, -0.5]}, "must not be negative"),
    "weights off the simplex": ({"weights": [0.5, 0.4]}, "must sum to 1"),
    "no tasks": ({"weights": []}, "must sum to 1"),
    "too many tasks": ({"task": np.repeat([0, 2], 20)}, "numbered from 0 to 1"),
    "negative task": ({"task": np.repeat([0, -1], 20)}, "numbered from 0 to 1"),
    "tasks as shares": ({"task": np.repeat([0.0, 1.0], 20)}, "whole number"),
    "one task too few": ({"task": np.repeat([0, 1], 19)}, "whole number"),
    "score is no number": ({"scores": np.full(40, np.nan)}, "not a number"),
    "weight without samples": ({"task": np.zeros(40, int)}, "'1' has weight but no calibration"),
    "unknown guarantee": ({"guarantee": "always"}, "must be one of mixture, task, uniform"),
    "delta of 1": ({"guarantee": "uniform", "delta": 1.0}, "delta must lie between"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_in_one_sentence(case: str) -> None:
    change, sentence = BAD[case]
    joint_threshold(**GOOD)
    for threshold in (joint_threshold, union_thresholds):
        with pytest.raises(ValueError, match=sentence):
            threshold(**(GOOD | change))


def test_answers_that_the_model_calls_impossible_keep_everything_in_the_set() -> None:
    scores = np.where(np.arange(50) < 20, -np.inf, 0.0)
    assert mixture_threshold(scores, np.zeros(50, int), [1.0], 0.1) == -np.inf
    assert union_thresholds(scores, np.zeros(50, int), [1.0, 0.0], 0.1).tolist() == [
        -np.inf,
        np.inf,
    ]
