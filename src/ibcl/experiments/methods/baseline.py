"""What the methods that train by gradient share: one model per preference."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod
from ibcl.experiments.methods.descent import Descent, Gradient, of_weighted_loss
from ibcl.experiments.methods.many_models import ManyModels
from ibcl.likelihoods import Likelihood
from ibcl.tasks import TaskData, as_inputs


class Baseline(CheckedMethod):
    """A deterministic learner of a network, with a model per preference.

    Parameters
    ----------
    network
        Any module; networks of linear layers (`ibcl.networks.linear`, `ibcl.networks.mlp`) are
        fastest.
    epochs, batch_size, learning_rate, weight_decay
        As in `Descent`, at every task afresh.
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
        self.descent = Descent(epochs, batch_size, learning_rate, weight_decay)
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
        """Train all models together, in place, and count the updates."""
        self.updates += self.descent.run(thetas, samples, gradient, generator)

    def minimise(
        self, start: Tensor, data: TaskData, importance: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Train one model per row of `importance`, on 1/n Σ_s importance_s · loss_s, from `start`.

        Start has shape (D,), importance (P, n); the result has shape (P, D).
        """
        thetas = start.repeat(len(importance), 1)
        gradient = of_weighted_loss(self.models, self.slope, data, importance)
        self.descend(thetas, data.size, gradient, generator)
        return thetas
