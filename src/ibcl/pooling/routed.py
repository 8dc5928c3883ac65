r"""Routed evidence, first version, which bases of version 0.2 answer by.

The score of a preference w is the accuracy on the mixture Σ_k w_k p_k(x, y) of the tasks'
distributions, and the best answer there is Bayes' rule,

    p(y | x, w) = Σ_k r_k(x, w) p_k(y | x),     r_k(x, w) ∝ w_k p_k(x):

the preference is the prior probability that the next input comes from task k. The gate
(`ibcl.routing.gate`) gives p_k(x). The head of task k is pooled at the preference
(1 − ρ) u + ρ e_k: its own task, supported by the others. With u uniform, heads do not depend on w:
they are made once per task, and a preference costs nothing but its K numbers. At a vertex, w = e_k,
there is nothing to route and no other task to please: the answer is that of task k's own posterior,
exactly.

In natural parameters pooled evidence is linear in the weights, so that all heads share the sum of
the support, and each adds its own task.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from ibcl.gaussians import Distribution, Gaussian, IndependentGaussian
from ibcl.knowledge import KnowledgeBase
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.pooling.barycentre import WassersteinPooling
from ibcl.pooling.evidence import EvidencePooling
from ibcl.pooling.gated import GatedPredictives
from ibcl.pooling.rule import PoolingRule, split_weights
from ibcl.predictive import Answers, AnswersByPreference, CredalSet, Predictive
from ibcl.routing import (
    LARGEST_SUMMED,
    LINEAR_FROM_EVIDENCE,
    LINEAR_FROM_MOMENTS,
    QUADRATIC,
    Gate,
    GateSettings,
    Moments,
    RoutedAnswers,
    RoutedNetworks,
    TaskHeads,
    evidence_components,
    linear_gate,
    moment_components,
    quadratic_gate,
)

GATES = ("auto", "moments", "classes", "evidence")
HEADS = ("uniform", "preference")
# The rule that gives back a task's posterior at its vertex.
VERTEX = WassersteinPooling()
# Numbers in the classes' covariances up to which a matrix product for each is no burden.
_SMALL_COVARIANCES = 2**19
# Moments are kept beside posteriors where they take at most so many times their bytes.
_MOMENTS_TO_POSTERIORS = 2.5


@dataclass(frozen=True)
class Routed(PoolingRule):
    """The pooling rule ``"routed1"``, the first version of routed evidence, with its settings.

    Parameters
    ----------
    support
        The own-task weight: ρ between 0 and 1, what a head's own task counts in it. Where None: 0.7
        with evidence, 0.8 with the barycentre of networks learnt from each other, and 1 of networks
        learnt independently, which cannot be averaged.
    temperature
        t of the gate; the gate's own default where None.
    gate
        ``"moments"`` of the classes' features, stored with every task, with one covariance for all
        of them; ``"classes"``, the same with a covariance of its own for every class, which costs a
        matrix product per class and is a little more accurate; ``"evidence"``, which needs nothing
        stored but a linear head with bias. ``"auto"`` takes moments where every task has them:
        with covariances of their own where tasks have different classes or the products are small
        (up to about 150 features in 10 tasks of two classes), else with one covariance.
    heads
        ``"uniform"``: supported by all tasks alike, made once per task. ``"preference"``: supported
        as the preference says, one solve per task and preference.
    pool_by
        Rule that heads are pooled by: ``"evidence"``, ``"wasserstein"``; where None evidence if the
        posteriors know correlations, else wasserstein.

    Examples
    --------
    >>> Routed(support=0.5).support
    0.5
    """

    support: float | None = None
    temperature: float | None = None
    gate: str = "auto"
    heads: str = "uniform"
    pool_by: str | None = None

    name: ClassVar[str] = "routed1"
    independent: ClassVar[bool] = True
    takes_experts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.support is not None and not 0 <= self.support <= 1:
            raise ValueError(f"support must lie between 0 and 1, not {self.support!r}.")
        if self.temperature is not None and not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature must be positive, not {self.temperature!r}.")
        for name, value, known in (("gate", self.gate, GATES), ("heads", self.heads, HEADS)):
            if value not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, not {value!r}.")
        if self.pool_by not in (None, "evidence", "wasserstein"):
            raise ValueError(f"pool_by must be 'evidence' or 'wasserstein', not {self.pool_by!r}.")

    def heads_rule(self, knowledge: KnowledgeBase) -> str:
        """Return the rule that heads are pooled by."""
        if self.pool_by is not None:
            return self.pool_by
        return "evidence" if knowledge.correlated else "wasserstein"

    def own_share(self, knowledge: KnowledgeBase) -> float:
        """ρ."""
        if self.support is not None:
            return self.support
        if self.heads_rule(knowledge) == "evidence":
            return 0.7
        return 1.0 if knowledge.independent else 0.8

    def head_weights(self, knowledge: KnowledgeBase, support: Tensor, task: int) -> Tensor:
        """(1 − ρ) u + ρ e_k, split over the extremes: shape (tasks, m)."""
        own = self.own_share(knowledge)
        row = (1 - own) * support.double()
        row[task] += own
        return split_weights(knowledge, row)

    def pool(self, knowledge: KnowledgeBase, weights: Tensor) -> Distribution:
        """Return the joint distribution of the heads that the preference gives any weight."""
        preference = weights.sum(-1)
        active = torch.nonzero(preference > 0).flatten().tolist()
        if len(active) == 1:
            return VERTEX.pool(knowledge, weights)
        return IndependentGaussian(self.head_distributions(knowledge, preference, active))

    def means(self, knowledge: KnowledgeBase, weights: Tensor) -> Tensor:
        """Return the parameters of all tasks' heads, one after another: shape (n, tasks · D)."""
        tasks = list(range(weights.shape[-2]))
        rows = [
            self.head_means(knowledge, self.support_of(preference), tasks).flatten()
            for preference in weights.sum(-1)
        ]
        return torch.stack(rows)

    def head_distributions(
        self, knowledge: KnowledgeBase, preference: Tensor, tasks: Sequence[int] | None = None
    ) -> list[Gaussian]:
        """Return the distributions of these tasks' heads; of all without any."""
        evidence = self.heads_rule(knowledge) == "evidence"
        rule = EvidencePooling() if evidence else WassersteinPooling()
        support = self.support_of(preference)
        heads = []
        for task in range(len(preference)) if tasks is None else tasks:
            head = rule.pool(knowledge, self.head_weights(knowledge, support, task))
            assert isinstance(head, Gaussian)
            heads.append(head)
        return heads

    def support_of(self, preference: Tensor) -> Tensor:
        """u: what supports every head."""
        if self.heads == "preference":
            return preference
        return torch.full_like(preference, 1 / len(preference))

    def head_means(self, knowledge: KnowledgeBase, support: Tensor, tasks: list[int]) -> Tensor:
        """Return the means of these tasks' heads, shape (len(tasks), D)."""
        if self.heads_rule(knowledge) != "evidence":
            rows = [self.head_weights(knowledge, support, task) for task in tasks]
            return WassersteinPooling().means(knowledge, torch.stack(rows))
        rule = EvidencePooling()
        own = self.own_share(knowledge)
        # Where ρ is 0 or 1, one of the two sums has no term.
        shared = None
        if own < 1:
            shared = rule.natural(knowledge, split_weights(knowledge, (1 - own) * support.double()))
            if own == 0:
                return torch.stack([shared.mean()] * len(tasks))
        vertices = own * torch.eye(len(support), dtype=torch.float64)
        means = []
        for task in tasks:
            alone = rule.natural(knowledge, split_weights(knowledge, vertices[task]))
            means.append((alone if shared is None else shared + alone).mean())
        return torch.stack(means)

    def fits(self, columns: int, network: FlatNetwork, dense: bool) -> bool:
        """Tell whether a gate can be made for so many features.

        Parameters
        ----------
        dense
            Whether posteriors know correlations.
        """
        return columns**2 <= LARGEST_SUMMED or (dense and has_bias(network))

    def moments(
        self,
        features: Tensor,
        labels: Tensor | None,
        weights: Tensor | None,
        posteriors: Sequence[Gaussian],
        network: FlatNetwork,
        before: Moments | None = None,
    ) -> Moments | None:
        """Return the moments of a task's features, where they are worth their bytes.

        They are where nothing else makes a gate, where several classes need them, and where they
        do not take much more than the posteriors do.
        """
        features = features.flatten(1)
        wanted = self.gate in ("moments", "classes")
        if self.gate == "evidence" or not (wanted or features.shape[1] ** 2 <= LARGEST_SUMMED):
            return None
        moments = Moments.of(features, labels, weights)
        if before is not None:
            moments = before + moments
        evident = has_bias(network) and all(q.as_diagonal() is None for q in posteriors)
        if wanted or not evident or len(moments.classes) > 2:
            return moments
        large = moments.nbytes > _MOMENTS_TO_POSTERIORS * sum(q.nbytes for q in posteriors)
        return None if large else moments

    def predictives(
        self, knowledge: KnowledgeBase, network: FlatNetwork, likelihood: Likelihood
    ) -> RoutedPredictives:
        """Return heads and gate of all tasks, made once for all preferences."""
        return RoutedPredictives(self, knowledge, network, likelihood)

    def make_gate(self, knowledge: KnowledgeBase, network: FlatNetwork) -> Gate:
        """Return the gate between all tasks of a knowledge base."""
        moments = [kept for kept in knowledge.moments if kept is not None]
        complete = len(moments) == len(knowledge.tasks)
        if self.gate in ("moments", "classes") and not complete:
            raise ValueError(
                "Routing by moments needs the moments of every task; learn all tasks with "
                "pooling='routed1'."
            )
        if self.gate != "evidence" and complete:
            components = moment_components(moments)
            alike = all(torch.equal(m.classes, moments[0].classes) for m in moments)
            different = not alike and int(components.label.max()) > 1
            own = components.own
            worthwhile = own is not None and (different or own.numel() <= _SMALL_COVARIANCES)
            if self.gate == "classes" or (self.gate == "auto" and worthwhile):
                return quadratic_gate(components, self._tempered(QUADRATIC))
            return linear_gate(components, self._tempered(LINEAR_FROM_MOMENTS))
        if not has_bias(network) or not knowledge.correlated:
            raise ValueError(
                "These tasks cannot be routed: the gate needs moments stored with every task "
                "(learn them with pooling='routed1'), or a linear head with a bias whose "
                "posteriors know correlations (DenseVI)."
            )
        evidence = [knowledge.task_evidence(task) for task in knowledge.tasks]
        components = evidence_components(evidence, network.linear_head().positions)
        return linear_gate(components, self._tempered(LINEAR_FROM_EVIDENCE))

    def _tempered(self, settings: GateSettings) -> GateSettings:
        if self.temperature is None:
            return settings
        return replace(settings, temperature=self.temperature)


def has_bias(network: FlatNetwork) -> bool:
    """Whether the network is a linear head with a bias, whose evidence holds moments."""
    return network.is_linear and network.linear_head().layer.bias is not None


class RoutedPredictives(GatedPredictives[Routed]):
    """Heads pooled by this rule behind its gate."""

    def __init__(
        self, rule: Routed, knowledge: KnowledgeBase, network: FlatNetwork, likelihood: Likelihood
    ) -> None:
        super().__init__(rule, knowledge, network, likelihood)
        self.shares_parameters = rule.heads == "uniform"

    def of(self, weights: Tensor) -> Predictive:
        """The heads of the tasks with any weight, behind the gate."""
        preference = weights.sum(-1)
        credal = CredalSet(
            partial(self.rule.pool, self.knowledge, weights),
            lambda: list(enumerate(self.rule.head_distributions(self.knowledge, preference))),
        )
        heads = self._heads(weights)
        return RoutedNetworks(
            self.network, self.likelihood, heads, self.gate, preference, credal, self.experts
        )

    def answers(self, features: Tensor) -> Answers:
        """Gate and heads on these rows, once for all preferences where heads are the same."""
        if not self.shares_parameters:
            return AnswersByPreference(self, features, self.columns(features))
        return self.task_answers(features)

    def task_answers(self, features: Tensor) -> RoutedAnswers:
        """Answers of the heads that are supported by all tasks alike."""
        heads = TaskHeads(self.network.head, self.likelihood, self.gate, self.experts)
        columns = self.columns(features)
        return RoutedAnswers(heads, self.uniform_means, features, columns, self.posterior_means)

    @cached_property
    def gate(self) -> Gate:
        """Densities of the tasks, and which classes each has seen."""
        gate = self.rule.make_gate(self.knowledge, self.network)
        gate.seen = self.seen
        return gate

    @cached_property
    def uniform_means(self) -> Tensor:
        """Means of all heads supported by all tasks alike, shape (tasks, D)."""
        tasks = len(self.knowledge.tasks)
        support = torch.full((tasks,), 1 / tasks, dtype=torch.float64)
        return self.rule.head_means(self.knowledge, support, list(range(tasks)))

    def _heads(self, weights: Tensor) -> Tensor:
        """Return the means of the heads that weights β give any weight, shape (heads, D)."""
        preference = weights.sum(-1)
        tasks = torch.nonzero(preference > 0).flatten().tolist()
        if len(tasks) == 1:
            return VERTEX.means(self.knowledge, weights[None])
        if self.shares_parameters:
            heads = self.uniform_means
            return heads[torch.tensor(tasks, device=heads.device)]
        return self.rule.head_means(self.knowledge, preference, tasks)

    @cached_property
    def posterior_means(self) -> Tensor:
        """Means at every task's vertex, shape (tasks, D)."""
        vertices = torch.eye(len(self.knowledge.tasks), dtype=torch.float64)
        return VERTEX.means(self.knowledge, split_weights(self.knowledge, vertices))

    @cached_property
    def seen(self) -> Tensor | None:
        """Which classes each task has seen, shape (tasks, classes); None where all have seen all.

        With two classes a task that has seen only one still says how far inputs are from it.
        """
        moments = [m for m in self.knowledge.moments if m is not None]
        if len(moments) < len(self.knowledge.tasks):
            return None
        classes = 1 + max(int(m.classes[-1]) for m in moments)
        mask = moments[0].counts.new_zeros(len(moments), classes, dtype=torch.bool)
        for row, kept in zip(mask, moments, strict=True):
            row[kept.classes] = True
        return None if classes <= 2 or bool(mask.all()) else mask
