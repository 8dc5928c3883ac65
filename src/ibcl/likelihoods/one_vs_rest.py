"""Multi-class classification as one binary problem per class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.likelihoods.bernoulli import Bernoulli
from ibcl.likelihoods.categorical import Categorical
from ibcl.likelihoods.likelihood import Separated
from ibcl.likelihoods.quadrature import Expectations, logistic_moments
from ibcl.likelihoods.registry import register


@register
@dataclass(frozen=True)
class OneVsRest(Categorical):
    """Multi-class labels as C binary ones: p(y=c | f) = s(f_c) / Σ_k s(f_k), s the logistic.

    Examples
    --------
    >>> OneVsRest().mean(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name: ClassVar[str] = "one_vs_rest"
    quadrature_error: ClassVar[float] = 0.0

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Sum of the C binary cross entropies of each sample."""
        chosen = functional.one_hot(y, outputs.shape[-1]).to(outputs.dtype).expand_as(outputs)
        losses = functional.binary_cross_entropy_with_logits(outputs, chosen, reduction="none")
        return losses.sum(-1)

    def slope(self, outputs: Tensor, y: Tensor) -> Tensor:
        """1 / (1 + exp(−f_c)) − 1[c = y]."""
        return torch.sigmoid(outputs) - functional.one_hot(y, outputs.shape[-1])

    def mean(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, outputs)."""
        # In logarithms, so that a sample no class claims still has probabilities that sum to 1.
        return torch.softmax(functional.logsigmoid(outputs), -1)

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Return the logits of half the probabilities, which are finite for a sure class too."""
        half = mean.clamp(min=torch.finfo(mean.dtype).tiny) / 2
        return half.log() - torch.log1p(-half)

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """Each output's expectations alone, so that the curvature is diagonal."""
        variance = covariance.diagonal(dim1=1, dim2=2).clamp(min=0)
        moments = logistic_moments(mean, variance.sqrt())
        chosen = functional.one_hot(y, mean.shape[1]).to(mean.dtype)
        return Expectations(
            (moments.softplus - chosen * mean).sum(1),
            chosen - moments.sigmoid,
            torch.diag_embed(moments.slope),
        )

    def separate(self, y: Tensor, outputs: int) -> Sequence[Separated]:
        """Split into one Bernoulli per class."""
        return [Separated(Bernoulli(), (y == c).float()) for c in range(outputs)]
