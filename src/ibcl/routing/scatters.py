r"""Scatter matrices A = Σ_s z_s z_sᵀ of centred rows, whole or as low rank plus diagonal.

The compact form is A ≈ F Fᵀ + diag(t): the largest eigenvectors with the roots of their eigenvalues
in eight bits, each column scaled by its largest entry, and the rest on the diagonal, so that the
diagonal of A stays as it is wherever the rest is larger than what was rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from scipy.linalg import eigh
from scipy.linalg.blas import ssyrk
from torch import Tensor

# Scatters of so few columns are kept whole: there is nothing to gain.
SMALL = 64
_LEVELS = 127
# Numbers of rows that are multiplied at once, and above which single precision is enough.
MANY = 2**21


@dataclass(frozen=True, eq=False)
class Scatters:
    """Several scatter matrices of the same columns.

    Parameters
    ----------
    factor
        Shape (number, columns, rank): eight-bit integers, or float32 matrices A themselves.
    scale
        Of each column of the factors, shape (number, rank); empty where matrices are whole.
    tail
        t, shape (number, columns); empty where matrices are whole.
    """

    factor: Tensor
    scale: Tensor
    tail: Tensor

    names: ClassVar[tuple[str, ...]] = ("factor", "scale", "tail")

    def __post_init__(self) -> None:
        number, columns, rank = self.factor.shape if self.factor.ndim == 3 else (0, 0, 0)
        if number == 0 or columns == 0:
            raise ValueError("scatters need matrices")
        shapes = ((0,), (0,)) if self.whole else ((number, rank), (number, columns))
        if (tuple(self.scale.shape), tuple(self.tail.shape)) != shapes:
            raise ValueError("the parts of scatters do not fit each other")
        if self.whole and (self.factor.dtype != torch.float32 or rank != columns):
            raise ValueError("whole scatters are square matrices of float32")
        if self.scale.dtype != torch.float32 or self.tail.dtype != torch.float32:
            raise ValueError("scatters are scaled in float32")
        finite = all(bool(torch.isfinite(part).all()) for part in (self.scale, self.tail))
        if not finite or not bool((self.tail >= 0).all()):
            raise ValueError("the diagonals of scatters must be finite and not negative")
        if self.whole and not bool(torch.isfinite(self.factor).all()):
            raise ValueError("scatters must be finite")

    @property
    def whole(self) -> bool:
        """Whether the matrices are kept as they are."""
        return self.factor.dtype != torch.int8

    @property
    def columns(self) -> int:
        """How many columns the rows had."""
        return int(self.factor.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything it holds, by name."""
        return {name: getattr(self, name) for name in self.names}

    def roots(self) -> Tensor:
        """F of every matrix in float64, shape (number, columns, rank)."""
        if not self.whole:
            return self.factor.double() * self.scale.double()[:, None, :]
        return torch.stack([_root(matrix) for matrix in self.factor.double()])

    def tails(self) -> Tensor:
        """T of every matrix in float64, shape (number, columns)."""
        if self.whole:
            return self.factor.new_zeros(self.factor.shape[:2], dtype=torch.float64)
        return self.tail.double()

    def dense(self) -> Tensor:
        """A of every matrix in float64, shape (number, columns, columns).

        Examples
        --------
        >>> rows = torch.tensor([[1.0, 2.0], [-1.0, 0.0], [0.0, -2.0]]).double()
        >>> scatter_of_rows([rows], None).dense()[0].tolist()
        [[2.0, 2.0], [2.0, 8.0]]
        """
        if self.whole:
            return self.factor.double()
        roots = self.roots()
        return roots @ roots.mT + torch.diag_embed(self.tails())


def keeps_whole(columns: int, rank: int | None) -> bool:
    """Say whether scatters of so many columns are kept whole at that rank."""
    return rank is None or columns <= SMALL


def scatter_of_rows(rows: Sequence[Tensor], rank: int | None) -> Scatters:
    """Return the scatters of centred rows, each of shape (n, columns), float32 where they are many.

    Parameters
    ----------
    rank
        How many eigenvectors to keep; None keeps the matrices whole.
    """
    if keeps_whole(rows[0].shape[1], rank):
        return _whole(torch.stack([gram(z) for z in rows]))
    assert rank is not None
    return _packed([_leading(z, rank) for z in rows])


def scatter_of_matrices(matrices: Tensor, rank: int | None) -> Scatters:
    """Return scatters with these matrices A in float64, shape (number, columns, columns)."""
    if keeps_whole(matrices.shape[1], rank):
        return _whole(matrices)
    assert rank is not None
    return _packed([(_largest(a, rank), a.diagonal()) for a in matrices])


def _root(matrix: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    root: Tensor = vectors * values.clamp(min=0).sqrt()
    return root


def _whole(matrices: Tensor) -> Scatters:
    empty = torch.empty(0)
    return Scatters(matrices.float(), empty, empty)


def _leading(rows: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Return G of at most that rank, and the diagonal of Zᵀ Z, whose largest eigenvalues G Gᵀ has.

    Parameters
    ----------
    rows
        Z, centred.
    """
    count, columns = rows.shape
    if count < columns:
        rows = rows.double()
        _, vectors = torch.linalg.eigh(rows @ rows.T)
        return rows.T @ vectors[:, max(0, count - rank) :], rows.square().sum(0)
    matrix = gram(rows)
    if rows.numel() <= MANY:
        return _largest(matrix, rank), matrix.diagonal()
    # Eight bits are kept, and single precision leaves far more; the others are not computed.
    wanted = [max(0, columns - rank), columns - 1]
    values, vectors = eigh(matrix.float().numpy(), subset_by_index=wanted, check_finite=False)
    roots = torch.from_numpy(values).double().clamp(min=0).sqrt()
    return torch.from_numpy(vectors).double() * roots, matrix.diagonal()


def _largest(matrix: Tensor, rank: int) -> Tensor:
    return _root(matrix)[:, max(0, len(matrix) - rank) :]


def gram(rows: Tensor) -> Tensor:
    """Zᵀ Z in float64; of many rows summed from products of blocks in float32, one triangle of it.

    Examples
    --------
    >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[10.0, 14.0], [14.0, 20.0]]
    """
    if rows.numel() <= MANY:
        rows = rows.double()
        return rows.T @ rows
    columns = rows.shape[1]
    upper = torch.zeros(columns, columns, dtype=torch.float64)
    for part in torch.split(rows, max(1, MANY // columns)):
        upper += torch.from_numpy(ssyrk(1.0, part.float().numpy().T))
    return upper + upper.triu(1).T


def _packed(parts: Sequence[tuple[Tensor, Tensor]]) -> Scatters:
    """Round factors to eight bits, filled up to one rank, with the diagonals they must have."""
    rank = max(1, *(root.shape[1] for root, _ in parts))
    factors, scales, tails = [], [], []
    for root, diagonal in parts:
        filled = torch.cat([root, root.new_zeros(len(root), rank - root.shape[1])], 1)
        scale = (filled.abs().amax(0) / _LEVELS).float()
        safe = torch.where(scale > 0, scale, torch.ones_like(scale)).double()
        factor = (filled / safe).round().clamp(-_LEVELS, _LEVELS)
        rest = diagonal - (factor * scale.double()).square().sum(1)
        factors.append(factor.to(torch.int8))
        scales.append(scale)
        tails.append(rest.clamp(min=0).float())
    return Scatters(torch.stack(factors), torch.stack(scales), torch.stack(tails))
