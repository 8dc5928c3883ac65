r"""A few random sums of a task's centred rows, which say how much they spread along any direction.

With rows Z, centred by their classes as `ibcl.routing.records` has them, and signs G of ±1/√m,

    Y = G Z,     E ‖Y a‖² = ‖Z a‖² = aᵀ A a     for every direction a,

with a relative standard deviation of √(2/m): where A is kept as low rank and diagonal, products of
columns are lost that matter for directions in which a task hardly spreads. Sums of batches add up.
There are at most a quarter as many sums as rows, so that no row can be solved for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ibcl.routing.records import CentredClasses, ClassDensities
from ibcl.routing.shared import between_batches
from ibcl.routing.stored_tensors import StoredTensors

MOST_SUMS = 16
"""m, at most: a task's rows count by m and by the number of tasks, and together they are many."""
_LEVELS = 127


@dataclass(frozen=True, eq=False)
class RowSketch(StoredTensors):
    """Random sums of one task's centred rows on both maps.

    Parameters
    ----------
    sums, fourier_sums
        Y of φ̂, shape (m, d + 1), and of h, shape (m, width): eight-bit integers.
    scales
        Of each row of both: shape (2, m), float32.

    Examples
    --------
    >>> from ibcl.routing.records import classes_of
    >>> rows = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    >>> found = classes_of(rows, None, None)
    >>> kept = RowSketch.of(found)
    >>> kept.sums.shape, kept.fourier_sums.shape
    (torch.Size([16, 4]), torch.Size([16, 64]))
    >>> ratio = kept.spread()[0].square().sum() / found.rows[0].square().sum()
    >>> bool(0.5 < ratio < 2)
    True
    """

    sums: Tensor
    fourier_sums: Tensor
    scales: Tensor

    kind: ClassVar[str] = "row_sketch"
    refused: ClassVar[tuple[str, str]] = (
        "a sketch is not a safetensors file",
        "a sketch holds other tensors than it should",
    )

    def __post_init__(self) -> None:
        number = self.sums.shape[0] if self.sums.ndim == 2 else 0
        if number == 0 or self.fourier_sums.ndim != 2 or len(self.fourier_sums) != number:
            raise ValueError("a sketch needs as many sums of either map")
        if self.sums.dtype != torch.int8 or self.fourier_sums.dtype != torch.int8:
            raise ValueError("the sums of a sketch are eight-bit integers")
        if self.scales.shape != (2, number) or self.scales.dtype != torch.float32:
            raise ValueError("the sums of a sketch are scaled in float32")
        if not bool(torch.isfinite(self.scales).all()):
            raise ValueError("the scales of a sketch must be finite")

    @classmethod
    def of(cls, found: CentredClasses, before: ClassDensities | None = None) -> Self:
        """Take it of a batch's classes.

        Parameters
        ----------
        before
            Densities of the task's earlier batches: signs are drawn anew for each batch.
        """
        learnt = 0 if before is None else round(float(before.counts.sum()))
        rows = [torch.cat(each).double() for each in (found.rows, found.fourier_rows)]
        number = min(MOST_SUMS, max(1, len(rows[0]) // 4))
        generator = np.random.RandomState((learnt, len(rows[0])))
        sums, waves = (_signs_of(generator, number, each) @ each for each in rows)
        return cls._rounded(sums, waves)

    def plus(self, other: RowSketch, first: ClassDensities, second: ClassDensities) -> Self:
        """Return that of both batches, whose densities these are."""
        apart, waves = between_batches(first, second)
        counts = [round(float(each.counts.sum())) for each in (first, second)]
        number = max(len(self.sums), len(other.sums))
        signs = _signs(np.random.RandomState((*counts, 1)), number, len(apart))
        sums = signs @ apart, signs @ waves
        for part in (self, other):
            for total, own in zip(sums, part.spread(), strict=True):
                total[: len(own)] += own
        return self._rounded(*sums)

    @classmethod
    def _rounded(cls, sums: Tensor, waves: Tensor) -> Self:
        scales = torch.stack([each.abs().amax(1) / _LEVELS for each in (sums, waves)])
        safe = torch.where(scales > 0, scales, torch.ones_like(scales))
        kept, fourier_kept = (
            (each / scale[:, None]).round().clamp(-_LEVELS, _LEVELS).to(torch.int8)
            for each, scale in zip((sums, waves), safe, strict=True)
        )
        return cls(kept, fourier_kept, scales.float())

    def spread(self) -> tuple[Tensor, Tensor]:
        """Y of φ̂ and of h in float64."""
        sizes = self.scales.double()[:, :, None]
        return self.sums.double() * sizes[0], self.fourier_sums.double() * sizes[1]


def _signs_of(generator: np.random.RandomState, sums: int, rows: Tensor) -> Tensor:
    """G for these rows, which does not hang on the order in which they were given."""
    direction = np.random.RandomState(0).standard_normal(rows.shape[1])
    ranks = torch.argsort(torch.argsort(rows @ torch.from_numpy(direction)))
    return _signs(generator, sums, len(rows))[:, ranks]


def _signs(generator: np.random.RandomState, sums: int, rows: int) -> Tensor:
    """G: shape (sums, rows)."""
    drawn = torch.from_numpy(generator.randint(0, 2, size=(sums, rows), dtype=np.int8))
    signs: Tensor = (2.0 * drawn.double() - 1) / sums**0.5
    return signs
