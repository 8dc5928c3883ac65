"""What a pooling rule is, and the weights it is given."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian
from ibcl.knowledge import KnowledgeBase, Parts
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.predictive import (
    Answers,
    AnswersByParameters,
    CredalSet,
    Predictive,
    Predictives,
    SingleNetwork,
)

if TYPE_CHECKING:
    from ibcl.routing import Moments


PAPER_THRESHOLD = 0.012


class Pooled(NamedTuple):
    """q_w: its mean at once, and the whole of it when it is asked for."""

    mean: Tensor
    distribution: Callable[[], Distribution]


class PoolingRule(ABC):
    """A way to combine extreme elements; weights β have shape (..., tasks, m) and sum to 1.

    A rule must say how to `pool` and the `means`; everything else has a default. A frozen dataclass
    has its fields as settings, which are stored with every knowledge base and compared where two
    are merged. A rule may ask for `moments` to be kept with every task, and may answer otherwise
    than by one parameter vector per preference: with routing and novelty, if its `predictives` have
    them.
    """

    name: ClassVar[str]
    """What it is chosen and stored by."""
    independent: ClassVar[bool] = False
    """Whether tasks are better learnt independently than one from another, by default."""
    threshold: ClassVar[float] = 0.0
    """The distance threshold d by default."""
    takes_experts: ClassVar[bool] = False
    """Whether experts may answer for tasks (`ibcl.experts.task_experts`), besides their heads."""

    @abstractmethod
    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w for one set of weights."""

    @abstractmethod
    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means of q_w for many sets of weights at once: shape (n, D)."""

    def pooled(self, knowledge: KnowledgeBase, weights: Tensor) -> Pooled:
        """Return q_w for one set of weights, computing no more than its mean."""
        mean = self.means(knowledge, weights.unsqueeze(0))[0]
        return Pooled(mean, partial(self.pool, knowledge, weights))

    def predictives(
        self, knowledge: KnowledgeBase, network: FlatNetwork, likelihood: Likelihood
    ) -> Predictives:
        """Return the predictives of all preferences over what is known."""
        return SingleNetworks(self, knowledge, network, likelihood)

    def moments(
        self,
        features: Tensor,
        labels: Tensor | None,
        weights: Tensor | None,
        posteriors: Sequence[Gaussian],
        network: FlatNetwork,
        before: Moments | None = None,
    ) -> Moments | None:
        """Return the moments to keep with a task, of all its batches; None where none are needed.

        Parameters
        ----------
        features
            φ of the new batch.
        labels
            Class numbers; None for a regression.
        before
            Moments of the task's earlier batches.
        """
        return None

    def parts(
        self,
        features: Tensor,
        labels: Tensor | None,
        weights: Tensor | None,
        posteriors: Sequence[Gaussian],
        network: FlatNetwork,
        before: Parts | None = None,
    ) -> Parts:
        """Return what else to keep with a task, of all its batches; as for `moments`."""
        return before or {}

    def keep(self, posterior: Gaussian, prior: Gaussian) -> Gaussian:
        """Return the form in which a posterior learnt from this prior is kept."""
        return posterior

    def settings(self) -> dict[str, Any]:
        """Return what differs from the defaults, to be stored."""
        if not dataclasses.is_dataclass(self):
            return {}
        given = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        plain = type(self)()
        return {name: value for name, value in given.items() if value != getattr(plain, name)}


class SingleNetworks(Predictives):
    """Predictives of rules that give one parameter vector per preference."""

    def __init__(
        self,
        rule: PoolingRule,
        knowledge: KnowledgeBase,
        network: FlatNetwork,
        likelihood: Likelihood,
    ) -> None:
        super().__init__(network, likelihood)
        self.rule, self.knowledge = rule, knowledge

    def split(self, preferences: Tensor) -> Tensor:
        """Equal shares."""
        return split_weights(self.knowledge, preferences)

    def of(self, weights: Tensor) -> Predictive:
        """The network with the mean of q_w, among the stored posteriors."""
        q = self.rule.pooled(self.knowledge, weights)
        credal = CredalSet(q.distribution, lambda: list(enumerate(self.knowledge.extremes())))
        return SingleNetwork(self.network, self.likelihood, q.mean, credal)

    def parameters(self, preferences: Tensor) -> Tensor:
        """Means of q_w."""
        return self.rule.means(self.knowledge, self.split(preferences))

    def answers(self, features: Tensor) -> Answers:
        """Answers by parameters."""
        return AnswersByParameters(self, features, self.columns(features), self.parameters)


class TwoMethods(PoolingRule):
    """A rule from anything that has the two methods `pool` and `means`."""

    def __init__(self, name: str, rule: Any) -> None:
        self.name = name  # type: ignore[misc]
        self.rule = rule

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TwoMethods) and other.rule is self.rule

    __hash__ = object.__hash__

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return q_w for one set of weights."""
        pooled: Distribution = self.rule.pool(knowledge, weights)
        return pooled

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the means of q_w for many sets of weights at once."""
        means: Tensor = self.rule.means(knowledge, weights)
        return means


def split_weights(
    knowledge: KnowledgeBase,
    preferences: Tensor,
    split: Mapping[str, Sequence[float]] | None = None,
) -> Tensor:
    """Split task weights (..., tasks) over each task's extremes: β of shape (..., tasks, m).

    Parameters
    ----------
    split
        For tasks whose extremes should not share equally: m non-negative shares that sum to 1.
    """
    m = len(knowledge.priors)
    shares = torch.full((len(knowledge.tasks), m), 1 / m, dtype=torch.float64)
    for task, values in (split or {}).items():
        row = torch.as_tensor(np.asarray(values, dtype=np.float64))
        if row.shape != (m,) or not bool((row >= 0).all()) or abs(float(row.sum()) - 1) > 1e-6:
            raise ValueError(
                f"The split of task {task!r} must be {m} non-negative shares that sum to 1, "
                f"not {list(values)}."
            )
        shares[knowledge.tasks.index(knowledge.record(task).name)] = row
    return preferences.to(torch.float64).unsqueeze(-1) * shares


def weighted_extremes(
    knowledge: KnowledgeBase, weights: Tensor
) -> tuple[list[float], list[Gaussian]]:
    """Extreme elements with their total weights, each stored posterior once."""
    totals: dict[int, float] = {}
    for record, row in zip(knowledge.records, weights.tolist(), strict=True):
        for position, weight in zip(record.posteriors, row, strict=True):
            if weight > 0:
                totals[position] = totals.get(position, 0.0) + weight
    return list(totals.values()), [knowledge.stored[position] for position in totals]


def averaged_means(knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
    """Weighted means, for many sets of weights at once."""
    stacked = knowledge.stacked_means
    rows = weights.flatten(-2).to(stacked)
    return rows @ stacked.reshape(-1, knowledge.dimension)
