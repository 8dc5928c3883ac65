"""Rows of a task that judge experts: what of a task was not learnt by those who answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.experts.judgement import Judgement
from ibcl.experts.share import judged, posterior_share
from ibcl.likelihoods import Likelihood
from ibcl.tasks import TaskData

MOST_JUDGES = 1000
"""Rows of a task that judge, at most: of those its own expert has not learnt, and of the others."""


def thinned(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return as many of some rows as judge, evenly spaced.

    Examples
    --------
    >>> len(thinned(np.arange(1500))), len(thinned(np.arange(0)))
    (750, 0)
    """
    return rows[:: max(1, -(-len(rows) // MOST_JUDGES))]


@dataclass(frozen=True, eq=False)
class Judges:
    """Rows, and what a task's head answers to each without having learnt it.

    Parameters
    ----------
    data
        The rows; the first of them are not learnt by the task's own expert either.
    head
        Shape (n, columns).
    """

    likelihood: Likelihood
    data: TaskData
    head: Tensor

    def share(self, own: Tensor, against: float = 2.0) -> float:
        """How much of the answer is the task's own expert's, if the rest is its head's.

        Parameters
        ----------
        own
            Its answers to the first rows.
        against
            As in `posterior_share`.
        """
        found = self._judged(own)
        count = len(found)
        rest, weights = self._judged(self.head)[:count], self._weights[:count]
        return posterior_share(found, rest, self.likelihood.classification, weights, against)

    def judgement(
        self, others: Mapping[str, Tensor], own: Tensor | None = None
    ) -> Judgement | None:
        """Return what these rows say of other tasks' experts; None if there are none.

        Parameters
        ----------
        others
            Their answers to all rows, by their tasks' names.
        own
            Answers of the task's own expert to the first rows, if it has one.
        """
        if not others:
            return None
        columns = [self._judged(answers) for answers in (self.head, *others.values())]
        found = torch.empty(0) if own is None else self._judged(own)
        return Judgement(
            tuple(others),
            torch.stack(columns, 1).float(),
            found.float(),
            self._weights.float(),
            self.likelihood.classification,
        )

    def _judged(self, answers: Tensor) -> Tensor:
        first = TaskData(self.data.x[: len(answers)], self.data.y[: len(answers)])
        return judged(self.likelihood, answers, first, self._variance[: len(answers)])

    @property
    def _weights(self) -> Tensor:
        given = self.data.weights
        each = torch.ones(self.data.size) if given is None else given.cpu()
        values = 1 if self.likelihood.classification else self.head.shape[1]
        return each.repeat_interleave(values)

    @property
    def _variance(self) -> Tensor:
        """Of values, as the head says; where a likelihood does not say, of the head's residuals."""
        head = self.head.double().cpu()
        if self.likelihood.classification:
            return head
        said = self.likelihood.variance(self.likelihood.outputs_of(head))
        residuals = head - self.data.y.double().cpu().reshape(head.shape)
        return torch.where(torch.isfinite(said), said, residuals.square().mean())
