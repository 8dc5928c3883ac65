r"""Moments: plain sums over a task's features, class by class, from which a gate is made.

For class c of a task with features φ_s they are the count n_c, the mean μ_c and the scatter

    A_c = Σ_s (φ_s − μ_c)(φ_s − μ_c)ᵀ = n_c S_c,

kept for every class, or summed over the task's classes where that would take too much. Sums of
disjoint batches add up to the sums of their union, so a task may arrive in batches; and each task's
moments are its own, so forgetting one drops them and merging two knowledge bases keeps both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

# Numbers a task's scatters may take before they are summed over its classes, and before they are
# not kept at all.
LARGEST_BY_CLASS = 2**23
LARGEST_SUMMED = 2**24


@dataclass(frozen=True, eq=False)
class Moments:
    """Counts, means and scatters of one task's features.

    Parameters
    ----------
    classes
        Numbers of the classes that occur, in ascending order; a single 0 for regression.
    counts
        n_c, the (weighted) number of samples of each: shape (classes,), float64.
    means
        μ_c: shape (classes, columns), float64.
    scatters
        A_c: shape (classes, columns, columns), or (1, columns, columns) summed; float32.

    Examples
    --------
    >>> features = torch.tensor([[0.0], [2.0], [5.0]])
    >>> moments = Moments.of(features, torch.tensor([0, 0, 1]))
    >>> moments.counts.tolist(), moments.means.tolist(), moments.scatters[:, 0, 0].tolist()
    ([2.0, 1.0], [[1.0], [5.0]], [2.0, 0.0])
    """

    classes: Tensor
    counts: Tensor
    means: Tensor
    scatters: Tensor

    def __post_init__(self) -> None:
        number, columns = self.means.shape if self.means.ndim == 2 else (0, 0)
        expected = self.scatters.shape in ((number, columns, columns), (1, columns, columns))
        if number == 0 or self.counts.shape != (number,) or self.classes.shape != (number,):
            raise ValueError("Moments need one class, count and mean each.")
        if not expected:
            raise ValueError(
                f"Scatters of shape {tuple(self.scatters.shape)} do not fit {number} classes of "
                f"{columns} features."
            )
        finite = all(
            bool(torch.isfinite(part).all()) for part in (self.counts, self.means, self.scatters)
        )
        if not finite or not bool((self.counts > 0).all()):
            raise ValueError("Moments must be finite, with positive counts.")
        if bool((self.classes < 0).any()) or bool((self.classes.diff() <= 0).any()):
            raise ValueError("The classes of moments must be ascending numbers from 0.")

    @classmethod
    def of(
        cls, features: Tensor, labels: Tensor | None = None, weights: Tensor | None = None
    ) -> Self:
        """Take the moments of features of shape (n, columns).

        Parameters
        ----------
        labels
            Class numbers; all samples are one class without them.
        weights
            What each sample counts; 1 without them.
        """
        rows = features.double()
        if labels is None:
            labels = torch.zeros(len(rows), dtype=torch.int64, device=rows.device)
        numbers = labels.long().to(rows.device)
        share = rows.new_ones(len(rows)) if weights is None else weights.to(rows)
        classes = torch.unique(numbers)
        by_class = len(classes) * rows.shape[1] ** 2 <= LARGEST_BY_CLASS
        counts, means, scatters = [], [], []
        for number in classes:
            own = numbers == number
            part, weight = rows[own], share[own]
            count = weight.sum()
            mean = weight @ part / count
            centred = part - mean
            scatters.append((centred * weight[:, None]).T @ centred)
            counts.append(count)
            means.append(mean)
        stacked = torch.stack(scatters)
        if not by_class:
            stacked = stacked.sum(0, keepdim=True)
        return cls(classes, torch.stack(counts), torch.stack(means), stacked.float())

    @property
    def columns(self) -> int:
        """How many features there are."""
        return self.means.shape[1]

    @property
    def by_class(self) -> bool:
        """Whether every class has its own scatter."""
        return len(self.scatters) == len(self.classes)

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def within(self) -> Tensor:
        """Σ_c A_c in float64."""
        return self.scatters.double().sum(0)

    def __add__(self, other: Moments) -> Moments:
        r"""Moments of both batches together.

        With the joint mean μ, a batch's scatter moves by n (μ_batch − μ)(μ_batch − μ)ᵀ.

        Examples
        --------
        >>> features = torch.arange(6.0)[:, None]
        >>> parts = Moments.of(features[:2]) + Moments.of(features[2:])
        >>> bool(torch.isclose(parts.scatters, Moments.of(features).scatters).all())
        True
        """
        if self.columns != other.columns:
            raise ValueError(
                f"Moments of {self.columns} and of {other.columns} features cannot be added."
            )
        classes = torch.unique(torch.cat([self.classes, other.classes]))
        separate = self.by_class and other.by_class
        counts = self.counts.new_zeros(len(classes))
        sums = self.means.new_zeros(len(classes), self.columns)
        for part in (self, other):
            places = torch.searchsorted(classes, part.classes)
            counts.index_add_(0, places, part.counts)
            sums.index_add_(0, places, part.counts[:, None] * part.means)
        means = sums / counts[:, None]
        kept = len(classes) if separate else 1
        scatters = self.means.new_zeros(kept, self.columns, self.columns)
        for part in (self, other):
            places = torch.searchsorted(classes, part.classes)
            shifts = part.means - means[places]
            moved = part.counts[:, None, None] * shifts[:, :, None] * shifts[:, None, :]
            if separate:
                scatters.index_add_(0, places, part.scatters.double() + moved)
            else:
                scatters += (part.within() + moved.sum(0))[None]
        return Moments(classes, counts, means, scatters.float())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything it holds, by name."""
        return {
            "classes": self.classes,
            "counts": self.counts,
            "means": self.means,
            "scatters": self.scatters,
        }

    def to(self, device: torch.device) -> Self:
        """Return the same moments on a device."""
        return type(self)(**{name: value.to(device) for name, value in self.tensors().items()})

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], columns: int | None) -> Self:
        """Read what `tensors` gave, for features of this width; of any where it is None."""
        if set(tensors) != {"classes", "counts", "means", "scatters"}:
            raise ValueError(f"moments cannot consist of {', '.join(sorted(tensors)) or 'nothing'}")
        types = {"classes": torch.int64, "counts": torch.float64, "means": torch.float64}
        for name, tensor in tensors.items():
            if tensor.dtype != types.get(name, torch.float32):
                raise ValueError(f"the {name} of moments are {tensor.dtype}")
        moments = cls(**tensors)
        if columns is not None and moments.columns != columns:
            raise ValueError(f"moments have {moments.columns} features, the network {columns}")
        return moments
