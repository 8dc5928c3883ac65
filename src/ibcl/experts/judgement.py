r"""What a task's own rows say of the experts of tasks learnt before.

Experts of other tasks have not seen this task's rows, so that all of these judge them, beside what
the head would answer to a row without it (`ibcl.experts.leave_one_out`). The task answers with

    p_k = λ own_k + (1 − λ) Σ_j μ_j p_j,     j: the head, and the other tasks' experts.

μ has the largest posterior density under ∏_j μ_j^a_j, a prior worth a few rows, half of it the
head's; it is averaged with the head alone, by how probable n rows make J others beside it,

    log odds = ℓ(μ) − ℓ(head) − ½ J log n,

the criterion of Schwarz. Then rows that the task's own expert has not learnt say λ
(`ibcl.experts.share`). A task that contradicts this one explains none of its rows and gets nothing,
however alike inputs and heads are.

Kept are numbers, no inputs: of each row and expert the probability of the row's class, or its
residual. So a task is forgotten exactly: its column goes, and μ and λ are found again without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load, save
from scipy.optimize import minimize
from torch import Tensor

from ibcl.experts.share import BOOSTING_AGAINST, log_likelihood, posterior_share
from ibcl.knowledge import register_part

SMALLEST_SHARE = 0.02
"""Of an expert; below it, it has none."""

# Rows that the prior of μ is worth.
_PRIOR_ROWS = 4.0


@register_part
@dataclass(frozen=True, eq=False)
class Judgement:
    """What the rows of a task say of its head, of other tasks' experts and of its own.

    Parameters
    ----------
    tasks
        The other tasks.
    rows
        What was judged (`ibcl.experts.share.judged`) of the head and of these tasks' experts:
        shape (n, 1 + tasks), in single precision.
    own
        The same of the task's own expert, for as many of the first rows as it has not learnt; of
        none where there is no such expert.
    weights
        What each row counts for.
    classes
        Whether rows are probabilities of classes, and not residuals.
    """

    kind: ClassVar[str] = "judgement"

    tasks: tuple[str, ...]
    rows: Tensor
    own: Tensor
    weights: Tensor
    classes: bool
    found: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        count, tasks = self.rows.shape
        if tasks != 1 + len(self.tasks) or len(self.own) > count or len(self.weights) != count:
            raise ValueError("this says nothing of a task's experts")
        # Kept, since finding them takes longer the more tasks there are.
        if not self.found:
            object.__setattr__(self, "found", self._find())
        elif len(self.found) != tasks + 1:
            raise ValueError("this says nothing of a task's experts")

    @property
    def others(self) -> dict[str, float]:
        """How much of the answer is each other task's expert's."""
        return dict(zip(self.tasks, self.found[1:-1], strict=True))

    @property
    def share(self) -> float:
        """λ, how much of the answer is the task's own expert's."""
        return self.found[-1]

    def _find(self) -> tuple[float, ...]:
        """Return the shares of head, other tasks' experts and own expert."""
        rows, weights = self.rows.double(), self.weights.double()
        each = averaged_weights(rows, weights, self.classes)
        held = len(self.own)
        rest = rows[:held] @ each
        share = 0.0
        if held:
            share = posterior_share(self.own, rest, self.classes, weights[:held], BOOSTING_AGAINST)
            share = share if share >= SMALLEST_SHARE else 0.0
        return (*((1 - share) * each).tolist(), share)

    def without(self, task: str) -> Judgement | None:
        """Return what the rows say if a task was never known; None if none is left."""
        if task not in self.tasks:
            return self
        tasks = tuple(other for other in self.tasks if other != task)
        columns = [0, *(1 + self.tasks.index(other) for other in tasks)]
        return replace(self, tasks=tasks, rows=self.rows[:, columns], found=()) if tasks else None

    def plus(self, further: Judgement) -> Judgement:
        """Return what these and further rows say of the same experts, none of them held out."""
        return replace(
            self,
            rows=torch.cat([self.rows, further.rows]),
            weights=torch.cat([self.weights, further.weights]),
            found=(),
        )

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return len(self.encode())

    def encode(self) -> bytes:
        """Return a line of JSON, and a safetensors file."""
        known = {"tasks": self.tasks, "classes": self.classes, "shares": self.found}
        tensors = {"rows": self.rows, "own": self.own, "weights": self.weights}
        kept = save({name: tensor.contiguous() for name, tensor in tensors.items()})
        return json.dumps(known, sort_keys=True).encode() + b"\n" + kept

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote."""
        line, _, rest = data.partition(b"\n")
        try:
            known, tensors = json.loads(line), load(rest)
            tasks = tuple(str(task) for task in known["tasks"])
            shares = tuple(float(share) for share in known["shares"])
            found = cls(tasks, **tensors, classes=bool(known["classes"]), found=shares)
        except (ValueError, KeyError, TypeError, SafetensorError):
            raise ValueError("this says nothing of a task's experts") from None
        return found


def averaged_weights(rows: Tensor, weights: Tensor, classes: bool) -> Tensor:
    """Return μ, averaged over head alone and others beside it; shape (columns,).

    Examples
    --------
    >>> alike = torch.full((100, 2), 0.5)
    >>> averaged_weights(alike, torch.ones(100), classes=True)[0] > 0.9
    tensor(True)
    """
    rows, weights = rows.double(), weights.double()
    alone = torch.zeros(rows.shape[1], dtype=torch.float64)
    alone[0] = 1
    found = mixing_weights(rows, weights, classes)
    fits = (log_likelihood(rows @ each, classes) @ weights for each in (found, alone))
    more = next(fits) - next(fits) - (len(alone) - 1) / 2 * weights.sum().clamp(min=1).log()
    probability = torch.sigmoid(more)
    return probability * found + (1 - probability) * alone


def mixing_weights(rows: Tensor, weights: Tensor, classes: bool) -> Tensor:
    """Return the most probable μ, of the head first; shape (columns,).

    Examples
    --------
    >>> likely = torch.tensor([[0.5, 0.9], [0.5, 0.9]]).repeat(50, 1)
    >>> float(mixing_weights(likely, torch.ones(100), classes=True)[1]) > 0.9
    True
    """
    rows, weights = rows.double(), weights.double()
    others = rows.shape[1] - 1
    if not others:
        return torch.ones(1, dtype=torch.float64)
    prior = torch.full((1 + others,), _PRIOR_ROWS / 2 / others, dtype=torch.float64)
    prior[0] = _PRIOR_ROWS / 2

    # Concave in μ, and without bounds in its logarithms.
    def loss(logits: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        at = torch.from_numpy(logits).requires_grad_()
        with torch.enable_grad():
            logs = torch.log_softmax(at, 0)
            value = -(log_likelihood(rows @ logs.exp(), classes) @ weights + prior @ logs)
            (slope,) = torch.autograd.grad(value, at)
        return value.item(), slope.numpy()

    options: Any = {"maxiter": 200, "gtol": 1e-6, "ftol": 1e-12}
    found = minimize(loss, prior.log().numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.softmax(torch.from_numpy(found.x), 0)
