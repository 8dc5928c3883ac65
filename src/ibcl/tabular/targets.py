"""What is to be predicted: one of several classes, or a value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from ibcl.tabular.columns import Finite, Text, standardisation
from ibcl.tabular.tables import as_column
from ibcl.tabular.values import Numbers, as_numbers, as_texts, content, listing, text_of

MOST_CLASSES = 100_000
MANY_NUMBERS = 20
"""More different numbers than this, and more than a tenth of the rows, are no classes."""

Class = bool | Annotated[int, Field(ge=-(2**63), lt=2**64)] | Finite | Text


class ClassTarget(BaseModel):
    """Classes in the order of their numbers 0, 1, ...: truth values, numbers or texts."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: Literal["classes"] = "classes"
    classes: Annotated[tuple[Class, ...], Field(min_length=2, max_length=MOST_CLASSES)]

    @model_validator(mode="after")
    def _distinct(self) -> ClassTarget:
        names = self.names
        if len(set(names)) < len(names):
            raise ValueError("classes must differ")
        return self

    @property
    def names(self) -> tuple[str, ...]:
        """The classes as texts, by which labels are recognised wherever they are read from."""
        return tuple(text_of(value, "class") for value in self.classes)

    @classmethod
    def fit(cls, y: Any, classes: Iterable[Any] | None = None) -> ClassTarget:
        """Take the classes of the first task, in sorted order, or those that are named.

        Parameters
        ----------
        classes : all classes any task will have; those of ``y`` where None. Texts are read as
            numbers or truth values where the labels are such.

        Examples
        --------
        >>> ClassTarget.fit(["good", "bad"]).classes
        ('bad', 'good')
        >>> ClassTarget.fit([1, 2], classes=["1", "2", "3"]).classes
        (1, 2, 3)
        """
        column = as_column(y, "labels").rename("label")
        found = [_plain(value) for value in pd.unique(column)]
        if classes is None:
            _refuse_values(column, len(found))
            chosen = _sorted(found)
        else:
            chosen = [_as_kind_of(_plain(value), found) for value in classes]
        names = [text_of(value, "label") for value in chosen]
        if len(names) < 2 or len(set(names)) < len(names):
            raise ValueError(
                f"There must be at least two different classes, but there are {listing(chosen)} "
                f"({'only one class' if len(names) == 1 else 'some twice'}); name classes that the "
                "first task lacks with classes=, or predict a value with regression=True."
            )
        return cls(classes=tuple(chosen))

    def labels(self, y: Any) -> Tensor:
        """Return class numbers; a label that is no class is refused."""
        texts = as_texts(as_column(y, "labels"), "labels")
        codes = pd.Index(self.names).get_indexer(pd.Index(texts, dtype=object))
        if (codes < 0).any():
            unseen = sorted(set(texts[codes < 0]))
            raise ValueError(
                f"The label {unseen[0]!r} is not one of the classes {listing(self.classes)}, which "
                "the first task fixed; name all classes there with classes=."
            )
        return torch.as_tensor(codes.astype(np.int64))

    def decode(self, decision: Tensor) -> NDArray[Any]:
        """Return the classes of class numbers."""
        kinds = {type(value) for value in self.classes}
        dtype = object if len(kinds) > 1 else None
        values: NDArray[Any] = np.array(self.classes, dtype=dtype)[decision.long().cpu().numpy()]
        return values


class ValueTarget(BaseModel):
    """A value: z = (y − centre) / scale."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: Literal["values"] = "values"
    centre: Finite
    scale: Annotated[Finite, Field(gt=0)]

    @classmethod
    def fit(cls, y: Any, weights: Numbers, standardise: bool = True) -> ValueTarget:
        """Take mean and standard deviation of the first task's targets.

        Examples
        --------
        >>> ValueTarget.fit([10.0, 30.0], np.ones(2))
        ValueTarget(kind='values', centre=20.0, scale=10.0)
        """
        values = _values(y)
        if not standardise:
            return cls(centre=0.0, scale=1.0)
        centre, scale = standardisation(values, weights)
        return cls(centre=centre, scale=scale)

    def labels(self, y: Any) -> Tensor:
        """Return scaled targets in double precision."""
        return torch.as_tensor((_values(y) - self.centre) / self.scale)

    def decode(self, decision: Tensor) -> NDArray[Any]:
        """Return values in the target's own units, in double precision."""
        scaled = decision.detach().cpu().numpy().astype(np.float64)
        values: NDArray[Any] = scaled * self.scale + self.centre
        return values


def _values(y: Any) -> Numbers:
    return as_numbers(as_column(y, "targets"), "column of targets")


def _plain(value: Any) -> Any:
    """Return a label as Python has it, whatever numpy or pandas made of it."""
    return value.item() if isinstance(value, np.generic) else value


def _sorted(values: list[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda value: text_of(value, "label"))


def _as_kind_of(value: Any, found: list[Any]) -> Any:
    """Read a class given as text as what the labels are: '1' is 1 where labels are numbers."""
    if not isinstance(value, str) or any(isinstance(label, str) for label in found):
        return value
    by_name = {text_of(label, "label"): label for label in (*found, True, False)}
    if value in by_name:
        return by_name[value]
    try:
        return int(value)
    except ValueError:
        pass
    try:
        return float(value)
    except ValueError:
        return value


def _refuse_values(column: pd.Series[Any], distinct: int) -> None:
    """Refuse numbers that are values to be predicted, and no classes."""
    if content(column) != "numbers" or is_bool_dtype(column.dtype):
        return
    values = as_numbers(column, "column of labels")
    if (values % 1 != 0).any():
        raise ValueError(
            "The labels are real numbers, so they are no classes; predict a value with "
            "regression=True, or name all classes with classes=."
        )
    if distinct > MANY_NUMBERS and distinct > len(column) / 10:
        raise ValueError(
            f"The labels are {distinct:,} different numbers in {len(column):,} rows, which look "
            "like values and not like classes; predict a value with regression=True, or name all "
            "classes with classes=."
        )
