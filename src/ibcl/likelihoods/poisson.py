"""Counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ibcl.likelihoods.likelihood import Likelihood, Predictive, as_columns, refusal
from ibcl.likelihoods.quadrature import Expectations
from ibcl.likelihoods.registry import register

# Above this log rate the sampled loss goes on as a straight line, so that its gradient and the
# gradient's square stay finite in single precision; no count is as large as this rate, e^30 = 1e13.
_STRAIGHT = 30.0
# The largest log rate whose rate is finite in single precision, with room for sums.
_LARGEST_LOG_RATE = 80.0


@register
@dataclass(frozen=True)
class Poisson(Likelihood):
    """Counts: y ~ Poisson(exp f), the network's outputs being log rates.

    Examples
    --------
    >>> Poisson().mean(torch.tensor([[0.0]]))
    tensor([[1.]])
    """

    name: ClassVar[str] = "poisson"
    quadrature_error: ClassVar[float] = 0.0

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Counts 0, 1, 2, ... of shape (n, outputs), as floats."""
        counts = as_columns(y, outputs)
        if not bool(((counts >= 0) & (counts == counts.round())).all()):
            raise refusal("A Poisson likelihood needs counts 0, 1, 2, ...", y)
        return counts

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Exp f − y f + log y!, of each sample."""
        y = y.to(outputs.dtype)
        bent = outputs.clamp(max=_STRAIGHT)
        rate = bent.exp() * (1 + (outputs - bent))
        return (rate - y * outputs + torch.lgamma(y + 1)).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """Rates exp f."""
        return outputs.clamp(max=_LARGEST_LOG_RATE).exp()

    def variance(self, outputs: Tensor) -> Tensor:
        """Return the rates once more: a Poisson variable's variance is its mean."""
        return self.mean(outputs)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        """Moments of log-normal rates: E = exp(m + v/2), and Var = (exp v − 1) E²."""
        rate = self.mean(mean + variance / 2)
        # In logarithms, as exp v alone may be infinite; log(exp v − 1) = v + log(1 − exp −v).
        spread = 2 * mean + 2 * variance + torch.log(-torch.expm1(-variance))
        return Predictive(rate, rate, self.mean(spread))

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Return the log rates."""
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).log()

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """Closed form, with E[exp z] = exp(m + v/2), which is also the curvature."""
        y = y.to(mean.dtype)
        rate = torch.exp(mean + covariance.diagonal(dim1=1, dim2=2) / 2)
        return Expectations(
            (rate - y * mean + torch.lgamma(y + 1)).sum(1), y - rate, torch.diag_embed(rate)
        )

    def likely_outputs(self, y: Tensor, outputs: int) -> Tensor:
        """Log of the counts, each half an event more."""
        return torch.log(y + 0.5)
