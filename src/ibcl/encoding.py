"""The seam between a user's data and the learner's tensors.

A learner reasons about tensors; a person has frames with named columns, classes that are words and
targets in degrees or pounds. An encoder translates both ways. It is kept beside the posteriors in
every knowledge base and in every exported model, as plain numbers and text, so that a frame means
the same wherever it is given. The core knows encoders by this protocol only; those that can be
read back from a file are named in :data:`ENCODERS` and imported when they are needed.
"""

from importlib import import_module
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np
from torch import Tensor, nn

ENCODERS: dict[str, str] = {"tabular": "ibcl.tabular:Schema"}
"""Where the encoder of each kind lives, as ``"module:class"``."""


@runtime_checkable
class Encoder(Protocol):
    """What turns a user's data into tensors, and a model's decisions back."""

    kind: ClassVar[str]
    """The name under which :data:`ENCODERS` finds the class again."""

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The user's classes in the order of the class numbers; None for regression."""

    @property
    def scale(self) -> float:
        """Target units of one scaled unit: 1 for classes; variances get its square."""

    def inputs(self, x: Any) -> Tensor:
        """Rows as float32 ``(n, width)``; a frame by name or refused."""

    def labels(self, y: Any) -> Tensor:
        """Class numbers, or scaled targets."""

    def decode(self, decision: Tensor) -> np.ndarray:
        """Class numbers as the user's classes; scaled values in the target's units."""

    def description(self) -> dict[str, Any]:
        """The encoder as plain JSON, numbers and text only."""

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """The encoder that :meth:`description` described; a ValueError for anything else."""


@runtime_checkable
class NumberReader(Protocol):
    """An encoder of rows of numbers, which can also be part of a graph such as an ONNX file."""

    @property
    def number_count(self) -> int:
        """How many columns a row has."""

    def reader(self) -> nn.Module | None:
        """From float64 rows, NaN where missing, to inputs; None where rows hold more."""


@runtime_checkable
class CategoryReader(Protocol):
    """An encoder of columns of categories, each of which becomes an input per category."""

    @property
    def category_inputs(self) -> tuple[tuple[int, int], ...]:
        """Where the inputs of each column of categories begin and end."""


def same_encoder(a: Encoder | None, b: Encoder | None) -> bool:
    """Whether two learners' encoders read inputs and classes alike.

    Examples
    --------
    >>> same_encoder(None, None)
    True
    """
    ours, theirs = (None if each is None else each.description() for each in (a, b))
    return bool(ours == theirs)


def encoder_of(kind: str, description: Any) -> Encoder:
    """Return the encoder of a kind from its description.

    Parameters
    ----------
    kind : a key of :data:`ENCODERS`.
    description : what the encoder's ``description()`` returned, possibly read from a file.

    Raises
    ------
    ValueError
        If the kind is unknown or the description is not one of that kind.

    Examples
    --------
    >>> encoder_of("spoken", {})
    Traceback (most recent call last):
    ...
    ValueError: 'spoken' is no known kind of encoder: expected one of tabular.
    """
    if kind not in ENCODERS:
        known = ", ".join(sorted(ENCODERS))
        raise ValueError(f"{kind!r} is no known kind of encoder: expected one of {known}.")
    module, _, name = ENCODERS[kind].partition(":")
    encoder: Encoder = getattr(import_module(module), name).from_description(description)
    return encoder
