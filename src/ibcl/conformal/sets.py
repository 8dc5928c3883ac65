r"""From scores and a threshold to sets of answers: classes, or intervals of values.

The same input can get scores that differ in their last digits, by the size of the batch that it
comes in. A set therefore holds answers whose score reaches the threshold up to rounding, which can
only add answers and so keeps every guarantee.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Label = TypeVar("Label")
NOTHING = "like nothing that was learnt"


def prediction_set(scores: ArrayLike, tau: ArrayLike) -> NDArray[np.bool_]:
    """Return which answers are in {y : s(x, y) ≥ τ}.

    Parameters
    ----------
    scores
        Of all classes, shape (rows, classes), or (preferences, rows, classes) with one τ each.
    tau
        τ, of the scores' leading shape: () or (preferences,).

    Examples
    --------
    >>> prediction_set([[0.9, 0.1], [0.5, 0.5], [0.2, 0.2]], 0.3)
    array([[ True, False],
           [ True,  True],
           [False, False]])
    """
    table, threshold = np.asarray(scores, np.float64), _reachable(tau)
    kept: NDArray[np.bool_] = table >= threshold.reshape(
        threshold.shape + (1,) * (table.ndim - threshold.ndim)
    )
    return kept


def union_set(scores: ArrayLike, taus: ArrayLike) -> NDArray[np.bool_]:
    """Return which answers are in ∪_k {y : s_k(x, y) ≥ τ_k}.

    Parameters
    ----------
    scores
        Of every task's own score, shape (rows, tasks, classes).
    taus
        τ_k, shape (tasks,), or (preferences, tasks) for sets of the shape
        (preferences, rows, classes).

    Examples
    --------
    >>> union_set([[[0.9, 0.1], [0.2, 0.4]]], [0.5, 0.3])
    array([[ True,  True]])
    """
    table, thresholds = np.asarray(scores, np.float64), _reachable(taus)
    kept: NDArray[np.bool_] = np.any(table >= thresholds[..., None, :, None], axis=-2)
    return kept


def label_sets(members: ArrayLike, classes: Sequence[Label]) -> list[tuple[Label, ...]]:
    """Return the labels in every set.

    Examples
    --------
    >>> label_sets([[True, True], [False, True], [False, False]], ["cat", "dog"])
    [('cat', 'dog'), ('dog',), ()]
    """
    table = np.asarray(members, dtype=bool)
    if table.ndim != 2 or table.shape[1] != len(classes):
        raise ValueError(f"Sets of shape {table.shape} do not fit {len(classes)} classes.")
    return [tuple(classes[int(number)] for number in np.flatnonzero(row)) for row in table]


def in_words(members: ArrayLike, classes: Sequence[Label]) -> list[str]:
    """Return every set as a line of text; an empty one says what it means.

    Examples
    --------
    >>> in_words([[True, True], [False, True], [False, False]], ["cat", "dog"])
    ['cat or dog', 'dog', 'like nothing that was learnt']
    """
    return [" or ".join(map(str, each)) or NOTHING for each in label_sets(members, classes)]


def residual_intervals(mean: ArrayLike, std: ArrayLike, tau: ArrayLike) -> Array:
    r"""Return {y : −|y − f| / σ ≥ τ} = [f + τ σ, f − τ σ], shape (…, 1, 2).

    Examples
    --------
    >>> residual_intervals([1.0, 4.0], [1.0, 0.5], -2.0).round(3).tolist()
    [[[-1.0, 3.0]], [[3.0, 5.0]]]
    """
    centre, reach = np.asarray(mean, np.float64), -_reachable(tau)
    half = reach.reshape(reach.shape + (1,) * (centre.ndim - reach.ndim)) * np.asarray(std)
    return _intervals(centre[..., None], half[..., None])


def component_intervals(
    log_shares: ArrayLike, means: ArrayLike, stds: ArrayLike, tau: ArrayLike
) -> Array:
    r"""Return {y : max_k (log r_k − log σ_k − ½ ((y − f_k) / σ_k)²) ≥ τ}, an interval per task.

    Task k's is f_k ± σ_k √(2 (log r_k − log σ_k − τ)), and empty, (nan, nan), where the root is
    of a negative number. With one τ_k of each task in the last dimension of `tau` it is the union
    of every task's own set.

    Returns
    -------
    Shape (…, tasks, 2).

    Examples
    --------
    >>> component_intervals(np.log([[0.5, 0.5]]), [[0.0, 10.0]], [[1.0, 1.0]], -2.69314718).round(2)
    array([[[-2.,  2.],
            [ 8., 12.]]])
    """
    centre, scale = np.asarray(means, np.float64), np.asarray(stds, np.float64)
    level = np.asarray(log_shares, np.float64) - np.log(scale) - _reachable(tau)
    half = np.where(level >= 0, scale * np.sqrt(2 * np.maximum(level, 0)), -1.0)
    return _intervals(centre, half)


def hull(intervals: ArrayLike) -> Array:
    """Return the smallest interval that holds all of a row's, shape (…, 2); (nan, nan) of none.

    Examples
    --------
    >>> hull([[[-2.0, 2.0], [8.0, 12.0]], [[np.nan, np.nan], [np.nan, np.nan]]])
    array([[-2., 12.],
           [nan, nan]])
    """
    table = np.asarray(intervals, dtype=np.float64)
    empty = np.isnan(table[..., 0])
    lower = np.where(empty, np.inf, table[..., 0]).min(-1)
    upper = np.where(empty, -np.inf, table[..., 1]).max(-1)
    both = np.stack([lower, upper], -1)
    return np.where(np.all(empty, axis=-1, keepdims=True), np.nan, both)


def disjoint(intervals: ArrayLike) -> list[list[tuple[float, float]]]:
    """Return the union of every row's intervals as intervals that do not meet, in their order.

    Examples
    --------
    >>> disjoint([[[8.0, 12.0], [-2.0, 2.0], [1.0, 3.0]], [[np.nan, np.nan]] * 3])
    [[(-2.0, 3.0), (8.0, 12.0)], []]
    """
    found: list[list[tuple[float, float]]] = []
    for row in np.asarray(intervals, dtype=np.float64):
        parts: list[tuple[float, float]] = []
        for lower, upper in sorted(map(tuple, row[~np.isnan(row[:, 0])].tolist())):
            if parts and lower <= parts[-1][1]:
                parts[-1] = (parts[-1][0], max(parts[-1][1], upper))
            else:
                parts.append((lower, upper))
        found.append(parts)
    return found


def inside(intervals: ArrayLike, y: ArrayLike) -> NDArray[np.bool_]:
    """Return whether each value lies in one of its row's intervals.

    Examples
    --------
    >>> inside([[[-2.0, 2.0], [8.0, 12.0]]] * 2, [5.0, 9.0])
    array([False,  True])
    """
    table, value = np.asarray(intervals, np.float64), np.asarray(y, np.float64)[..., None]
    held: NDArray[np.bool_] = np.any((table[..., 0] <= value) & (value <= table[..., 1]), axis=-1)
    return held


def _intervals(centre: Array, half: Array) -> Array:
    """Return centre ± half, nothing where half is negative."""
    width = np.where(half < 0, np.nan, half)
    return np.stack([centre - width, centre + width], -1)


def _reachable(tau: ArrayLike) -> Array:
    """Return τ, lowered by what rounding can do to a score of single precision."""
    threshold = np.asarray(tau, dtype=np.float64)
    if np.isnan(threshold).any():
        raise ValueError("A threshold is not a number.")
    finite = np.where(np.isfinite(threshold), threshold, 0.0)
    return np.where(np.isfinite(threshold), finite - 1e-6 * np.abs(finite) - 1e-12, threshold)
