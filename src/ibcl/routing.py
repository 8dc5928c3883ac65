"""Routes: the heads and the gate of one knowledge base, shared by all its routed models."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ibcl.gates import Gate
from ibcl.knowledge import KnowledgeBase
from ibcl.networks import FlatNetwork
from ibcl.pooling import Routed, split_weights
from ibcl.pooling.routed import VERTEX


class Routes:
    """Heads and gate of one knowledge base, made once and used by all its preferences' models."""

    def __init__(self, rule: Routed, knowledge: KnowledgeBase, network: FlatNetwork) -> None:
        self.rule, self.knowledge, self.network = rule, knowledge, network

    @cached_property
    def gate(self) -> Gate:
        """Densities of the tasks."""
        return self.rule.make_gate(self.knowledge, self.network)

    @cached_property
    def uniform_means(self) -> Tensor:
        """Means of all heads supported by all tasks alike, shape (tasks, D)."""
        tasks = len(self.knowledge.tasks)
        support = torch.full((tasks,), 1 / tasks, dtype=torch.float64)
        return self.rule.head_means(self.knowledge, support, list(range(tasks)))

    def means(self, weights: Tensor) -> Tensor:
        """Return the means of the heads that weights β give any weight, shape (heads, D)."""
        preference = weights.sum(-1)
        tasks = torch.nonzero(preference > 0).flatten().tolist()
        if len(tasks) == 1:
            return VERTEX.means(self.knowledge, weights[None])
        if self.rule.heads == "uniform":
            heads = self.uniform_means
            return heads[torch.tensor(tasks, device=heads.device)]
        return self.rule.head_means(self.knowledge, preference, tasks)

    @cached_property
    def posterior_means(self) -> Tensor:
        """Means at every task's vertex, shape (tasks, D)."""
        vertices = torch.eye(len(self.knowledge.tasks), dtype=torch.float64)
        return VERTEX.means(self.knowledge, split_weights(self.knowledge, vertices))

    @cached_property
    def seen(self) -> Tensor | None:
        """Which classes each task has seen, shape (tasks, classes); None where all have seen all.

        With two classes a task that has seen only one still says how far inputs are from it.
        """
        moments = [m for m in self.knowledge.moments if m is not None]
        if len(moments) < len(self.knowledge.tasks):
            return None
        classes = 1 + max(int(m.classes[-1]) for m in moments)
        mask = moments[0].counts.new_zeros(len(moments), classes, dtype=torch.bool)
        for row, kept in zip(mask, moments, strict=True):
            row[kept.classes] = True
        return None if classes <= 2 or bool(mask.all()) else mask
