"""IBCL's variants behind the same interface as the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.inference import DenseVI, Inference, MeanFieldVI
from ibcl.learner import IBCL
from ibcl.likelihoods import Likelihood
from ibcl.model import Model
from ibcl.preference import preference_matrix
from ibcl.store import load
from ibcl.tasks import TaskData, as_inputs


class IBCLMethod:
    """An `ibcl.IBCL` learner that is asked many preferences a task.

    No model is trained for a preference, so that neither updates nor stored bytes depend on them.
    Predictions are those of the preferences' mean models; `models` gives the models themselves,
    with their regions to sample from. Validation data is not used for training.

    Parameters
    ----------
    prior_std
        Of the initial prior N(0, prior_std² I); several give several priors.
    pooling
        Another rule than the variant's own.
    storage
        Save the knowledge base this way after every task and go on with what was loaded again
        (`ibcl.IBCL.save`); the bytes counted are then those of its files. Without it nothing is
        saved, and bytes are those in memory.
    d, alpha, continual, likelihood, seed
        As in `ibcl.IBCL`.
    """

    name: ClassVar[str]
    pooling: ClassVar[str]

    def __init__(
        self,
        network: nn.Module,
        inference: Inference,
        *,
        prior_std: float | Sequence[float] = 2.5,
        pooling: str | None = None,
        storage: str | None = None,
        d: float = 0.012,
        alpha: float = 0.01,
        continual: bool = True,
        likelihood: str | Likelihood = "auto",
        seed: int = 0,
    ) -> None:
        stds = prior_std if isinstance(prior_std, Sequence) else [prior_std]
        self.learner = IBCL(
            network,
            priors=[positive("prior_std", std) for std in stds],
            inference=inference,
            pooling=pooling or self.pooling,
            d=d,
            alpha=alpha,
            seed=at_least("seed", seed, 0),
            likelihood=likelihood,
            continual=continual,
        )
        self.storage = storage
        self.updates = 0
        self.stored_bytes = 0
        self.preferences = np.empty((0, 0))

    def learn(
        self,
        task: str,
        train: TaskData,
        validation: TaskData | None = None,
        preferences: ArrayLike = ((1.0,),),
    ) -> None:
        """Learn the next task, and remember the preferences that will be asked."""
        matrix = np.atleast_2d(np.asarray(preferences))
        if not len(matrix):
            raise ValueError(f"Give at least one preference with task {task!r}.")
        weights = preference_matrix(matrix, [*self.learner.tasks, task])
        self.updates += self.learner.learn(*train, task=task).updates
        self.stored_bytes = self.learner.knowledge.nbytes
        if self.storage is not None:
            self._save_and_load(self.storage)
        self.preferences = weights

    def _save_and_load(self, storage: str) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "knowledge.ibcl"
            self.learner.save(path, storage=storage)
            self.stored_bytes = sum(f.stat().st_size for f in path.rglob("*") if f.is_file())
            self.learner = load(path)

    def predict_logits(self, x: Any) -> Tensor:
        """Return the outputs of each preference's mean model, (preferences, n, outputs)."""
        if not self.learner.tasks:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        thetas = torch.cat([block.thetas for block in self.learner.models(self.preferences)])
        with torch.no_grad():
            return self.learner.network.outputs_of_many(thetas.float(), as_inputs(x))

    def models(self) -> list[Model]:
        """Return each preference's model, with its distribution and region."""
        return [self.learner.model(weights) for weights in self.preferences]


class MeanFieldIBCL(IBCLMethod):
    """IBCL by mean-field variational inference, for any network."""

    def __init__(
        self,
        network: nn.Module,
        *,
        epochs: int = 20,
        batch_size: int = 32,
        learning_rate: float = 5e-3,
        initial_std: float = 0.05,
        **settings: Any,
    ) -> None:
        inference = MeanFieldVI(
            epochs=at_least("epochs", epochs, 1),
            batch_size=at_least("batch_size", batch_size, 1),
            learning_rate=positive("learning_rate", learning_rate),
            initial_std=positive("initial_std", initial_std),
        )
        super().__init__(network, inference, **settings)


class IBCLWasserstein(MeanFieldIBCL):
    """IBCL as in the paper: mean-field posteriors, and their 2-Wasserstein barycentre."""

    name = "ibcl"
    pooling = "wasserstein"


class IBCLMixture(MeanFieldIBCL):
    """IBCL with the mixture of densities, the definition of the credal set's members.

    The mean of a mixture is the barycentre's, so mean models are those of `IBCLWasserstein`; what
    differs is the region.
    """

    name = "ibcl_mixture"
    pooling = "mixture"


class IBCLEvidence(IBCLMethod):
    """IBCL with evidence pooling of full-covariance posteriors, for linear heads.

    The network must be linear in its parameters (`ibcl.networks.linear`,
    `ibcl.networks.random_features`). Every posterior is stored: evidence is a ratio of posteriors,
    which pointers would falsify. Each task's evidence is found around the posterior of all tasks so
    far, where the models of most preferences lie; with ``continual=False`` it is found around the
    task's own posterior, and does not depend on the order. Inference is a deterministic fixed point
    and takes no minibatch updates.
    """

    name = "ibcl_evidence"
    pooling = "evidence"

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, DenseVI(), **{"d": 0.0, **settings})
