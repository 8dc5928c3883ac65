r"""How a preference follows what a user does.

A preference is a mixture proportion: w_k is the probability that the user's next input comes from
task k. Under a Dirichlet prior with counts α⁰, examples with densities
L_ik = p_k(x_i) p_k(y_i | x_i), or p_k(x_i) alone where nobody said y, give by EM

    r_ik ∝ w_k L_ik,    α_k = α⁰_k + Σ_i r_ik,    w_k = α_k / Σ_j α_j,

iterated until it stands still; from nothing known it is what `ibcl.IBCL.infer_preference` says. The
counts α are kept as the posterior and are the prior of what comes next, except that old examples
count less: with a forgetting factor γ, n new ones make the prior α⁰ = a + γⁿ (α − a), where a is
the prior before anything was known, worth one example in all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

Numbers = NDArray[np.float64]

SAID_COUNT = 10.0
"""A preference that a user states counts as much as so many examples."""
_STEPS = 10_000
_SETTLED = 1e-10


class Inferred(NamedTuple):
    """A posterior over preferences."""

    counts: dict[str, float]
    weights: dict[str, float]
    """Its mean."""
    std: dict[str, float]
    """Its standard deviation, task by task."""


def update(
    counts: Mapping[str, float] | None,
    log_likelihood: Numbers,
    tasks: Sequence[str],
    forgetting: float,
) -> Inferred:
    """Update what is known of a user with examples.

    Parameters
    ----------
    counts
        The Dirichlet counts so far; None where nothing is known.
    log_likelihood
        log L_ik, of shape (examples, tasks).

    Examples
    --------
    >>> sure = np.log([[0.99, 0.01]] * 20)
    >>> first = update(None, sure, ["sci-fi", "horror"], forgetting=0.95)
    >>> round(first.weights["sci-fi"], 2)
    0.98
    >>> later = update(first.counts, sure[:, ::-1], ["sci-fi", "horror"], forgetting=0.95)
    >>> later.weights["horror"] > 0.5
    True
    """
    known = {} if counts is None else counts
    before = 1 / len(tasks)
    kept = forgetting ** len(log_likelihood)
    prior = np.array([before + kept * (known.get(task, before) - before) for task in tasks])
    # Only ratios within an example matter; one that no task explains says nothing.
    scores = log_likelihood[np.isfinite(log_likelihood).any(1)]
    total = prior.sum() + len(scores)
    weights = np.full(len(tasks), 1 / len(tasks))
    for _ in range(_STEPS):
        following = (prior + softmax(scores + np.log(weights), axis=1).sum(0)) / total
        change = float(np.abs(following - weights).max())
        weights = following
        if change <= _SETTLED:
            break
    return describe(dict(zip(tasks, (total * weights).tolist(), strict=True)))


def said(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of a preference that a user has stated.

    Examples
    --------
    >>> said({"sci-fi": 1.0, "horror": 0.0})
    {'sci-fi': 10.5, 'horror': 0.5}
    """
    return {task: 1 / len(weights) + SAID_COUNT * weight for task, weight in weights.items()}


def describe(counts: Mapping[str, float]) -> Inferred:
    """Return mean and standard deviation of a Dirichlet distribution.

    Examples
    --------
    >>> describe({"sci-fi": 3.0, "horror": 1.0}).weights
    {'sci-fi': 0.75, 'horror': 0.25}
    """
    total = sum(counts.values())
    weights = {task: count / total for task, count in counts.items()}
    std = {
        task: float(np.sqrt(weight * (1 - weight) / (total + 1)))
        for task, weight in weights.items()
    }
    return Inferred(dict(counts), weights, std)
