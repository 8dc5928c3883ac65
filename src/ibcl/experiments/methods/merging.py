"""Merging: one model per task, all from one start, combined for a preference without training."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.tasks import TaskData


class Merging(Baseline):
    """A task's model is trained on that task alone, from a random start that all tasks share.

    Models that begin at the same point tend to stay in one basin of the loss, where merging can
    work. Updates at task i: n_i · e / b, whatever the number of preferences.
    """

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.start = self.network.initial_parameters(torch.Generator().manual_seed(self.seed))
        self.task_models = torch.empty(0, self.network.dimension)

    @abstractmethod
    def describe(self, theta: Tensor, current: TaskData, generator: torch.Generator) -> None:
        """Keep what merging needs to know of the task besides its model."""

    @abstractmethod
    def merge(self, preferences: Tensor) -> Tensor:
        """Return the merged parameters of each preference, of shape (P, D)."""

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Train the task's own model, and merge all of them by each preference."""
        generator = self.generator()
        theta = self.minimise(self.start, current, torch.ones(1, current.size), generator)
        self.task_models = torch.cat([self.task_models, theta])
        self.describe(theta[0], current, generator)
        return self.merge(preferences)

    @property
    def stored_bytes(self) -> int:
        """Bytes of one model per task."""
        return self.task_models.nbytes
