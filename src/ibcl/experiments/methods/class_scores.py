r"""Scores of every class of every task, and Bayes' rule for any preference.

A preference is the prior probability that the next input comes from task k. With a score
s_kc(x) = log p(x, c | k) + constant for every class c of every task k,

    p(k, c | x, w) = softmax over (k, c) of s_kc(x) + log w_k,    p(c | x, w) = Σ_k p(k, c | x, w).

So a method that scores classes answers every preference without a model of its own for it. The
joint probabilities answer the class-incremental question: which class of which task is it?
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod
from ibcl.tasks import TaskData, as_inputs


@runtime_checkable
class AnswersAmongAllClasses(Protocol):
    """A method that can say which class of which task an input is from."""

    @property
    def columns(self) -> Tensor:
        """Task and label of every class, of shape (C, 2), in the order of their columns."""

    def predict_classes(self, x: Any) -> Tensor:
        """Return log p(k, c | x, w) of each preference, of shape (preferences, n, C)."""


def bayes_rule(scores: Tensor, tasks: Tensor, preferences: Tensor) -> Tensor:
    """Turn scores (n, C) and preferences (P, K) into log p(k, c | x, w), of shape (P, n, C).

    Examples
    --------
    >>> scores, tasks = torch.zeros(1, 4), torch.tensor([0, 0, 1, 1])
    >>> bayes_rule(scores, tasks, torch.tensor([[0.8, 0.2]])).exp()
    tensor([[[0.4000, 0.4000, 0.1000, 0.1000]]])
    """
    return (scores + preferences.log()[:, None, tasks]).log_softmax(-1)


def label_logits(joint: Tensor, labels: Tensor, outputs: int) -> Tensor:
    """Sum log p(k, c | x, w) over the tasks, as a network's outputs: log p(c), or one logit.

    Examples
    --------
    >>> joint = torch.tensor([[[0.4, 0.3, 0.1, 0.2]]]).log()
    >>> label_logits(joint, torch.tensor([0, 1, 0, 1]), outputs=2).exp()
    tensor([[[0.5000, 0.5000]]])
    """
    summed = [
        joint[..., labels == label].logsumexp(-1)
        if bool((labels == label).any())
        else torch.full(joint.shape[:-1], -torch.inf)
        for label in range(max(2, outputs))
    ]
    if outputs == 1:
        # Far from all tasks both may be beyond what exp can hold; their difference is not.
        return (summed[1] - summed[0]).clamp(-1e4, 1e4).unsqueeze(-1)
    return torch.stack(summed, -1).clamp(min=-1e4)


class ClassScores(CheckedMethod):
    """A method that scores every class of every task.

    Parameters
    ----------
    network
        Says how many outputs there are. What a closed form regresses on are the fixed features in
        front of its last layer: x itself behind `ibcl.networks.linear`, random ones behind
        `ibcl.networks.random_features`.
    """

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.columns = torch.empty(0, 2, dtype=torch.long)
        self.preferences = torch.empty(0, 0)
        self.outputs = 0

    @abstractmethod
    def scores(self, x: Tensor) -> Tensor:
        """Log p(x, c | k) + constant of every class of every task, of shape (n, C)."""

    @abstractmethod
    def learn_classes(self, x: Tensor, column: Tensor, new: Tensor) -> None:
        """Learn a task's samples, given the column of each one's class, and the new columns."""

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Give the task's classes columns of their own, and learn them."""
        assert not isinstance(self.likelihood, str)
        if current.y.ndim != 1 or bool((current.y != current.y.round()).any()):
            raise ValueError(
                f"{self.name} tells classes apart: give whole numbers as labels, not real values."
            )
        labels, place = torch.unique(current.y.long(), return_inverse=True)
        first = len(self.columns)
        new = torch.stack([torch.full_like(labels, len(self.tasks)), labels], 1)
        self.columns = torch.cat([self.columns, new])
        self.outputs = self.network.template(current.x[:1]).reshape(1, -1).shape[1]
        self.preferences = preferences
        self.learn_classes(current.x, first + place, torch.arange(first, len(self.columns)))

    def predict_classes(self, x: Any) -> Tensor:
        """Return log p(k, c | x, w) of each preference, of shape (preferences, n, C)."""
        if not len(self.columns):
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        with torch.no_grad():
            return bayes_rule(self.scores(as_inputs(x)), self.columns[:, 0], self.preferences)

    def predict_logits(self, x: Any) -> Tensor:
        """Return log p(c | x, w) as outputs, of shape (preferences, n, outputs)."""
        return label_logits(self.predict_classes(x), self.columns[:, 1], self.outputs)


def shares_within_tasks(counts: Tensor, tasks: Tensor) -> Tensor:
    """Log π_{c|k}, how frequent each class is within its own task.

    Examples
    --------
    >>> shares_within_tasks(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 1])).exp()
    tensor([0.2500, 0.7500, 1.0000])
    """
    totals = torch.zeros(int(tasks.max()) + 1, dtype=counts.dtype).index_add(0, tasks, counts)
    return (counts / totals[tasks]).log()
