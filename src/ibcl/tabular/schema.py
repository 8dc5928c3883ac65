"""The schema of a table: columns, their order and scaling, categories, missing values, classes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from ibcl.tabular.columns import (
    LARGEST_TEXT,
    CategoricalColumn,
    Imputation,
    NumericColumn,
    numbers_of,
)
from ibcl.tabular.tables import Table, as_table
from ibcl.tabular.targets import ClassTarget, ValueTarget
from ibcl.tabular.values import Numbers, content, listing, text_of

MOST_COLUMNS = 100_000
MOST_INPUTS = 1_000_000
LARGEST_INPUT = 1e9
"""Inputs are float32, whose squares must still be finite sums: larger ones are refused."""

Column = Annotated[NumericColumn | CategoricalColumn, Field(discriminator="kind")]
Target = Annotated[ClassTarget | ValueTarget, Field(discriminator="kind")]


class Schema(BaseModel):
    """How a table becomes tensors, and predictions become classes or values again.

    Made by `Schema.fit` from the first task, and kept for all later ones. A frame is applied by
    name: its order does not matter, columns that the first task did not have are ignored, and one
    that is lacking is refused. An array, or a sparse matrix, is accepted only by a schema that was
    itself fitted on one, and only with exactly as many columns. What happens to numbers,
    categories and missing values is described in `ibcl.tabular.columns`.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Rome", "Oslo", "Rome"]})
    >>> schema = Schema.fit(frame, ["yes", "no", "yes"])
    >>> schema.input_names
    ('age', 'age is missing', 'town=Oslo', 'town=Rome')
    >>> schema.inputs(pd.DataFrame({"town": ["Paris"], "age": [30]}))
    tensor([[0., 0., 0., 0.]])
    >>> Schema.from_description(schema.description()) == schema
    True
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    kind: ClassVar[str] = "tabular"

    version: Literal[1] = 1
    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=MOST_COLUMNS)]
    target: Target

    @model_validator(mode="after")
    def _certain(self) -> Schema:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names) and any(name is not None for name in names):
            raise ValueError("the names of columns must differ")
        if None in names and any(name is not None for name in names):
            raise ValueError("either all columns have names or none")
        if self.width > MOST_INPUTS:
            raise ValueError(f"there are more than {MOST_INPUTS:,} inputs")
        return self

    @classmethod
    def fit(
        cls,
        x: Any,
        y: Any,
        *,
        features: Sequence[str] | None = None,
        classes: Iterable[Any] | None = None,
        regression: bool = False,
        standardise: bool = True,
        scale_target: bool | None = None,
        imputation: Imputation = "median",
        sample_weight: Numbers | None = None,
    ) -> Self:
        """Take the schema from the first task.

        Parameters
        ----------
        x : a frame, or an array, masked array or sparse matrix of numbers.
        y : labels or targets, one a row.
        features : the columns to use, in this order; all where None.
        classes : all classes any task will have; those of ``y`` where None.
        regression : predict a value instead of a class.
        standardise : scale numbers to mean 0 and standard deviation 1.
        scale_target : the same for the target of a regression; as ``standardise`` where None.
        imputation : ``"median"`` or ``"mean"`` takes the place of missing numbers.
        sample_weight : how often each row counts in these statistics; once where None.

        Raises
        ------
        ValueError
            If a column holds dates or anything else that is neither number nor text, if names are
            repeated or missing, or if numeric labels look like values: real numbers, or more than
            20 different ones that are more than a tenth of the rows, while no classes are named.
        """
        if imputation not in ("median", "mean"):
            raise ValueError(f"imputation must be 'median' or 'mean', not {imputation!r}.")
        table = as_table(x)
        if len(table.frame) == 0:
            raise ValueError("The first task has no rows.")
        names = _chosen(table, features)
        weights = np.ones(len(table.frame)) if sample_weight is None else sample_weight
        target: ClassTarget | ValueTarget
        if regression:
            scaled = standardise if scale_target is None else scale_target
            target = ValueTarget.fit(y, weights, scaled)
        else:
            target = ClassTarget.fit(y, classes)
        frame = table.frame[names] if table.named else table.frame
        labels = [_label(name) if table.named else None for name in names]
        texts = [content(column) == "texts" for _, column in frame.items()]
        numeric = [position for position, text in enumerate(texts) if not text]
        for position in numeric:
            _refuse_dates(frame.iloc[:, position], labels[position])
        values = numbers_of(frame.iloc[:, numeric], [labels[position] for position in numeric])
        places = {position: place for place, position in enumerate(numeric)}
        columns: list[NumericColumn | CategoricalColumn] = []
        for position, label in enumerate(labels):
            if texts[position]:
                columns.append(CategoricalColumn.fit(label, frame.iloc[:, position]))
            else:
                column = values[:, places[position]]
                columns.append(NumericColumn.fit(label, column, weights, imputation, standardise))
        return cls(columns=tuple(columns), target=target)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the columns in order; None where they are known by position."""
        names = tuple(column.name for column in self.columns if column.name is not None)
        return names or None

    @property
    def classes(self) -> tuple[Any, ...] | None:
        """The classes in the order of their numbers; None for regression."""
        return self.target.classes if isinstance(self.target, ClassTarget) else None

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """The classes as texts; None for regression."""
        return self.target.names if isinstance(self.target, ClassTarget) else None

    @property
    def scale(self) -> float:
        """Target units of one scaled unit; 1 for classes."""
        return 1.0 if isinstance(self.target, ClassTarget) else self.target.scale

    @property
    def width(self) -> int:
        """Number of inputs of the network behind it."""
        return sum(
            column.width if isinstance(column, CategoricalColumn) else 1 + column.indicator
            for column in self.columns
        )

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input is: all numbers, then their indicators, then the categories."""
        called = {
            position: f"column {position}" if column.name is None else column.name
            for position, column in enumerate(self.columns)
        }
        numeric = [called[position] for position in self._parts.numeric]
        missing = [f"{called[position]} is missing" for position in self._parts.indicators]
        categorical: list[str] = []
        for position in self._parts.categorical:
            column = self.columns[position]
            assert isinstance(column, CategoricalColumn)
            categorical += [f"{called[position]}={text}" for text in column.categories]
            categorical += [f"{called[position]} is missing"] * column.indicator
        return (*numeric, *missing, *categorical)

    def inputs(self, x: Any) -> Tensor:
        """Return a table as the network's inputs, float32 of shape (n, width)."""
        table = as_table(x)
        frame = self._applied(table)
        parts = self._parts
        names = [self.columns[position].name for position in parts.numeric]
        values = numbers_of(frame.iloc[:, parts.numeric], names)
        missing = np.isnan(values)
        scaled = (np.where(missing, parts.fill, values) - parts.centre) / parts.scale
        self._refuse_huge(scaled, values)
        blocks = [scaled, missing[:, parts.indicated]]
        for position in parts.categorical:
            column = self.columns[position]
            assert isinstance(column, CategoricalColumn)
            blocks.append(column.encode(frame.iloc[:, position]))
        return torch.as_tensor(np.concatenate(blocks, axis=1, dtype=np.float32))

    def labels(self, y: Any) -> Tensor:
        """Return labels as class numbers, or targets as scaled values."""
        return self.target.labels(y)

    def decode(self, decision: Tensor) -> NDArray[Any]:
        """Return class numbers as classes, or scaled values in the target's units."""
        return self.target.decode(decision)

    def description(self) -> dict[str, Any]:
        """Return the schema as plain JSON: numbers, text and truth values."""
        return self.model_dump(mode="json")

    @classmethod
    def from_description(cls, description: Any) -> Self:
        """Return the schema of a description, exactly; refuse whatever is none.

        Examples
        --------
        >>> Schema.from_description({"columns": []})
        Traceback (most recent call last):
        ...
        ValueError: This describes no schema of a table: target: Field required.
        """
        try:
            return cls.model_validate_json(json.dumps(description, allow_nan=False))
        except ValidationError as error:
            found = error.errors(include_url=False, include_input=False)
            first = next((e for e in found if e["loc"] != ("columns",)), found[0])
            where = ".".join(map(str, first["loc"]))
            reason = f"{where}: {first['msg']}" if where else first["msg"]
        except (TypeError, ValueError, RecursionError) as error:
            reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"This describes no schema of a table: {reason}.")

    def differences(self, other: Any) -> tuple[str, ...]:
        """Say in what another schema differs: columns, scaling, classes or the target."""
        if not isinstance(other, Schema):
            return ("columns",)
        found = []
        if self.names != other.names or len(self.columns) != len(other.columns):
            found.append("columns")
        elif self.columns != other.columns:
            found.append("scaling or categories")
        if self.classes != other.classes:
            found.append("classes")
        elif self.target != other.target:
            found.append("scaling of the target")
        return tuple(found)

    @cached_property
    def _parts(self) -> _Parts:
        numeric = [
            (position, column)
            for position, column in enumerate(self.columns)
            if isinstance(column, NumericColumn)
        ]
        indicated = np.array([column.indicator for _, column in numeric], dtype=bool)
        return _Parts(
            numeric=[position for position, _ in numeric],
            indicators=[position for position, column in numeric if column.indicator],
            categorical=[
                position
                for position, column in enumerate(self.columns)
                if isinstance(column, CategoricalColumn)
            ],
            indicated=indicated,
            centre=np.array([column.centre for _, column in numeric]),
            scale=np.array([column.scale for _, column in numeric]),
            fill=np.array([column.fill for _, column in numeric]),
        )

    def _applied(self, table: Table) -> pd.DataFrame:
        """Return the columns of the schema, in its order; refuse what may mean something else."""
        names = self.names
        if names is None:
            if table.named:
                raise ValueError(
                    "This was learnt from an array without names of columns, so a frame with names "
                    "could mean something else; give an array with the columns in the same order."
                )
            if table.frame.shape[1] != len(self.columns):
                raise ValueError(
                    f"The array has {table.frame.shape[1]} columns, but {len(self.columns)} were "
                    "learnt from."
                )
            return table.frame
        if not table.named:
            raise ValueError(
                "This was learnt from columns with names, so what the columns of an array mean is "
                f"not certain; give a frame with the columns {listing(names)}."
            )
        _refuse_missing(names, table.frame)
        return table.frame[list(names)]

    def _refuse_huge(self, scaled: Numbers, values: Numbers) -> None:
        # Written so that NaN, which infinite scales could give, is refused as well.
        huge = np.argwhere(~(np.abs(scaled) <= LARGEST_INPUT))
        if len(huge):
            row, place = huge[0]
            position = self._parts.numeric[place]
            column = self.columns[position]
            called = f"{position + 1}" if column.name is None else f"{column.name!r}"
            raise ValueError(
                f"The column {called} holds {values[row, place]:g} in row {row + 1}, which is more "
                f"than {LARGEST_INPUT:g} times the scale of the first task and too large to "
                "compute with; correct the value or leave the row out."
            )


class _Parts(NamedTuple):
    """Where numbers, their indicators and categories are, and the statistics as arrays."""

    numeric: list[int]
    indicators: list[int]
    categorical: list[int]
    indicated: NDArray[np.bool_]
    centre: Numbers
    scale: Numbers
    fill: Numbers


def usable_columns(frame: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Choose the columns to learn from where nobody names them.

    Numbers, truth values and categories are used. Left out are dates, columns without any value,
    and texts that look like identifiers or prose: more than 20 different ones that are more than
    half of the values.

    Returns
    -------
    used : names of the columns, in the frame's order.
    left_out : the others, each with its reason.

    Examples
    --------
    >>> usable_columns(pd.DataFrame({"a": [1], "when": [pd.Timestamp(0)]}))
    (['a'], {'when': 'dates'})
    """
    used: list[str] = []
    left_out: dict[str, str] = {}
    for name, column in as_table(frame).frame.items():
        found = content(column)
        distinct = int(column.nunique()) if found == "texts" else 0
        if found == "dates":
            left_out[str(name)] = "dates"
        elif found == "nothing":
            left_out[str(name)] = "no values"
        elif distinct > 20 and distinct > column.count() / 2:
            left_out[str(name)] = f"{distinct:,} different texts"
        else:
            used.append(str(name))
    if not used:
        raise ValueError(
            "There is no column beside the label to learn from: none of numbers, truth values or "
            "categories."
        )
    return used, left_out


def _chosen(table: Table, features: Sequence[str] | None) -> list[Any]:
    if features is None:
        if table.frame.shape[1] == 0:
            raise ValueError("The table has no columns.")
        return list(table.frame.columns)
    if not table.named:
        raise ValueError("Columns can only be chosen by name from a frame that has names.")
    repeated = sorted({name for name in features if list(features).count(name) > 1})
    if repeated:
        raise ValueError(f"The features name {listing(repeated)} more than once.")
    if not features:
        raise ValueError("There are no features to learn from; name at least one column.")
    _refuse_missing(features, table.frame)
    return list(features)


def _label(name: Any) -> str:
    """Return a column's name, or refuse what could not be kept."""
    label = text_of(name, "name of a column")
    if len(label) > LARGEST_TEXT:
        raise ValueError(
            f"The name of a column has {len(label):,} characters, but at most {LARGEST_TEXT:,} are "
            "kept."
        )
    return label


def _refuse_missing(names: Iterable[str], frame: pd.DataFrame) -> None:
    lacking = [name for name in names if name not in frame.columns]
    if lacking:
        raise ValueError(
            f"There is no column {listing(lacking)} in the table; it has {listing(frame.columns)}."
        )


def _refuse_dates(column: pd.Series[Any], name: str | None) -> None:
    if content(column) == "dates":
        raise ValueError(
            f"The column {column.name if name is None else name!r} holds dates or times; make "
            "numbers of them, such as days since some day, or leave the column out."
        )
