r"""How a preference follows what a user does.

What is known of a user is a Dirichlet distribution with counts α: its mean is the preference, and
how far it can be trusted is their sum. Examples update it as `infer_proportions` infers a
preference from them, with the counts so far as the prior; old examples count less, though: with a
forgetting factor γ, n new ones make the prior

    c = a + γⁿ (α − a),

where a is the prior before anything was known, worth one example in all. The new counts are those
of the Dirichlet distribution with the inferred weights whose variance, by the same approximation of
Laplace's, is in all what was inferred: Σ_k w_k (1 − w_k) / Σ_k α_k = Σ_k std_k². So n examples that
are certain add n to the counts, and examples that leave the task open add less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.preference.inferred import infer_proportions

SAID_COUNT = 10.0
"""A preference that a user states counts as much as so many examples."""


class FollowedPreference(NamedTuple):
    """A posterior over preferences."""

    counts: dict[str, float]
    weights: dict[str, float]
    """Its mean."""
    std: dict[str, float]
    """Its standard deviation, task by task."""


def follow(
    counts: Mapping[str, float] | None,
    log_densities: NDArray[np.float64],
    tasks: Sequence[str],
    forgetting: float,
) -> FollowedPreference:
    """Update what is known of a user with examples.

    Parameters
    ----------
    counts
        The Dirichlet counts so far; None where nothing is known.
    log_densities
        log p_k(x_i) + log p_k(y_i | x_i), of shape (examples, tasks).

    Examples
    --------
    >>> sure = np.log([[0.99, 0.01]] * 20)
    >>> first = follow(None, sure, ["sci-fi", "horror"], forgetting=0.95)
    >>> round(first.weights["sci-fi"], 2)
    0.98
    >>> later = follow(first.counts, sure[:, ::-1], ["sci-fi", "horror"], forgetting=0.95)
    >>> later.weights["horror"] > 0.5
    True
    """
    known = {} if counts is None else counts
    before = 1 / len(tasks)
    kept = forgetting ** len(log_densities)
    prior = [before + kept * (known.get(task, before) - before) for task in tasks]
    # An example that no task explains says nothing.
    explained = log_densities[np.isfinite(log_densities).any(1)]
    found = infer_proportions(explained, tasks, prior)
    spread = sum(weight * (1 - weight) for weight in found.values())
    variance = sum(std**2 for std in found.std.values())
    total = spread / variance if variance > 0 else sum(prior) + len(explained)
    alone = {task: max(total, before) * weight for task, weight in found.items()}
    return FollowedPreference(alone, dict(found), found.std)


def said(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of a preference that a user has stated.

    Examples
    --------
    >>> said({"sci-fi": 1.0, "horror": 0.0})
    {'sci-fi': 10.5, 'horror': 0.5}
    """
    return {task: 1 / len(weights) + SAID_COUNT * weight for task, weight in weights.items()}


def from_counts(counts: Mapping[str, float]) -> FollowedPreference:
    """Return mean and standard deviation (Laplace's, as `infer_proportions` has it) of counts.

    Examples
    --------
    >>> from_counts({"sci-fi": 3.0, "horror": 1.0}).weights
    {'sci-fi': 0.75, 'horror': 0.25}
    """
    total = sum(counts.values())
    weights = {task: count / total for task, count in counts.items()}
    std = {
        task: float(np.sqrt(weight * (1 - weight) / max(total, 1.0)))
        for task, weight in weights.items()
    }
    return FollowedPreference(dict(counts), weights, std)
