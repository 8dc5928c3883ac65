"""Gaussians with a full covariance: the family that holds every other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from scipy.linalg.lapack import dpstrf
from torch import Tensor

from ibcl.gaussians.distribution import Gaussian, as_vector, check_dimension, tensors_named
from ibcl.gaussians.low_rank import LowRankNatural
from ibcl.gaussians.natural import ImproperError, NaturalParameters

# An eigenvalue of the precision, in units of its size, that is as good as zero.
ROUNDING = 1e-10
# The same of one that was kept in single precision in between, as further batches find it.
_SINGLE_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class DenseNatural(NaturalParameters):
    """Linear term η and precision matrix P."""

    linear: Tensor
    precision: Tensor

    def scaled(self, weight: float) -> DenseNatural:
        """Return weight · self."""
        return DenseNatural(weight * self.linear, weight * self.precision)

    def embed(self, other: NaturalParameters) -> DenseNatural:
        """Return `other` with its precision as a matrix."""
        return other.dense()

    def _plus(self, other: DenseNatural, weight: float) -> DenseNatural:
        return DenseNatural(
            torch.add(self.linear, other.linear, alpha=weight),
            torch.add(self.precision, other.precision, alpha=weight),
        )

    def precision_times(self, columns: Tensor) -> Tensor:
        """P X."""
        return self.precision @ columns

    def mean(self) -> Tensor:
        """Solve Pμ = η by Cholesky."""
        factor, failure = torch.linalg.cholesky_ex(self.precision)
        if int(failure):
            raise ImproperError("precision must be positive definite.")
        return torch.cholesky_solve(self.linear[:, None], factor)[:, 0]

    def around(self, mean: Tensor) -> DenseGaussian:
        """Return the Gaussian with this precision, in float64, and that mean."""
        return DenseGaussian(mean, self.precision)

    def dense(self) -> DenseNatural:
        """Return itself."""
        return self

    def low_rank(self, rank: int, unit: Tensor | None = None) -> LowRankNatural:
        r"""Return S (W Wᵀ + diag ρ) S: the leading eigenvectors, the remainder on the diagonal.

        Directions are compared in the given units, and the diagonal of P stays as it is.

        Examples
        --------
        >>> natural = DenseGaussian([0.0, 0.0], [[2.0, 1.0], [1.0, 2.0]]).natural_parameters()
        >>> [round(value, 6) for value in natural.low_rank(1).dense().precision.flatten().tolist()]
        [2.0, 1.5, 1.5, 2.0]
        """
        scale = self.precision.diagonal().sqrt() if unit is None else unit
        factor = self._factor(scale, _SINGLE_ROUNDING)
        if factor is None:
            raise ImproperError("precision must be positive semi-definite to be projected.")
        kept = factor[:, -min(rank, len(factor)) :]
        remainder = (self.precision.diagonal() - kept.square().sum(1)).clamp(min=0)
        return LowRankNatural(self.linear, remainder, kept)

    def few_directions(self, unit: Tensor) -> LowRankNatural | None:
        """Return the same as F Fᵀ where P has few directions, as of few samples; None elsewhere.

        By Cholesky's factorisation with pivots, which ends where nothing but rounding is left.

        Parameters
        ----------
        unit
            What the size of each row is compared with.

        Examples
        --------
        >>> natural = DenseNatural(torch.zeros(4), torch.ones(4, 4).double())
        >>> natural.few_directions(torch.ones(4)).factor.tolist()
        [[1.0], [1.0], [1.0], [1.0]]
        """
        scaled = (self.precision / unit / unit[:, None]).cpu().numpy()
        packed, pivots, rank, _ = dpstrf(scaled, tol=ROUNDING, lower=1)
        if rank > self.dimension / 2:
            return None
        factor = torch.empty(self.dimension, rank, dtype=torch.float64)
        factor[torch.from_numpy(pivots).long() - 1] = torch.from_numpy(packed).tril()[:, :rank]
        factor = unit[:, None] * factor.to(unit)
        return LowRankNatural(self.linear, torch.zeros_like(unit), factor)

    def half(self, unit: Tensor) -> dict[str, Tensor] | None:
        """Return P = S G Gᵀ S with S² = diag P: a triangular G with rows of length one.

        Float16 holds such rows without overflow, and rounding a factor, not P itself, leaves
        directions of almost no precision almost untouched.
        """
        factor = self._factor(unit)
        if factor is None:
            return None
        scale = row_norms(factor)
        triangular = torch.linalg.qr((factor / scale.double()[:, None]).T, mode="r").R.T
        rows, columns = torch.tril_indices(len(factor), len(factor), device=factor.device)
        return {"scale": scale, "triangle": triangular[rows, columns].half()}

    @classmethod
    def from_half(cls, tensors: Mapping[str, Tensor], dimension: int) -> DenseNatural:
        """Return the precision that `half` kept."""
        scale, triangle = tensors_named(tensors, "scale", "triangle")
        if scale.shape != (dimension,):
            raise ValueError(f"scale does not have {dimension} numbers")
        if triangle.shape != (dimension * (dimension + 1) // 2,):
            raise ValueError("its triangle does not fit")
        factor = scale.double()[:, None] * from_triangles(triangle[None], dimension)[0]
        return cls(torch.zeros_like(scale, dtype=torch.float64), factor @ factor.T)

    def _factor(self, unit: Tensor, rounding: float = ROUNDING) -> Tensor | None:
        """B with P = B Bᵀ, weakest direction first; None where P is not positive semi-definite."""
        safe = unit.clamp(min=torch.finfo(torch.float64).tiny)
        scaled = self.precision / safe / safe[:, None]
        values, vectors = torch.linalg.eigh((scaled + scaled.T) / 2)
        if float(values[0]) < -rounding:
            return None
        factor: Tensor = vectors * values.clamp(min=0).sqrt() * safe[:, None]
        return factor


def row_norms(factor: Tensor) -> Tensor:
    """Lengths of the rows, along the last axis, never zero; float32."""
    norms: Tensor = torch.linalg.vector_norm(factor, dim=-1)
    return norms.clamp(min=1e-30).float()


def from_triangles(triangles: Tensor, size: int) -> Tensor:
    """Lower triangular float64 matrices from their entries, row by row, one triangle per row."""
    factors = triangles.new_zeros(len(triangles), size, size, dtype=torch.float64)
    rows, columns = torch.tril_indices(size, size, device=triangles.device)
    factors[:, rows, columns] = triangles.double()
    return factors


class DenseGaussian(Gaussian):
    """A Gaussian with a full covariance, given by its mean μ and precision matrix P = Σ⁻¹.

    Examples
    --------
    >>> q = DenseGaussian([0.0, 0.0], [[2.0, 1.0], [1.0, 2.0]])
    >>> [round(value, 4) for value in q.covariance.flatten().tolist()]
    [0.6667, -0.3333, -0.3333, 0.6667]
    """

    family: ClassVar[str] = "dense"
    natural = DenseNatural

    def __init__(self, mean: Tensor | ArrayLike, precision: Tensor | ArrayLike) -> None:
        self.mean = as_vector("mean", mean)
        matrix = torch.as_tensor(precision, device=self.mean.device).detach()
        if not matrix.is_floating_point():
            matrix = matrix.to(self.mean.dtype)
        if matrix.shape != (self.dimension, self.dimension):
            raise ValueError(
                f"precision must have shape ({self.dimension}, {self.dimension}), "
                f"but its shape is {tuple(matrix.shape)}."
            )
        self.precision = matrix
        self.precision_cholesky: Tensor = cholesky(matrix)

    @cached_property
    def covariance_factor(self) -> Tensor:
        """F with Σ = F Fᵀ, namely C⁻ᵀ for the Cholesky factor C of the precision."""
        identity = torch.eye(self.dimension, dtype=torch.float64, device=self.mean.device)
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
        centred = self.points(theta) - self.mean.double()
        return (centred @ self.precision_cholesky).square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + C⁻ᵀ ε."""
        rows = noise.double().reshape(-1, self.dimension)
        scaled: Tensor = torch.linalg.solve_triangular(
            self.precision_cholesky.T, rows.T, upper=True
        ).T
        return (self.mean.double() + scaled).reshape(noise.shape).to(self.mean.dtype)

    def natural_parameters(self) -> DenseNatural:
        """(Pμ, P)."""
        precision = self.precision.double()
        return DenseNatural(precision @ self.mean.double(), precision)

    def tensors(self) -> dict[str, Tensor]:
        """Return mean and precision."""
        return {"mean": self.mean, "precision": self.precision}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian that `tensors` came from."""
        found = cls(*tensors_named(tensors, "mean", "precision"))
        check_dimension(found, dimension)
        return found

    def dense(self) -> DenseGaussian:
        """Return itself."""
        return self


def cholesky(precision: Tensor) -> Tensor:
    """Return the float64 Cholesky factors of symmetric matrices (..., D, D), or refuse them."""
    if not bool(torch.isfinite(precision).all()):
        raise ValueError("precision holds a value that is not finite.")
    asymmetry = float((precision - precision.mT).abs().max())
    if asymmetry > 1e-5 * float(precision.abs().max()):
        raise ValueError("precision must be symmetric.")
    found = torch.linalg.cholesky_ex(precision.double())
    if bool(found.info.any()):
        raise ImproperError("precision must be positive definite.")
    factor: Tensor = found.L
    return factor


def _square_root(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the symmetric square root and its inverse."""
    values, vectors = torch.linalg.eigh(matrix)
    roots = values.clamp(min=torch.finfo(matrix.dtype).tiny).sqrt()
    return (vectors * roots) @ vectors.T, (vectors / roots) @ vectors.T


def bures_barycentre(weights: Sequence[float], covariances: Sequence[Tensor]) -> Tensor:
    r"""Covariance of the 2-Wasserstein barycentre of Gaussians.

    The fixed point of S ← S^{−½} (Σ_k w_k (S^½ Σ_k S^½)^½)² S^{−½} (Álvarez-Esteban and others,
    2016), which converges from any positive definite start.

    Examples
    --------
    >>> one, nine = torch.eye(1).double(), 9 * torch.eye(1).double()
    >>> round(float(bures_barycentre([0.5, 0.5], [one, nine])), 6)
    4.0
    """
    current = sum(
        (weight * covariance for weight, covariance in zip(weights, covariances, strict=True)),
        torch.zeros_like(covariances[0]),
    )
    for _ in range(100):
        root, inverse_root = _square_root(current)
        middle = sum(
            (
                weight * _square_root(root @ covariance @ root)[0]
                for weight, covariance in zip(weights, covariances, strict=True)
            ),
            torch.zeros_like(current),
        )
        following = inverse_root @ middle @ middle @ inverse_root
        following = (following + following.T) / 2
        settled = float((following - current).norm()) <= 1e-9 * float(current.norm())
        current = following
        if settled:
            break
    return current
