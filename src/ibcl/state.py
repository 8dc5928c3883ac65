"""The state of a learner: all that it knows and how it answers, at one moment, never changed.

A learner publishes a new one whenever it has learnt or forgotten something. Whoever holds a state
goes on with what was known then, in any thread, whatever the learner does meanwhile. It is also all
that is kept on disk of a learner.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ibcl.encoding import Encoder
from ibcl.inference import Inference
from ibcl.knowledge import KnowledgeBase
from ibcl.likelihoods import Likelihood, Normal
from ibcl.networks import FlatNetwork
from ibcl.pooling import GatedPredictives, PoolingRule, Routed, pooling_rule
from ibcl.predictive import Predictives
from ibcl.settings import Settings
from ibcl.tasks import append_task_id, as_inputs


@dataclass(frozen=True, eq=False)
class State:
    """What a learner knows and how it answers, at one moment.

    Parameters
    ----------
    given
        What the user settled; None where it is left open.
    settled
        The same with everything settled; None before the first task.
    reasons
        By the name of each setting that was left open: what was chosen, and why.
    """

    network: FlatNetwork
    knowledge: KnowledgeBase
    given: Settings
    settled: Settings | None = None
    reasons: Mapping[str, str] = field(default_factory=dict)
    encoder: Encoder | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Not what is computed from these when it is first needed.
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}

    @property
    def learnt(self) -> bool:
        """Whether any task has been learnt, so that everything is settled."""
        return bool(self.knowledge.records)

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks learnt so far."""
        return self.knowledge.tasks

    @property
    def settings(self) -> Settings:
        """What is settled, or as long as nothing is, what was given."""
        return self.given if self.settled is None else self.settled

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood; of a regression whose tasks have noise of their own, with that of all.

        That is the root of the mean square over all samples.
        """
        likelihood = self.settings.likelihood
        if self.settled is not None and not isinstance(likelihood, str):
            return likelihood
        known = [(r.noise, max(1, r.samples)) for r in self.knowledge.records if r.noise]
        if self.settled is None or not known:
            raise ValueError("There is no task yet: learn one before asking for a model.")
        squares = math.fsum(samples * noise**2 for noise, samples in known)
        return self.likelihood_of_noise(math.sqrt(squares / sum(n for _, n in known)))

    def likelihood_of_noise(self, noise: float | None) -> Likelihood:
        """Return the likelihood of a task with noise of its own; any will do to check labels."""
        likelihood = self.settings.likelihood
        if not isinstance(likelihood, str):
            return likelihood
        return Normal(1.0 if noise is None else noise)

    @property
    def inference(self) -> Inference | None:
        """The inference method; None while it is open."""
        return self.settings.inference

    @property
    def rule(self) -> PoolingRule | None:
        """The pooling rule; None while it is open."""
        pooling = self.settings.pooling
        return None if pooling is None else pooling_rule(pooling)

    @cached_property
    def predictives(self) -> Predictives:
        """The predictives of all preferences."""
        likelihood, rule = self.likelihood, self.rule
        if rule is None or not self.learnt:
            raise ValueError("There is no task yet: learn one before asking for a model.")
        return rule.predictives(self.knowledge, self.network, likelihood)

    def only(self, task: str) -> State:
        """Return what would be known had only this task been learnt, and learnt as it was."""
        return dataclasses.replace(self, knowledge=self.knowledge.only(task))

    @cached_property
    def _gate(self) -> GatedPredictives[Routed]:
        """Heads and gate of all tasks, for densities of inputs under rules without a gate."""
        return Routed().predictives(self.knowledge, self.network, self.likelihood)

    def log_densities(self, features: Tensor, labels: Tensor | None = None) -> Tensor:
        """Return log p_k(x), plus log p_k(y | x) of each task's own head; shape (n, tasks).

        Up to a term per row that all tasks share.

        Parameters
        ----------
        labels
            As they come from an encoder, or as the likelihood takes them.
        """
        answers = self.predictives.task_answers(features) or self._gate.task_answers(features)
        densities = answers.densities
        if labels is None:
            return densities
        likelihood = self.likelihood
        checked = likelihood.check(labels, self.network.head.output_count(features))
        means = answers.of_tasks
        if likelihood.classification:
            rows = torch.arange(len(checked), device=checked.device)
            return densities + means[:, rows, checked.long()].log().T
        return densities - likelihood.negative_log(likelihood.outputs_of(means), checked).T

    def inputs(self, x: Any, task: str | None = None) -> Tensor:
        """Turn a user's x into the network's inputs."""
        inputs = as_inputs(x) if self.encoder is None else self.encoder.inputs(x)
        inputs = inputs.to(self.network.device)
        inputs = append_task_id(inputs, task, self.tasks, self.settings.task_incremental)
        self.network.check_width(inputs)
        return inputs

    def features(self, x: Any, task: str | None = None) -> Tensor:
        """Turn a user's x into φ(x), once."""
        return self.network.features(self.inputs(x, task))
