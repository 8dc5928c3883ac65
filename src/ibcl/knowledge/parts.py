"""Parts: what a task keeps beside its posteriors, its moments and its record.

A part is whatever a rule, an expert or a guarantee needs of a task later: it is stored with the
task, forgotten with it, and comes along where knowledge bases are merged. A new kind of part is a
class with these members, made known by `register_part`; neither knowledge bases nor the store need
to know more of it.

A part may say something of other tasks too; what it says of one goes when that is forgotten.

A part that can be added and subtracted is *common*: it is kept once, as the sum over all tasks. A
task that is forgotten leaves its share in the sum, unless that is computed again from its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable


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


@runtime_checkable
class CommonPart(Part, Protocol):
    """A sum over tasks, of which each adds its own."""

    def plus(self, other: Any) -> Self:
        """Return the sum of both."""

    def minus(self, other: Any) -> Self:
        """Return what is left without another, which is part of this sum."""


@runtime_checkable
class ReferringPart(Part, Protocol):
    """What a task keeps that also says something of other tasks, by their names."""

    def without(self, task: str) -> Self | None:
        """Return it as it would be had another task never been known; None if nothing is left."""


Parts = Mapping[str, Part]
"""What one task keeps, by kind."""


class Separated(NamedTuple):
    """Parts of a task, and what it adds to the sums over all tasks."""

    own: dict[str, Part]
    common: dict[str, CommonPart]


def separated(parts: Parts) -> Separated:
    """Separate what a task keeps from what it adds to sums over all tasks."""
    common = {kind: part for kind, part in parts.items() if isinstance(part, CommonPart)}
    return Separated({kind: parts[kind] for kind in parts if kind not in common}, common)


def sums(
    first: Mapping[str, CommonPart], second: Mapping[str, CommonPart]
) -> dict[str, CommonPart]:
    """Add sums over tasks, kind by kind."""
    added = {kind: part.plus(second[kind]) for kind, part in first.items() if kind in second}
    return {**second, **first, **added}


def without(parts: Parts, task: str) -> dict[str, Part]:
    """Return what a task keeps, as it would be had another one never been known."""
    found: dict[str, Part] = {}
    for kind, part in parts.items():
        left = part.without(task) if isinstance(part, ReferringPart) else part
        if left is not None:
            found[kind] = left
    return found


PARTS: dict[str, type[Part]] = {}
"""Kinds of parts that can be read back."""

_Class = TypeVar("_Class", bound=type[Part])


def register_part(part: _Class) -> _Class:
    """Make a kind of part known, so that stored knowledge bases can have it."""
    if PARTS.setdefault(part.kind, part) is not part:
        raise ValueError(f"There is another kind of part {part.kind!r} already.")
    return part
