"""The schema of a table: columns, their order and scaling, categories, missing values, classes."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from ibcl.tabular.categories import UNKNOWN
from ibcl.tabular.columns import (
    DATE_PARTS,
    LARGEST_TEXT,
    CategoricalColumn,
    DateColumn,
    Imputation,
    NumericColumn,
    numbers_of,
    scaled_numbers,
)
from ibcl.tabular.growth import Growth, input_positions
from ibcl.tabular.reader import ScaledNumbers
from ibcl.tabular.tables import Table, as_table
from ibcl.tabular.targets import ClassTarget, ValueTarget
from ibcl.tabular.unknown import Unknown, counted, warn_of_unknown
from ibcl.tabular.values import Numbers, content, distinct, listing, text_of

MOST_COLUMNS = 100_000
MOST_INPUTS = 1_000_000
LARGEST_INPUT = 1e9
"""Inputs are float32, whose squares must still be finite sums: larger ones are refused."""

AnyColumn = NumericColumn | CategoricalColumn | DateColumn
Column = Annotated[AnyColumn, Field(discriminator="kind")]
Target = Annotated[ClassTarget | ValueTarget, Field(discriminator="kind")]


class Schema(BaseModel):
    """How a table becomes tensors, and predictions become classes or values again.

    Made by `Schema.fit` from the first task, and kept for all later ones. A frame is applied by
    name: its order does not matter, columns that the first task did not have are ignored, and one
    that is lacking is refused. An array, or a sparse matrix, is accepted only by a schema that was
    itself fitted on one, and only with exactly as many columns. What happens to numbers, dates,
    categories and missing values is described in `ibcl.tabular.columns`, and which values are the
    same in `ibcl.tabular.values`. What becomes of a row never depends on the rows beside it.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Rome", "Oslo", "Rome"]})
    >>> schema = Schema.fit(frame, ["yes", "no", "yes"])
    >>> schema.input_names
    ('age', 'age is missing', 'town=Oslo', 'town=Rome')
    >>> schema.inputs(pd.DataFrame({"town": ["Oslo"], "age": [30]}))
    tensor([[0., 0., 1., 0.]])
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
        rows: NDArray[np.integer[Any]] | None = None,
    ) -> Self:
        """Take the schema from the first task.

        Parameters
        ----------
        x : a frame, or an array, masked array or sparse matrix of numbers.
        y : labels or targets, one per row.
        features : the columns to use, in this order; all where None.
        classes : all classes any task will have; those of ``y`` where None.
        regression : predict a value instead of a class.
        standardise : scale numbers to mean 0 and standard deviation 1.
        scale_target : the same for the target of a regression; as ``standardise`` where None.
        imputation : ``"median"`` or ``"mean"`` takes the place of missing numbers.
        sample_weight : how often each row counts in these statistics; once where None.
        rows : the positions of the rows that scales, categories and what takes the place of missing
            numbers come from, where some are held out to calibrate with; all where None. Classes
            are those of all rows.

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
        frame = table.frame[names] if table.named else table.frame
        values_read = y
        if rows is not None:
            frame, weights = frame.iloc[rows], weights[rows]
            values_read = y.iloc[rows] if isinstance(y, pd.Series) else np.asarray(y)[rows]
        target: ClassTarget | ValueTarget
        if regression:
            scaled = standardise if scale_target is None else scale_target
            target = ValueTarget.fit(values_read, weights, scaled)
        else:
            target = ClassTarget.fit(y, classes)
        labels = [_label(name) if table.named else None for name in names]
        kinds = [content(column) for _, column in frame.items()]
        for kind, (_, column), label in zip(kinds, frame.items(), labels, strict=True):
            _refuse_other(kind, column, label)
        numeric = [place for place, kind in enumerate(kinds) if kind in ("numbers", "nothing")]
        values = numbers_of(frame.iloc[:, numeric], [labels[position] for position in numeric])
        places = {position: place for place, position in enumerate(numeric)}
        columns: list[AnyColumn] = []
        for position, (label, kind) in enumerate(zip(labels, kinds, strict=True)):
            if kind == "texts":
                columns.append(CategoricalColumn.fit(label, frame.iloc[:, position]))
            elif kind == "dates":
                columns.append(DateColumn.fit(label, frame.iloc[:, position], weights, standardise))
            else:
                given = values[:, places[position]]
                columns.append(NumericColumn.fit(label, given, weights, imputation, standardise))
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
        return sum(column.width for column in self.columns)

    @property
    def input_names(self) -> tuple[str, ...]:
        """What each input is: numbers, their indicators, categories, and the parts of dates."""
        called = [
            f"column {position}" if column.name is None else column.name
            for position, column in enumerate(self.columns)
        ]
        return tuple(
            called[position] + {"value": "", "category": f"={part}"}.get(what, f" {part}")
            for position, what, part in self.input_keys
        )

    @property
    def input_keys(self) -> tuple[InputKey, ...]:
        """What each input is, so that it is found in a larger schema: see `input_positions`."""
        parts = self._parts
        keys = [InputKey(position, "value", "") for position in parts.numeric]
        keys += [InputKey(position, "missing", "is missing") for position in parts.indicators]
        for position in parts.categorical:
            column = self.columns[position]
            assert isinstance(column, CategoricalColumn)
            keys += [InputKey(position, "category", text) for text in column.categories]
            keys += [InputKey(position, "missing", "is missing")] * column.indicator
        for position in parts.dates:
            keys += [InputKey(position, "date", part) for part in DATE_PARTS]
            keys += [InputKey(position, "missing", "is missing")] * self.columns[position].indicator
        return tuple(keys)

    @property
    def category_inputs(self) -> tuple[tuple[int, int], ...]:
        """Where the inputs of each column of categories begin and end, that of no value included.

        Examples
        --------
        >>> table = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]})
        >>> Schema.fit(table, [0, 1], classes=[0, 1]).category_inputs
        ((1, 3),)
        """
        parts = self._parts
        end = len(parts.numeric) + len(parts.indicators)
        found = []
        for position in parts.categorical:
            begin, end = end, end + self.columns[position].width
            found.append((begin, end))
        return tuple(found)

    def inputs(self, x: Any) -> Tensor:
        """Return a table as the network's inputs, float32 of shape (n, width).

        Warns
        -----
        UnknownCategoriesWarning
            If there are rows of which most categories are unknown.
        """
        frame = self._applied(as_table(x))
        parts = self._parts
        names = [self.columns[position].name for position in parts.numeric]
        values = numbers_of(frame.iloc[:, parts.numeric], names)
        missing = np.isnan(values)
        scaled = scaled_numbers(
            np.where(missing, parts.fill, values), parts.centre, parts.scale, parts.logarithmic
        )
        self._refuse_huge(scaled, values)
        inputs = np.zeros((len(frame), self.width), dtype=np.float32)
        inputs[:, : len(parts.numeric)] = scaled
        end = len(parts.numeric) + len(parts.indicators)
        inputs[:, len(parts.numeric) : end] = missing[:, parts.indicated]
        places = self._places(frame)
        for position in (*parts.categorical, *parts.dates):
            column = self.columns[position]
            begin, end = end, end + column.width
            if isinstance(column, CategoricalColumn):
                column.write(places[position], inputs[:, begin:end])
            elif isinstance(column, DateColumn):
                inputs[:, begin:end] = column.encode(frame.iloc[:, position])
        if any((found == UNKNOWN).any() for found in places.values()):
            warn_of_unknown(self._unknown(places, len(frame)))
        return torch.as_tensor(inputs)

    @property
    def number_count(self) -> int:
        """How many columns a row has."""
        return len(self.columns)

    def reader(self) -> ScaledNumbers | None:
        """Return `inputs` as a module, where all columns are numbers; otherwise None."""
        numeric = [column for column in self.columns if isinstance(column, NumericColumn)]
        return ScaledNumbers(numeric) if len(numeric) == len(self.columns) else None

    def unknown(self, x: Any) -> Unknown:
        """Say which categories of a table are unknown, and so have no say in its predictions.

        Examples
        --------
        >>> schema = Schema.fit(pd.DataFrame({"town": ["Rome", "Oslo"]}), ["yes", "no"])
        >>> found = schema.unknown(pd.DataFrame({"town": ["Paris", "Oslo", None]}))
        >>> found.columns, found.rows.tolist()
        ({'town': 1}, [True, False, False])
        """
        frame = self._applied(as_table(x))
        return self._unknown(self._places(frame), len(frame))

    def grown(self, x: Any, y: Any = None) -> Growth:
        """Make room for the categories and classes that a later task has and this has not.

        New categories follow the column's own, new classes the known ones, each sorted among
        themselves. All else stays: a row that this schema knows is encoded to the same numbers, at
        the positions that are returned, and to zeros elsewhere.

        Parameters
        ----------
        x : the later task's table.
        y : its labels; None where the classes are not to grow.

        Returns
        -------
        schema : the larger schema; this one itself where nothing is new.
        positions : where each of this schema's inputs is among those of the larger one.

        Examples
        --------
        >>> schema = Schema.fit(pd.DataFrame({"town": ["Rome", "Oslo"]}), ["yes", "no"])
        >>> larger, positions = schema.grown(pd.DataFrame({"town": ["Lima"]}), ["perhaps"])
        >>> larger.input_names, larger.classes, positions.tolist()
        (('town=Oslo', 'town=Rome', 'town=Lima'), ('no', 'yes', 'perhaps'), [0, 1])
        """
        frame = self._applied(as_table(x))
        columns = tuple(
            column.grown(frame.iloc[:, position])
            if isinstance(column, CategoricalColumn)
            else column
            for position, column in enumerate(self.columns)
        )
        return self._with(columns, self.target if y is None else self.target.grown(y))

    def united(self, other: Schema) -> Growth:
        """Make room for the categories and classes of another schema that grew from the same one.

        Raises
        ------
        ValueError
            If the two differ in anything but categories and classes.

        Examples
        --------
        >>> schema = Schema.fit(pd.DataFrame({"town": ["Rome", "Oslo"]}), ["yes", "no"])
        >>> one, _ = schema.grown(pd.DataFrame({"town": ["Lima"]}))
        >>> other, _ = schema.grown(pd.DataFrame({"town": ["Bonn"]}))
        >>> one.united(other).schema.input_names
        ('town=Oslo', 'town=Rome', 'town=Lima', 'town=Bonn')
        """
        if len(self.columns) != len(other.columns):
            raise ValueError("The tables differ in their columns, so they cannot become one.")
        columns: list[AnyColumn] = []
        for mine, theirs in zip(self.columns, other.columns, strict=True):
            joined: AnyColumn = mine
            if isinstance(mine, CategoricalColumn) and isinstance(theirs, CategoricalColumn):
                new = mine.vocabulary.new(theirs.categories, f"column {mine.name!r}")
                joined = mine.with_categories(new)
                theirs = theirs.model_copy(update={"categories": mine.categories})
            if mine != theirs:
                raise ValueError(
                    f"The tables differ in the scaling or the kind of the column {mine.name!r}, so "
                    "they cannot become one."
                )
            columns.append(joined)
        return self._with(tuple(columns), self.target.united(other.target))

    def positions_in(self, larger: Schema) -> NDArray[np.intp]:
        """Return where this schema's inputs are in one that grew from it; see `input_positions`."""
        return input_positions(self, larger)

    def _with(self, columns: tuple[AnyColumn, ...], target: ClassTarget | ValueTarget) -> Growth:
        larger = self.model_copy(update={"columns": columns, "target": target})
        # A copy brings along what was computed once.
        larger.__dict__.pop("_parts", None)
        if larger.width > MOST_INPUTS:
            raise ValueError(f"There would be {larger.width:,} inputs, more than {MOST_INPUTS:,}.")
        larger = self if larger == self else larger
        return Growth(larger, input_positions(self, larger))

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
            categorical=self._positions(CategoricalColumn),
            dates=self._positions(DateColumn),
            indicated=indicated,
            centre=np.array([column.centre for _, column in numeric]),
            scale=np.array([column.scale for _, column in numeric]),
            fill=np.array([column.fill for _, column in numeric]),
            logarithmic=np.array([column.logarithmic for _, column in numeric], dtype=bool),
        )

    def _positions(self, kind: type[AnyColumn]) -> list[int]:
        return [place for place, column in enumerate(self.columns) if isinstance(column, kind)]

    def _places(self, frame: pd.DataFrame) -> dict[int, NDArray[np.intp]]:
        """Return where each value of the columns of categories stands, by the column's position."""
        found = {}
        for position in self._parts.categorical:
            column = self.columns[position]
            assert isinstance(column, CategoricalColumn)
            found[position] = column.places(frame.iloc[:, position])
        return found

    def _unknown(self, places: dict[int, NDArray[np.intp]], rows: int) -> Unknown:
        names = {
            position: f"column {position}" if column.name is None else column.name
            for position, column in enumerate(self.columns)
        }
        return counted({names[position]: found for position, found in places.items()}, rows)

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


class InputKey(NamedTuple):
    """What one input is: of which column, and which part of it."""

    column: int
    what: Literal["value", "missing", "category", "date"]
    part: str


@dataclass(frozen=True, eq=False)
class _Parts:
    """Where numbers, their indicators, categories and dates are; the statistics as arrays.

    Compared by identity, since schemas are equal whatever was computed from them meanwhile.
    """

    numeric: list[int]
    indicators: list[int]
    categorical: list[int]
    dates: list[int]
    indicated: NDArray[np.bool_]
    centre: Numbers
    scale: Numbers
    fill: Numbers
    logarithmic: NDArray[np.bool_]


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


def _refuse_other(kind: str, column: pd.Series[Any], name: str | None) -> None:
    if kind != "other":
        return
    called = f"column {column.name if name is None else name!r}"
    for value in distinct(column).values:
        if not isinstance(value, datetime.date | np.datetime64):
            text_of(value, called)
    raise ValueError(f"The {called} holds dates beside other values; expected one of them.")
