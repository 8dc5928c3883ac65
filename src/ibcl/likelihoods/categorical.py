"""Multi-class classification by the softmax function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.likelihoods.likelihood import Likelihood, refusal
from ibcl.likelihoods.quadrature import Expectations, spread_points
from ibcl.likelihoods.registry import register


@register
@dataclass(frozen=True)
class Categorical(Likelihood):
    """Multi-class classification: p(y=c | f) = softmax(f)_c.

    Examples
    --------
    >>> Categorical().mean(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name: ClassVar[str] = "categorical"
    classification: ClassVar[bool] = True

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels 0 to outputs − 1, as whole numbers."""
        if outputs < 2:
            raise ValueError(f"The likelihood {self.name!r} needs at least two outputs.")
        given = y.reshape(-1)
        whole = given.long()
        if not bool((whole == given).all()) or not bool(((whole >= 0) & (whole < outputs)).all()):
            raise refusal(f"A network with {outputs} outputs classifies into 0 to {outputs - 1}", y)
        return whole

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross entropy of each sample."""
        log_probabilities = functional.log_softmax(outputs, -1)
        index = y.expand(outputs.shape[:-1]).unsqueeze(-1)
        return -log_probabilities.gather(-1, index).squeeze(-1)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """p(c | f) − 1[c = y]."""
        return torch.softmax(outputs, -1) - functional.one_hot(y, outputs.shape[-1])

    def mean(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, outputs)."""
        return torch.softmax(outputs, -1)

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Return the log-probabilities."""
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """Averages over fixed quasi-random logits, which keep the curvature positive."""
        logits = spread_points(mean, covariance)
        probabilities = torch.softmax(logits, -1)
        expected = probabilities.mean(1)
        second = probabilities.transpose(1, 2) @ probabilities / logits.shape[1]
        chosen = functional.one_hot(y, mean.shape[1]).to(mean.dtype)
        return Expectations(
            torch.logsumexp(logits, -1).mean(1) - (chosen * mean).sum(1),
            chosen - expected,
            torch.diag_embed(expected) - second,
        )
