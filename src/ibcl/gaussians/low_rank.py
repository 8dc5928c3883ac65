r"""Gaussians whose precision is a diagonal and a few directions: P = diag(d) + F Fᵀ.

With r columns in F everything is done in D·r numbers and r×r matrices, by Woodbury's identity and
its kin. In the units A = diag(d)^−½ F, with AᵀA = V diag(s²) Vᵀ,

    Σ = diag(d)^−½ (I − A V diag(1/(1+s²)) Vᵀ Aᵀ) diag(d)^−½,     log|P| = Σ log d + Σ log(1+s²),
    (I + A Aᵀ)^−½ = I − A V diag(1/(√(1+s²) (1+√(1+s²)))) Vᵀ Aᵀ.

Only the 2-Wasserstein distance and barycentre have no such form, and go through D×D matrices.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians.distribution import Gaussian, as_vector, check_dimension, tensors_named
from ibcl.gaussians.natural import NaturalParameters, scale_rows


class LowRankNatural(NaturalParameters):
    """Linear term η and precision diag(d) + F diag(w) Fᵀ.

    Weights w of any sign make it a vector space: scaling touches them alone, and sums put columns
    side by side, until there are as many as parameters and the sum is dense.

    Parameters
    ----------
    factor
        F, with r columns, kept in the dtype it is given in.
    weights
        One a column; 1 without them.
    """

    def __init__(
        self, linear: Tensor, diagonal: Tensor, factor: Tensor, weights: Tensor | None = None
    ) -> None:
        self.linear = linear
        self.diagonal = diagonal
        self.factor = factor
        ones = factor.new_ones(factor.shape[1], dtype=torch.float64)
        self.weights = ones if weights is None else weights

    @property
    def rank(self) -> int:
        """Number of columns."""
        return self.factor.shape[1]

    def scaled(self, weight: float) -> LowRankNatural:
        """Return weight · self."""
        return LowRankNatural(
            weight * self.linear, weight * self.diagonal, self.factor, weight * self.weights
        )

    def embed(self, other: NaturalParameters) -> LowRankNatural | None:
        """Return `other` if it is of this kind, or a diagonal without columns."""
        if isinstance(other, LowRankNatural):
            return other
        diagonal = other.as_diagonal()
        if diagonal is None:
            return None
        return LowRankNatural(
            diagonal.linear, diagonal.precision, self.factor.new_zeros(self.dimension, 0)
        )

    def _plus(self, other: LowRankNatural, weight: float) -> NaturalParameters:
        linear = torch.add(self.linear, other.linear, alpha=weight)
        diagonal = torch.add(self.diagonal, other.diagonal, alpha=weight)
        if other.rank == 0:
            return LowRankNatural(linear, diagonal, self.factor, self.weights)
        added = weight * other.weights
        shared = self._columns_of(other)
        if shared is not None:
            weights = self.weights.clone()
            weights[shared] += added
            kept = weights != 0
            return LowRankNatural(linear, diagonal, self.factor[:, kept], weights[kept])
        if self.rank + other.rank >= self.dimension:
            return self.dense().plus(other.dense(), weight)
        dtype = torch.promote_types(self.factor.dtype, other.factor.dtype)
        factor = torch.cat([self.factor.to(dtype), other.factor.to(dtype)], 1)
        return LowRankNatural(linear, diagonal, factor, torch.cat([self.weights, added]))

    def _columns_of(self, other: LowRankNatural) -> slice | None:
        """Where the other's columns are, first or last, among these, so that they add or cancel."""
        for begin in (0, self.rank - other.rank):
            shared = slice(begin, begin + other.rank)
            if begin >= 0 and torch.equal(self.factor[:, shared], other.factor):
                return shared
        return None

    def precision_times(self, columns: Tensor) -> Tensor:
        """diag(d) X + F (w · FᵀX)."""
        factor = self.factor.double()
        along = scale_rows(self.weights, factor.T @ columns)
        return scale_rows(self.diagonal, columns) + factor @ along

    def _positive(self) -> tuple[Tensor, Tensor] | None:
        """D > 0 and F diag(w)^½ with P = diag(d) + F diag(w) Fᵀ; None where a sign forbids it."""
        if bool((self.weights < 0).any()) or not bool((self.diagonal > 0).all()):
            return None
        if bool((self.weights == 1).all()):
            return self.diagonal, self.factor
        # Columns keep their dtype only while nothing is done to them.
        return self.diagonal, self.factor.double() * self.weights.sqrt()

    def mean(self) -> Tensor:
        """μ = Σ η by Woodbury's identity, or densely where a sum left a negative sign."""
        positive = self._positive()
        if positive is None:
            return self.dense().mean()
        inverse = _Woodbury(*positive)
        mean = inverse.covariance_times(self.linear)
        # The identity subtracts almost equal numbers along strong directions; one step of
        # refinement gives back the digits that costs.
        return mean + inverse.covariance_times(self.linear - self.precision_times(mean))

    def around(self, mean: Tensor) -> Gaussian:
        """Return the Gaussian with this precision, dense where a sum left a negative sign."""
        positive = self._positive()
        if positive is None:
            return self.dense().around(mean)
        return LowRankGaussian(mean, *positive)

    def _matrix(self) -> Tensor:
        factor = self.factor.double()
        precision = (factor * self.weights) @ factor.T
        precision.diagonal().add_(self.diagonal)
        return precision

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of P."""
        return self.diagonal + self.factor.double().square() @ self.weights

    def precision_at(self, index: Tensor) -> Tensor:
        """Return the rows and columns of P at these positions, as a matrix."""
        factor = self.factor[index].double()
        within = (index[:, None] == index) * self.diagonal[index]
        return within + (factor * self.weights) @ factor.T

    def low_rank(self, rank: int, unit: Tensor | None = None) -> LowRankNatural | None:
        """Return itself if its columns are few enough, the leading directions of them otherwise."""
        if self.rank <= rank:
            return self
        positive = self._positive()
        if positive is None:
            return None
        scale = self.precision_diagonal().sqrt() if unit is None else unit
        scale = scale.clamp(min=torch.finfo(torch.float64).tiny)
        left, values, _ = torch.linalg.svd(
            positive[1].double() / scale[:, None], full_matrices=False
        )
        kept = left[:, :rank] * values[:rank] * scale[:, None]
        remainder = (self.precision_diagonal() - kept.square().sum(1)).clamp(min=0)
        return LowRankNatural(self.linear, remainder, kept)

    def half(self, unit: Tensor) -> dict[str, Tensor] | None:
        """Return P = S (W Wᵀ + diag ρ) S with W in float16 and ρ such that diag P stays right."""
        if bool((self.weights < 0).any()) or not bool((self.diagonal >= 0).all()):
            return None
        diagonal = self.precision_diagonal()
        scale = diagonal.sqrt().clamp(min=1e-30).float()
        factor = self.factor.double() * self.weights.sqrt() / scale.double()[:, None]
        rounded = factor.half().contiguous()
        explained = rounded.double().square().sum(1)
        remainder = (diagonal / scale.double().square() - explained).clamp(min=0)
        return {"scale": scale, "factor": rounded, "remainder": remainder.float()}

    @classmethod
    def from_half(cls, tensors: Mapping[str, Tensor], dimension: int) -> LowRankNatural:
        """Return the precision that `half` kept, with columns in float32."""
        scale, factor, remainder = tensors_named(tensors, "scale", "factor", "remainder")
        for name, vector in (("scale", scale), ("remainder", remainder)):
            if vector.shape != (dimension,):
                raise ValueError(f"{name} does not have {dimension} numbers")
        fits = factor.ndim == 2 and len(factor) == dimension
        if not fits or not bool((remainder >= 0).all()):
            raise ValueError("its eigenvectors do not fit")
        return cls(
            torch.zeros_like(remainder, dtype=torch.float64),
            scale.double().square() * remainder.double(),
            scale.float()[:, None] * factor.float(),
        )


class _Woodbury:
    """The r×r matrices that stand in for the inverse of diag(d) + F Fᵀ."""

    def __init__(self, diagonal: Tensor, factor: Tensor) -> None:
        self.root = diagonal.double().sqrt()
        self.factor = factor
        scaled = self.columns()
        values, vectors = torch.linalg.eigh(scaled.T @ scaled)
        self.vectors: Tensor = vectors
        self.gains: Tensor = 1 + values.clamp(min=0)

    def columns(self) -> Tensor:
        """A = diag(d)^−½ F; made when needed, since it is larger than all the rest."""
        return self.factor.double() / self.root[:, None]

    def _apply(self, rows: Tensor, inner: Tensor) -> Tensor:
        """(I − A V diag(inner) Vᵀ Aᵀ) for rows of shape (..., D)."""
        columns: Tensor = self.columns() @ self.vectors
        return rows - ((rows @ columns) * inner) @ columns.T

    def covariance_times(self, rows: Tensor) -> Tensor:
        """Σ x for rows x of shape (..., D)."""
        return self._apply(rows / self.root, 1 / self.gains) / self.root

    def covariance_root_times(self, rows: Tensor) -> Tensor:
        """diag(d)^−½ (I + A Aᵀ)^−½ x, a square root of Σ times x, for rows x."""
        root = self.gains.sqrt()
        return self._apply(rows, 1 / (root * (1 + root))) / self.root

    def subtracted(self) -> Tensor:
        """G with Σ = diag(1/d) − G Gᵀ."""
        directions: Tensor = self.columns() @ self.vectors
        return directions / self.gains.sqrt() / self.root[:, None]

    @property
    def log_determinant(self) -> float:
        """Log |Σ|."""
        return -2 * float(self.root.log().sum()) - float(self.gains.log().sum())


class LowRankGaussian(Gaussian):
    """A Gaussian with precision P = diag(d) + F Fᵀ, for a D×r factor F.

    Examples
    --------
    >>> q = LowRankGaussian([0.0, 0.0], [1.0, 1.0], [[1.0], [1.0]])
    >>> q.dense().precision.tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """

    family: ClassVar[str] = "low_rank"
    natural = LowRankNatural

    def __init__(
        self,
        mean: Tensor | ArrayLike,
        diagonal: Tensor | ArrayLike,
        factor: Tensor | ArrayLike,
    ) -> None:
        self.mean = as_vector("mean", mean)
        self.diagonal = as_vector("diagonal", diagonal)
        if self.diagonal.shape != self.mean.shape:
            raise ValueError(
                f"mean and diagonal must have the same length, not {self.dimension} and "
                f"{self.diagonal.numel()}."
            )
        if not bool((self.diagonal > 0).all()):
            raise ValueError("Every entry of diagonal must be positive.")
        columns = torch.as_tensor(factor, device=self.mean.device).detach()
        if not columns.is_floating_point():
            columns = columns.to(self.mean.dtype)
        if columns.ndim != 2 or len(columns) != self.dimension:
            raise ValueError(
                f"factor must have {self.dimension} rows and one column per direction, but its "
                f"shape is {tuple(columns.shape)}."
            )
        if not bool(torch.isfinite(columns).all()):
            raise ValueError("factor holds a value that is not finite.")
        self.factor = columns

    def __repr__(self) -> str:
        return f"LowRankGaussian(dimension={self.dimension}, rank={self.factor.shape[1]})"

    @cached_property
    def _woodbury(self) -> _Woodbury:
        return _Woodbury(self.diagonal, self.factor)

    @property
    def log_determinant(self) -> float:
        """Log |Σ| = −Σ log d − Σ log(1 + s²)."""
        return self._woodbury.log_determinant

    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """‖d^½ (θ − μ)‖² + ‖Fᵀ (θ − μ)‖²."""
        centred = self.points(theta) - self.mean.double()
        along = centred @ self.factor.double()
        return centred.square() @ self.diagonal.double() + along.square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + diag(d)^−½ (I + A Aᵀ)^−½ ε."""
        shift = self._woodbury.covariance_root_times(noise.double())
        return (self.mean.double() + shift).to(self.mean.dtype)

    def natural_parameters(self) -> LowRankNatural:
        """(Pμ, P), with the columns of F as they are."""
        zero = torch.zeros_like(self.mean, dtype=torch.float64)
        natural = LowRankNatural(zero, self.diagonal.double(), self.factor)
        linear = natural.precision_times(self.mean.double())
        return LowRankNatural(linear, natural.diagonal, self.factor)

    def tensors(self) -> dict[str, Tensor]:
        """Return mean, diagonal and factor."""
        return {"mean": self.mean, "diagonal": self.diagonal, "factor": self.factor}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian that `tensors` came from."""
        found = cls(*tensors_named(tensors, "mean", "diagonal", "factor"))
        check_dimension(found, dimension)
        return found

    def trace_with(self, other: NaturalParameters) -> float:
        """tr(P Σ) = Σ p_ii / d_i − tr(Gᵀ P G)."""
        subtracted = self._woodbury.subtracted()
        spread = (other.precision_diagonal() / self.diagonal.double()).sum()
        return float(spread - (subtracted * other.precision_times(subtracted)).sum())
