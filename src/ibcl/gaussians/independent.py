"""Products of independent Gaussians over concatenated parameters, such as several heads'."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, Self

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ibcl.gaussians.diagonal import DiagonalNatural
from ibcl.gaussians.distribution import Distribution, Gaussian, barycentre, check_dimension
from ibcl.gaussians.natural import NaturalParameters
from ibcl.gaussians.registry import family_named


def _split(values: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
    """Split along the last axis."""
    return torch.split(values, list(sizes), dim=-1)


class IndependentNatural(NaturalParameters):
    """Natural parameters of each component, one after the other."""

    def __init__(self, components: Sequence[NaturalParameters]) -> None:
        self.components = tuple(components)
        self.linear = torch.cat([component.linear for component in self.components])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of parameters of each component."""
        return tuple(component.dimension for component in self.components)

    @property
    def nbytes(self) -> int:
        """Bytes its components' tensors take."""
        return sum(component.nbytes for component in self.components)

    def scaled(self, weight: float) -> IndependentNatural:
        """Return weight · self."""
        return IndependentNatural([component.scaled(weight) for component in self.components])

    def embed(self, other: NaturalParameters) -> IndependentNatural | None:
        """Return `other` if it has components of the same sizes or is diagonal."""
        if isinstance(other, IndependentNatural):
            return other if other.sizes == self.sizes else None
        diagonal = other.as_diagonal()
        if diagonal is None:
            return None
        parts = _split(diagonal.linear, self.sizes), _split(diagonal.precision, self.sizes)
        return IndependentNatural([DiagonalNatural(*pair) for pair in zip(*parts, strict=True)])

    def _plus(self, other: IndependentNatural, weight: float) -> IndependentNatural:
        pairs = zip(self.components, other.components, strict=True)
        return IndependentNatural([ours.plus(theirs, weight) for ours, theirs in pairs])

    def precision_times(self, columns: Tensor) -> Tensor:
        """P X, component by component."""
        parts = zip(self.components, torch.split(columns, list(self.sizes)), strict=True)
        return torch.cat([component.precision_times(part) for component, part in parts])

    def mean(self) -> Tensor:
        """Return the components' means."""
        return torch.cat([component.mean() for component in self.components])

    def around(self, mean: Tensor) -> IndependentGaussian:
        """Return the product of the components' Gaussians."""
        parts = zip(self.components, _split(mean, self.sizes), strict=True)
        return IndependentGaussian([component.around(part) for component, part in parts])

    def proper(self) -> tuple[IndependentNatural, float]:
        """Return proper components, and the share of all parameters that was cut."""
        parts = [component.proper() for component in self.components]
        cut = sum(share * part.dimension for part, share in parts)
        return IndependentNatural([part for part, _ in parts]), cut / self.dimension

    def as_diagonal(self) -> DiagonalNatural | None:
        """Return the same with the precision as a vector, if every component is diagonal."""
        parts = [component.as_diagonal() for component in self.components]
        precisions = [part.precision for part in parts if part is not None]
        if len(precisions) < len(parts):
            return None
        return DiagonalNatural(self.linear, torch.cat(precisions))

    def precision_diagonal(self) -> Tensor:
        """Return the diagonal of P."""
        return torch.cat([component.precision_diagonal() for component in self.components])

    def precision_at(self, index: Tensor) -> Tensor:
        """Return the rows and columns of P at these positions, as a matrix."""
        result = self.linear.new_zeros(len(index), len(index))
        begin = 0
        for component in self.components:
            end = begin + component.dimension
            (own,) = torch.nonzero((index >= begin) & (index < end), as_tuple=True)
            result[own[:, None], own] = component.precision_at(index[own] - begin)
            begin = end
        return result


class IndependentGaussian(Gaussian):
    """The product of K independent Gaussians over their parameters one after the other.

    Examples
    --------
    >>> from ibcl.gaussians import DenseGaussian, DiagonalGaussian
    >>> q = IndependentGaussian([
    ...     DiagonalGaussian([1.0], [0.5]), DenseGaussian([2.0, 3.0], [[2.0, 1.0], [1.0, 2.0]])])
    >>> q.mean.tolist()
    [1.0, 2.0, 3.0]
    >>> q.dense().precision.tolist()
    [[4.0, 0.0, 0.0], [0.0, 2.0, 1.0], [0.0, 1.0, 2.0]]
    """

    family: ClassVar[str] = "independent"
    natural = IndependentNatural

    def __init__(self, components: Sequence[Gaussian]) -> None:
        if not components:
            raise ValueError("A product of Gaussians needs at least one component.")
        self.components = tuple(components)
        self.mean = torch.cat([component.mean for component in self.components])

    def __repr__(self) -> str:
        return f"IndependentGaussian(dimension={self.dimension}, components={len(self.components)})"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of parameters of each component."""
        return tuple(component.dimension for component in self.components)

    @property
    def nbytes(self) -> int:
        """Bytes of the components."""
        return sum(component.nbytes for component in self.components)

    @cached_property
    def log_determinant(self) -> float:
        """Log |Σ|, the sum of the components'."""
        return sum(component.log_determinant for component in self.components)

    def mahalanobis_squared(self, theta: Tensor | ArrayLike) -> Tensor:
        """Sum of the components'."""
        parts = zip(self.components, _split(self.points(theta), self.sizes), strict=True)
        return torch.stack([q.mahalanobis_squared(part) for q, part in parts]).sum(0)

    def unwhiten(self, noise: Tensor) -> Tensor:
        """Map noise component by component."""
        parts = zip(self.components, _split(noise, self.sizes), strict=True)
        return torch.cat([q.unwhiten(part) for q, part in parts], -1)

    def natural_parameters(self) -> IndependentNatural:
        """Return the components' natural parameters."""
        return IndependentNatural([q.natural_parameters() for q in self.components])

    def tensors(self) -> dict[str, Tensor]:
        """Return the sizes, and the components' tensors under their number and family."""
        named = {
            f"{number}.{q.family}.{name}": tensor
            for number, q in enumerate(self.components)
            for name, tensor in q.tensors().items()
        }
        return {"sizes": torch.tensor(self.sizes, device=self.mean.device), **named}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> Self:
        """Return the Gaussian that `tensors` came from."""
        rest = dict(tensors)
        sizes = [int(size) for size in rest.pop("sizes", torch.empty(0)).flatten()]
        parts: dict[tuple[str, str], dict[str, Tensor]] = {}
        for key, tensor in rest.items():
            number, family, name = (*key.split(".", 2), "", "")[:3]
            parts.setdefault((number, family), {})[name] = tensor
        if {number for number, _ in parts} != set(map(str, range(len(sizes)))) or len(parts) != len(
            sizes
        ):
            raise ValueError(f"it holds {', '.join(sorted(tensors)) or 'nothing'}")
        components = [
            family_named(family).from_tensors(parts[number, family], sizes[int(number)])
            for number, family in sorted(parts, key=lambda key: int(key[0]))
        ]
        found = cls(components)
        check_dimension(found, dimension)
        return found

    def trace_with(self, other: NaturalParameters) -> float:
        """tr(P Σ), component by component where the other has components of the same sizes."""
        embedded = self.natural_parameters().embed(other)
        if embedded is None:
            return super().trace_with(other)
        pairs = zip(self.components, embedded.components, strict=True)
        return sum(q.trace_with(part) for q, part in pairs)

    def wasserstein(self, other: Distribution) -> float:
        """W2, from the components' where both have components of the same sizes."""
        if not isinstance(other, IndependentGaussian) or other.sizes != self.sizes:
            return super().wasserstein(other)
        pairs = zip(self.components, other.components, strict=True)
        return math.hypot(*(q.wasserstein(p) for q, p in pairs))

    @classmethod
    def barycentre(
        cls, weights: Sequence[float], members: Sequence[IndependentGaussian]
    ) -> Gaussian:
        """Return the barycentre, component by component where all have the same sizes."""
        if any(member.sizes != members[0].sizes for member in members):
            return super().barycentre(weights, members)
        return cls(
            [
                barycentre(weights, list(parts))
                for parts in zip(*(member.components for member in members), strict=True)
            ]
        )
