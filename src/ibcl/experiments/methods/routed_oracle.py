"""The routed oracle: all data of all tasks, and which task each sample is from."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.class_network import ClassNetwork
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import ALL_DATA, Registration, register
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


class RoutedOracle(ClassNetwork):
    r"""One network over the classes (task, label), trained on all data, and Bayes' rule with w.

    The score of a preference is the accuracy on Σ_k w_k p_k(x, y), whose best classifier is

        p(y | x, w) = Σ_k r_k(x, w) p_k(y | x),     r_k(x, w) ∝ w_k p_k(x).

    A network retrained for w (`Oracle`) can only learn it where it finds out the tasks by itself;
    this one is told them while training (never while testing), and keeps **all data of all tasks**.
    """

    name = "routed_oracle"

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.seen: list[tuple[Tensor, Tensor]] = []

    def keep(self, task: str, train: TaskData) -> None:
        """Keep a task's data without training: the next task trains on everything anyway."""
        self._check_new(task)
        equal = torch.full((1, len(self.tasks) + 1), 1 / (len(self.tasks) + 1))
        ClassNetwork.absorb(self, self._checked(train), equal)
        self.tasks.append(task)

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Train on everything seen so far."""
        super().absorb(current, preferences)
        self.train()

    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Keep the samples."""
        self.seen.append((x, column))

    def samples(self) -> list[tuple[Tensor, Tensor]]:
        """All data."""
        return self.seen

    def start(self, network: FlatNetwork, generator: torch.Generator) -> Tensor:
        """A random start, at every task anew."""
        return network.initial_parameters(generator)

    @property
    def stored_bytes(self) -> int:
        """Bytes of all data seen."""
        return sum(x.nbytes + column.nbytes for x, column in self.seen)


register(
    Registration(
        "routed_oracle",
        "softmax over (task, label), all data",
        RoutedOracle,
        ALL_DATA,
        MLP,
        10.0,
        GRADIENT,
        DECAYED,
    )
)
