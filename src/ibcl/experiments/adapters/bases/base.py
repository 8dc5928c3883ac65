"""What the comparison wants to know of a base model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from ibcl.experiments.benchmarks.backbones import Backbone


class Upper(nn.Module, ABC):
    """The upper part of a model: one flat row per input, of what the part below returned."""

    columns: int
    """Of a row."""
    last_name = "last"
    """The module that returns what the model gives."""

    @abstractmethod
    def forward(self, rows: Tensor) -> Tensor:
        """Return the model's features, shape (n, features)."""

    def positions(self, rows: Tensor) -> Tensor | None:
        """Return which positions count, shape (n, positions); None where all do."""
        return None


@dataclass(frozen=True)
class Base:
    """A model cut in two.

    Parameters
    ----------
    backbone
        Makes the lower part, as a feature extractor of the benchmarks.
    upper
        Makes the upper part.
    layers
        Depths that all contenders but one read.
    targets
        Layers that adapters change.
    whole
        The whole model, with some number of inputs, to measure what a pass costs.
    rank, epochs, learning_rate
        Of adapters, chosen on validation rows.
    """

    backbone: Callable[[], Backbone]
    upper: Callable[[], Upper]
    layers: Sequence[str]
    targets: str
    whole: Callable[[int], tuple[Callable[[Tensor], object], Tensor]]
    rank: int
    epochs: int
    learning_rate: float


BASES: dict[str, Base] = {}


def pooled(hidden: Tensor, mask: Tensor) -> Tensor:
    """Mean over the positions that count; zero where none does.

    Examples
    --------
    >>> import torch
    >>> hidden, mask = torch.tensor([[[1.0], [3.0], [9.0]]]), torch.tensor([[1.0, 1.0, 0.0]])
    >>> pooled(hidden, mask)
    tensor([[2.]])
    """
    return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp(min=1)
