"""Parts: what a task keeps beside its posteriors, its moments and its record.

A part is whatever a rule, an expert or a guarantee needs of a task later: it is stored with the
task, forgotten with it, and comes along where knowledge bases are merged. A new kind of part is a
class with these members, made known by `register_part`; neither knowledge bases nor the store need
to know more of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Protocol, Self, TypeVar


class Part(Protocol):
    """Something of one task, which can be written as bytes without pickle."""

    kind: ClassVar[str]
    """The name it is kept under; a task has at most one part of a kind."""

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""

    def encode(self) -> bytes:
        """Return it as bytes, the same ones whenever it is the same."""

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote; a ValueError for anything else."""


Parts = Mapping[str, Part]
"""What one task keeps, by kind."""

PARTS: dict[str, type[Part]] = {}
"""Kinds of parts that can be read back."""

_Class = TypeVar("_Class", bound=type[Part])


def register_part(part: _Class) -> _Class:
    """Make a kind of part known, so that stored knowledge bases can have it."""
    if PARTS.setdefault(part.kind, part) is not part:
        raise ValueError(f"There is another kind of part {part.kind!r} already.")
    return part
