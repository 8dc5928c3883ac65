r"""Many preferences at once: rows × users in blocks.

For routed models whose heads do not depend on the preference there is not even a softmax. With
e_k(x) = exp(log p_k(x)/t), shifted by its largest for safety, the answers to all preferences W are

    (W (e ∘ p)ᵀ) / (W eᵀ),

two matrix products and a division, with W of shape (users, tasks), e and p of shape (rows, tasks).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.pooling import Routed, split_weights
from ibcl.predictors import RoutedNetworks, SingleNetwork, head_means
from ibcl.view import View

# Users whose answers are divided while they are still in the processor's cache.
_CACHED_NUMBERS = 2**17
# Columns up to which every number has a denominator of its own.
_FEW_COLUMNS = 4
# Below this, single precision has lost too much of Σ_k w_k e_k: those answers are computed again.
_SMALLEST_SHARE = 1e-25
# Numbers that the parameters of a block of models may take.
_MODEL_NUMBERS = 2**24


def predict_blocks(
    view: View, inputs: Tensor, preferences: NDArray[np.float64], numbers: int | None = None
) -> Iterator[Tensor]:
    """Yield the answers to a matrix of preferences, block by block, (users, rows, columns) each.

    Parameters
    ----------
    numbers
        How many numbers a block may hold; all users are one block where None.
    """
    rule = view.pooling
    users = torch.as_tensor(preferences)
    answers: _Answers
    if isinstance(rule, Routed) and rule.heads == "uniform":
        answers = _RoutedAnswers(view, inputs)
    elif isinstance(rule, Routed):
        answers = _AnswersByPreference(view, inputs)
    else:
        answers = _AnswersByParameters(view, inputs)
    width = max(1, len(inputs) * answers.columns)
    size = max(1, len(users)) if numbers is None else max(1, numbers // width)
    for block in torch.split(users, size):
        if len(block):
            yield answers.of(block)
        else:
            yield torch.empty(0, len(inputs), answers.columns, device=inputs.device)


class _Answers(Protocol):
    """What the models of any preferences answer to some rows."""

    columns: int

    def of(self, users: Tensor) -> Tensor:
        """Return the answers to these preferences, shape (users, rows, columns)."""


class _AnswersByParameters:
    """One parameter vector a preference."""

    def __init__(self, view: View, inputs: Tensor) -> None:
        self.view, self.inputs = view, inputs
        self.columns = _vertex_answers(view, inputs[:1]).shape[-1]

    def of(self, users: Tensor) -> Tensor:
        rule, knowledge = self.view.pooling, self.view.knowledge
        size = max(1, _MODEL_NUMBERS // max(knowledge.dimension, 2 * len(self.inputs)))
        found = []
        for block in torch.split(users, size):
            thetas = rule.means(knowledge, split_weights(knowledge, block))
            predictor = SingleNetwork(self.view.network, self.view.answers, thetas[0])
            found.append(predictor.means(self.inputs, thetas).float())
        return torch.cat(found)


class _AnswersByPreference:
    """Heads supported as each preference says."""

    def __init__(self, view: View, inputs: Tensor) -> None:
        self.view, self.inputs = view, inputs
        self.columns = _vertex_answers(view, inputs[:1]).shape[-1]

    def of(self, users: Tensor) -> Tensor:
        view, routes = self.view, self.view.routes
        found = []
        for weights in users:
            heads = routes.means(split_weights(view.knowledge, weights))
            predictor = RoutedNetworks(
                view.network, view.answers, heads, routes.gate, weights, routes.seen
            )
            found.append(predictor.means(self.inputs)[0].float())
        return torch.stack(found)


def _room_for(users: int, numbers: int, device: torch.device) -> Tensor:
    """Return a tensor that is not filled yet.

    Where it can, numpy asks for large arrays in huge pages, which torch does not. Touching the
    memory of millions of answers for the first time page by page takes as long as the products.
    """
    if device.type != "cpu":
        return torch.empty(users, numbers, device=device)
    return torch.from_numpy(np.empty((users, numbers), dtype=np.float32))


def _vertex_answers(view: View, inputs: Tensor) -> Tensor:
    """What every task's own posterior answers, shape (tasks, rows, columns)."""
    routes = view.routes
    thetas = routes.posterior_means
    tasks = torch.arange(len(thetas), device=thetas.device)
    seen = routes.seen if isinstance(view.pooling, Routed) else None
    return head_means(view.network, view.answers, thetas, inputs, tasks, seen)


class _RoutedAnswers:
    """Gate and heads on some rows, ready for any number of preferences."""

    def __init__(self, view: View, inputs: Tensor) -> None:
        self.view, self.inputs = view, inputs
        self.scores = view.input_scores(inputs)
        shifted = torch.exp(self.scores - self.scores.amax(1, keepdim=True)).T
        self.answers = view.task_means(inputs)
        tasks, self.rows, self.columns = self.answers.shape
        weighted = shifted[:, :, None] * self.answers
        self.numerator = weighted.reshape(tasks, self.rows * self.columns).float()
        # Of few columns each has a denominator of its own, since dividing number by number is far
        # faster than dividing pairs; of many, a row's is shared.
        self.repeated = self.columns if self.columns <= _FEW_COLUMNS else 1
        self.denominator = shifted.float().repeat_interleave(self.repeated, 1)

    def of(self, users: Tensor) -> Tensor:
        users = users.to(self.numerator.device)
        result = _room_for(len(users), self.rows * self.columns, self.numerator.device)
        weights = users.to(self.numerator)
        step = max(1, _CACHED_NUMBERS // max(1, self.rows * self.columns))
        for begin in range(0, len(users), step):
            part = weights[begin : begin + step]
            answer = result[begin : begin + step]
            torch.mm(part, self.numerator, out=answer)
            shares = torch.mm(part, self.denominator)
            divided = answer.view(len(part), shares.shape[1], self.columns // self.repeated)
            divided.div_(shares[:, :, None])
            if shares.numel() and float(shares.min()) < _SMALLEST_SHARE:
                self._mend(users[begin : begin + step], shares[:, :: self.repeated], answer)
        answers = result.view(len(users), self.rows, self.columns)
        vertex = (users > 0).sum(1) == 1
        if bool(vertex.any()):
            own = _vertex_answers(self.view, self.inputs).float()
            answers[vertex] = own[users[vertex].argmax(1)]
        return answers

    def _mend(self, users: Tensor, shares: Tensor, answer: Tensor) -> None:
        """Answer again, with a softmax, where a user's tasks are all far from a row's own."""
        user, row = torch.nonzero(shares < _SMALLEST_SHARE, as_tuple=True)
        routing = torch.softmax(self.scores[row] + users[user].to(self.scores).log(), 1)
        exact = torch.einsum("pk,kpc->pc", routing, self.answers[:, row].double())
        answer.view(len(users), self.rows, self.columns)[user, row] = exact.float()
