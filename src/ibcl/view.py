"""A view: all that models are made from, at one moment, never changed afterwards.

A learner publishes a new one whenever it has learnt or forgotten something. Whoever holds a view
goes on with what was known then, in any thread, whatever the learner does meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ibcl.encoding import Encoder
from ibcl.knowledge import KnowledgeBase
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.pooling import PoolingRule, Routed
from ibcl.predictors import head_means
from ibcl.routing import Routes
from ibcl.tasks import as_inputs


@dataclass(frozen=True, eq=False)
class View:
    """What a learner knows and how it answers, at one moment."""

    network: FlatNetwork
    knowledge: KnowledgeBase
    likelihood: Likelihood | None
    """None before the first task."""
    pooling: PoolingRule | Routed
    pooling_name: str
    alpha: float
    seed: int
    task_incremental: int | None = None
    encoder: Encoder | None = None

    @property
    def answers(self) -> Likelihood:
        """The likelihood, which the first task settles."""
        if self.likelihood is None:
            raise ValueError("There is no task yet: learn one before asking for a model.")
        return self.likelihood

    @cached_property
    def routes(self) -> Routes:
        """Heads and gate of all tasks, for routed models and for densities of inputs."""
        rule = self.pooling if isinstance(self.pooling, Routed) else Routed()
        return Routes(rule, self.knowledge, self.network)

    def input_scores(self, inputs: Tensor) -> Tensor:
        """Return log p_k(x) up to a term that all tasks share, of shape (n, tasks)."""
        _ = self.answers  # Refuses where there is no task yet.
        with torch.no_grad():
            scores: Tensor = self.routes.gate(self.network.features(inputs).double())
        return scores

    def task_means(self, inputs: Tensor) -> Tensor:
        """Return what every task's own head answers, of shape (tasks, n, columns)."""
        routes = self.routes
        heads = routes.uniform_means
        tasks = torch.arange(len(heads), device=heads.device)
        return head_means(self.network, self.answers, heads, inputs, tasks, routes.seen)

    def label_scores(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """Return log p_k(y | x) of every task's own head, of shape (n, tasks).

        Parameters
        ----------
        labels
            As they come from an encoder, or as the likelihood takes them.
        """
        answers = self.answers
        checked = answers.check(labels, self.network.check_inputs(inputs))
        means = self.task_means(inputs)
        if answers.classification:
            return (
                means[:, torch.arange(len(checked), device=checked.device), checked.long()].log().T
            )
        return -answers.negative_log(answers.outputs_of(means), checked).T

    def encode(self, x: Any, task: str | None = None) -> Tensor:
        """Turn a user's x into the network's inputs."""
        inputs = as_inputs(x) if self.encoder is None else self.encoder.inputs(x)
        inputs = inputs.to(self.network.device)
        inputs = append_task_id(inputs, task, self.knowledge.tasks, self.task_incremental)
        self.network.check_width(inputs)
        return inputs


def append_task_id(x: Tensor, task: str | None, tasks: tuple[str, ...], size: int | None) -> Tensor:
    """Append the one-hot id of a task to x, where tasks are told apart (size is not None)."""
    if size is None:
        return x
    if x.ndim != 2:
        raise ValueError("Task ids can only be appended to inputs that are plain vectors.")
    if task is None:
        raise ValueError("This learner tells tasks apart: say which task the inputs are from.")
    if task not in tasks:
        raise ValueError(f"Unknown task {task!r}; known tasks are {', '.join(tasks)}.")
    position = tasks.index(task)
    if position >= size:
        raise ValueError(f"The learner was made for {size} tasks and has learnt them all.")
    identity = x.new_zeros(len(x), size)
    identity[:, position] = 1
    return torch.cat([x, identity], 1)
