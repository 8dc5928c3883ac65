r"""The Gaussians q over a network's flat parameter vector θ.

`DiagonalGaussian` and `DenseGaussian` are the extreme elements a knowledge base stores. Their
grammar is that of every `Distribution` (`ibcl.mixture` is the third):

* ``sample(n, generator)`` draws θ, ``log_prob(theta)`` is log q(θ);
* ``kl(other)`` is KL(q ‖ other) and ``wasserstein(other)`` the 2-Wasserstein distance W2;
* ``natural_parameters()`` are (Pμ, P), with precision P: products of densities add them.

Tensors are kept as they are given (float32 for diagonal posteriors, float64 for dense ones, whose
precisions are later subtracted from each other); densities, determinants and distances are always
computed in float64.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import NamedTuple

import torch
from numpy.typing import ArrayLike
from torch import Tensor

LOG_TWO_PI = math.log(2 * math.pi)


class NaturalParameters(NamedTuple):
    """Linear term Pμ and precision P; P is a vector for diagonal and a matrix for dense q."""

    linear: Tensor
    precision: Tensor

    def dense(self) -> NaturalParameters:
        """Return the same with the precision as a matrix."""
        if self.precision.ndim == 2:
            return self
        return NaturalParameters(self.linear, torch.diag(self.precision))


def _vector(name: str, values: Tensor | ArrayLike) -> Tensor:
    """Read a finite, one-dimensional floating-point tensor."""
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


class Distribution(ABC):
    """What every family can do."""

    mean: Tensor

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return self.mean.numel()

    @abstractmethod
    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n parameter vectors; the result has shape (n, D)."""

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

    def _points(self, theta: Tensor | ArrayLike) -> Tensor:
        points = torch.as_tensor(theta).double()
        if points.ndim == 0 or points.shape[-1] != self.dimension:
            raise ValueError(
                f"theta must have {self.dimension} parameters along its last axis, "
                f"but its shape is {tuple(points.shape)}."
            )
        return points

    def _same_dimension(self, other: Distribution) -> None:
        if other.dimension != self.dimension:
            raise ValueError(
                f"The distributions have different dimensions: {self.dimension} and "
                f"{other.dimension}."
            )


class Gaussian(Distribution):
    """A multivariate normal N(μ, Σ)."""

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
    def natural_parameters(self) -> NaturalParameters:
        """(Pμ, P) in float64."""

    @abstractmethod
    def dense(self) -> DenseGaussian:
        """Return the same distribution with a full precision matrix."""

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Draw n parameter vectors; the result has shape (n, D)."""
        noise = torch.randn(n, self.dimension, generator=generator, dtype=self.mean.dtype)
        return self.unwhiten(noise)

    def log_prob(self, theta: Tensor | ArrayLike) -> Tensor:
        """Log density: −½ ((θ−μ)ᵀP(θ−μ) + log|Σ| + D log 2π)."""
        constant = self.log_determinant + self.dimension * LOG_TWO_PI
        return -0.5 * (self.mahalanobis_squared(theta) + constant)

    def kl(self, other: Gaussian) -> float:
        r"""KL(q ‖ p) = ½ (tr(P_p Σ_q) + (μ_q−μ_p)ᵀ P_p (μ_q−μ_p) − D + log|Σ_p| − log|Σ_q|).

        Examples
        --------
        >>> q = DiagonalGaussian([0.0], [1.0])
        >>> q.kl(q)
        0.0
        """
        self._same_dimension(other)
        spread = self._trace_precision_covariance(other) - self.dimension
        shift = float(other.mahalanobis_squared(self.mean))
        return 0.5 * (spread + shift + other.log_determinant - self.log_determinant)

    def _trace_precision_covariance(self, other: Gaussian) -> float:
        """tr(P_other Σ_self)."""
        # With Σ_self = F Fᵀ and P_other = C Cᵀ the trace is the squared Frobenius norm of CᵀF.
        return float(
            (other.dense().precision_cholesky.T @ self.dense().covariance_factor).square().sum()
        )

    def wasserstein(self, other: Distribution) -> float:
        r"""2-Wasserstein (Bures) distance.

        W2² = ‖μ₁−μ₂‖² + tr(Σ₁) + tr(Σ₂) − 2 tr((Σ₁^½ Σ₂ Σ₁^½)^½).
        """
        if not isinstance(other, Gaussian):
            return other.wasserstein(self)
        self._same_dimension(other)
        ours, theirs = self.dense().covariance_factor, other.dense().covariance_factor
        # For Σ = F Fᵀ the last trace is the nuclear norm of F₁ᵀF₂, whatever square root F is.
        cross = torch.linalg.svdvals(ours.T @ theirs).sum()
        bures = ours.square().sum() + theirs.square().sum() - 2 * cross
        shift = (self.mean.double() - other.mean.double()).square().sum()
        return math.sqrt(max(0.0, float(shift + bures)))


class DiagonalGaussian(Gaussian):
    """A Gaussian with independent coordinates: mean μ and standard deviation σ.

    Examples
    --------
    >>> q = DiagonalGaussian([0.0, 1.0], [1.0, 2.0])
    >>> q.wasserstein(DiagonalGaussian([3.0, 1.0], [1.0, 6.0]))
    5.0
    """

    def __init__(self, mean: Tensor | ArrayLike, std: Tensor | ArrayLike) -> None:
        self.mean = _vector("mean", mean)
        self.std = _vector("std", std).to(self.mean.dtype)
        if self.std.shape != self.mean.shape:
            raise ValueError(
                f"mean and std must have the same length, not {self.mean.numel()} and "
                f"{self.std.numel()}."
            )
        if not bool((self.std > 0).all()):
            raise ValueError("Every standard deviation must be positive.")

    def __repr__(self) -> str:
        return f"DiagonalGaussian(dimension={self.dimension})"

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
        scaled = (self._points(theta) - self.mean.double()) / self.std.double()
        return scaled.square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + σ ε."""
        return self.mean + self.std * noise.to(self.mean.dtype)

    def natural_parameters(self) -> NaturalParameters:
        """(μ/σ², 1/σ²)."""
        precision = self.std.double().square().reciprocal()
        return NaturalParameters(precision * self.mean.double(), precision)

    def dense(self) -> DenseGaussian:
        """Return the same distribution with a full precision matrix."""
        return DenseGaussian(
            self.mean.double(), torch.diag(self.std.double().square().reciprocal())
        )

    def _trace_precision_covariance(self, other: Gaussian) -> float:
        variance = self.std.double().square()
        if isinstance(other, DiagonalGaussian):
            return float((variance / other.std.double().square()).sum())
        return float((other.dense().precision.double().diagonal() * variance).sum())

    def wasserstein(self, other: Distribution) -> float:
        """W2² = ‖μ₁−μ₂‖² + ‖σ₁−σ₂‖² between diagonal Gaussians, Bures otherwise."""
        if not isinstance(other, DiagonalGaussian):
            return super().wasserstein(other)
        self._same_dimension(other)
        shift = (self.mean.double() - other.mean.double()).square().sum()
        spread = (self.std.double() - other.std.double()).square().sum()
        return math.sqrt(float(shift + spread))


class DenseGaussian(Gaussian):
    """A Gaussian with a full covariance, given by its mean μ and precision matrix P = Σ⁻¹.

    Examples
    --------
    >>> q = DenseGaussian([0.0, 0.0], [[2.0, 1.0], [1.0, 2.0]])
    >>> [round(value, 4) for value in q.covariance.flatten().tolist()]
    [0.6667, -0.3333, -0.3333, 0.6667]
    """

    def __init__(self, mean: Tensor | ArrayLike, precision: Tensor | ArrayLike) -> None:
        self.mean = _vector("mean", mean)
        matrix = torch.as_tensor(precision).detach()
        if not matrix.is_floating_point():
            matrix = matrix.to(self.mean.dtype)
        if matrix.shape != (self.dimension, self.dimension):
            raise ValueError(
                f"precision must have shape ({self.dimension}, {self.dimension}), "
                f"but its shape is {tuple(matrix.shape)}."
            )
        if not bool(torch.isfinite(matrix).all()):
            raise ValueError("precision holds a value that is not finite.")
        asymmetry = float((matrix - matrix.T).abs().max())
        if asymmetry > 1e-5 * float(matrix.abs().max()):
            raise ValueError("precision must be symmetric.")
        self.precision = matrix
        factor, failure = torch.linalg.cholesky_ex(matrix.double())
        if int(failure):
            raise ValueError("precision must be positive definite.")
        self.precision_cholesky: Tensor = factor

    def __repr__(self) -> str:
        return f"DenseGaussian(dimension={self.dimension})"

    @property
    def nbytes(self) -> int:
        """Bytes of mean and precision."""
        return self.mean.nbytes + self.precision.nbytes

    @cached_property
    def covariance_factor(self) -> Tensor:
        """F with Σ = F Fᵀ, namely C⁻ᵀ for the Cholesky factor C of the precision."""
        identity = torch.eye(self.dimension, dtype=torch.float64)
        factor: Tensor = torch.linalg.solve_triangular(
            self.precision_cholesky.T, identity, upper=True
        )
        return factor

    @property
    def covariance(self) -> Tensor:
        """Σ in float64."""
        return self.covariance_factor @ self.covariance_factor.T

    @cached_property
    def log_determinant(self) -> float:
        """Log |Σ| = −2 Σ log diag(C)."""
        return -2 * float(self.precision_cholesky.diagonal().log().sum())

    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """‖Cᵀ (θ − μ)‖²."""
        centred = self._points(theta) - self.mean.double()
        return (centred @ self.precision_cholesky).square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + C⁻ᵀ ε."""
        rows = noise.double().reshape(-1, self.dimension)
        scaled: Tensor = torch.linalg.solve_triangular(
            self.precision_cholesky.T, rows.T, upper=True
        ).T
        return (self.mean.double() + scaled).reshape(noise.shape).to(self.mean.dtype)

    def natural_parameters(self) -> NaturalParameters:
        """(Pμ, P)."""
        precision = self.precision.double()
        return NaturalParameters(precision @ self.mean.double(), precision)

    def dense(self) -> DenseGaussian:
        """Return itself."""
        return self
