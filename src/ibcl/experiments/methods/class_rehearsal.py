"""Rehearsal with one network over the classes of all tasks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least
from ibcl.experiments.methods.class_network import ClassNetwork, grown
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import REHEARSAL, Registration, register
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


class ClassRehearsal(ClassNetwork):
    r"""Experience replay over the classes (task, label), and Bayes' rule with w.

    `memory` random samples of each earlier task and all of the current one train a softmax over all
    classes so far, from where the last task left it, with new outputs for new classes. No model is
    trained for a preference: updates at task i are (n_i + (i−1) n_mem) · e / b. The strongest way
    to spend a memory here, because it uses which task a sample was from as routed evidence does.

    Parameters
    ----------
    memory
        Samples kept of each task.
    """

    name = "class_rehearsal"

    def __init__(self, network: nn.Module, *, memory: int = 50, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.memory = at_least("memory", memory, 1)
        self.memories: list[tuple[Tensor, Tensor]] = []
        self.current: tuple[Tensor, Tensor] | None = None

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Train on current data and memory, then remember some of it."""
        super().absorb(current, preferences)
        self.train()
        assert self.current is not None
        x, column = self.current
        rows = torch.randperm(len(x), generator=self.generator())[: self.memory]
        self.memories.append((x[rows], column[rows]))
        self.current = None

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Have the present task's samples at hand."""
        self.current = (x, column)

    def samples(self) -> list[tuple[Tensor, Tensor]]:
        """Memories, and the present task."""
        assert self.current is not None
        return [*self.memories, self.current]

    def start(self, network: FlatNetwork, generator: torch.Generator) -> Tensor:
        """The last task's parameters, with random ones for the new classes."""
        fresh = network.initial_parameters(generator)
        if self.over_classes is None:
            return fresh
        return grown(self.thetas[0], self.over_classes, network, fresh)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the samples kept and of the network."""
        kept = sum(x.nbytes + column.nbytes for x, column in self.memories)
        return kept + self.thetas.nbytes


register(
    Registration(
        "class_rehearsal",
        "rehearsal of classes + Bayes",
        ClassRehearsal,
        REHEARSAL,
        MLP,
        10.0,
        GRADIENT,
        DECAYED,
    )
)
