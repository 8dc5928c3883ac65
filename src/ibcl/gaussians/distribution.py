"""What every distribution over θ, and every Gaussian, can do."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians.natural import NaturalParameters

if TYPE_CHECKING:
    from ibcl.gaussians.dense import DenseGaussian
    from ibcl.gaussians.diagonal import DiagonalGaussian

LOG_TWO_PI = math.log(2 * math.pi)


class Distribution(ABC):
    """What every family can do."""

    mean: Tensor

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dimension={self.dimension})"

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return self.mean.numel()

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n parameter vectors; the result has shape (n, D).

        Parameters
        ----------
        generator
            Of the processor, wherever the parameters are: a seed means the same on every device.
        """

    @abstractmethod
    def log_prob(self, theta: Tensor | ArrayLike) -> Tensor:
        """Log density of θ of shape (..., D), in float64."""

    @abstractmethod
    def wasserstein(self, other: Distribution) -> float:
        """2-Wasserstein distance to another distribution."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Bytes its tensors take."""

    def points(self, theta: Tensor | ArrayLike) -> Tensor:
        """Read θ of shape (..., D) in float64, or refuse it."""
        points = torch.as_tensor(theta, device=self.mean.device).double()
        if points.ndim == 0 or points.shape[-1] != self.dimension:
            raise ValueError(
                f"theta must have {self.dimension} parameters along its last axis, "
                f"but its shape is {tuple(points.shape)}."
            )
        return points

    def check_same_dimension(self, other: Distribution) -> None:
        """Refuse a distribution over another number of parameters."""
        if other.dimension != self.dimension:
            raise ValueError(
                f"The distributions have different dimensions: {self.dimension} and "
                f"{other.dimension}."
            )


class Gaussian(Distribution):
    """A multivariate normal N(μ, Σ) with precision P = Σ⁻¹."""

    family: ClassVar[str]
    """Its name in files and in `FAMILIES`."""
    natural: ClassVar[type[NaturalParameters]]
    """The class of its natural parameters."""

    @abstractmethod
    def natural_parameters(self) -> NaturalParameters:
        """(Pμ, P) in float64."""

    @abstractmethod
    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """(θ − μ)ᵀ P (θ − μ), in float64."""

    @abstractmethod
    def unwhiten(self, noise: Tensor) -> Tensor:
        """Map standard normal noise ε of shape (..., D) to θ = μ + Σ^½ ε."""

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """Log |Σ|."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what it is made of, by name: its exact form on disk, and what equality compares.

        Besides ``"mean"``, whatever `from_tensors` needs to make the same Gaussian, bit for bit.
        """

    @classmethod
    @abstractmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian over so many parameters that `tensors` came from."""

    def to(self, device: torch.device) -> Self:
        """Return the same Gaussian on a device; itself where it is there."""
        if self.mean.device == device:
            return self
        tensors = {name: value.to(device) for name, value in self.tensors().items()}
        return type(self).from_tensors(tensors, self.dimension)

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def equal(self, other: Gaussian) -> bool:
        """Whether both are of one family and agree in every bit of type and value."""
        if type(self) is not type(other) or self.dimension != other.dimension:
            return False
        ours, theirs = self.tensors(), other.tensors()
        return ours.keys() == theirs.keys() and all(
            value.dtype == theirs[name].dtype and torch.equal(value, theirs[name])
            for name, value in ours.items()
        )

    def dense(self) -> DenseGaussian:
        """Return the same distribution with a full precision matrix."""
        return self.natural_parameters().dense().around(self.mean.double())

    def as_diagonal(self) -> DiagonalGaussian | None:
        """Return the same distribution with standard deviations; None where parameters correlate.

        Examples
        --------
        >>> from ibcl.gaussians import DenseGaussian
        >>> DenseGaussian([0.0, 0.0], [[2.0, 1.0], [1.0, 2.0]]).as_diagonal() is None
        True
        """
        natural = self.natural_parameters().as_diagonal()
        return None if natural is None else natural.around(self.mean)

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n parameter vectors; the result has shape (n, D)."""
        # Drawn on the processor, so that a seed means the same on every device.
        noise = torch.randn(
            n, self.dimension, generator=generator, dtype=self.mean.dtype, device="cpu"
        )
        return self.unwhiten(noise.to(self.mean.device))

    def log_prob(self, theta: Tensor | ArrayLike) -> Tensor:
        """Log density: −½ ((θ−μ)ᵀP(θ−μ) + log|Σ| + D log 2π)."""
        constant = self.log_determinant + self.dimension * LOG_TWO_PI
        return -0.5 * (self.mahalanobis_squared(theta) + constant)

    @classmethod
    def log_probs(cls, members: Sequence[Any], theta: Tensor) -> Tensor:
        """Log densities of θ under several Gaussians of this family, one a last column."""
        return torch.stack([member.log_prob(theta) for member in members], -1)

    def kl(self, other: Gaussian) -> float:
        r"""KL(q ‖ p) = ½ (tr(P_p Σ_q) + (μ_q−μ_p)ᵀ P_p (μ_q−μ_p) − D + log|Σ_p| − log|Σ_q|).

        Examples
        --------
        >>> from ibcl.gaussians import DiagonalGaussian
        >>> q = DiagonalGaussian([0.0], [1.0])
        >>> q.kl(q)
        0.0
        """
        self.check_same_dimension(other)
        spread = self.trace_with(other.natural_parameters()) - self.dimension
        shift = float(other.mahalanobis_squared(self.mean))
        return 0.5 * (spread + shift + other.log_determinant - self.log_determinant)

    def trace_with(self, other: NaturalParameters) -> float:
        """tr(P Σ) of another's precision P and this covariance Σ."""
        # With Σ = F Fᵀ the trace is Σ_ij F_ij (P F)_ij.
        factor = self.dense().covariance_factor
        return float((factor * other.precision_times(factor)).sum())

    def wasserstein(self, other: Distribution) -> float:
        r"""2-Wasserstein (Bures) distance.

        W2² = ‖μ₁−μ₂‖² + tr(Σ₁) + tr(Σ₂) − 2 tr((Σ₁^½ Σ₂ Σ₁^½)^½).
        """
        if not isinstance(other, Gaussian):
            return other.wasserstein(self)
        self.check_same_dimension(other)
        ours, theirs = self.dense().covariance_factor, other.dense().covariance_factor
        # For Σ = F Fᵀ the last trace is the nuclear norm of F₁ᵀF₂, whatever square root F is.
        cross = torch.linalg.svdvals(ours.T @ theirs).sum()
        bures = ours.square().sum() + theirs.square().sum() - 2 * cross
        shift = (self.mean.double() - other.mean.double()).square().sum()
        return math.sqrt(max(0.0, float(shift + bures)))

    @classmethod
    def barycentre(cls, weights: Sequence[float], members: Sequence[Any]) -> Gaussian:
        """Return the 2-Wasserstein barycentre of Gaussians: the weighted mean, and Bures'.

        Parameters
        ----------
        members
            Gaussians of this family; of any, where `Gaussian` itself is asked.
        """
        from ibcl.gaussians.dense import DenseGaussian, bures_barycentre

        mean = weighted_mean(weights, members)
        covariance = bures_barycentre(weights, [q.dense().covariance for q in members])
        return DenseGaussian(mean, torch.linalg.inv(covariance))


def barycentre(weights: Sequence[float], members: Sequence[Gaussian]) -> Gaussian:
    """Return the 2-Wasserstein barycentre of Gaussians of any families.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> narrow, wide = DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([4.0], [3.0])
    >>> barycentre([0.5, 0.5], [narrow, wide]).std.item()
    2.0
    """
    families = {type(member) for member in members}
    family = families.pop() if len(families) == 1 else Gaussian
    return family.barycentre(weights, members)


def weighted_mean(weights: Sequence[float], members: Sequence[Gaussian]) -> Tensor:
    """Return Σ w μ in the members' own precision."""
    means = torch.stack([member.mean for member in members])
    return torch.tensor(weights, dtype=torch.float64, device=means.device).to(means.dtype) @ means


def as_vector(name: str, values: Tensor | ArrayLike) -> Tensor:
    """Read a finite, non-empty, one-dimensional floating-point tensor."""
    tensor = torch.as_tensor(values)
    if not tensor.is_floating_point():
        tensor = tensor.to(torch.get_default_dtype())
    if tensor.ndim != 1 or tensor.numel() == 0:
        raise ValueError(
            f"{name} must be a non-empty vector, but its shape is {tuple(tensor.shape)}."
        )
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} holds a value that is not finite.")
    return tensor.detach()


def tensors_named(tensors: Mapping[str, Tensor], *names: str) -> list[Tensor]:
    """Return the tensors of these names, all there are, of floating-point numbers."""
    if set(tensors) != set(names):
        raise ValueError(f"it holds {', '.join(sorted(tensors)) or 'nothing'}")
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            raise ValueError(f"{name} holds {tensor.dtype} instead of floating-point numbers")
    return [tensors[name] for name in names]


def check_dimension(gaussian: Gaussian, dimension: int) -> None:
    """Refuse a Gaussian over another number of parameters than was expected."""
    if gaussian.dimension != dimension:
        raise ValueError(f"it has {gaussian.dimension} parameters, the network {dimension}")
