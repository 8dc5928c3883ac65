"""Regression with Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from ibcl.likelihoods.likelihood import Likelihood, Predictive, as_columns
from ibcl.likelihoods.quadrature import Expectations
from ibcl.likelihoods.registry import register


@register
@dataclass(frozen=True)
class Normal(Likelihood):
    """Regression: y ~ N(f, noise²), with known noise.

    Examples
    --------
    >>> Normal(2.0).variance(torch.zeros(1, 1))
    tensor([[4.]])
    """

    noise: float = 1.0
    name: ClassVar[str] = "normal"
    aliases: ClassVar[tuple[str, ...]] = ("gaussian",)
    quadrature_error: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.noise < math.inf:
            raise ValueError(
                f"The noise of a Gaussian likelihood must be positive, not {self.noise!r}."
            )
        if not 0 < self.noise * self.noise < math.inf or math.isinf(1 / self.noise**2):
            raise ValueError(
                f"The noise {self.noise!r} of a Gaussian likelihood has a square that cannot be "
                "computed with; scale the targets to about 1."
            )

    def check(self, y: Tensor, outputs: int) -> Tensor:
        """Targets of shape (n, outputs), as floats."""
        return as_columns(y, outputs)

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """½ ‖(y − f)/noise‖² + log normaliser, of each sample."""
        scaled = (y.to(outputs.dtype) - outputs) / self.noise
        return (0.5 * scaled.square() + self._log_normaliser).sum(-1)

    def mean(self, outputs: Tensor) -> Tensor:
        """Expected values: the outputs themselves."""
        return outputs

    def variance(self, outputs: Tensor) -> Tensor:
        """noise², the same for all."""
        return torch.full_like(outputs, self.noise**2)

    def predictive(self, mean: Tensor, variance: Tensor) -> Predictive:
        """The outputs' own moments, and the noise."""
        return Predictive(mean, self.variance(mean), variance)

    def outputs_of(self, mean: Tensor) -> Tensor:
        """Return the mean itself."""
        return mean

    def expectations(self, mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
        """Closed form: the loss is quadratic."""
        n, outputs = mean.shape
        precision = 1 / self.noise**2
        residual = y.to(mean.dtype) - mean
        spread = covariance.diagonal(dim1=1, dim2=2).sum(1)
        identity = torch.eye(outputs, dtype=mean.dtype, device=mean.device)
        return Expectations(
            0.5 * precision * (residual.square().sum(1) + spread) + outputs * self._log_normaliser,
            precision * residual,
            (precision * identity).expand(n, outputs, outputs),
        )

    @property
    def _log_normaliser(self) -> float:
        return math.log(self.noise) + 0.5 * math.log(2 * math.pi)
