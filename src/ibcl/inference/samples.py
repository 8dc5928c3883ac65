"""The samples of a task as inference reads them: blocks of features φ.

A solver goes over all samples a few times and keeps only sums, so that a class with the members of
`Samples` may read a task larger than the memory block by block, anew at every pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

# Rows of a block, fewer where they are wide: small enough for a processor's caches to help, large
# enough for its matrix products to be fast.
_ROWS, _NUMBERS = 4096, 2**23


class Block(NamedTuple):
    """Features of shape (rows, columns), their labels, and their weights where there are any."""

    features: Tensor
    y: Tensor
    weights: Tensor | None = None


class Samples(Protocol):
    """What can be gone over, block by block, as often as needed and always in the same order."""

    @property
    def size(self) -> int:
        """n, how many samples there are."""

    @property
    def columns(self) -> int:
        """How many features a sample has."""

    @property
    def device(self) -> torch.device:
        """Where the features are."""

    def blocks(self) -> Iterator[Block]:
        """Go over all samples once."""


class HeldSamples(NamedTuple):
    """Samples in memory, whose blocks are views.

    Examples
    --------
    >>> samples = HeldSamples(torch.zeros(5000, 2), torch.zeros(5000))
    >>> [len(block.features) for block in samples.blocks()]
    [4096, 904]
    """

    features: Tensor
    y: Tensor
    weights: Tensor | None = None

    @property
    def size(self) -> int:
        """n, how many samples there are."""
        return len(self.features)

    @property
    def columns(self) -> int:
        """How many features a sample has."""
        return self.features.shape[1]

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.features.device

    def blocks(self) -> Iterator[Block]:
        """Go over all samples once."""
        rows = max(1, min(_ROWS, _NUMBERS // max(1, self.columns)))
        for begin in range(0, self.size, rows):
            own = slice(begin, begin + rows)
            weights = None if self.weights is None else self.weights[own]
            yield Block(self.features[own], self.y[own], weights)


class RelabelledSamples(NamedTuple):
    """Samples with other labels, made of their own ones as they come."""

    samples: Samples
    relabel: Callable[[Tensor], Tensor]

    @property
    def size(self) -> int:
        """n, how many samples there are."""
        return self.samples.size

    @property
    def columns(self) -> int:
        """How many features a sample has."""
        return self.samples.columns

    @property
    def device(self) -> torch.device:
        """Where the features are."""
        return self.samples.device

    def blocks(self) -> Iterator[Block]:
        """Go over all samples once."""
        for block in self.samples.blocks():
            yield block._replace(y=self.relabel(block.y))


def drawn(samples: Samples, count: int, seed: int = 0) -> HeldSamples:
    """Draw about so many samples, from every block alike.

    Examples
    --------
    >>> drawn(HeldSamples(torch.zeros(1000, 1), torch.zeros(1000)), 100).size
    100
    """
    generator = torch.Generator().manual_seed(seed)
    share = min(1.0, count / samples.size)
    kept: list[Block] = []
    wanted, taken = 0.0, 0
    for block in samples.blocks():
        rows = len(block.features)
        wanted += share * rows
        number = min(rows, round(wanted) - taken)
        taken += number
        own = torch.randperm(rows, generator=generator, device="cpu")[:number].to(
            block.features.device
        )
        weights = None if block.weights is None else block.weights[own]
        kept.append(Block(block.features[own], block.y[own], weights))
    return held(kept)


def held(blocks: Iterable[Block]) -> HeldSamples:
    """Put blocks together.

    Examples
    --------
    >>> held([Block(torch.zeros(2, 1), torch.zeros(2))] * 3).size
    6
    """
    features, labels, weights = zip(*blocks, strict=True)
    return HeldSamples(
        torch.cat(features),
        torch.cat(labels),
        None if weights[0] is None else torch.cat(weights),
    )
