r"""Scores of answers: larger where an answer fits better.

Any function of input and answer will do for the guarantee, as long as it was fixed without the
calibration samples; a good one makes small sets. Classes have two, both of a probability vector p:

* ``"probability"``: s = p_y. Where p is right no score makes smaller sets on average. A set may be
  empty: no class is as probable as right answers usually are.
* ``"cumulative"``: s = −Σ_{c : p_c > p_y} p_c, minus the probability of all better classes. Sets
  grow where the model is unsure, and always hold the most probable class.

Values have a standardised residual, or the best of several tasks' (`component_scores`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcl.conformal.sets import prediction_set
from ibcl.conformal.thresholds import mixture_threshold

Array = NDArray[np.float64]
ClassScore = Literal["probability", "cumulative"]
# Probabilities that differ by less are equal: a sum over "more probable" classes must not depend on
# how a matrix product rounded.
_DIGITS = 6


def probability_scores(probabilities: ArrayLike) -> Array:
    """Return s = p_y of every class, shape (…, classes).

    Examples
    --------
    >>> probability_scores([[0.7, 0.2, 0.1]])
    array([[0.7, 0.2, 0.1]])
    """
    return np.asarray(probabilities, dtype=np.float64)


def cumulative_scores(probabilities: ArrayLike) -> Array:
    """Return s = −Σ_{c : p_c > p_y} p_c of every class, shape (…, classes).

    Examples
    --------
    >>> cumulative_scores([[0.2, 0.7, 0.1], [0.25, 0.25, 0.5]])
    array([[-0.7, -0. , -0.9],
           [-0.5, -0.5, -0. ]])
    """
    table = np.round(np.asarray(probabilities, dtype=np.float64), _DIGITS)
    order = np.argsort(-table, axis=-1, kind="stable")
    ranked = np.take_along_axis(table, order, axis=-1)
    better = ranked.cumsum(-1) - ranked
    # Classes that are tied have the same better ones: those before the first of them.
    first = np.ones_like(ranked, dtype=bool)
    first[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    better = np.maximum.accumulate(np.where(first, better, 0.0), axis=-1)
    scores = np.empty_like(table)
    np.put_along_axis(scores, order, -better, axis=-1)
    return np.round(scores, _DIGITS)


CLASS_SCORES: dict[ClassScore, Callable[[ArrayLike], Array]] = {
    "probability": probability_scores,
    "cumulative": cumulative_scores,
}


def label_scores(scores: ArrayLike, labels: ArrayLike) -> Array:
    """Return the scores of the right answers, shape (…, samples), of those of all classes.

    Parameters
    ----------
    scores
        Shape (…, samples, classes).
    labels
        Number of each sample's class, shape (samples,).

    Examples
    --------
    >>> label_scores([[0.7, 0.3], [0.4, 0.6]], [0, 0])
    array([0.7, 0.4])
    """
    table, numbers = np.asarray(scores, dtype=np.float64), np.asarray(labels)
    if table.ndim < 2 or numbers.shape != table.shape[-2:-1]:
        raise ValueError(
            f"Scores of shape {table.shape} need one label per sample, not {numbers.shape}."
        )
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < table.shape[-1]):
        raise ValueError(f"Labels must be numbers of the {table.shape[-1]} classes, from 0.")
    index = np.broadcast_to(numbers[:, None], (*table.shape[:-1], 1))
    picked: Array = np.take_along_axis(table, index, axis=-1)[..., 0]
    return picked


def smaller_class_score(
    probabilities: ArrayLike,
    labels: ArrayLike,
    task: ArrayLike,
    weights: ArrayLike,
    alpha: float,
) -> ClassScore:
    r"""Return the class score with the smaller sets on average, Σ_k w_k E_k |C(x)|.

    The samples must be others than those calibrated with, those learnt from for example: a score
    chosen with the calibration samples would no longer be fixed without them, and nothing would be
    guaranteed.

    Examples
    --------
    >>> p = np.repeat([[0.9, 0.06, 0.04], [0.4, 0.4, 0.2]], 100, axis=0)
    >>> y = np.concatenate([np.repeat([0, 1, 2], [90, 6, 4]), np.repeat([0, 1, 2], [40, 40, 20])])
    >>> smaller_class_score(p, y, np.zeros(200, int), [1.0], alpha=0.2)
    'probability'
    """
    numbers = np.asarray(task)
    preference = np.asarray(weights, dtype=np.float64)
    counts = np.bincount(numbers, minlength=len(preference))
    rows = (preference / np.maximum(counts, 1))[numbers]
    sizes: dict[ClassScore, float] = {}
    for name, score in CLASS_SCORES.items():
        table = score(probabilities)
        tau = mixture_threshold(label_scores(table, labels), numbers, preference, alpha)
        sizes[name] = float(rows @ prediction_set(table, tau).sum(-1))
    return min(sizes, key=lambda name: sizes[name])


def residual_scores(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> Array:
    """Return s = −|y − f| / σ: minus the standardised residual of a prediction f ± σ.

    Examples
    --------
    >>> residual_scores([1.0, 5.0], [1.0, 4.0], [1.0, 0.5])
    array([-0., -2.])
    """
    centre, scale = np.asarray(mean, np.float64), _positive(std)
    scores: Array = -np.abs(np.asarray(y, np.float64) - centre) / scale
    return scores


def component_scores(
    y: ArrayLike, log_shares: ArrayLike, means: ArrayLike, stds: ArrayLike
) -> Array:
    r"""Return s = max_k (log r_k − log σ_k − ½ ((y − f_k) / σ_k)²): of the best of the tasks.

    Up to log K and a constant the log density of the routed prediction Σ_k r_k N(f_k, σ_k²). Where
    tasks contradict each other its sets are intervals around each one's prediction, in place of one
    that spans the gap.

    Parameters
    ----------
    y
        Shape (…).
    log_shares, means, stds
        log r_k, f_k and σ_k, shape (…, tasks). A task without a share has log r_k = −∞.

    Examples
    --------
    >>> component_scores([0.0, 5.0], np.log([[0.5, 0.5]] * 2), [[0.0, 10.0]] * 2, [[1.0, 1.0]] * 2)
    array([ -0.69314718, -13.19314718])
    """
    scale = _positive(stds)
    distance = (np.asarray(y, np.float64)[..., None] - np.asarray(means, np.float64)) / scale
    parts = np.asarray(log_shares, np.float64) - np.log(scale) - 0.5 * distance**2
    best: Array = parts.max(-1)
    return best


def _positive(std: ArrayLike) -> Array:
    scale = np.asarray(std, dtype=np.float64)
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ValueError("Standard deviations must be finite and positive.")
    return scale
