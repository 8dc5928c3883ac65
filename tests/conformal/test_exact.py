"""The strict guarantee of a mixture as a theorem: all arrangements of a few scores, no chance.

Given the values that a task's calibration samples and its sample to come have together, each of
them is equally probably the one to come. So the probability of a miss is a finite sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.conformal import mixture_threshold, smallest_alpha

Threshold = Callable[[np.ndarray, np.ndarray, list[Fraction], float], np.ndarray]


def proven(scores: np.ndarray, task: np.ndarray, w: list[Fraction], alpha: float) -> np.ndarray:
    return mixture_threshold(scores, task, [float(weight) for weight in w], alpha)


def slack_of_one_task(
    scores: np.ndarray, task: np.ndarray, w: list[Fraction], alpha: float
) -> np.ndarray:
    """Σ_k w_k m_k / (n_k + 1) ≤ α − max_k w_k / (n_k + 1): near enough for many, yet not strict."""
    v = np.array([float(w[k]) / (1 + (task == k).sum()) for k in range(len(w))])
    order = np.argsort(scores, axis=1)
    first = (v[task][order].cumsum(1) > alpha - v.max() + 1e-12).argmax(1)
    return np.take_along_axis(scores, np.take_along_axis(order, first[:, None], 1), 1)[:, 0]


def worst_miss(
    bags: list[np.ndarray], w: list[Fraction], alpha: float, threshold: Threshold
) -> Fraction:
    """Σ_k w_k P(the one to come of task k lies below τ), over which of each bag is to come."""
    choices = list(product(*(range(len(bag)) for bag in bags)))
    kept = np.array(
        [
            np.concatenate([np.delete(bag, i) for bag, i in zip(bags, choice, strict=True)])
            for choice in choices
        ]
    )
    task = np.repeat(np.arange(len(bags)), [len(bag) - 1 for bag in bags])
    tau = threshold(kept, task, w, alpha)
    missed = Fraction(0)
    for number, choice in enumerate(choices):
        for weight, bag, i in zip(w, bags, choice, strict=True):
            missed += weight * Fraction(int(bag[i] < tau[number]), len(choices))
    return missed


def arrangements(sizes: tuple[int, ...]) -> Iterator[list[np.ndarray]]:
    """All ways in which the values of the tasks can lie among each other."""

    def split(values: tuple[int, ...], rest: tuple[int, ...]) -> Iterator[list[np.ndarray]]:
        if not rest:
            yield []
            return
        for own in combinations(values, rest[0]):
            others = tuple(value for value in values if value not in own)
            for following in split(others, rest[1:]):
                yield [np.array(own, dtype=float), *following]

    yield from split(tuple(range(sum(sizes))), sizes)


CASES = [
    ((3, 4), [Fraction(1, 2), Fraction(1, 2)]),
    ((3, 4), [Fraction(9, 10), Fraction(1, 10)]),
    ((2, 5), [Fraction(1, 5), Fraction(4, 5)]),
    ((2, 2, 3), [Fraction(1, 3), Fraction(1, 3), Fraction(1, 3)]),
    ((3, 2, 2), [Fraction(1, 2), Fraction(1, 2), Fraction(0)]),
]


@pytest.mark.parametrize(("sizes", "w"), CASES)
def test_no_arrangement_of_scores_is_missed_more_often_than_alpha(
    sizes: tuple[int, ...], w: list[Fraction]
) -> None:
    least = smallest_alpha([size - 1 for size in sizes], [float(weight) for weight in w])
    for alpha in (least + 1e-9, *(a for a in (0.3, 0.4, 0.5, 0.7) if a > least)):
        worst = max(worst_miss(bags, w, alpha, proven) for bags in arrangements(sizes))
        assert float(worst) <= alpha + 1e-12


def test_the_slack_of_one_task_alone_is_not_strict() -> None:
    """Why the correction is what it is: the smaller one misses 1/3 where 1/4 was promised."""
    w = [Fraction(1, 2), Fraction(1, 2)]
    misses = [worst_miss(bags, w, 0.25, slack_of_one_task) for bags in arrangements((2, 2))]
    assert max(misses) > Fraction(1, 4)
    assert sum(misses) / len(misses) == Fraction(1, 3)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nor_is_any_with_ties(data: st.DataObject) -> None:
    tasks = data.draw(st.integers(1, 3))
    bags = [
        np.array(data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=6)), dtype=float)
        for _ in range(tasks)
    ]
    parts = data.draw(st.lists(st.integers(0, 9), min_size=tasks, max_size=tasks).filter(any))
    w = [Fraction(part, sum(parts)) for part in parts]
    least = smallest_alpha([len(bag) - 1 for bag in bags], [float(weight) for weight in w])
    alpha = data.draw(st.floats(min(least + 1e-9, 0.999), 0.999))
    if alpha >= least:
        assert float(worst_miss(bags, w, alpha, proven)) <= alpha + 1e-12
