"""Binary classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.likelihoods.likelihood import Likelihood, refusal
from ibcl.likelihoods.quadrature import Expectations, logistic_moments
from ibcl.likelihoods.registry import register


@register
@dataclass(frozen=True)
class Bernoulli(Likelihood):
    """Binary classification: p(y=1 | f) = 1 / (1 + exp(−f)).

    Examples
    --------
    >>> Bernoulli().mean(torch.tensor([[0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name: ClassVar[str] = "bernoulli"
    classification: ClassVar[bool] = True
    quadrature_error: ClassVar[float] = 0.0

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Labels 0 and 1, as floats."""
        if outputs != 1:
            raise ValueError(f"A Bernoulli likelihood needs one output, not {outputs}.")
        if not bool(((y == 0) | (y == 1)).all()):
            raise refusal(
                "A network with one output classifies into 0 and 1 (give it one output per class "
                "for more, likelihood='normal' for regression or likelihood='poisson' for counts)",
                y,
            )
        return y.reshape(-1).float()

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Cross entropy of each sample."""
        logits = outputs.squeeze(-1)
        return functional.binary_cross_entropy_with_logits(
            logits, y.to(logits.dtype).expand_as(logits), reduction="none"
        )

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """p(y=1 | f) − y."""
        return torch.sigmoid(outputs) - y.to(outputs.dtype).unsqueeze(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, 2)."""
        return torch.sigmoid(torch.cat([-outputs, outputs], -1))

    def decide(self, mean: Tensor) -> Tensor:
        """1 where that is the more probable."""
        return (mean[..., 1] > mean[..., 0]).long()

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Return the logit, log p(y=1) − log p(y=0)."""
        logarithms = mean.clamp(min=torch.finfo(mean.dtype).tiny).log()
        return logarithms[..., 1:] - logarithms[..., :1]

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """One-dimensional integrals of the logistic function."""
        logit = mean[:, 0]
        y = y.to(logit.dtype)
        moments = logistic_moments(logit, covariance[:, 0, 0].clamp(min=0).sqrt())
        return Expectations(
            moments.softplus - y * logit,
            (y - moments.sigmoid)[:, None],
            moments.slope[:, None, None],
        )
