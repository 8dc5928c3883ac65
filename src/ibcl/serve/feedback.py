r"""How a preference follows what a user does.

A preference is a mixture proportion: w_k is the probability that the user's next input comes from
task k. With a Dirichlet prior over w, an example i multiplies its density by
Σ_k w_k L_ik, where L_ik = p_k(x_i) p_k(y_i | x_i), or p_k(x_i) alone where nobody said y. The
posterior is kept as a Dirichlet again, by mean-field variational Bayes (Attias, 2000):

    r_ik ∝ L_ik exp ψ(α_k),    α_k = α⁰_k + Σ_i r_ik,

iterated until it stands still. The preference is its mean, α_k / Σ_j α_j. Before new examples
arrive, old ones count less: with a forgetting factor γ, n examples make the prior
α⁰ = a + γⁿ (α − a), where a is the prior before anything was known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

Numbers = NDArray[np.float64]

PRIOR_COUNT = 0.5
"""a_k: Jeffreys' prior of a proportion."""
SAID_COUNT = 10.0
"""A preference that a user states counts as much as so many examples."""
_ITERATIONS = 500
_STILL = 1e-8


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
    0.97
    >>> later = update(first.counts, sure[:, ::-1], ["sci-fi", "horror"], forgetting=0.95)
    >>> later.weights["horror"] > 0.5
    True
    """
    known = {} if counts is None else counts
    kept = forgetting ** len(log_likelihood)
    prior = np.array(
        [PRIOR_COUNT + kept * (known.get(task, PRIOR_COUNT) - PRIOR_COUNT) for task in tasks]
    )
    # Only ratios within an example matter; an example that no task explains says nothing.
    finite = np.isfinite(log_likelihood).any(1)
    scores = log_likelihood[finite]
    scores = scores - scores.max(1, keepdims=True)
    alpha = prior + len(scores) / len(tasks)
    for _ in range(_ITERATIONS):
        logits = scores + digamma(alpha)
        shares = np.exp(logits - logits.max(1, keepdims=True))
        shares /= shares.sum(1, keepdims=True)
        following = prior + shares.sum(0)
        moved = float(abs(following - alpha).max())
        alpha = following
        if moved < _STILL:
            break
    return describe(dict(zip(tasks, alpha.tolist(), strict=True)))


def said(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of a preference that a user has stated.

    Examples
    --------
    >>> said({"sci-fi": 1.0, "horror": 0.0})
    {'sci-fi': 10.5, 'horror': 0.5}
    """
    return {task: PRIOR_COUNT + SAID_COUNT * weight for task, weight in weights.items()}


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
