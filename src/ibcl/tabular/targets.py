"""What is to be predicted: one of several classes, or a value."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from ibcl.tabular.categories import MISSING, UNKNOWN, Vocabulary, kind_of
from ibcl.tabular.columns import LARGEST_TEXT, Finite, Text, standardisation
from ibcl.tabular.tables import as_column
from ibcl.tabular.values import (
    Numbers,
    as_numbers,
    canonical,
    content,
    distinct,
    is_empty,
    listing,
    short,
    text_of,
)

MOST_CLASSES = 100_000
MANY_NUMBERS = 20
"""More different numbers than this, and more than a tenth of the rows, are no classes."""

Class = bool | Annotated[int, Field(ge=-(2**63), lt=2**64)] | Finite | Text


class ClassTarget(BaseModel):
    """Classes in the order of their numbers 0, 1, ...: truth values, numbers or texts.

    There may be one only, where further ones are to come (`ibcl.tabular.Schema.grown`).
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: Literal["classes"] = "classes"
    classes: Annotated[tuple[Class, ...], Field(min_length=1, max_length=MOST_CLASSES)]

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
        column = _labels(y)
        found = _different(column)
        if classes is None:
            _refuse_values(column, len(found))
            return cls(classes=tuple(_sorted(found)))
        chosen = [_as_kind_of(_plain(value), found) for value in classes]
        names = [canonical(text_of(value, "label")) for value in chosen]
        if not names or len(set(names)) < len(names):
            raise ValueError(
                f"The classes must differ, but there are {listing(chosen)}; name each class once "
                "with classes=."
            )
        return cls(classes=tuple(chosen))

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.names, kind_of(self.classes))

    def labels(self, y: Any) -> Tensor:
        """Return class numbers; a label that is no class is refused."""
        column = as_column(y, "labels")
        places = self._vocabulary.places(column, "labels")
        if (places == MISSING).any():
            _refuse_empty(places == MISSING)
        if (places == UNKNOWN).any():
            unseen = self._vocabulary.new(column[places == UNKNOWN], "labels")
            raise ValueError(
                f"The label {short(unseen[0])} is not one of the classes {listing(self.classes)}, "
                "which were learnt; learn a task that has it first."
            )
        return torch.as_tensor(places.astype(np.int64))

    def grown(self, y: Any) -> ClassTarget:
        """Return the classes with those that are new in these labels behind them.

        Examples
        --------
        >>> ClassTarget.fit([1, 2]).grown(["3", 0]).classes
        (1, 2, 0, 3)
        """
        column = _labels(y)
        found = _different(column)
        new = [value for value in found if self._place(value) == UNKNOWN]
        if not new:
            return self
        if all(isinstance(value, str) or value % 1 == 0 for value in self.classes):
            _refuse_values(column, len(found))
        if all(isinstance(value, str) for value in self.classes):
            new = [text_of(value, "label") for value in new]
        new = [_as_kind_of(value, list(self.classes)) for value in new]
        return self._joined(_sorted(new))

    def united(self, other: ClassTarget | ValueTarget) -> ClassTarget:
        """Return the classes with those of another target behind them."""
        if not isinstance(other, ClassTarget):
            raise ValueError("One of the two has classes and the other values to be predicted.")
        return self._joined([v for v in other.classes if self._place(v) == UNKNOWN])

    def _place(self, value: Any) -> int:
        return self._vocabulary.find(text_of(value, "labels"), "labels")

    def _joined(self, new: list[Any]) -> ClassTarget:
        return ClassTarget(classes=(*self.classes, *new)) if new else self

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
        values = target_values(y)
        if not standardise:
            return cls(centre=0.0, scale=1.0)
        centre, scale = standardisation(values, weights)
        return cls(centre=centre, scale=scale)

    def labels(self, y: Any) -> Tensor:
        """Return scaled targets in double precision."""
        return torch.as_tensor((target_values(y) - self.centre) / self.scale)

    def grown(self, y: Any) -> ValueTarget:
        """Return itself: the units of a value stay those of the first task."""
        return self

    def united(self, other: ClassTarget | ValueTarget) -> ValueTarget:
        """Return itself where the other target has the same units."""
        if self != other:
            raise ValueError("The two scale their targets differently, so they cannot become one.")
        return self

    def decode(self, decision: Tensor) -> NDArray[Any]:
        """Return values in the target's own units, in double precision."""
        scaled = decision.detach().cpu().numpy().astype(np.float64)
        values: NDArray[Any] = scaled * self.scale + self.centre
        return values


def _labels(y: Any) -> pd.Series[Any]:
    """Return labels, of which none may be empty."""
    column = as_column(y, "labels").rename("label")
    if column.dtype == object or not isinstance(column.dtype, np.dtype):
        empty = column.map(is_empty).to_numpy(dtype=bool)
        if empty.any():
            _refuse_empty(empty)
    return column


def _refuse_empty(empty: NDArray[np.bool_]) -> None:
    raise ValueError(
        f"The labels have {int(empty.sum()):,} missing values, the first in row "
        f"{int(np.flatnonzero(empty)[0]) + 1}; leave these rows out."
    )


def _different(column: pd.Series[Any]) -> list[Any]:
    """Return the different labels, each as it was first written."""
    found: dict[str, Any] = {}
    for value in distinct(column).values:
        text = text_of(value, "label")
        if len(text) > LARGEST_TEXT:
            raise ValueError(
                f"The label {short(text)} has {len(text):,} characters, but a class has at most "
                f"{LARGEST_TEXT:,}; give classes shorter names."
            )
        found.setdefault(canonical(text), _plain(value))
    if len(found) > MOST_CLASSES:
        raise ValueError(
            f"The labels are of {len(found):,} classes, but at most {MOST_CLASSES:,} are learnt."
        )
    return list(found.values())


def target_values(y: Any) -> Numbers:
    """Return targets as finite numbers; refuse dates, durations, words and missing ones.

    Examples
    --------
    >>> target_values(["1.5", 2])
    array([1.5, 2. ])
    """
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
