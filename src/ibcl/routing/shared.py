r"""One covariance for all tasks: the scatters within classes on both maps, summed over tasks.

    A = Σ_k Σ_c Σ_s (φ̂_s − μ_kc)(φ̂_s − μ_kc)ᵀ,     S̄ = A / Σ_k n_k,

and the same of h. It takes the same bytes for any number of tasks, so that a task adds hardly more
than its means. Sums of two knowledge bases are added. A task is taken out of the sum by
subtracting its share, which has to be computed again from its data, as nothing else knows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor

from ibcl.routing.records import CentredClasses, ClassDensities
from ibcl.routing.scatters import gram
from ibcl.routing.stored_tensors import StoredTensors


@dataclass(frozen=True, eq=False)
class SharedScatters(StoredTensors):
    """Scatters within classes of all tasks together.

    Parameters
    ----------
    count
        (Weighted) number of samples, float64.
    within, fourier_within
        Upper triangles of A of φ̂ and of h, row by row, float32.

    Examples
    --------
    >>> from ibcl.routing.records import classes_of
    >>> rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> north, south = (SharedScatters.of(classes_of(part, None, None)) for part in rows.split(25))
    >>> both = north.plus(south)
    >>> both.count.item(), torch.allclose(both.minus(south).within, north.within, atol=1e-6)
    (50.0, True)
    """

    count: Tensor
    within: Tensor
    fourier_within: Tensor

    kind: ClassVar[str] = "shared_scatters"
    refused: ClassVar[tuple[str, str]] = (
        "shared scatters are not a safetensors file",
        "shared scatters hold other tensors than they should",
    )

    def __post_init__(self) -> None:
        if self.count.shape != () or self.count.dtype != torch.float64 or not self.count > 0:
            raise ValueError("shared scatters need a positive count")
        for triangle in (self.within, self.fourier_within):
            if triangle.ndim != 1 or triangle.dtype != torch.float32:
                raise ValueError("shared scatters are triangles of float32")
            if _size(len(triangle)) * (_size(len(triangle)) + 1) != 2 * len(triangle):
                raise ValueError("shared scatters do not have the numbers of a triangle")
            if not bool(torch.isfinite(triangle).all()):
                raise ValueError("shared scatters must be finite")

    @classmethod
    def of(cls, found: CentredClasses) -> Self:
        """Take them of one task's classes."""
        return cls(
            found.counts.sum(),
            _triangle(gram(torch.cat(found.rows))),
            _triangle(gram(torch.cat(found.fourier_rows))),
        )

    def moved(self, first: ClassDensities, second: ClassDensities) -> Self:
        """Return a batch's scatters as added to an earlier batch of the same classes."""
        apart, waves = between_batches(first, second)
        return type(self)(
            self.count,
            self.within + _triangle(apart.T @ apart),
            self.fourier_within + _triangle(waves.T @ waves),
        )

    def covariances(self) -> tuple[Tensor, Tensor]:
        """S̄ of φ̂ and of h in float64."""
        return _square(self.within) / self.count, _square(self.fourier_within) / self.count

    def plus(self, other: SharedScatters) -> Self:
        """Return those of the tasks of both."""
        return self._with(other, 1.0)

    def minus(self, other: SharedScatters) -> Self:
        """Return those without these tasks."""
        return self._with(other, -1.0)

    def _with(self, other: SharedScatters, sign: float) -> Self:
        ours, theirs = self.tensors(), other.tensors()
        if any(tensor.shape != theirs[name].shape for name, tensor in ours.items()):
            raise ValueError("Scatters of different features cannot be added.")
        return type(self)(**{name: ours[name] + sign * theirs[name] for name in ours})


def _size(numbers: int) -> int:
    """Columns of a matrix whose triangle has so many numbers."""
    return int(((8 * numbers + 1) ** 0.5 - 1) / 2)


def _triangle(matrix: Tensor) -> Tensor:
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns].float()


def _square(triangle: Tensor) -> Tensor:
    size = _size(len(triangle))
    matrix = torch.zeros(size, size, dtype=torch.float64)
    rows, columns = torch.triu_indices(size, size)
    matrix[rows, columns] = triangle.double()
    return matrix + matrix.triu(1).T


def between_batches(first: ClassDensities, second: ClassDensities) -> tuple[Tensor, Tensor]:
    """Return rows B of φ̂ and of h, one for each class of both batches, whose BᵀB is between them.

    Around the mean of both, a class's scatter grows by n₁n₂/(n₁ + n₂) (μ₁ − μ₂)(μ₁ − μ₂)ᵀ.
    """
    both = first.classes[torch.isin(first.classes, second.classes)]
    ours, theirs = (torch.searchsorted(batch.classes, both) for batch in (first, second))
    shares = first.counts[ours] * second.counts[theirs]
    roots = (shares / (first.counts[ours] + second.counts[theirs])).sqrt()[:, None]
    return (
        roots * (first.means[ours].double() - second.means[theirs].double()),
        roots * (first.fourier_means[ours].double() - second.fourier_means[theirs].double()),
    )
