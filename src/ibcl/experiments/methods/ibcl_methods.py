"""IBCL's variants behind the same interface as the baselines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from ibcl import (
    IBCL,
    DenseVI,
    MeanFieldVI,
    Model,
    OneVsRestVI,
    PoolingRule,
    Routed,
    load,
    networks,
)
from ibcl import RoutedEvidence as RoutedEvidencePooling
from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.class_scores import label_logits
from ibcl.inference import Inference
from ibcl.likelihoods import Likelihood
from ibcl.preference import preference_matrix
from ibcl.tasks import TaskData, as_inputs


class IBCLMethod:
    """An `ibcl.IBCL` learner that is asked for many preferences at every task.

    No model is trained for a preference, so that neither updates nor stored bytes depend on them.
    Predictions are those of the preferences' mean models; `models` gives the models themselves,
    with their regions to sample from. Validation data is not used for training.

    Parameters
    ----------
    inference
        How posteriors are found; the library's choice where None.
    prior_std
        Of the initial prior N(0, prior_std² I); several give several priors. The library's choice,
        from the data of each task, where None.
    pooling
        Another rule than the variant's own.
    storage
        Save the knowledge base this way after every task and go on with what was loaded again
        (`ibcl.IBCL.save`); the bytes counted are then those of its files. Without it nothing is
        saved, and bytes are those in memory.
    d, distance, alpha, independent, likelihood, seed
        As in `ibcl.IBCL`.
    """

    name: ClassVar[str]
    pooling: ClassVar[str]

    def __init__(
        self,
        network: nn.Module,
        inference: Inference | None,
        *,
        prior_std: float | Sequence[float] | None = 2.5,
        pooling: str | PoolingRule | None = None,
        storage: str | None = None,
        d: float | None = 0.012,
        distance: str = "rms",
        alpha: float = 0.01,
        independent: bool | None = False,
        likelihood: str | Likelihood = "auto",
        seed: int = 0,
    ) -> None:
        stds = prior_std if isinstance(prior_std, Sequence) else [prior_std]
        given = [positive("prior_std", std) for std in stds if std is not None]
        self.learner = IBCL(
            network,
            priors=given or None,
            inference=inference,
            pooling=pooling or self.pooling,
            d=d,
            distance=distance,
            alpha=alpha,
            seed=at_least("seed", seed, 0),
            likelihood=likelihood,
            independent=independent,
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
        self.updates += self.learner.learn(train.x, train.y, task=task).updates
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
        inputs = as_inputs(x)
        means = self.learner.predict_many(inputs, self.preferences)
        likelihood = self.learner.likelihood
        assert not isinstance(likelihood, str)
        outputs: Tensor = likelihood.outputs_of(means.double())
        return outputs.float()

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
    far, where the models of most preferences lie; with ``independent=True`` it is found around the
    task's own posterior, and does not depend on the order. Inference is a deterministic fixed point
    and takes no minibatch updates.
    """

    name = "ibcl_evidence"
    pooling = "evidence"

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, DenseVI(), **{"d": 0.0, **settings})


def _routed(
    support: float | None, temperature: float | None, gate: str, heads: str
) -> dict[str, Any]:
    return {"pooling": Routed(support, temperature, gate, heads), "independent": True, "d": 0.0}


class BehindGate(IBCLMethod):
    r"""One head per task and a gate between them: p(y | x, w) = Σ_k r_k(x, w) p_k(y | x).

    Tasks are learnt independently. It uses which task a *training* sample came from, which a
    continual learner knows, and nothing more at test time.
    """

    @property
    def columns(self) -> Tensor:
        """Task and label of every class: each task has two."""
        tasks = torch.arange(len(self.learner.tasks))
        return torch.cartesian_prod(tasks, torch.arange(2))


class RoutedEvidence(BehindGate):
    """Routed evidence as the library has it by default, with no setting chosen for a benchmark.

    Parameters
    ----------
    kept
        What is kept of a task, `ibcl.RoutedEvidence.memory`: ``"compact"``, ``"exact"``,
        ``"shared"`` or a number of bytes; the library's choice where None.
    head_share
        As in `ibcl.RoutedEvidence`.
    """

    name = "routed"

    def __init__(
        self,
        network: nn.Module,
        *,
        kept: str | int | None = None,
        head_share: float | None = None,
        **settings: Any,
    ) -> None:
        rule = RoutedEvidencePooling(head_share=head_share)
        if kept is not None:
            rule = replace(rule, memory=kept)
        chosen_by_library = {"prior_std": None, "d": None, "independent": None}
        super().__init__(network, None, **{**chosen_by_library, "pooling": rule, **settings})

    def predict_classes(self, x: Any) -> Tensor:
        """Log r_k(x, w) + log p_k(c | x): the class of which task, for two classes per task."""
        predictives: Any = self.learner.state.predictives
        answers = predictives.task_answers(self.learner.state.features(as_inputs(x)))
        shares = torch.softmax(
            answers.densities.double() + torch.from_numpy(self.preferences).log()[:, None], -1
        )
        experts = answers.of_tasks.double().transpose(0, 1)
        joint: Tensor = (shares[..., None] * experts).flatten(2)
        return joint.float().clamp(min=torch.finfo(torch.float32).tiny).log()


class FirstRoutedEvidence(BehindGate):
    """The first version of routed evidence: heads pooled from the evidence of all tasks.

    Parameters
    ----------
    support, temperature, gate, heads
        As in `ibcl.Routed`: heads supported by all tasks alike cost a preference no solve at all.
    """

    name = "routed1"

    def __init__(
        self,
        network: nn.Module,
        *,
        support: float | None = None,
        temperature: float | None = None,
        gate: str = "moments",
        heads: str = "uniform",
        **settings: Any,
    ) -> None:
        rule = _routed(support, temperature, gate, heads)
        super().__init__(network, DenseVI(), **{**rule, **settings})

    def predict_classes(self, x: Any) -> Tensor:
        """Log r_k(x, w) + log p_k(c | x): the class of which task, for two classes per task."""
        features = self.learner.state.features(as_inputs(x))
        joint = []
        for weights in self.preferences:
            predictive: Any = self.learner.model(weights).predictive
            heads, active = predictive.task_heads, predictive.active
            # The gate reads every row once for all tasks: its covariances are what takes time.
            densities = heads.joint(features)
            shares = heads.shares(predictive.gate.of_joint(densities), predictive.weights)
            answers = torch.zeros(len(features), len(weights), 2, dtype=torch.float64)
            own = heads.answers(predictive.heads, features, densities, active)
            answers[:, active] = own.double().transpose(0, 1)
            joint.append((shares.double()[:, :, None] * answers).flatten(1))
        smallest = torch.finfo(torch.float32).tiny
        return torch.stack(joint).float().clamp(min=smallest).log()


class RoutedMeanField(MeanFieldIBCL):
    """The paper's network and posteriors behind a gate.

    With independent tasks and ``support=1`` every task has its own network; learnt in a chain the
    networks are alike enough for barycentres, which support each other. The gate needs statistics
    of its own, the moments of the classes' features.

    Parameters
    ----------
    support, temperature
        As in `ibcl.Routed`.
    """

    name = "routed_mean_field"

    def __init__(
        self,
        network: nn.Module,
        *,
        support: float | None = None,
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        rule = Routed(support, temperature, gate="moments")
        super().__init__(network, **{"pooling": rule, "d": 0.0, **settings})


class RoutedClasses(IBCLMethod):
    r"""The first version of routed evidence among the classes of all tasks.

    Each task has classes of its own. Every class (task, label) has an output, one class against the
    rest, and the gate knows the classes' own covariances. The answer to a label is the sum over its
    classes.

    Parameters
    ----------
    classes
        Outputs to make room for.
    support, temperature
        As in `ibcl.Routed`.
    """

    name = "routed1_classes"

    def __init__(
        self,
        network: nn.Module,
        *,
        classes: int = 20,
        support: float | None = None,
        temperature: float | None = None,
        **settings: Any,
    ) -> None:
        specification = getattr(network, "specification", None)
        if specification is None:
            raise ValueError(
                f"{self.name} needs a network of ibcl.networks, which it can rebuild with an "
                f"output for every class; a {type(network).__name__} cannot be."
            )
        wide = networks.build({**specification, "outputs": at_least("classes", classes, 2)})
        rule = _routed(support, temperature, "classes", "uniform")
        super().__init__(wide, OneVsRestVI(), **{**rule, "likelihood": "one_vs_rest", **settings})
        self.columns = torch.empty(0, 2, dtype=torch.long)

    def learn(
        self,
        task: str,
        train: TaskData,
        validation: TaskData | None = None,
        preferences: ArrayLike = ((1.0,),),
    ) -> None:
        """Give the task's classes numbers of their own, and learn them."""
        labels, place = torch.unique(train.y.long(), return_inverse=True)
        new = torch.stack([torch.full_like(labels, len(self.learner.tasks)), labels], 1)
        numbered = TaskData(train.x, len(self.columns) + place)
        super().learn(task, numbered, validation, preferences)
        self.columns = torch.cat([self.columns, new])

    def predict_classes(self, x: Any) -> Tensor:
        """Return log p(k, c | x, w) of each preference, of shape (preferences, n, C)."""
        means = self.learner.predict_many(as_inputs(x), self.preferences)
        found: Tensor = means[..., : len(self.columns)].clamp(min=torch.finfo().tiny).log()
        return found

    def predict_logits(self, x: Any) -> Tensor:
        """Return log p(c | x, w), of two classes as one logit."""
        if not self.learner.tasks:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        labels = self.columns[:, 1]
        outputs = 1 if int(labels.max()) < 2 else int(labels.max()) + 1
        return label_logits(self.predict_classes(x), labels, outputs)
