"""The expert of a task as a part of it, and what it reads of the features."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from torch import Tensor
from torch.nn import functional

from ibcl.experts.expert import Fitted, expert_of
from ibcl.experts.folding import folded
from ibcl.knowledge import register_part
from ibcl.networks import FlatNetwork


@register_part
@dataclass(frozen=True, eq=False)
class ExpertPart:
    """A fitted expert, kept with its task.

    Parameters
    ----------
    columns
        How many of the first columns of φ it reads, or which, where the knowledge base has grown
        since; None for all.
    share
        λ of `ibcl.experts.share`: how much of the task's answer is the expert's; 1 is all of it.
    groups
        Which of these columns it reads as one column of categories, as (begin, end).
    classes
        Of an answer, where there are more than the expert knows of; it gives the others nothing.
    """

    kind: ClassVar[str] = "expert"

    fitted: Fitted
    columns: int | tuple[int, ...] | None
    share: float = 1.0
    groups: tuple[tuple[int, int], ...] = ()
    classes: int | None = None

    @property
    def costly(self) -> bool:
        """Whether to run it only on rows whose answer depends on it."""
        return self.fitted.costly

    def answers(self, features: Tensor) -> Tensor:
        """p_k(y | φ), shape (n, columns of an answer)."""
        flat = features.flatten(1)
        read = isinstance(self.columns, tuple)
        own = flat[:, self.columns] if read else flat[:, : self.columns]
        found = self.fitted.answers(folded(own, self.groups))
        more = 0 if self.classes is None else self.classes - found.shape[1]
        return functional.pad(found, (0, more)) if more else found

    @property
    def grows(self) -> bool:
        """Whether it can answer where there are more inputs and classes than it has seen."""
        return self.columns is not None

    def grown(self, positions: Tensor, classes: int | None) -> ExpertPart:
        """Return it as it answers among more inputs and classes.

        Parameters
        ----------
        positions
            Where the inputs are among the features of the larger network.
        classes
            How many there are now; None for values.
        """
        read = range(self.columns) if isinstance(self.columns, int) else self.columns or ()
        places = tuple(int(positions[place]) for place in read)
        return replace(self, columns=places, classes=classes)

    def on(self, network: FlatNetwork) -> ExpertPart:
        """Return it ready to answer behind a learner's network."""
        return replace(self, fitted=self.fitted.on(network))

    @property
    def nbytes(self) -> int:
        """Bytes it takes."""
        return len(self.encode())

    def encode(self) -> bytes:
        """Return a line of JSON, and the expert's own bytes."""
        known: dict[str, object] = {
            "expert": self.fitted.name,
            "columns": self.columns,
            "share": self.share,
        }
        if self.groups:
            known["groups"] = self.groups
        if self.classes is not None:
            known["classes"] = self.classes
        return json.dumps(known, sort_keys=True).encode() + b"\n" + self.fitted.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what `encode` wrote."""
        head, _, rest = data.partition(b"\n")
        try:
            known = json.loads(head)
            name, columns, share = known["expert"], known["columns"], known.get("share", 1.0)
            groups = tuple((int(begin), int(end)) for begin, end in known.get("groups", ()))
            classes = known.get("classes")
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError("this is no expert of a task") from None
        if isinstance(columns, list) and columns and all(_is_number(each, 0) for each in columns):
            columns = tuple(columns)
        elif columns is not None and not _is_number(columns, 1):
            raise ValueError("this is no expert of a task")
        if not isinstance(name, str) or not (classes is None or _is_number(classes, 1)):
            raise ValueError("this is no expert of a task")
        if not isinstance(share, int | float) or not 0 < share <= 1:
            raise ValueError("the share of a task's expert must be above 0 and at most 1")
        own = len(columns) if isinstance(columns, tuple) else columns or 0
        if any(not 0 <= begin < end <= own for begin, end in groups):
            raise ValueError("the columns of categories that an expert reads must be among its own")
        return cls(expert_of(name).decode(rest), columns, float(share), groups, classes)


def _is_number(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**31


def columns_read(network: FlatNetwork, features: Tensor) -> int:
    """Return how many of φ's first columns an expert reads: the inputs, or a backbone's features.

    Parameters
    ----------
    network
        The network over x.
    """
    specification: Mapping[str, object] = network.specification or {}
    if specification.get("kind") != "random_features":
        return features.flatten(1).shape[1]
    if not specification["skip"]:
        raise ValueError(
            "An expert reads the inputs themselves, which these random features leave out: use "
            "random_features(skip=True) or linear as the network."
        )
    inputs = specification["inputs"]
    assert isinstance(inputs, int)
    return inputs
