"""Predictives of rules that have one head per task behind a gate."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Generic, TypeVar

from torch import Tensor

from ibcl.experts import task_experts
from ibcl.knowledge import KnowledgeBase
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.pooling.rule import PoolingRule, split_weights
from ibcl.predictive import Predictives
from ibcl.routing import RoutedAnswers
from ibcl.routing.predictive import TaskExpert

Rule = TypeVar("Rule", bound=PoolingRule)


class GatedPredictives(Predictives, Generic[Rule]):
    """Heads and gate of one knowledge base, made once and used by all its preferences' models."""

    def __init__(
        self, rule: Rule, knowledge: KnowledgeBase, network: FlatNetwork, likelihood: Likelihood
    ) -> None:
        super().__init__(network, likelihood)
        self.rule, self.knowledge = rule, knowledge

    @abstractmethod
    def task_answers(self, features: Tensor) -> RoutedAnswers:
        """Return densities and answers of all tasks, whatever the preference."""

    def split(self, preferences: Tensor) -> Tensor:
        """Equal shares."""
        return split_weights(self.knowledge, preferences)

    def parameters(self, preferences: Tensor) -> Tensor:
        """Refused: heads are shared by all preferences."""
        raise ValueError(
            "Routed models share their heads and differ in K numbers only; use predict_many, or "
            "model for one preference."
        )

    @cached_property
    def experts(self) -> dict[int, TaskExpert]:
        """What answers in place of tasks' heads, or beside them."""
        return task_experts(self.knowledge, self.network)
