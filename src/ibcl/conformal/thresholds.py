r"""Thresholds: how far down a set of answers has to go to keep its guarantee.

A score s(x, y) is larger the better an answer fits. The set {y : s(x, y) ≥ τ} misses the right
answer when its score lies below τ. With S_k1 … S_kn_k the scores of task k's calibration samples,

    m_k(τ) = #{i : S_ki < τ}

are its misses in calibration. Nothing is assumed of the scores: any model, right or wrong, ties
included. What is assumed is that calibration samples and inputs to come are exchangeable within
each task and independent between tasks, and that the score was fixed without the calibration
samples.

* ``"mixture"``: for a preference w, Σ_k w_k P_k(s < τ) ≤ α, on average over the calibration data
  (`mixture_threshold`).
* ``"task"``: P_k(s < τ) ≤ α in every task, and so for every preference, on average over the
  calibration data (`task_thresholds`).
* ``"uniform"``: with probability 1 − δ over the calibration data, P_k(s < τ) ≤ α in all tasks at
  once, and so for all preferences at once, whoever chooses them and when (`uniform_thresholds`).

The proofs are in the documentation (Coverage). All functions take scores of the shape (…, samples)
and answer for all leading dimensions at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtr

Array = NDArray[np.float64]
Guarantee = Literal["mixture", "task", "uniform"]
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)
# Sums of weights are compared with α up to this: what is claimed is a miss of at most α + 1e-12.
_ROUNDING = 1e-12


class _Correction(NamedTuple):
    """Σ_k v_k m_k(τ) ≤ β, with `v` of the shape (…, tasks) and `beta` of the shape (…)."""

    v: Array
    beta: Array


def mixture_threshold(
    scores: ArrayLike,
    task: ArrayLike,
    weights: ArrayLike,
    alpha: float,
    names: Sequence[str] | None = None,
) -> Array:
    r"""Return the largest τ with Σ_k w_k P(s < τ | task k) ≤ α, strictly in finite samples.

    τ = max{t : Σ_k v_k m_k(t) ≤ β} with either of two corrections, both proven:

        v_k = w_k / n_k,          β = α − max_k w_k / n_k          (one sample's weight in all)
        v_k = w_k / (n_k + 1),    β = α − Σ_k w_k / (n_k + 1)      (one sample in every task)

    The second is the usual one of split conformal prediction where one task has all the weight, the
    first is far smaller where many tasks share it. Whichever lets tasks that miss equally often
    miss more, β / Σ_k v_k n_k, is taken: a choice by w, n and α alone, so that it costs nothing.

    Parameters
    ----------
    scores
        Of the right answers of all calibration samples, shape (…, samples).
    task
        Number of the task of each sample, shape (samples,).
    weights
        The preference, shape (…, tasks). Tasks of weight 0 may have no samples.
    alpha
        α.
    names
        Of the tasks, for the error's sentence.

    Examples
    --------
    Of 19 scores one may be missed at α = 0.1, so the threshold is the second smallest:

    >>> mixture_threshold(np.arange(19), np.zeros(19, int), [1.0], alpha=0.1).item()
    1.0

    Two tasks with 100 samples each: the harder one counts by its weight.

    >>> hard, easy = np.arange(100), np.arange(100) + 1000
    >>> scores, task = np.concatenate([hard, easy]), np.repeat([0, 1], 100)
    >>> mixture_threshold(scores, task, [[0.5, 0.5], [0.9, 0.1], [0.1, 0.9]], alpha=0.1)
    array([19., 10., 91.])
    """
    table, numbers, counts, preference = _checked(scores, task, weights, alpha, names)
    correction = _chosen_correction(counts, preference, alpha)
    short = np.argwhere(correction.beta < -_ROUNDING)
    if len(short):
        # The preference of the first that fails speaks for the others.
        raise _too_few(counts, preference[tuple(short[0])], alpha, "mixture", 0.0, names)
    shape = np.broadcast_shapes(table.shape[:-1], preference.shape[:-1])
    table = np.broadcast_to(table, (*shape, table.shape[-1]))
    order = np.argsort(table, axis=-1)
    mass = np.take_along_axis(
        np.broadcast_to(correction.v[..., numbers], table.shape), order, axis=-1
    ).cumsum(-1)
    # The first score whose miss would be one too many; scores tied with it are not below it.
    first = (mass > correction.beta[..., None] + _ROUNDING).argmax(-1)[..., None]
    ranked = np.take_along_axis(order, first, axis=-1)
    threshold: Array = np.take_along_axis(table, ranked, axis=-1)[..., 0]
    return threshold


def task_thresholds(
    scores: ArrayLike,
    task: ArrayLike,
    tasks: int,
    alpha: float,
    names: Sequence[str] | None = None,
) -> Array:
    r"""Return of every task the largest τ_k with P(s < τ_k | task k) ≤ α.

    That is split conformal prediction in every task: (m_k(τ_k) + 1) / (n_k + 1) ≤ α.

    Returns
    -------
    Shape (…, tasks). The smallest of them holds in every task with one score.

    Examples
    --------
    >>> task_thresholds([1, 2, 3, 4, 10, 20, 30], [0, 0, 0, 0, 1, 1, 1], 2, alpha=0.4)
    array([ 2., 10.])
    """
    table, numbers, counts, _ = _checked(scores, task, np.full(tasks, 1 / tasks), alpha, names)
    allowed = np.floor(alpha * (counts + 1) + _ROUNDING).astype(int) - 1
    if (allowed < 0).any():
        raise _too_few(counts, None, alpha, "task", 0.0, names)
    return _ranked(table, numbers, allowed)


def uniform_thresholds(
    scores: ArrayLike,
    task: ArrayLike,
    tasks: int,
    alpha: float,
    delta: float = 0.05,
    names: Sequence[str] | None = None,
) -> Array:
    r"""Return of every task a τ_k so that P_k(s < τ_k) ≤ α in all of them with probability 1 − δ.

    The share P_k(s < S_(m+1)) below the order statistic of rank m + 1 is at most a Beta variable
    with parameters m + 1 and n − m, which exceeds α with the probability that a binomial one is at
    most m. So task k may miss the largest m_k with

        P(Binomial(n_k, α) ≤ m_k) ≤ δ / K,

    and the union over the K tasks has probability δ at most. Σ_k w_k P_k(s < τ_k) ≤ α then holds
    for all w at once.

    Returns
    -------
    Shape (…, tasks).

    Examples
    --------
    >>> scores, task = np.arange(200), np.repeat([0, 1], 100)
    >>> task_thresholds(scores, task, 2, alpha=0.1), uniform_thresholds(scores, task, 2, alpha=0.1)
    (array([  9., 109.]), array([  4., 104.]))
    """
    table, numbers, counts, _ = _checked(scores, task, np.full(tasks, 1 / tasks), alpha, names)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, not {delta!r}.")
    allowed = np.array([_allowed_misses(int(count), alpha, delta / tasks) for count in counts])
    if (allowed < 0).any():
        raise _too_few(counts, None, alpha, "uniform", delta, names)
    return _ranked(table, numbers, allowed)


def joint_threshold(
    scores: ArrayLike,
    task: ArrayLike,
    weights: ArrayLike,
    alpha: float,
    guarantee: Guarantee = "mixture",
    delta: float = 0.05,
    names: Sequence[str] | None = None,
) -> Array:
    """Return one τ for a score that all tasks share, that of a served model.

    The set is {y : s(x, y) ≥ τ}. Of `weights` only the mixture's guarantee needs more than the
    number of tasks.

    Returns
    -------
    Shape (…).

    Examples
    --------
    >>> scores, task = np.arange(200), np.repeat([0, 1], 100)
    >>> [joint_threshold(scores, task, [0.2, 0.8], 0.1, kind).item() for kind in GUARANTEES]
    [46.0, 9.0, 4.0]
    """
    check_guarantee(guarantee)
    if guarantee == "mixture":
        return mixture_threshold(scores, task, weights, alpha, names)
    tasks = np.asarray(weights).shape[-1]
    each = (
        task_thresholds(scores, task, tasks, alpha, names)
        if guarantee == "task"
        else uniform_thresholds(scores, task, tasks, alpha, delta, names)
    )
    smallest: Array = each.min(-1)
    return smallest


def union_thresholds(
    scores: ArrayLike,
    task: ArrayLike,
    weights: ArrayLike,
    alpha: float,
    guarantee: Guarantee = "mixture",
    delta: float = 0.05,
    names: Sequence[str] | None = None,
) -> Array:
    r"""Return one τ_k for every task's own score, each fixed when its task was learnt.

    The set is ∪_k {y : s_k(x, y) ≥ τ_k}. For a preference τ_k = τ − log w_k, with the mixture's
    threshold τ of the scores log w_k + s_k, which are logarithms of probabilities up to a term; a
    task of weight 0 has no part, τ_k = ∞. In task k the answer is in the set whenever the task's
    own part holds it, so what is proven of the parts is proven of the union.

    Returns
    -------
    Shape (…, tasks).

    Examples
    --------
    >>> scores, task = np.log(np.arange(1, 201) / 200), np.repeat([0, 1], 100)
    >>> np.exp(union_thresholds(scores, task, [0.2, 0.8], 0.1)).round(4)
    array([0.235 , 0.0588])
    """
    check_guarantee(guarantee)
    preference = np.asarray(weights, dtype=np.float64)
    tasks = preference.shape[-1]
    if guarantee == "task":
        return task_thresholds(scores, task, tasks, alpha, names)
    if guarantee == "uniform":
        return uniform_thresholds(scores, task, tasks, alpha, delta, names)
    table, numbers, _, preference = _checked(scores, task, preference, alpha, names)
    with np.errstate(divide="ignore"):
        shift = np.log(preference)
    # Scores of tasks without weight count for nothing, wherever they are put.
    own = np.where(np.isneginf(shift), 0.0, shift)[..., numbers]
    joint = mixture_threshold(table + own, numbers, preference, alpha, names)
    return np.where(
        np.isneginf(shift), np.inf, joint[..., None] - np.where(shift > -np.inf, shift, 0)
    )


def smallest_alpha(
    counts: ArrayLike,
    weights: ArrayLike | None = None,
    guarantee: Guarantee = "mixture",
    delta: float = 0.05,
) -> float:
    r"""Return the smallest α that calibration samples of these numbers can prove.

    For a mixture min(max_k w_k / n_k, Σ_k w_k / (n_k + 1)), in every task max_k 1 / (n_k + 1), and
    uniformly max_k 1 − (δ / K)^{1 / n_k}.

    Examples
    --------
    >>> round(smallest_alpha([99], [1.0]), 3), round(smallest_alpha([20] * 50, [0.02] * 50), 3)
    (0.01, 0.001)
    >>> round(smallest_alpha([200, 200], guarantee="uniform"), 3)
    0.018
    """
    check_guarantee(guarantee)
    number = np.asarray(counts, dtype=np.float64)
    if guarantee == "task":
        return float((1 / (number + 1)).max())
    if guarantee == "uniform":
        with np.errstate(divide="ignore"):
            return float((1 - (delta / len(number)) ** (1 / number)).max())
    if weights is None:
        raise ValueError("The mixture's guarantee needs the weights of the tasks.")
    preference = np.asarray(weights, dtype=np.float64)
    used = preference > 0
    if not number[used].all():
        return 1.0
    largest = (preference[used] / number[used]).max()
    return float(min(largest, (preference[used] / (number[used] + 1)).sum()))


def check_guarantee(guarantee: str) -> None:
    """Refuse an unknown guarantee."""
    if guarantee not in GUARANTEES:
        raise ValueError(f"guarantee must be one of {', '.join(GUARANTEES)}, not {guarantee!r}.")


def _chosen_correction(counts: NDArray[np.int64], preference: Array, alpha: float) -> _Correction:
    """Of the two strict corrections the one that lets tasks that miss equally often miss more."""
    # A task without samples has no weight.
    v, u = preference / np.maximum(counts, 1), preference / (counts + 1)
    shared, each = alpha - v.max(-1), alpha - u.sum(-1)
    is_each = each / (1 - u.sum(-1)) >= shared
    return _Correction(
        np.where(is_each[..., None], u, v),
        np.where(is_each, each, shared),
    )


def _allowed_misses(count: int, alpha: float, delta: float) -> int:
    """Return the largest m with P(Binomial(count, α) ≤ m) ≤ δ, or −1."""
    # As scipy.stats has it, which takes as long to import as all of this library.
    below = bdtr(np.arange(count), count, alpha) <= delta
    return int(below.sum()) - 1


def _ranked(table: Array, numbers: NDArray[np.int64], allowed: NDArray[np.int64]) -> Array:
    """Of every task the smallest score that is not missed when so many are, shape (…, tasks)."""
    parts = [
        np.partition(table[..., numbers == k], rank, axis=-1)[..., rank]
        for k, rank in enumerate(allowed)
    ]
    return np.stack(parts, -1)


def _too_few(
    counts: NDArray[np.int64],
    preference: Array | None,
    alpha: float,
    guarantee: Guarantee,
    delta: float,
    names: Sequence[str] | None,
) -> ValueError:
    """Return the sentence for calibration samples that cannot prove α, with what they can."""
    least = smallest_alpha(counts, preference, guarantee, delta)
    share = 1 / (counts + 1.0) if preference is None else preference / np.maximum(counts, 1)
    worst = int(share.argmax())
    name = names[worst] if names is not None else str(worst)
    return ValueError(
        f"{counts[worst]} calibration samples of the task {name!r} are too few for "
        f"alpha={alpha:g} with guarantee={guarantee!r}; calibrate with more, or ask for an alpha "
        f"of at least {np.ceil(least * 1e4) / 1e4:g}."
    )


def _checked(
    scores: ArrayLike,
    task: ArrayLike,
    weights: ArrayLike,
    alpha: float,
    names: Sequence[str] | None,
) -> tuple[Array, NDArray[np.int64], NDArray[np.int64], Array]:
    """Scores, tasks' numbers, counts and weights as arrays that fit each other."""
    if not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}.")
    table = np.asarray(scores, dtype=np.float64)
    numbers = np.asarray(task)
    preference = np.asarray(weights, dtype=np.float64)
    tasks = preference.shape[-1] if preference.ndim else 0
    if (
        not tasks
        or not np.isfinite(preference).all()
        or (preference < 0).any()
        or (np.abs(preference.sum(-1) - 1) > 1e-6).any()
    ):
        raise ValueError("The weights of the tasks must not be negative and must sum to 1.")
    if (
        table.ndim < 1
        or numbers.shape != table.shape[-1:]
        or (len(numbers) and not np.issubdtype(numbers.dtype, np.integer))
    ):
        raise ValueError(
            f"Scores of shape {table.shape} need the whole number of each one's task, not an array "
            f"of {numbers.dtype} of shape {numbers.shape}."
        )
    numbers = numbers.astype(np.int64)
    if len(numbers) and not (numbers.min() >= 0 and numbers.max() < tasks):
        raise ValueError(f"The tasks of the scores must be numbered from 0 to {tasks - 1}.")
    if np.isnan(table).any():
        raise ValueError("A calibration score is not a number; scores must be finite or infinite.")
    counts = np.bincount(numbers, minlength=tasks)
    missing = np.flatnonzero((counts == 0) & (preference > 0).reshape(-1, tasks).any(0))
    if len(missing):
        name = names[missing[0]] if names is not None else str(missing[0])
        raise ValueError(
            f"The task {name!r} has weight but no calibration samples; give fresh samples of it to "
            "learner.calibrate(task, x, y)."
        )
    return table, numbers, counts, preference
