"""Coverage under attack: whatever is wrong with the model, the sets hold what they promise.

Calibration samples and one input to come are drawn together, again and again, from known truth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import binomtest

from conformal.worlds import DRAWS, FALSE_ALARM, World, assert_covers, world
from ibcl.conformal import (
    ClassScore,
    Guarantee,
    inside,
    joint_threshold,
    prediction_set,
    residual_intervals,
    residual_scores,
    smallest_alpha,
    union_set,
    union_thresholds,
)

Array = NDArray[np.float64]


def wrong_experts(right: World) -> World:
    """Every expert believes another class wherever it is sure."""
    return replace(right, experts=np.roll(right.experts, 1, axis=2))


def wrong_gates(right: World) -> World:
    """Every input is taken for another task's."""
    return replace(right, gate=np.roll(right.gate, 1, axis=0)[:, ::-1])


def tied(right: World) -> World:
    """Scores of one digit."""
    return replace(right, digits=1)


def constant(right: World) -> World:
    """A model that knows nothing: all scores are equal."""
    return replace(right, digits=0, experts=np.full_like(right.experts, 1 / 3))


def discrete(right: World) -> World:
    """Three inputs in all."""
    return world(7, right.tasks, inputs=3)


def missing_class(right: World) -> World:
    """No expert has ever seen the last class, a tenth of the answers."""
    seen = right.answers[..., :2] / right.answers[..., :2].sum(-1, keepdims=True)
    unseen = np.ones_like(seen[..., :1])
    return replace(
        right,
        answers=np.concatenate([0.9 * seen, 0.1 * unseen], axis=2),
        experts=np.concatenate([seen, 0 * unseen], axis=2),
    )


ATTACKS: dict[str, Callable[[World], World]] = {
    "right model": lambda right: right,
    "wrong experts": wrong_experts,
    "wrong gates": wrong_gates,
    "ties": tied,
    "all tied": constant,
    "discrete features": discrete,
    "class missing": missing_class,
}
PREFERENCES = {
    "inside": np.array([0.5, 0.3, 0.2]),
    "near a vertex": np.array([0.98, 0.01, 0.01]),
    "on an edge": np.array([0.35, 0.65, 0.0]),
    "vertex": np.array([0.0, 0.0, 1.0]),
}
FEW, MANY = np.array([20, 20, 20]), np.array([45, 90, 60])


def covered(
    truth: World,
    stated: Array,
    counts: NDArray[np.int64],
    alpha: float,
    guarantee: Guarantee = "mixture",
    rows: str = "kept",
    score: ClassScore = "probability",
    inputs_from: Array | None = None,
    seed: int = 0,
) -> NDArray[np.bool_]:
    """Whether the set held the answer, for every draw of calibration samples and one input."""
    rng = np.random.default_rng(seed)
    task = np.repeat(np.arange(truth.tasks), counts)
    calibration = truth.draws(counts, rng)
    _, cell = truth.inputs_to_come(stated if inputs_from is None else inputs_from, rng)
    if rows == "kept":
        # In every task, and for all preferences at once, needs a score that knows no preference.
        served = stated if guarantee == "mixture" else np.full(truth.tasks, 1 / truth.tasks)
        scores = truth.served_scores(served, score)
        tau = joint_threshold(scores[calibration], task, stated, alpha, guarantee)
        return prediction_set(scores[cell][:, None, None], tau).ravel()
    own = truth.own_scores()
    taus = union_thresholds(own[task, calibration], task, stated, alpha, guarantee)
    return union_set(own[:, cell].T[:, None, :, None], taus).ravel()


@pytest.mark.parametrize("rows", ["kept", "scores"])
@pytest.mark.parametrize("preference", PREFERENCES)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mixture_is_covered(attack: str, preference: str, rows: str) -> None:
    truth, weights = ATTACKS[attack](world(0, 3)), PREFERENCES[preference]
    assert_covers(covered(truth, weights, FEW, 0.1, rows=rows), 0.1)


@pytest.mark.parametrize("rows", ["kept", "scores"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mixture_of_unequal_numbers_of_samples_is_covered(attack: str, rows: str) -> None:
    truth = ATTACKS[attack](world(1, 3))
    assert_covers(covered(truth, PREFERENCES["inside"], MANY, 0.05, rows=rows), 0.05)


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_mixture_is_covered_by_cumulative_scores(attack: str) -> None:
    truth = ATTACKS[attack](world(1, 3))
    assert_covers(covered(truth, PREFERENCES["inside"], FEW, 0.1, score="cumulative"), 0.1)


@pytest.mark.parametrize("rows", ["kept", "scores"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_task_is_covered_and_so_is_a_wrong_preference(attack: str, rows: str) -> None:
    truth, stated = ATTACKS[attack](world(2, 3)), PREFERENCES["near a vertex"]
    for truly in (np.eye(3)[1], np.array([0.0, 0.2, 0.8])):
        hits = covered(truth, stated, FEW, 0.1, "task", rows, inputs_from=truly)
        assert_covers(hits, 0.1)


@pytest.mark.parametrize("rows", ["kept", "scores"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_all_preferences_are_covered_at_once_by_most_calibrations(attack: str, rows: str) -> None:
    """The worst preference is chosen after looking at the calibration data, and at the truth."""
    alpha, delta = 0.1, 0.05
    truth = ATTACKS[attack](world(3, 3))
    task = np.repeat(np.arange(3), MANY)
    calibration = truth.draws(MANY, np.random.default_rng(0))
    if rows == "kept":
        scores = np.broadcast_to(truth.served_scores(np.full(3, 1 / 3)), truth.cells.shape)
    else:
        scores = truth.own_scores()
    drawn = scores[task, calibration]
    taus = union_thresholds(drawn, task, np.full(3, 1 / 3), alpha, "uniform", delta)
    if rows == "kept":
        taus = np.broadcast_to(
            joint_threshold(drawn, task, np.full(3, 1 / 3), alpha, "uniform", delta)[:, None],
            taus.shape,
        )
    misses = np.empty((DRAWS, 3))
    for k in range(3):
        order = np.argsort(scores[k])
        below = np.concatenate([[0.0], truth.cells[k][order].cumsum()])
        misses[:, k] = below[np.searchsorted(scores[k][order], taus[:, k])]
    assert_covers(misses.max(1) <= alpha + 1e-9, delta)


@pytest.mark.parametrize("rows", ["kept", "scores"])
def test_fifty_tasks_of_twenty_samples_cover_at_a_level_no_task_could_prove(rows: str) -> None:
    counts = np.full(50, 20)
    truth = world(4, 50, inputs=40)
    rng = np.random.default_rng(5)
    even, uneven = np.full(50, 0.02), rng.dirichlet(np.full(50, 0.3))
    assert smallest_alpha(counts, even) < 0.01 < smallest_alpha(counts, guarantee="task")
    if rows == "kept":
        assert_covers(covered(truth, even, counts, 0.01, rows=rows), 0.01)
    else:
        assert_covers(covered(wrong_experts(truth), uneven, counts, 0.05, rows=rows), 0.05)


def test_the_simulation_would_find_a_threshold_that_is_too_high() -> None:
    """Without correction twenty samples cover too little, which the exact test sees."""
    truth, weights = world(0, 3), PREFERENCES["vertex"]
    rng = np.random.default_rng(0)
    scores = truth.served_scores(weights)
    calibration = truth.draws(FEW, rng)
    _, cell = truth.inputs_to_come(weights, rng)
    drawn, mass = scores[calibration], np.repeat(weights / FEW, FEW)
    order = np.argsort(drawn, axis=1)
    first = (mass[order].cumsum(1) > 0.1).argmax(1)
    tau = np.take_along_axis(drawn, np.take_along_axis(order, first[:, None], 1), 1)[:, 0]
    hits = int((scores[cell] >= tau).sum())
    assert binomtest(hits, DRAWS, 0.9, alternative="less").pvalue < FALSE_ALARM


def test_intervals_cover_values_of_tasks_whose_noise_the_model_has_wrong() -> None:
    rng = np.random.default_rng(6)
    counts, weights, alpha = np.array([40, 25]), np.array([0.7, 0.3]), 0.1
    task = np.repeat([0, 1], counts)
    come = (rng.random(DRAWS) < weights[1]).astype(int)

    def drawn(k: NDArray[np.int64], shape: tuple[int, ...]) -> tuple[Array, Array]:
        x = rng.normal(np.where(k == 0, -1.0, 2.0), 1.0, size=shape)
        return x, np.where(k == 0, x, -x) + rng.standard_t(2, size=shape) * np.where(k == 0, 1, 5)

    x, y = drawn(task, (DRAWS, len(task)))
    tau = joint_threshold(residual_scores(y, 0.5 * x, 1.0 + x**2), task, weights, alpha)
    x_come, y_come = drawn(come, (DRAWS,))
    intervals = residual_intervals(0.5 * x_come, 1.0 + x_come**2, tau)
    assert_covers(inside(intervals, y_come), alpha)
