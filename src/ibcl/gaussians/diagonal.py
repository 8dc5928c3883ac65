"""Gaussians with independent coordinates, as mean-field inference gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians.distribution import (
    LOG_TWO_PI,
    Distribution,
    Gaussian,
    as_vector,
    check_dimension,
    tensors_named,
    weighted_mean,
)
from ibcl.gaussians.natural import ImproperError, NaturalParameters, scale_rows


@dataclass(frozen=True, eq=False)
class DiagonalNatural(NaturalParameters):
    """Linear term η and the precision's diagonal, as vectors."""

    linear: Tensor
    precision: Tensor

    def scaled(self, weight: float) -> DiagonalNatural:
        """Return weight · self."""
        return DiagonalNatural(weight * self.linear, weight * self.precision)

    def embed(self, other: NaturalParameters) -> DiagonalNatural | None:
        """Return `other` with its precision as a vector, if it is one."""
        return other.as_diagonal()

    def _plus(self, other: DiagonalNatural, weight: float) -> DiagonalNatural:
        return DiagonalNatural(
            torch.add(self.linear, other.linear, alpha=weight),
            torch.add(self.precision, other.precision, alpha=weight),
        )

    def precision_times(self, columns: Tensor) -> Tensor:
        """Scale every row."""
        return scale_rows(self.precision, columns)

    def mean(self) -> Tensor:
        """μ = η / p."""
        if not bool((self.precision > 0).all()):
            raise ImproperError("precision must be positive definite: a diagonal entry is not.")
        return self.linear / self.precision

    def around(self, mean: Tensor) -> DiagonalGaussian:
        """Return the Gaussian with standard deviations p^−½, in the mean's dtype."""
        if not bool((self.precision > 0).all()):
            raise ImproperError("precision must be positive definite: a diagonal entry is not.")
        return DiagonalGaussian(mean, self.precision.rsqrt().to(mean.dtype))

    def proper(self) -> tuple[DiagonalNatural, float]:
        """Return these with negative precisions, and what they say, set to zero; and their share.

        A mean-field posterior can be wider than its prior in some coordinates. What the task says
        there is no likelihood, so it is taken to say nothing.

        Examples
        --------
        >>> wide, narrow = (DiagonalGaussian([1.0], [s]).natural_parameters() for s in (2.0, 1.0))
        >>> (wide - narrow).proper()[1], (narrow - wide).proper()[1]
        (1.0, 0.0)
        """
        improper = self.precision < 0
        share = float(improper.double().mean())
        if share == 0:
            return self, share
        return (
            DiagonalNatural(
                self.linear.masked_fill(improper, 0.0), self.precision.masked_fill(improper, 0.0)
            ),
            share,
        )

    def _matrix(self) -> Tensor:
        return torch.diag(self.precision)

    def as_diagonal(self) -> DiagonalNatural:
        """Return itself."""
        return self

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of P."""
        return self.precision

    def precision_at(self, index: Tensor) -> Tensor:
        """Return the rows and columns of P at these positions, as a matrix."""
        return (index[:, None] == index) * self.precision[index]


class DiagonalGaussian(Gaussian):
    """A Gaussian with independent coordinates: mean μ and standard deviation σ.

    Examples
    --------
    >>> q = DiagonalGaussian([0.0, 1.0], [1.0, 2.0])
    >>> q.wasserstein(DiagonalGaussian([3.0, 1.0], [1.0, 6.0]))
    5.0
    """

    family: ClassVar[str] = "diagonal"
    natural = DiagonalNatural

    def __init__(self, mean: Tensor | ArrayLike, std: Tensor | ArrayLike) -> None:
        self.mean = as_vector("mean", mean)
        self.std = as_vector("std", std).to(self.mean.dtype)
        if self.std.shape != self.mean.shape:
            raise ValueError(
                f"mean and std must have the same length, not {self.mean.numel()} and "
                f"{self.std.numel()}."
            )
        if not bool((self.std > 0).all()):
            raise ValueError("Every standard deviation must be positive.")

    @property
    def nbytes(self) -> int:
        """Bytes of mean and std."""
        return self.mean.nbytes + self.std.nbytes

    @cached_property
    def log_determinant(self) -> float:
        """Log |Σ| = 2 Σ log σ."""
        return 2 * float(self.std.double().log().sum())

    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """‖(θ − μ) / σ‖²."""
        scaled = (self.points(theta) - self.mean.double()) / self.std.double()
        return scaled.square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + σ ε."""
        return self.mean + self.std * noise.to(self.mean.dtype)

    def natural_parameters(self) -> DiagonalNatural:
        """(μ/σ², 1/σ²)."""
        precision = self.std.double().square().reciprocal()
        return DiagonalNatural(precision * self.mean.double(), precision)

    def tensors(self) -> dict[str, Tensor]:
        """Return mean and std; one coordinate where all are alike, as in most priors."""
        # Compared as bits, since −0 equals 0 but is another number.
        alike = all(
            bool((_bits(value) == _bits(value[:1])).all()) for value in (self.mean, self.std)
        )
        rows = 1 if alike else self.dimension
        return {"mean": self.mean[:rows], "std": self.std[:rows]}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian that `tensors` came from."""
        mean, std = tensors_named(tensors, "mean", "std")
        if mean.numel() == std.numel() == 1:
            return cls(mean.reshape(1).repeat(dimension), std.reshape(1).repeat(dimension))
        found = cls(mean, std)
        check_dimension(found, dimension)
        return found

    def as_diagonal(self) -> DiagonalGaussian:
        """Return itself."""
        return self

    @classmethod
    def log_probs(cls, members: Sequence[DiagonalGaussian], theta: Tensor) -> Tensor:
        """Log densities of all members, of shape (..., K), by two matrix products.

        With x = θ − c, u = μ − c and p = 1/σ², ‖(θ−μ)/σ‖² = x²·p − 2x·(up) + u²·p. The centre c of
        the means keeps the terms small, and so their cancellation harmless in float64.
        """
        means = torch.stack([q.mean.double() for q in members])
        precisions = torch.stack([q.std.double().square().reciprocal() for q in members])
        centre = means.mean(0)
        shifts, centred = means - centre, theta - centre
        squares = centred.square() @ precisions.T - 2 * centred @ (shifts * precisions).T
        squares = squares + (shifts.square() * precisions).sum(-1)
        constants = means.new_tensor([q.log_determinant for q in members])
        return -0.5 * (squares + constants + members[0].dimension * LOG_TWO_PI)

    def trace_with(self, other: NaturalParameters) -> float:
        """tr(P Σ) = Σ p_i σ_i²."""
        return float((other.precision_diagonal() * self.std.double().square()).sum())

    def wasserstein(self, other: Distribution) -> float:
        """W2² = ‖μ₁−μ₂‖² + ‖σ₁−σ₂‖² between diagonal Gaussians, Bures otherwise."""
        theirs = other.as_diagonal() if isinstance(other, Gaussian) else None
        if theirs is None:
            return super().wasserstein(other)
        self.check_same_dimension(theirs)
        shift = (self.mean.double() - theirs.mean.double()).square().sum()
        spread = (self.std.double() - theirs.std.double()).square().sum()
        return math.sqrt(float(shift + spread))

    @classmethod
    def barycentre(
        cls, weights: Sequence[float], members: Sequence[DiagonalGaussian]
    ) -> DiagonalGaussian:
        """Return the Gaussian with the weighted means and standard deviations."""
        stds = torch.stack([member.std for member in members])
        shares = torch.tensor(weights, dtype=torch.float64, device=stds.device).to(stds.dtype)
        return DiagonalGaussian(weighted_mean(weights, members), shares @ stds)


def _bits(values: Tensor) -> Tensor:
    return values.contiguous().view(torch.uint8).reshape(len(values), -1)
