"""What sets are measured on: tasks to learn, rows to calibrate with, rows to test on.

Rows of the parts for validation and for testing are put together and divided at random, so that
those to calibrate with and those to test on are exchangeable, also where a benchmark's own parts
are from different times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcl
from ibcl.conformal import CalibrationRows
from ibcl.experiments import benchmarks
from ibcl.experiments.tables.catalogue import TABLES

CALIBRATION, TEST = 200, 300
"""Rows of a task that calibrate, and that test, at most; of fewer, half calibrate."""
LEARNT = 2000
"""At most so many rows of a task are learnt from; of a table, half as many."""
BENCHMARKS = ("20news", "cifar100", "tinyimagenet", "digits", "celeba-balanced")
ALL_CLASSES = "digits, all classes"
"""Two digits a task, and answers among all ten."""
REGRESSIONS = ("wages by region", "diamonds")
DATA = (*BENCHMARKS, ALL_CLASSES, *REGRESSIONS)
# What images are seen through; the others have one of their own.
BACKBONES = dict.fromkeys(("cifar100", "tinyimagenet", "celeba-balanced"), "efficientnet-lite0")

Part = tuple[Any, NDArray[Any]]


@dataclass(frozen=True)
class Measured:
    """A learner that has learnt all tasks, and rows of each that it has not."""

    learner: ibcl.IBCL
    calibration: tuple[Part, ...]
    test: tuple[Part, ...]

    def calibrated(self, rows: CalibrationRows) -> ibcl.IBCL:
        """Return the learner with its tasks calibrated, keeping rows or scores only."""
        state = self.learner.state
        assert state.settled is not None
        given, settled = (replace(s, calibration_rows=rows) for s in (state.given, state.settled))
        learner = ibcl.IBCL.from_state(replace(state, given=given, settled=settled))
        for task, (x, y) in zip(learner.tasks, self.calibration, strict=True):
            learner.calibrate(task, x, y)
        return learner


def load(name: str, seed: int) -> Measured:
    """Learn a benchmark, or a table, with the library's defaults."""
    if name == ALL_CLASSES:
        return _all_classes(seed)
    return _table(name, seed) if name in REGRESSIONS else _benchmark(name, seed)


def divided(n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide n rows at random into those to calibrate with and those to test on.

    Examples
    --------
    >>> [len(rows) for rows in divided(1000, 0)], [len(rows) for rows in divided(100, 0)]
    ([200, 300], [50, 50])
    """
    order = np.random.default_rng(seed).permutation(n)
    calibration = min(CALIBRATION, n // 2)
    return order[:calibration], order[calibration:][:TEST]


def _benchmark(name: str, seed: int) -> Measured:
    benchmark = benchmarks.load(name, backbone=BACKBONES.get(name), seed=seed)
    learner = ibcl.IBCL(ibcl.networks.linear(benchmark.features), seed=seed)
    calibration, test = [], []
    for number, task in enumerate(benchmark):
        learner.learn(task.train.x[:LEARNT], task.train.y[:LEARNT], task=task.name)
        x = np.concatenate([task.validation.x, task.test.x])
        y = np.concatenate([task.validation.y, task.test.y])
        held, tested = divided(len(y), 1000 * seed + number)
        calibration.append((x[held], y[held]))
        test.append((x[tested], y[tested]))
    return Measured(learner, tuple(calibration), tuple(test))


def _all_classes(seed: int) -> Measured:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    learner = ibcl.IBCL(ibcl.networks.linear(64, 10), seed=seed)
    calibration, test = [], []
    for first in range(0, 10, 2):
        rows = np.flatnonzero((y == first) | (y == first + 1))
        np.random.default_rng(1000 * seed + first).shuffle(rows)
        learnt, rest = rows[: len(rows) // 2], rows[len(rows) // 2 :]
        learner.learn(x[learnt] / 16, y[learnt], task=f"{first} or {first + 1}")
        held, tested = (rest[part] for part in divided(len(rest), seed))
        calibration.append((x[held] / 16, y[held]))
        test.append((x[tested] / 16, y[tested]))
    return Measured(learner, tuple(calibration), tuple(test))


def _table(name: str, seed: int) -> Measured:
    table = TABLES[name]()
    estimator = ibcl.IBCLRegressor(random_state=seed)
    calibration: list[Part] = []
    test: list[Part] = []
    for number, task in enumerate(table.tasks):
        rows = np.flatnonzero(table.task == task)
        np.random.default_rng(1000 * seed + number).shuffle(rows)
        rest = min(CALIBRATION + TEST, len(rows) // 2)
        learnt = table.take(rows[rest:][: LEARNT // 2])
        estimator.partial_fit(learnt.x, learnt.y, task=task)
        held, tested = divided(rest, seed)
        for part, positions in ((calibration, held), (test, tested)):
            found = table.take(rows[positions])
            part.append((found.x, found.y.to_numpy()))
    return Measured(estimator.learner_, tuple(calibration), tuple(test))
