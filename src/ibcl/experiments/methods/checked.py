"""What all methods but IBCL's own share: checks of tasks and preferences, and seeds."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ibcl import likelihoods
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.preference import preference_matrix
from ibcl.tasks import TaskData, as_task


class CheckedMethod(ABC):
    """A learner that refuses bad tasks and preferences before anything changes.

    Parameters
    ----------
    network
        Any module whose outputs the labels fit.
    likelihood
        Gives the loss, −log p(y | f): cross entropy for classes, squared error for regression.
    seed
        Fixes everything random.
    """

    name: ClassVar[str]

    def __init__(
        self, network: nn.Module, *, likelihood: str | Likelihood = "auto", seed: int = 0
    ) -> None:
        self.network = FlatNetwork(network)
        self.likelihood = likelihood
        self.seed = at_least("seed", seed, 0)
        self.tasks: list[str] = []
        self.updates = 0

    @abstractmethod
    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Learn the current task, and make ready for these preferences, of shape (P, i)."""

    @property
    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes kept for the next task; the models that answer the present preferences are not."""

    @abstractmethod
    def predict_logits(self, x: Any) -> Tensor:
        """Return the outputs of each preference's model, of shape (preferences, n, outputs)."""

    def learn(
        self,
        task: str,
        train: TaskData,
        validation: TaskData | None = None,
        preferences: ArrayLike = ((1.0,),),
    ) -> None:
        """Learn the next task, and make a model for each of the preferences.

        Validation data is not used: methods are tuned between runs, not within one.
        """
        self._check_new(task)
        matrix = np.atleast_2d(np.asarray(preferences))
        if not len(matrix):
            raise ValueError(f"Give at least one preference with task {task!r}.")
        weights = preference_matrix(matrix, [*self.tasks, task])
        self.absorb(self._checked(train), torch.as_tensor(weights, dtype=torch.float32))
        self.tasks.append(task)

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """−log p(y | f) of each model and sample, of shape (P, n)."""
        assert not isinstance(self.likelihood, str)
        return self.likelihood.negative_log(outputs, y)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """The derivative of each loss by its own outputs, of their shape."""
        assert not isinstance(self.likelihood, str)
        return self.likelihood.slope(outputs, y)

    def generator(self) -> torch.Generator:
        """Return the present task's own source of randomness."""
        state = np.random.SeedSequence([self.seed, len(self.tasks)]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))

    def _check_new(self, task: str) -> None:
        if task in self.tasks:
            raise ValueError(
                f"Task {task!r} has been learnt already; give the next one a new name."
            )

    def _checked(self, train: TaskData) -> TaskData:
        x, y = as_task(train.x, train.y)[:2]
        try:
            outputs = self.network.template(x[:1]).reshape(1, -1).shape[1]
        except RuntimeError as error:
            raise ValueError(
                f"The network does not accept inputs of shape {tuple(x.shape[1:])}: {error}."
            ) from None
        if isinstance(self.likelihood, str):
            self.likelihood = likelihoods.choose(self.likelihood, y, outputs)
        return TaskData(x, self.likelihood.check(y, outputs))


def at_least(name: str, value: int, least: int) -> int:
    """Return a whole number, or refuse it.

    Examples
    --------
    >>> at_least("epochs", 20, 1)
    20
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}.")
    return value


def positive(name: str, value: float, or_zero: bool = False) -> float:
    """Return a positive finite number (or 0 where that makes sense), or refuse it.

    Examples
    --------
    >>> positive("learning_rate", 0.01)
    0.01
    """
    valid = isinstance(value, int | float) and not isinstance(value, bool)
    least = 0.0 if or_zero else math.ulp(0.0)
    if not valid or not least <= value < math.inf:
        wanted = "0 or a positive number" if or_zero else "a positive number"
        raise ValueError(f"{name} must be {wanted}, not {value!r}.")
    return float(value)


def share(name: str, value: float) -> float:
    """Return a number between 0 and 1, or refuse it.

    Examples
    --------
    >>> share("shrinkage", 0.1)
    0.1
    """
    if positive(name, value, or_zero=True) > 1:
        raise ValueError(f"{name} must lie between 0 and 1, not {value!r}.")
    return float(value)
