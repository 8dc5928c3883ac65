"""What a knowledge base keeps as a few tensors, as a safetensors file."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Self

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor


@dataclass(frozen=True, eq=False)
class StoredTensors:
    """A part whose fields are all tensors.

    Examples
    --------
    >>> import torch
    >>> from ibcl.routing import SharedScatters
    >>> kept = SharedScatters(torch.tensor(2.0).double(), torch.ones(3), torch.ones(1))
    >>> kept.nbytes, SharedScatters.decode(kept.encode()).within.tolist()
    (24, [1.0, 1.0, 1.0])
    """

    refused: ClassVar[tuple[str, str]]
    """What is said of bytes that are no such file, and of a file with other tensors."""

    @property
    def nbytes(self) -> int:
        """Bytes its tensors take."""
        return sum(tensor.nbytes for tensor in self.tensors().values())

    def tensors(self) -> dict[str, Tensor]:
        """Return everything it holds, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def encode(self) -> bytes:
        """Return it as a safetensors file."""
        return save(self.tensors())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote."""
        no_file, other_tensors = cls.refused
        try:
            return cls(**{name: tensor.clone() for name, tensor in load(data).items()})
        except SafetensorError:
            raise ValueError(no_file) from None
        except TypeError:
            raise ValueError(other_tensors) from None
