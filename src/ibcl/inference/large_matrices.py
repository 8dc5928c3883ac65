"""Products and inverses of large matrices, at a part of their cost.

Half of what is symmetric is computed, triangular matrices are inverted by halves, and sizes are
estimated from a few directions.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# From so many parameters on a matrix's size is estimated from so many directions, and a triangular
# matrix inverted in halves.
_MANY_PARAMETERS, _DIRECTIONS = 1024, 16


def panels(columns: int) -> Iterator[tuple[int, int]]:
    """A few ranges of columns, so that only about half of what is symmetric is computed."""
    panel = max(64, -(-columns // 4))
    for begin in range(0, columns, panel):
        yield begin, min(begin + panel, columns)


def add_weighted_gram(gram: Tensor, features: Tensor, weights: Tensor) -> None:
    """Add the upper panels of Σ_s w_s φ_s φ_sᵀ, the column of ones given or not."""
    given = features.shape[1]
    weighted = weights.to(features.dtype)[:, None] * features
    for begin, end in panels(given):
        gram[begin:end, begin:given] += features[:, begin:end].T @ weighted[:, begin:]
    if given < len(gram):
        gram[:given, given] += weighted.sum(0)
        gram[given, given] += weights.sum()


def copy_triangle(gram: Tensor) -> None:
    """Copy the upper triangle to the lower one, panel by panel."""
    for begin, end in panels(len(gram)):
        gram[end:, begin:end] = gram[begin:end, end:].T
        own = gram[begin:end, begin:end]
        own.copy_(own.triu() + own.triu(1).T)


def inverse_of_triangular(factor: Tensor) -> Tensor:
    """L⁻¹ of a lower triangular L; of a large one by halves, which are matrix products mostly."""
    size = len(factor)
    if size < _MANY_PARAMETERS:
        identity = torch.eye(size, dtype=factor.dtype, device=factor.device)
        solved: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
        return solved
    half = size // 2
    inverse = torch.zeros_like(factor)
    inverse[:half, :half] = inverse_of_triangular(factor[:half, :half])
    inverse[half:, half:] = inverse_of_triangular(factor[half:, half:])
    beside = inverse[half:, half:] @ factor[half:, :half]
    inverse[half:, :half] = (beside @ inverse[:half, :half]).neg_()
    return inverse


def size_of_change(inverse: Tensor, after: Tensor, before: Tensor) -> float:
    r"""‖L⁻¹ (P′ − P) L⁻ᵀ‖ in Frobenius's norm, with L⁻¹ given.

    Of many parameters it is estimated from directions z, always the same: E‖M z‖² = ‖M‖².
    """
    size = len(inverse)
    if size < _MANY_PARAMETERS:
        return float((inverse @ (after - before) @ inverse.T).norm())
    along = inverse.T @ directions(size, inverse)
    return float((inverse @ (after @ along - before @ along)).norm())


def directions(size: int, like: Tensor) -> Tensor:
    """Columns z_i, always the same, with E Σ_i (M z_i)(M z_i)ᵀ = M Mᵀ."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(size, _DIRECTIONS, generator=generator, dtype=torch.float64)
    scaled: Tensor = drawn.to(like.device) / _DIRECTIONS**0.5
    return scaled


def unwhitened(root: Tensor, columns: Tensor) -> Tensor:
    """L₀⁻¹ of each column, with the prior's root."""
    if root.ndim == 1:
        return columns / root[:, None]
    solved: Tensor = torch.linalg.solve_triangular(root, columns, upper=False)
    return solved


def in_units_of(root: Tensor, precision: Tensor) -> Tensor:
    """L₀⁻¹ P L₀⁻ᵀ, of many parameters along some directions."""
    size = len(root)
    if size < _MANY_PARAMETERS:
        return unwhitened(root, unwhitened(root, precision).T)
    along = directions(size, root)
    across = (
        along / root[:, None]
        if root.ndim == 1
        else torch.linalg.solve_triangular(root.T, along, upper=True)
    )
    return unwhitened(root, precision @ across)


def squared_lengths(features: Tensor, whitening: Tensor) -> Tensor:
    """‖φ_sᵀ U‖² of every row, for an upper triangular U; the column of ones is given or not."""
    given = features.shape[1]
    total = features.new_zeros(len(features), dtype=torch.float64)
    for begin, end in panels(len(whitening)):
        known = min(end, given)
        part = features[:, :known] @ whitening[:known, begin:end]
        if known < end:
            part += whitening[known, begin:end]
        total += torch.linalg.vector_norm(part, dim=1).double().square()
    return total
