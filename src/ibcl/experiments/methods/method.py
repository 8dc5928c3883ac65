"""What the evaluation asks of a method, baseline or not."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.tasks import TaskData


@runtime_checkable
class Method(Protocol):
    """A continual learner that answers preferences between the tasks it has seen.

    Tasks come one by one. With task i come the preferences that will be asked until the next task
    arrives, as a matrix with one row per preference and i columns: a method that trains a model for
    every preference trains them now, a method that does not (convex combinations, prompts, IBCL)
    only writes the rows down.
    """

    name: ClassVar[str]

    @property
    def updates(self) -> int:
        """Optimiser steps so far, counted per model: a step of ten models at once counts ten."""

    @property
    def stored_bytes(self) -> int:
        """Bytes the method must keep for the next task: weights, samples, logits, as they are."""

    def learn(
        self, task: str, train: TaskData, validation: TaskData | None, preferences: ArrayLike
    ) -> None:
        """Learn the next task, and make a model for each of the preferences."""

    def predict_logits(self, x: Any) -> Tensor:
        """Return the outputs of each preference's model, of shape (preferences, n, outputs)."""


@runtime_checkable
class KeepsAllData(Protocol):
    """A method that trains anew on all data at every task, and only where it is evaluated."""

    def keep(self, task: str, train: TaskData) -> None:
        """Keep a task's data without training."""
