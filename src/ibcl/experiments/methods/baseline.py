"""What all baselines share: checks, seeds, the training loop, and one model a preference."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ibcl import likelihoods
from ibcl.experiments.methods.models import ManyModels
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.preference import preference_matrix
from ibcl.tasks import TaskData, as_inputs, as_task

Gradient = Callable[[Tensor, Tensor, int], Tensor]
"""From parameters (P, D), the rows of a minibatch and the epoch to the gradient to descend on."""


class Baseline(ABC):
    """A deterministic learner of a network, with a model a preference.

    Parameters
    ----------
    network
        Any module; networks of linear layers (`ibcl.networks.linear`, `ibcl.networks.mlp`) are
        fastest.
    epochs, batch_size, learning_rate
        Of Adam, afresh at every task; the learning rate falls to zero along a cosine. A minibatch
        is the same for the models of all preferences.
    weight_decay
        λ of a penalty ½ λ ‖θ‖² on every model's loss.
    likelihood
        Gives the loss, −log p(y | f): cross entropy for classes, squared error for regression.
    seed
        Fixes starts, minibatches and which samples are kept.
    """

    name: ClassVar[str]

    def __init__(
        self,
        network: nn.Module,
        *,
        epochs: int = 20,
        batch_size: int = 32,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.0,
        likelihood: str | Likelihood = "auto",
        seed: int = 0,
    ) -> None:
        self.network = FlatNetwork(network)
        self.models = ManyModels(self.network)
        self.epochs = at_least("epochs", epochs, 1)
        self.batch_size = at_least("batch_size", batch_size, 1)
        self.learning_rate = positive("learning_rate", learning_rate)
        self.weight_decay = positive("weight_decay", weight_decay, or_zero=True)
        self.likelihood = likelihood
        self.seed = at_least("seed", seed, 0)
        self.tasks: list[str] = []
        self.updates = 0
        self.thetas: Tensor | None = None

    @abstractmethod
    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Learn the current task; return the parameters of each preference's model, (P, D)."""

    @property
    @abstractmethod
    def stored_bytes(self) -> int:
        """Bytes kept for the next task; the models that answer the present preferences are not."""

    def learn(
        self,
        task: str,
        train: TaskData,
        validation: TaskData | None = None,
        preferences: ArrayLike = ((1.0,),),
    ) -> None:
        """Learn the next task, and make a model for each of the preferences.

        Validation data is not used: the baselines are tuned between runs, not within one.
        """
        if task in self.tasks:
            raise ValueError(
                f"Task {task!r} has been learnt already; give the next one a new name."
            )
        matrix = np.atleast_2d(np.asarray(preferences))
        if not len(matrix):
            raise ValueError(f"Give at least one preference with task {task!r}.")
        weights = preference_matrix(matrix, [*self.tasks, task])
        self.thetas = self.fit(self._checked(train), torch.as_tensor(weights, dtype=torch.float32))
        self.tasks.append(task)

    def predict_logits(self, x: Any) -> Tensor:
        """Return the outputs of each preference's model, of shape (preferences, n, outputs)."""
        if self.thetas is None:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        with torch.no_grad():
            return self.models(self.thetas, as_inputs(x))

    def descend(
        self, thetas: Tensor, samples: int, gradient: Gradient, generator: torch.Generator
    ) -> None:
        """Train all models together by Adam: `epochs` passes over so many samples in minibatches.

        One fused Adam steps every model at once, in place; Adam works coordinate by coordinate, so
        each model goes exactly where it would have gone alone.
        """
        thetas.grad = torch.zeros_like(thetas)
        optimiser = torch.optim.Adam(
            [thetas.requires_grad_()],
            lr=self.learning_rate,
            weight_decay=self.weight_decay,
            fused=True,
        )
        steps = self.epochs * math.ceil(samples / self.batch_size)
        schedule = iter(0.5 * (1 + math.cos(math.pi * step / steps)) for step in range(steps))
        for epoch in range(self.epochs):
            for rows in torch.split(torch.randperm(samples, generator=generator), self.batch_size):
                thetas.grad = gradient(thetas, rows, epoch)
                optimiser.param_groups[0]["lr"] = self.learning_rate * next(schedule)
                optimiser.step()
                self.updates += len(thetas)
        thetas.requires_grad_(False)

    def minimise(
        self, start: Tensor, data: TaskData, importance: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Train one model a row of `importance`, on 1/n Σ_s importance_s · loss_s, from `start`.

        Start has shape (D,), importance (P, n); the result has shape (P, D).
        """
        thetas = start.repeat(len(importance), 1)

        def gradient(thetas: Tensor, rows: Tensor, _: int) -> Tensor:
            losses = partial(self.loss, y=data.y[rows])
            samples = per_sample_gradients(self.models, thetas, data.x[rows], losses)
            return samples.combine(importance[:, rows] / len(rows), out=thetas.grad)

        self.descend(thetas, data.size, gradient, generator)
        return thetas

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """−log p(y | f) of each model and sample, of shape (P, n)."""
        assert not isinstance(self.likelihood, str)
        return self.likelihood.negative_log(outputs, y)

    def generator(self) -> torch.Generator:
        """Return the present task's own source of randomness."""
        state = np.random.SeedSequence([self.seed, len(self.tasks)]).generate_state(1, np.uint64)
        return torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))

    def _checked(self, train: TaskData) -> TaskData:
        x, y = as_task(*train)
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
