r"""Which experts answer for every task: its own, and those of others that its rows found likely.

    Σ_j w_kj p_j(y | φ) + (1 − Σ_j w_kj) head_k(y | φ),

with the shares w_k of `ibcl.experts.judgement`; a task without one has its own expert alone.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ibcl.experts.judgement import Judgement
from ibcl.experts.part import ExpertPart
from ibcl.knowledge import KnowledgeBase
from ibcl.networks import FlatNetwork
from ibcl.routing.predictive import TaskExpert


def own_experts(knowledge: KnowledgeBase, network: FlatNetwork) -> dict[str, ExpertPart]:
    """Return the experts that tasks have brought, by the tasks' names.

    Parameters
    ----------
    network
        The network over x, which they answer behind.
    """
    found: dict[str, ExpertPart] = {}
    for task, parts in zip(knowledge.tasks, knowledge.parts, strict=True):
        part = parts.get(ExpertPart.kind)
        if isinstance(part, ExpertPart):
            found[task] = part.on(network)
    return found


def task_experts(knowledge: KnowledgeBase, network: FlatNetwork) -> dict[int, TaskExpert]:
    """Return what answers for the tasks beside their heads or in their place, by their numbers.

    Parameters
    ----------
    network
        The network over x, which they answer behind.
    """
    own = own_experts(knowledge, network)
    answered = Answered(own)
    found: dict[int, TaskExpert] = {}
    for number, task in enumerate(knowledge.tasks):
        judgement = knowledge.parts[number].get(Judgement.kind)
        if isinstance(judgement, Judgement) and own.keys() >= {*judgement.tasks}:
            shares = judgement.others
            if judgement.share:
                shares[task] = judgement.share
            found[number] = PooledExpert(shares, answered)
        elif task in own:
            found[number] = own[task]
    return found


class Answered:
    """Answers of experts to the rows that are asked now, since many tasks ask for the same ones.

    Parameters
    ----------
    experts
        By the names of their tasks.
    """

    def __init__(self, experts: Mapping[str, ExpertPart]) -> None:
        self.experts = experts
        # As long as somebody holds the rows.
        self._found: MutableMapping[Tensor, dict[str, Tensor]] = WeakIdKeyDictionary()

    def by(self, task: str, features: Tensor) -> Tensor:
        """Return the answers of a task's expert."""
        known = self._found.setdefault(features, {})
        if task not in known:
            known[task] = self.experts[task].answers(features)
        return known[task]


@dataclass(frozen=True, eq=False)
class PooledExpert:
    """Several tasks' experts, each with its share of one task's answer.

    Parameters
    ----------
    shares
        By the names of the tasks that brought them.
    """

    costly: ClassVar[bool] = False

    shares: Mapping[str, float]
    answered: Answered

    @property
    def share(self) -> float:
        """How much of the task's answer is not its head's."""
        return sum(self.shares.values())

    def answers(self, features: Tensor) -> Tensor:
        """Return their weighted mean, shape (n, columns)."""
        whole = self.share
        weighted = [
            weight / whole * self.answered.by(task, features)
            for task, weight in self.shares.items()
        ]
        found = weighted[0]
        for each in weighted[1:]:
            found = found + each
        return found
