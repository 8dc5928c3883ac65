r"""Intervals over seeds and test examples: a bootstrap over seeds and over test examples.

An interval over seeds says how much a result depends on starts, held-out data and preferences. It
does not say how much it depends on which examples were in the test set, which all seeds may share:
two images more or less can be the whole difference between two methods. So both are resampled:

1. every test example of a task gets a weight, how often it is drawn when as many are drawn
   with replacement. Runs on the same examples, of whatever seed or method, get the same weights,
   so that differences between methods are paired. A task's examples are identified by their
   labels: those of a fixed test set are the same for every seed, whatever features they have, and
   those of examples held out anew are not;
2. the seeds are drawn with replacement.

With V_s the value of seed s under the resampled examples and V̄ their mean, a replicate is
V̄ + √(S / (S − 1)) · (mean of the drawn V_s − V̄): the factor undoes that a bootstrap of S values
is too narrow by √((S − 1) / S). An interval is from the 2.5 % to the 97.5 % quantile of replicates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

REPLICATES = 1000

CONTENDER = ["benchmark", "preferences", "method", "memory", "label"]
"""What tells one contender's runs from another's; the seeds of each are averaged."""


class Bounds(NamedTuple):
    """A value, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def replicates(table: pd.DataFrame, number: int = REPLICATES) -> pd.DataFrame:
    """Average per-task accuracy of every contender's mean models, resampled.

    After the last task, in the benchmark's own metric, as in
    `ibcl.experiments.evaluation.metrics.average_per_task`. One row per contender, with an array of
    replicates in the column ``replicates`` and the value itself in ``value``. Runs from before test
    answers were kept are left out.
    """
    columns = [*CONTENDER, "value", "replicates"]
    if "right" not in table:
        return pd.DataFrame(columns=columns)
    kept = table[(table["selection"] == "mean") & (table["right"].map(len) > 0)]
    scored = _scored_runs(kept, number)
    rows = []
    for key, runs in kept.groupby(CONTENDER, sort=False):
        present = sorted(runs["seed"].unique())
        by_seed = np.stack([scored[*key, seed] for seed in present])
        rows.append([*key, float(by_seed[:, 0].mean()), _over_seeds(by_seed[:, 1:], present)])
    return pd.DataFrame(rows, columns=columns)


def bounds(value: float, found: Numbers) -> Bounds:
    """Return the 95 % interval of replicates.

    Examples
    --------
    >>> bounds(0.5, np.linspace(0, 1, 1001))
    Bounds(value=0.5, low=0.025, high=0.975)
    """
    low, high = np.quantile(found, [0.025, 0.975])
    return Bounds(value, float(low), float(high))


def intervals(table: pd.DataFrame, number: int = REPLICATES) -> pd.DataFrame:
    """Every contender's value with its interval: columns ``value``, ``low`` and ``high``."""
    found = replicates(table, number)
    rows = [
        [*row[CONTENDER], *bounds(row["value"], row["replicates"])] for _, row in found.iterrows()
    ]
    return pd.DataFrame(rows, columns=[*CONTENDER, *Bounds._fields])


def differences(
    table: pd.DataFrame, reference: str, label: str = "", number: int = REPLICATES
) -> pd.DataFrame:
    """Every contender's value less the reference's on the same resampled seeds and examples."""
    found = replicates(table, number)
    rows = []
    for (_, _), part in found.groupby(["benchmark", "preferences"], sort=False):
        base = part[(part["method"] == reference) & (part["label"] == label)]
        if base.empty:
            continue
        base_row = base.sort_values("memory").iloc[0]
        for _, row in part.iterrows():
            less = bounds(
                row["value"] - base_row["value"], row["replicates"] - base_row["replicates"]
            )
            rows.append([*row[CONTENDER], *less])
    return pd.DataFrame(rows, columns=[*CONTENDER, *Bounds._fields])


def worth_of_preference(
    table: pd.DataFrame, uniform_label: str, number: int = REPLICATES
) -> pd.DataFrame:
    """What a preference is worth: a method's value with own preferences less with the uniform one.

    Both are scored with the users' own weights; methods without both runs are left out.
    """
    found = replicates(table, number)
    same = ["benchmark", "preferences", "method", "memory"]
    own, uniform = (found[found["label"] == label] for label in ("", uniform_label))
    pairs = own.merge(uniform, on=same, suffixes=("", "_uniform"))
    rows = [
        [
            *row[same],
            *bounds(
                row["value"] - row["value_uniform"], row["replicates"] - row["replicates_uniform"]
            ),
        ]
        for _, row in pairs.iterrows()
    ]
    return pd.DataFrame(rows, columns=[*same, *Bounds._fields])


def _scored_runs(table: pd.DataFrame, number: int) -> dict[Hashable, Numbers]:
    """Every run's value and then its replicates, averaged over tasks.

    All runs on the same examples are scored together, by one matrix product.
    """
    runs: dict[Hashable, list[Numbers]] = {}
    asked: dict[tuple[bytes, bytes, bool], list[tuple[Hashable, Numbers]]] = {}
    for key, task in table.groupby([*CONTENDER, "seed", "task_tested"], sort=False):
        *run, tested = key
        labels = task["labels"].iloc[0]
        right = np.stack([unpacked(bits, len(labels)) for bits in task["right"]])
        weights = task["weight"].to_numpy(dtype=float)
        shares = weights / weights.sum() if weights.sum() > 0 else np.full(len(right), 1.0)
        name = b" ".join([str(run[0]).encode(), str(tested).encode(), labels])
        balanced = str(task["metric"].iloc[0]) == "balanced_accuracy"
        answers = shares @ right / shares.sum()
        asked.setdefault((name, labels, balanced), []).append((tuple(run), answers))
    for (name, truth, balanced), found in asked.items():
        labels = np.frombuffer(truth, dtype=np.uint8)
        # The value itself is that of every example drawn once.
        draws = np.vstack([np.ones((1, len(labels))), example_weights(name, len(labels), number)])
        # The same answers have the same score to the last bit, wherever they stand in a product.
        distinct, place = np.unique([own for _, own in found], axis=0, return_inverse=True)
        scores = _score(distinct.T, labels, draws, balanced)
        for (run_key, _), column in zip(found, place, strict=True):
            runs.setdefault(run_key, []).append(scores[:, column])
    return {key: np.mean(by_task, axis=0) for key, by_task in runs.items()}


def _score(answers: Numbers, labels: NDArray[np.uint8], draws: Numbers, balanced: bool) -> Numbers:
    """Weighted accuracy of answers (n, runs) in every row of draws; mean recall if balanced."""
    if not balanced:
        plain: Numbers = draws @ answers / draws.sum(1, keepdims=True)
        return plain
    recalls = []
    for label in np.unique(labels):
        own = labels == label
        total = draws[:, own].sum(1, keepdims=True)
        # A class that is not among the draws at all says nothing new about its recall.
        recalls.append(
            np.where(total > 0, draws[:, own] @ answers[own] / np.maximum(total, 1), 0.5)
        )
    found: Numbers = np.mean(recalls, axis=0)
    return found


def _over_seeds(values: Numbers, seeds: Sequence[int]) -> Numbers:
    """Resample the seeds of replicates, of shape (seeds, replicates).

    Which seeds are drawn depends on the seeds alone, so that contenders are paired.
    """
    count, number = values.shape
    if count == 1:
        only: Numbers = values[0]
        return only
    generator = np.random.default_rng([4711, *map(int, seeds)])
    drawn = generator.integers(0, count, (count, number))
    centre = values.mean(0)
    moved = np.take_along_axis(values, drawn, axis=0).mean(0) - centre
    widened: Numbers = centre + np.sqrt(count / (count - 1)) * moved
    return widened


def example_weights(name: bytes, size: int, number: int) -> Numbers:
    """How often each example of a task is drawn: the same for everybody who was tested on them.

    Examples
    --------
    >>> example_weights(b"abc", 4, 2).sum(1)
    array([4., 4.])
    """
    seed = int.from_bytes(hashlib.sha256(name).digest()[:8], "little")
    generator = np.random.default_rng(seed)
    return generator.multinomial(size, np.full(size, 1 / size), number).astype(float)


def unpacked(bits: bytes, size: int) -> Numbers:
    r"""Return packed bits as numbers.

    Examples
    --------
    >>> unpacked(b"\xa0", 3)
    array([1., 0., 1.])
    """
    return np.unpackbits(np.frombuffer(bits, dtype=np.uint8), count=size).astype(float)
