"""What a pooling rule is, and the weights it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian
from ibcl.knowledge import KnowledgeBase


class PoolingRule(Protocol):
    """A way to combine extreme elements; weights β have shape (..., tasks, m) and sum to 1."""

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w for one set of weights."""

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means of q_w for many sets of weights at once: shape (n, D)."""


class Pooled(NamedTuple):
    """q_w: its mean at once, and the whole of it when it is asked for."""

    mean: Tensor
    distribution: Callable[[], Distribution]


@runtime_checkable
class PoolsOnce(Protocol):
    """A rule whose mean and distribution come from one computation."""

    def pooled(self, knowledge: KnowledgeBase, weights: Tensor) -> Pooled:
        """Return q_w for one set of weights."""


def pooled(rule: PoolingRule, knowledge: KnowledgeBase, weights: Tensor) -> Pooled:
    """Return q_w for one set of weights, computing no more than its mean."""
    if isinstance(rule, PoolsOnce):
        return rule.pooled(knowledge, weights)
    mean = rule.means(knowledge, weights.unsqueeze(0))[0]
    return Pooled(mean, partial(rule.pool, knowledge, weights))


def split_weights(
    knowledge: KnowledgeBase,
    preferences: Tensor,
    split: Mapping[str, Sequence[float]] | None = None,
) -> Tensor:
    """Split task weights (..., tasks) over each task's extremes: β of shape (..., tasks, m).

    Parameters
    ----------
    split
        For tasks whose extremes should not share equally: m non-negative shares that sum to 1.
    """
    m = len(knowledge.priors)
    shares = torch.full((len(knowledge.tasks), m), 1 / m, dtype=torch.float64)
    for task, values in (split or {}).items():
        row = torch.as_tensor(np.asarray(values, dtype=np.float64))
        if row.shape != (m,) or not bool((row >= 0).all()) or abs(float(row.sum()) - 1) > 1e-6:
            raise ValueError(
                f"The split of task {task!r} must be {m} non-negative shares that sum to 1, "
                f"not {list(values)}."
            )
        shares[knowledge.tasks.index(knowledge.record(task).name)] = row
    return preferences.to(torch.float64).unsqueeze(-1) * shares


def weighted_extremes(
    knowledge: KnowledgeBase, weights: Tensor
) -> tuple[list[float], list[Gaussian]]:
    """Extreme elements with their total weights, each stored posterior once."""
    totals: dict[int, float] = {}
    for record, row in zip(knowledge.records, weights.tolist(), strict=True):
        for position, weight in zip(record.posteriors, row, strict=True):
            if weight > 0:
                totals[position] = totals.get(position, 0.0) + weight
    return list(totals.values()), [knowledge.stored[position] for position in totals]


def averaged_means(knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
    """Weighted means, for many sets of weights at once."""
    stacked = knowledge.stacked_means
    rows = weights.flatten(-2).to(stacked)
    return rows @ stacked.reshape(-1, knowledge.dimension)
