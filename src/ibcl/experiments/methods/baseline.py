"""What the methods that train by gradient share: the training loop, and one model a preference."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod, at_least, positive
from ibcl.experiments.methods.models import ManyModels
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.likelihoods import Likelihood
from ibcl.tasks import TaskData, as_inputs

Gradient = Callable[[Tensor, Tensor, int], Tensor]
"""From parameters (P, D), the rows of a minibatch and the epoch to the gradient to descend on."""


class Baseline(CheckedMethod):
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
        super().__init__(network, likelihood=likelihood, seed=seed)
        self.models = ManyModels(self.network)
        self.epochs = at_least("epochs", epochs, 1)
        self.batch_size = at_least("batch_size", batch_size, 1)
        self.learning_rate = positive("learning_rate", learning_rate)
        self.weight_decay = positive("weight_decay", weight_decay, or_zero=True)
        self.thetas: Tensor | None = None

    @abstractmethod
    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Learn the current task; return the parameters of each preference's model, (P, D)."""

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Keep the parameters that `fit` returns for these preferences."""
        self.thetas = self.fit(current, preferences)

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
