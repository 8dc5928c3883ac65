r"""Experts that tasks share: all tasks vote on what stands beside a head, as far as they are alike.

Where experts stand beside heads (`ibcl.experts.Auto`), with shares λ_j found by each task on its
own rows, task k answers with

    p_k(y | φ) = Σ_j a_kj [λ_j expert_j(y | φ) + (1 − λ_j) head_k(y | φ)],   a_kj ∝ n_j c_k^[j ≠ k],

where n_j is how many rows task j has learnt, and c_k the power with which heads of other tasks are
borrowed (`ibcl.pooling.power_prior`). Of more than two classes, experts of others answer among
those that task k has seen, if their tasks have seen any of them. So a task unlike the others is
alone with its own expert, c_k = 0; where tasks are alike, c_k = 1, all have the mean of all
experts; and a task with too few rows for an expert has those of the others. Like the powers, all
of it is a function of the set of the tasks' records: the order of learning does not matter, and a
task that is forgotten leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ibcl.experts import ExpertPart
from ibcl.knowledge import KnowledgeBase


@dataclass(frozen=True, eq=False)
class SharedExpert:
    """What stands beside a task's head: experts of several tasks, each with its weight.

    Parameters
    ----------
    weights
        a_kj λ_j, by the tasks' numbers.
    answered
        Answers of the tasks' experts.
    among
        Classes to answer among; all of them, or values, where None.
    """

    weights: Mapping[int, float]
    answered: Answered
    among: tuple[int, ...] | None = None
    costly: bool = False

    @property
    def share(self) -> float:
        """Σ_j a_kj λ_j, how much of the task's answer is not its head's."""
        return sum(self.weights.values())

    def answers(self, features: Tensor) -> Tensor:
        """Return the experts' weighted mean, shape (n, columns of an answer)."""
        every = self.answered.on(features)
        found = sum(weight * self._among(every[task]) for task, weight in self.weights.items())
        assert isinstance(found, Tensor)
        return found / self.share

    def _among(self, answers: Tensor) -> Tensor:
        if self.among is None or answers.shape[1] <= 2:
            return answers
        kept = torch.zeros_like(answers)
        kept[:, self.among] = answers[:, self.among]
        return kept / kept.sum(1, keepdim=True)


class Answered:
    """Answers of some experts to the rows asked last, since all tasks ask for the same rows."""

    def __init__(self, experts: Mapping[int, ExpertPart]) -> None:
        self.experts = experts
        self._last: tuple[Tensor, dict[int, Tensor]] | None = None

    def on(self, features: Tensor) -> dict[int, Tensor]:
        """Return every expert's answers, by its task's number."""
        last = self._last
        if last is not None and last[0].shape == features.shape and torch.equal(last[0], features):
            return last[1]
        found = {task: expert.answers(features) for task, expert in self.experts.items()}
        self._last = features, found
        return found


def shared_experts(
    knowledge: KnowledgeBase,
    own: Mapping[int, ExpertPart],
    powers: Sequence[float],
    seen: Sequence[tuple[int, ...]] | None = None,
) -> dict[int, SharedExpert]:
    """Return what stands beside each task's head, by the tasks' numbers.

    Parameters
    ----------
    own
        The tasks' own experts, all of which stand beside heads.
    powers
        c of every task.
    seen
        Classes that every task has seen; None for values.
    """
    rows = {record.name: record.samples for record in knowledge.records}
    numbers = {task: number for number, task in enumerate(knowledge.tasks)}
    answered, found = Answered(own), {}
    for task, number in numbers.items():
        # Summed in the order of names, so that the order of learning does not matter.
        votes = {
            other: rows[other] * (1.0 if other == task else powers[number])
            for other in sorted(numbers)
        }
        whole = sum(votes.values())
        weights = {
            numbers[other]: vote / whole * own[numbers[other]].share
            for other, vote in votes.items()
            if vote and numbers[other] in own
        }
        if seen is not None:
            ours = {*seen[number]}
            weights = {other: each for other, each in weights.items() if ours & {*seen[other]}}
        if weights:
            found[number] = SharedExpert(weights, answered, None if seen is None else seen[number])
    return found
