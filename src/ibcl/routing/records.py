r"""What a gate keeps of a task: its classes' Gaussians on the two maps of `ibcl.routing.densities`.

Of every class the count, the means of φ̂ and of h, and the scatter of φ̂; of the task the scatter of
h within its classes. Nothing of it depends on any other task: forgetting a task drops its record,
and merging knowledge bases unites their records.

Rows without any feature, such as those of empty texts, have neither direction nor length. They are
counted, and are in no mean and no scatter, unless a class has no others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ibcl.routing.densities import (
    SHORTEST,
    fourier,
    fourier_frequencies,
    fourier_width,
    polar,
)
from ibcl.routing.scatters import MANY, Scatters, scatter_of_matrices, scatter_of_rows

# Samples of a task whose Fourier features are computed.
_MOST_WAVES = 3_000


class Ranks(NamedTuple):
    """How many eigenvectors are kept; None keeps matrices whole."""

    classes: int | None
    """Of the scatter of φ̂ of every class."""
    task: int | None
    """Of the scatter of h of a task."""
    posterior: int | None
    """Of a posterior's evidence."""


class CentredClasses(NamedTuple):
    """Samples by class on both maps, as rows √w (φ̂ − mean) and √w (h − mean)."""

    classes: Tensor
    counts: Tensor
    means: Tensor
    fourier_means: Tensor
    rows: list[Tensor]
    fourier_rows: list[Tensor]
    empty: Tensor


def classes_of(features: Tensor, labels: Tensor | None, weights: Tensor | None) -> CentredClasses:
    """Return the classes of features φ of shape (n, d), with labels and weights if there are any.

    All samples are one class without labels.
    """
    # Means are kept in float32 and scatters in eight bits: of many rows that is enough for all.
    single = features.numel() > MANY
    features = features.cpu().to(torch.float32 if single else torch.float64)
    directions = polar(features)
    some = torch.linalg.vector_norm(features, dim=1) > SHORTEST
    if labels is None:
        labels = torch.zeros(len(features), dtype=torch.int64)
    numbers = labels.long().cpu()
    share = torch.ones(len(features)) if weights is None else weights.cpu()
    share = share.double()
    classes = torch.unique(numbers)
    counts, means, fourier_means, rows, fourier_rows = [], [], [], [], []
    empty = share.new_zeros(())
    for number in classes:
        own = torch.nonzero(numbers == number).flatten()
        if bool(some[own].any()):
            empty = empty + share[own[~some[own]]].sum()
            own = own[some[own]]
        mean, centred = _centred(directions[own], share[own])
        counts.append(share[own].sum())
        means.append(mean)
        rows.append(centred)
        fourier_mean, centred = _fourier_rows(directions, share, own, len(features))
        fourier_means.append(fourier_mean)
        fourier_rows.append(centred)
    stacked = torch.stack(counts), torch.stack(means), torch.stack(fourier_means)
    return CentredClasses(classes, *stacked, rows, fourier_rows, empty)


@dataclass(frozen=True, eq=False)
class ClassDensities:
    """Counts, means and scatters of one task's classes on both maps.

    Parameters
    ----------
    classes
        Numbers of the classes that occur, ascending; a single 0 for regression.
    counts
        (Weighted) number of samples of each, float64.
    means, fourier_means
        Of φ̂, shape (classes, d + 1), and of h, (classes, width); float32.
    scatters
        Of φ̂, one per class.
    fourier_scatter
        Of h within classes, summed over the task's classes.
    empty
        (Weighted) number of samples without any feature, beside those counted, float64; None where
        they are among them.

    Examples
    --------
    >>> features = torch.tensor([[0.0, 1.0], [0.0, 2.0], [5.0, 1.0]])
    >>> kept = ClassDensities.of(features, torch.tensor([0, 0, 1]), None, Ranks(96, 128, 32))
    >>> kept.counts.tolist(), kept.means.shape, kept.fourier_means.shape
    ([2.0, 1.0], torch.Size([2, 3]), torch.Size([2, 64]))
    """

    classes: Tensor
    counts: Tensor
    means: Tensor
    fourier_means: Tensor
    scatters: Scatters
    fourier_scatter: Scatters
    empty: Tensor | None = None

    kind: ClassVar[str] = "densities"

    def __post_init__(self) -> None:
        number, columns = self.means.shape if self.means.ndim == 2 else (0, 0)
        if number == 0 or columns < 2:
            raise ValueError("densities need the mean of at least one class")
        if self.classes.shape != (number,) or self.classes.dtype != torch.int64:
            raise ValueError("densities need one class number for each mean")
        if self.counts.shape != (number,) or self.counts.dtype != torch.float64:
            raise ValueError("densities need one count for each class")
        if self.fourier_means.shape != (number, fourier_width(columns - 1)):
            raise ValueError("the Fourier features of densities do not fit their columns")
        fits = len(self.scatters.factor) == number and self.scatters.columns == columns
        single = len(self.fourier_scatter.factor) == 1
        if not fits or not single or self.fourier_scatter.columns != self.fourier_means.shape[1]:
            raise ValueError("the scatters of densities do not fit their means")
        numbers = self.counts, self.means, self.fourier_means
        if not all(bool(torch.isfinite(part).all()) for part in numbers):
            raise ValueError("densities must be finite")
        if not bool((self.counts > 0).all()):
            raise ValueError("densities need positive counts")
        if self.empty is not None and (self.empty.shape != () or not 0 <= self.empty < math.inf):
            raise ValueError("densities have a number of empty samples that is none")
        if bool((self.classes < 0).any()) or bool((self.classes.diff() <= 0).any()):
            raise ValueError("the classes of densities must be ascending numbers from 0")

    @classmethod
    def of(
        cls, features: Tensor, labels: Tensor | None, weights: Tensor | None, ranks: Ranks
    ) -> Self:
        """Take them of features φ of shape (n, d).

        Parameters
        ----------
        labels
            Class numbers; all samples are one class without them.
        weights
            What each sample counts; 1 without them.
        """
        return cls.of_classes(classes_of(features, labels, weights), ranks)

    @classmethod
    def of_classes(cls, found: CentredClasses, ranks: Ranks) -> Self:
        """Take them of rows that are centred already."""
        return cls(
            found.classes,
            found.counts,
            found.means.float(),
            found.fourier_means.float(),
            scatter_of_rows(found.rows, ranks.classes),
            scatter_of_rows([torch.cat(found.fourier_rows)], ranks.task),
            found.empty,
        )

    @property
    def columns(self) -> int:
        """d, the number of features."""
        return int(self.means.shape[1]) - 1

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def same_samples(self, other: ClassDensities) -> bool:
        """Tell whether both are of the same samples, as far as counts and means say so."""
        if not torch.equal(self.classes, other.classes):
            return False
        pairs = (
            (self.counts, other.counts),
            (self.means, other.means),
            (self.fourier_means, other.fourier_means),
        )
        return all(torch.allclose(a, b, rtol=1e-5, atol=1e-5) for a, b in pairs)

    def plus(self, other: ClassDensities, ranks: Ranks) -> ClassDensities:
        """Return those of both batches together: exact where scatters are whole.

        With the joint mean μ, a batch's scatter moves by n (μ_batch − μ)(μ_batch − μ)ᵀ.
        """
        if self.columns != other.columns:
            raise ValueError(
                f"Densities of {self.columns} and of {other.columns} features cannot be added."
            )
        classes = torch.unique(torch.cat([self.classes, other.classes]))
        parts = [(part, torch.searchsorted(classes, part.classes)) for part in (self, other)]
        counts = self.counts.new_zeros(len(classes))
        for part, places in parts:
            counts.index_add_(0, places, part.counts)
        means, shifts = _joined([(p.means, p.counts, at) for p, at in parts], counts)
        fourier_means, moved = _joined([(p.fourier_means, p.counts, at) for p, at in parts], counts)
        columns, width = means.shape[1], fourier_means.shape[1]
        matrices = counts.new_zeros(len(classes), columns, columns)
        within = counts.new_zeros(1, width, width)
        for part, places in parts:
            matrices.index_add_(0, places, part.scatters.dense())
            within += part.fourier_scatter.dense()
        matrices += torch.stack([shift @ shift.T for shift in shifts])
        within += sum(shift @ shift.T for shift in moved)
        return ClassDensities(
            classes,
            counts,
            means.float(),
            fourier_means.float(),
            scatter_of_matrices(matrices, ranks.classes),
            scatter_of_matrices(within, ranks.task),
            None if self.empty is None or other.empty is None else self.empty + other.empty,
        )

    def tensors(self) -> dict[str, Tensor]:
        """Return everything it holds, by name."""
        plain = {
            "classes": self.classes,
            "counts": self.counts,
            "means": self.means,
            "fourier_means": self.fourier_means,
        }
        if self.empty is not None:
            plain["empty"] = self.empty
        groups = {"scatters": self.scatters, "fourier_scatter": self.fourier_scatter}
        return plain | {
            f"{group}.{name}": tensor
            for group, scatters in groups.items()
            for name, tensor in scatters.tensors().items()
        }

    def encode(self) -> bytes:
        """Return it as a safetensors file."""
        return save({name: tensor.contiguous() for name, tensor in self.tensors().items()})

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote."""
        try:
            tensors = {name: tensor.clone() for name, tensor in load(data).items()}
        except SafetensorError:
            raise ValueError("densities are not a safetensors file") from None
        try:
            scatters, fourier_scatter = (
                Scatters(*(tensors.pop(f"{group}.{name}") for name in Scatters.names))
                for group in ("scatters", "fourier_scatter")
            )
            return cls(scatters=scatters, fourier_scatter=fourier_scatter, **tensors)
        except (KeyError, TypeError):
            raise ValueError("densities hold other tensors than they should") from None


def typical_length(records: Sequence[ClassDensities]) -> float:
    """Return τ of `polar`: the smallest of the classes' geometric mean lengths.

    So no class's usual rows are short. It is 0 for records in which empty samples are counted, as
    those of earlier versions.
    """
    lengths = [
        float((record.means[:, -1].double() * math.sqrt(record.columns)).exp().min())
        for record in records
        if record.empty is not None
    ]
    return min(lengths, default=0.0)


def _joined(
    parts: list[tuple[Tensor, Tensor, Tensor]], counts: Tensor
) -> tuple[Tensor, list[Tensor]]:
    """Joint means of batches (means, counts, places), and √n (μ_batch − μ) of each class."""
    sums = counts.new_zeros(len(counts), parts[0][0].shape[1])
    for means, own, places in parts:
        sums.index_add_(0, places, own[:, None] * means.double())
    joint = sums / counts[:, None]
    shifts: list[list[Tensor]] = [[] for _ in counts]
    for means, own, places in parts:
        moved = own.sqrt()[:, None] * (means.double() - joint[places])
        for place, shift in zip(places.tolist(), moved, strict=True):
            shifts[place].append(shift)
    return joint, [torch.stack(each, 1) for each in shifts]


def _fourier_rows(
    directions: Tensor, weights: Tensor, own: Tensor, total: int
) -> tuple[Tensor, Tensor]:
    """Mean of h over a class, and its rows √w (h − mean), of which the scatter is made.

    Of very many samples evenly spaced ones stand for all, with the class's whole weight: h has at
    most 1000 columns, whatever the number of samples.

    Parameters
    ----------
    own
        Which samples are the class's.
    total
        How many samples the task has.
    """
    kept = own
    if total > _MOST_WAVES:
        number = max(1, round(len(own) * _MOST_WAVES / total))
        kept = own[torch.linspace(0, len(own) - 1, number).round().long()]
    part = weights[kept] * (weights[own].sum() / weights[kept].sum())
    frequencies, phases = fourier_frequencies(directions.shape[1] - 1)
    waves = fourier(directions[kept], frequencies.to(directions), phases.to(directions))
    return _centred(waves, part)


def _centred(rows: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean of rows, and √w (row − mean), in place of the rows themselves."""
    weights = weights.to(rows)[:, None]
    mean = (rows * weights).sum(0) / weights.sum()
    return mean, rows.sub_(mean).mul_(weights.sqrt())
