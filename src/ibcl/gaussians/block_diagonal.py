"""Gaussians of equal blocks that know nothing of each other, as one class against the rest gives.

C blocks of B parameters each take C·B² numbers in place of (C·B)², and C factorisations of B×B.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians.dense import (
    ROUNDING,
    DenseNatural,
    bures_barycentre,
    cholesky,
    from_triangles,
    row_norms,
)
from ibcl.gaussians.distribution import (
    Distribution,
    Gaussian,
    as_vector,
    check_dimension,
    tensors_named,
    weighted_mean,
)
from ibcl.gaussians.low_rank import LowRankGaussian
from ibcl.gaussians.natural import ImproperError, NaturalParameters


class BlockDiagonalNatural(NaturalParameters):
    """Linear term η and the precision's blocks (C, B, B) at the rows of positions (C, B)."""

    def __init__(self, linear: Tensor, blocks: Tensor, positions: Tensor) -> None:
        self.linear, self.blocks, self.positions = linear, blocks, positions

    def scaled(self, weight: float) -> BlockDiagonalNatural:
        """Return weight · self."""
        return BlockDiagonalNatural(weight * self.linear, weight * self.blocks, self.positions)

    def embed(self, other: NaturalParameters) -> BlockDiagonalNatural | None:
        """Return `other` if it has the same blocks or is diagonal."""
        if isinstance(other, BlockDiagonalNatural):
            return other if torch.equal(self.positions, other.positions) else None
        diagonal = other.as_diagonal()
        if diagonal is None:
            return None
        blocks = torch.diag_embed(diagonal.precision[self.positions])
        return BlockDiagonalNatural(diagonal.linear, blocks, self.positions)

    def _plus(self, other: BlockDiagonalNatural, weight: float) -> BlockDiagonalNatural:
        return BlockDiagonalNatural(
            torch.add(self.linear, other.linear, alpha=weight),
            torch.add(self.blocks, other.blocks, alpha=weight),
            self.positions,
        )

    def precision_times(self, columns: Tensor) -> Tensor:
        """P X, block by block."""
        matrix = columns.reshape(self.dimension, -1)
        result = torch.empty_like(matrix)
        result[self.positions] = self.blocks @ matrix[self.positions]
        return result.reshape(columns.shape)

    def mean(self) -> Tensor:
        """Solve Pμ = η block by block."""
        factors, failures = torch.linalg.cholesky_ex(self.blocks)
        if bool(failures.any()):
            raise ImproperError("precision must be positive definite: a block is not.")
        mean = torch.empty_like(self.linear)
        mean[self.positions] = torch.cholesky_solve(
            self.linear[self.positions][..., None], factors
        )[..., 0]
        return mean

    def around(self, mean: Tensor) -> BlockDiagonalGaussian:
        """Return the Gaussian with these blocks, in float64, and that mean."""
        return BlockDiagonalGaussian(mean, self.blocks, self.positions)

    def _matrix(self) -> Tensor:
        precision = self.blocks.new_zeros(self.dimension, self.dimension, dtype=torch.float64)
        precision[self.positions[:, :, None], self.positions[:, None, :]] = self.blocks
        return precision

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of P."""
        result = torch.empty_like(self.linear)
        result[self.positions] = self.blocks.diagonal(dim1=1, dim2=2)
        return result

    def precision_at(self, index: Tensor) -> Tensor:
        """Return the rows and columns of P at these positions, as a matrix."""
        count, size = self.positions.shape
        place = torch.empty_like(self.positions.flatten())
        place[self.positions.flatten()] = torch.arange(count * size, device=place.device)
        block, within = place[index] // size, place[index] % size
        entries = self.blocks[block[:, None], within[:, None], within]
        return entries * (block[:, None] == block)

    def half(self, unit: Tensor) -> dict[str, Tensor] | None:
        """Return triangular factors with rows of length one, as for dense precisions, a block each.

        Projections onto a few directions would mix the blocks, so there are none.
        """
        safe = unit.clamp(min=torch.finfo(torch.float64).tiny)[self.positions]
        scaled = self.blocks / safe[:, :, None] / safe[:, None, :]
        values, vectors = torch.linalg.eigh((scaled + scaled.mT) / 2)
        if float(values.min()) < -ROUNDING:
            return None
        factors = vectors * values.clamp(min=0).sqrt()[:, None, :] * safe[:, :, None]
        scale = row_norms(factors)
        triangular = torch.linalg.qr((factors / scale.double()[..., None]).mT, mode="r").R.mT
        rows, columns = torch.tril_indices(*triangular.shape[1:], device=triangular.device)
        return {
            "scale": scale,
            "triangle": triangular[:, rows, columns].half(),
            "positions": self.positions,
        }

    @classmethod
    def from_half(cls, tensors: Mapping[str, Tensor], dimension: int) -> BlockDiagonalNatural:
        """Return the precision that `half` kept."""
        rest = dict(tensors)
        positions = _partition(rest.pop("positions", torch.empty(0)), dimension)
        scale, triangle = tensors_named(rest, "scale", "triangle")
        count, size = positions.shape
        if scale.shape != positions.shape or triangle.shape != (count, size * (size + 1) // 2):
            raise ValueError("its blocks do not fit")
        factors = scale.double()[..., None] * from_triangles(triangle, size)
        zero = scale.new_zeros(dimension, dtype=torch.float64)
        return cls(zero, factors @ factors.mT, positions)


def _partition(positions: Tensor, dimension: int) -> Tensor:
    """Check that every parameter is in exactly one block."""
    if positions.ndim != 2 or positions.is_floating_point():
        raise ValueError(
            f"positions must be whole numbers of shape (blocks, size), not {positions.dtype} of "
            f"shape {tuple(positions.shape)}."
        )
    whole = positions.long()
    if not torch.equal(whole.flatten().sort().values, torch.arange(dimension, device=whole.device)):
        raise ValueError(f"positions must hold each of the {dimension} parameters once.")
    return whole


class BlockDiagonalGaussian(Gaussian):
    """A Gaussian of C independent blocks of B parameters each.

    Parameters
    ----------
    blocks
        Precision matrices of the blocks, of shape (C, B, B).
    positions
        Which parameters each block is about, of shape (C, B); every one is in one block.

    Examples
    --------
    >>> q = BlockDiagonalGaussian(
    ...     [0.0, 0.0, 0.0, 0.0], [[[2.0, 1.0], [1.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]]],
    ...     [[0, 2], [1, 3]])
    >>> q.dense().precision[0].tolist()
    [2.0, 0.0, 1.0, 0.0]
    """

    family: ClassVar[str] = "block_diagonal"
    natural = BlockDiagonalNatural

    def __init__(
        self,
        mean: Tensor | ArrayLike,
        blocks: Tensor | ArrayLike,
        positions: Tensor | ArrayLike,
    ) -> None:
        self.mean = as_vector("mean", mean)
        self.positions = _partition(
            torch.as_tensor(positions, device=self.mean.device), self.dimension
        )
        matrices = torch.as_tensor(blocks, device=self.mean.device).detach()
        if not matrices.is_floating_point():
            matrices = matrices.to(self.mean.dtype)
        count, size = self.positions.shape
        if matrices.shape != (count, size, size):
            raise ValueError(
                f"blocks must have shape ({count}, {size}, {size}), but their shape is "
                f"{tuple(matrices.shape)}."
            )
        self.blocks = matrices
        self.block_cholesky: Tensor = cholesky(matrices)

    def __repr__(self) -> str:
        count, size = self.positions.shape
        return f"BlockDiagonalGaussian(dimension={self.dimension}, blocks={count} of {size})"

    @cached_property
    def covariance_factors(self) -> Tensor:
        """F of each block with Σ = F Fᵀ, of shape (C, B, B)."""
        size = self.positions.shape[1]
        identity = torch.eye(size, dtype=torch.float64, device=self.mean.device)
        factors: Tensor = torch.linalg.solve_triangular(
            self.block_cholesky.mT, identity.expand_as(self.block_cholesky), upper=True
        )
        return factors

    @cached_property
    def log_determinant(self) -> float:
        """Log |Σ|, the sum of the blocks'."""
        return -2 * float(self.block_cholesky.diagonal(dim1=1, dim2=2).log().sum())

    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """Sum over blocks of ‖Cᵀ (θ − μ)‖²."""
        centred = (self.points(theta) - self.mean.double())[..., self.positions]
        return (centred[..., None, :] @ self.block_cholesky).square().sum((-1, -2, -3))

    def unwhiten(self, noise: Tensor) -> Tensor:
        """θ = μ + C⁻ᵀ ε, block by block."""
        own = noise.double()[..., self.positions]
        shift = torch.empty_like(noise, dtype=torch.float64)
        shift[..., self.positions] = (own[..., None, :] @ self.covariance_factors.mT)[..., 0, :]
        return (self.mean.double() + shift).to(self.mean.dtype)

    def natural_parameters(self) -> BlockDiagonalNatural:
        """(Pμ, P)."""
        blocks = self.blocks.double()
        zero = torch.zeros_like(self.mean, dtype=torch.float64)
        natural = BlockDiagonalNatural(zero, blocks, self.positions)
        linear = natural.precision_times(self.mean.double())
        return BlockDiagonalNatural(linear, blocks, self.positions)

    def tensors(self) -> dict[str, Tensor]:
        """Return mean, blocks and positions."""
        return {"mean": self.mean, "blocks": self.blocks, "positions": self.positions}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian that `tensors` came from."""
        rest = dict(tensors)
        positions = rest.pop("positions", torch.empty(0))
        mean, blocks = tensors_named(rest, "mean", "blocks")
        found = cls(mean, blocks, positions)
        check_dimension(found, dimension)
        return found

    def trace_with(self, other: NaturalParameters) -> float:
        """tr(P Σ): of the other precision only what lies within these blocks counts."""
        return sum(
            float((factor * (other.precision_at(own) @ factor)).sum())
            for own, factor in zip(self.positions, self.covariance_factors, strict=True)
        )

    def _same_blocks(self, other: object) -> bool:
        return isinstance(other, BlockDiagonalGaussian) and torch.equal(
            self.positions, other.positions
        )

    def wasserstein(self, other: Distribution) -> float:
        """Bures distance; between Gaussians of the same blocks the squares of theirs add up."""
        if not isinstance(other, BlockDiagonalGaussian) or not self._same_blocks(other):
            return super().wasserstein(other)
        ours, theirs = self.covariance_factors, other.covariance_factors
        cross = torch.linalg.svdvals(ours.mT @ theirs).sum()
        bures = ours.square().sum() + theirs.square().sum() - 2 * cross
        shift = (self.mean.double() - other.mean.double()).square().sum()
        return math.sqrt(max(0.0, float(shift + bures)))

    @classmethod
    def barycentre(
        cls, weights: Sequence[float], members: Sequence[BlockDiagonalGaussian]
    ) -> Gaussian:
        """Return the barycentre, block by block where all have the same blocks."""
        first = members[0]
        if not all(first._same_blocks(member) for member in members):
            return super().barycentre(weights, members)
        covariances = [q.covariance_factors @ q.covariance_factors.mT for q in members]
        blocks = [
            torch.linalg.inv(bures_barycentre(weights, [own[c] for own in covariances]))
            for c in range(len(first.positions))
        ]
        return cls(weighted_mean(weights, members), torch.stack(blocks), first.positions)


def low_rank_blocks(
    posterior: BlockDiagonalGaussian, prior: Gaussian, rank: int
) -> LowRankGaussian | None:
    """Return a posterior whose blocks have each its evidence's leading directions and a diagonal.

    None where the prior's parameters are not independent.

    Examples
    --------
    >>> from ibcl.gaussians.diagonal import DiagonalGaussian
    >>> blocks = torch.tensor([[[2.0, 1.0], [1.0, 2.0]], [[5.0, 0.0], [0.0, 1.0]]]).double()
    >>> q = BlockDiagonalGaussian(torch.zeros(4).double(), blocks, [[0, 2], [1, 3]])
    >>> found = low_rank_blocks(q, DiagonalGaussian([0.0] * 4, [1.0] * 4), rank=1)
    >>> found.dense().precision[0].round(decimals=4).tolist()
    [2.0, 0.0, 1.0, 0.0]
    """
    independent = prior.as_diagonal()
    if independent is None:
        return None
    before = independent.natural_parameters().precision_diagonal().double()
    outputs = len(posterior.positions)
    diagonal, columns = before.clone(), min(rank, posterior.positions.shape[1])
    factor = before.new_zeros(posterior.dimension, outputs * columns)
    for output, (place, block) in enumerate(
        zip(posterior.positions, posterior.blocks.double(), strict=True)
    ):
        evidence = DenseNatural(before[place], block - torch.diag(before[place]))
        kept = evidence.low_rank(columns, unit=block.diagonal().sqrt())
        diagonal[place] += kept.diagonal
        factor[place, output * columns : output * columns + kept.factor.shape[1]] = kept.factor
    return LowRankGaussian(posterior.mean.float(), diagonal.float(), factor.float())
