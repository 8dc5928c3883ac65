r"""What is remembered of one column, fitted on the first task.

A number x becomes :math:`z = (x - c) / s` with the mean c and standard deviation s of the first
task. Where it is missing, the first task's median takes its place; if the first task had missing
values in that column, an indicator column says where (0 or 1). A column without any in the first
task has no indicator: values missing there later are filled in all the same.

A number that was the same in all of the first task has no standard deviation: s is 1 there, and
what is further than 1 from c counts as its logarithm, z = ±(1 + log|x − c|), so that later tasks in
which it does vary are not all about it, whatever its unit.

A category becomes one column of 0 and 1 per category, in alphabetical order; those that later tasks
add follow (`ibcl.tabular.Schema.grown`). A category that is not known is all zeros, and so is a
missing one, which has an indicator by the same rule as a number.

A date becomes five numbers, each scaled like a number: the year, the month, the day of the week,
the hour, and the days since the first task's first date. A missing date is zero in all of them,
which is the first task's mean, and has an indicator by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ibcl.tabular.calendar_dates import calendar_parts, moment
from ibcl.tabular.categories import MISSING, UNKNOWN, ValueKind, Vocabulary, kind_of, known_text
from ibcl.tabular.values import (
    MISSING_WORDS,
    Numbers,
    as_numbers,
    distinct,
    is_empty,
    short,
    text_of,
)

MOST_CATEGORIES = 1000
"""A column of more different texts than this is an identifier or prose, not a category."""
LARGEST_TEXT = 4096
DATE_PARTS = ("year", "month", "weekday", "hour", "days since the first")
SMALLEST_DAYS = 1 / 24
"""Dates that differ by less than an hour are not stretched further apart than this."""

Text = Annotated[str, Field(max_length=LARGEST_TEXT)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Imputation = Literal["median", "mean"]


class _Remembered(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    name: Text | None
    """None for the columns of an array, which are known by their position."""
    indicator: bool
    """Whether a column of 0 and 1 says where a value is missing."""


class NumericColumn(_Remembered):
    """A column of numbers or truth values: z = (x − centre) / scale, with x = fill if missing."""

    kind: Literal["numeric"] = "numeric"
    centre: Finite
    scale: Annotated[Finite, Field(gt=0)]
    fill: Finite
    logarithmic: bool = False
    """Whether z of more than 1 is 1 + log z instead: of columns without a scale of their own."""

    @property
    def width(self) -> int:
        """Number of inputs it becomes."""
        return 1 + self.indicator

    @classmethod
    def fit(
        cls,
        name: str | None,
        values: Numbers,
        weights: Numbers,
        imputation: Imputation = "median",
        standardise: bool = True,
    ) -> NumericColumn:
        """Take the statistics of a column: NaN is missing, weights count samples.

        Examples
        --------
        >>> NumericColumn.fit("a", np.array([0.0, 2.0, 4.0]), np.ones(3)).centre
        2.0
        """
        missing = np.isnan(values)
        kept, counts = values[~missing], weights[~missing]
        if len(kept) == 0:
            raise ValueError(
                f"The column {name!r} has no value at all in the first task; leave it out."
            )
        unit = _unit(kept)
        middle = _median if imputation == "median" else _mean
        fill = unit * middle(kept / unit, counts)
        centre, scale = (
            standardisation(np.where(missing, fill, values), weights) if standardise else (0.0, 1.0)
        )
        return cls(
            name=name,
            indicator=bool(missing.any()),
            centre=centre,
            scale=scale,
            fill=float(fill),
            logarithmic=standardise and bool((kept == kept[0]).all()),
        )


class CategoricalColumn(_Remembered):
    """A column of texts, one column of 0 and 1 per category."""

    kind: Literal["categorical"] = "categorical"
    categories: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_CATEGORIES)]
    values: ValueKind = "texts"
    """What the first task's values were, by which later ones are recognised."""

    @model_validator(mode="after")
    def _distinct(self) -> CategoricalColumn:
        if len(set(self.categories)) < len(self.categories):
            raise ValueError("categories must differ")
        return self

    @classmethod
    def fit(cls, name: str | None, column: pd.Series[Any]) -> CategoricalColumn:
        """Take the categories of a column.

        Examples
        --------
        >>> CategoricalColumn.fit("a", pd.Series(["q", None, "p"])).categories
        ('p', 'q')
        >>> CategoricalColumn.fit("a", pd.Series([1.0, 2.0], dtype="category")).values
        'numbers'
        """
        what = f"column {name!r}"
        found = distinct(column)
        given = [value for value in found.values if not is_empty(value)]
        values = kind_of(given)
        texts = sorted({known_text(text_of(value, what), values) for value in given})
        _refuse_prose(name, texts)
        missing = bool((found.codes < 0).any()) or len(given) < len(found.values)
        return cls(name=name, indicator=missing, categories=tuple(texts), values=values)

    @property
    def width(self) -> int:
        """Number of inputs it becomes."""
        return len(self.categories) + self.indicator

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Where each category stands."""
        return Vocabulary(self.categories, self.values)

    def places(self, column: pd.Series[Any]) -> NDArray[np.intp]:
        """Return the place of every value among the categories, or less than 0 for none."""
        return self.vocabulary.places(column, f"column {self.name!r}")

    def count_unknown(self, values: Iterable[Any]) -> int:
        """Return how many of some values are neither a category nor missing.

        Examples
        --------
        >>> towns = CategoricalColumn.fit("town", pd.Series(["Rome", "Oslo"]))
        >>> towns.count_unknown(["Oslo", "Paris", None])
        1
        """
        what = f"column {self.name!r}"
        return sum(self.vocabulary.find(value, what) == UNKNOWN for value in values)

    def write(self, places: NDArray[np.intp], inputs: NDArray[Any]) -> None:
        """Set the inputs of values at these places in columns of zeros, the indicator last."""
        known = np.flatnonzero(places >= 0)
        inputs[known, places[known]] = 1
        if self.indicator:
            inputs[:, -1] = places == MISSING

    def grown(self, column: pd.Series[Any]) -> CategoricalColumn:
        """Return the column with the categories that are new in these values behind its own."""
        given = [value for value in distinct(column).values if not is_empty(value)]
        return self.with_categories(self.vocabulary.new(given, f"column {self.name!r}"))

    def with_categories(self, new: Sequence[str]) -> CategoricalColumn:
        """Return the column with further categories behind its own."""
        if not new:
            return self
        _refuse_prose(self.name, new)
        total = len(self.categories) + len(new)
        if total > MOST_CATEGORIES:
            raise ValueError(
                f"The column {self.name!r} would have {total:,} categories with those of this "
                f"task; at most {MOST_CATEGORIES:,} are learnt, so join rare ones to one category."
            )
        return CategoricalColumn(
            name=self.name,
            indicator=self.indicator,
            categories=(*self.categories, *new),
            values=self.values,
        )


class DateColumn(_Remembered):
    """A column of dates or times: z = (part − centre) / scale for each of `DATE_PARTS`."""

    kind: Literal["date"] = "date"
    origin: Finite
    """The first task's first date, in days since 1970."""
    centre: Annotated[tuple[Finite, ...], Field(min_length=5, max_length=5)]
    scale: Annotated[tuple[Annotated[Finite, Field(gt=0)], ...], Field(min_length=5, max_length=5)]

    @classmethod
    def fit(
        cls, name: str | None, column: pd.Series[Any], weights: Numbers, standardise: bool = True
    ) -> DateColumn:
        """Take the statistics of a column of dates; weights count samples.

        Examples
        --------
        >>> DateColumn.fit("a", pd.Series(["2024-01-01", "2024-01-03"]), np.ones(2)).centre
        (2024.0, 1.0, 1.0, 0.0, 1.0)
        """
        parts = _date_parts(column, f"column {name!r}")
        missing = np.isnan(parts[:, 0])
        known, counts = parts[~missing], weights[~missing]
        origin = float(known[:, -1].min())
        known[:, -1] -= origin
        statistics = [
            standardisation(part, counts) if standardise else (0.0, 1.0) for part in known.T
        ]
        scale = [float(deviation) for _, deviation in statistics]
        scale[-1] = max(scale[-1], SMALLEST_DAYS)
        return cls(
            name=name,
            indicator=bool(missing.any()),
            origin=origin,
            centre=tuple(float(mean) for mean, _ in statistics),
            scale=tuple(scale),
        )

    @property
    def width(self) -> int:
        """Number of inputs it becomes."""
        return len(DATE_PARTS) + self.indicator

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the scaled parts of dates, zero where missing, the indicator last."""
        parts = _date_parts(column, f"column {self.name!r}")
        parts[:, -1] -= self.origin
        missing = np.isnan(parts[:, 0])
        scaled = np.where(missing[:, None], 0.0, (parts - self.centre) / self.scale)
        return np.column_stack([scaled, missing]) if self.indicator else scaled


def _refuse_prose(name: str | None, texts: Sequence[str]) -> None:
    longest = max(map(len, texts))
    if len(texts) > MOST_CATEGORIES or longest > LARGEST_TEXT:
        raise ValueError(
            f"The column {name!r} holds {len(texts):,} different texts, of up to {longest:,} "
            f"characters; a column of categories has at most {MOST_CATEGORIES:,} of "
            f"{LARGEST_TEXT:,}. Leave it out, or make numbers of it."
        )


def _date_parts(column: pd.Series[Any], what: str) -> Numbers:
    """Return the parts of dates with NaN where missing; refuse what is no date."""
    if isinstance(column.dtype, pd.DatetimeTZDtype):
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind == "M":
        return calendar_parts(column.to_numpy().astype("datetime64[us]"))
    found = distinct(column)
    each = np.full(len(found.values) + 1, "NaT", dtype="datetime64[us]")
    for position, value in enumerate(found.values):
        if isinstance(value, str) and value.strip().lower() in MISSING_WORDS:
            continue
        known = moment(value)
        if known is None:
            row = found.first_row(position) + 1
            raise ValueError(
                f"The {what} must be dates such as 2024-02-29 or 2024-02-29 12:30:00, but row "
                f"{row} holds {short(value)}."
            )
        each[position] = known
    return calendar_parts(each)[found.codes]


def standardisation(values: Numbers, weights: Numbers) -> tuple[float, float]:
    """Return mean and standard deviation; 1 where values do not vary, as far as they are exact.

    Examples
    --------
    >>> standardisation(np.array([1.0, 3.0]), np.ones(2))
    (2.0, 1.0)
    """
    unit = _unit(values)
    mean = _mean(values / unit, weights)
    deviation = float(np.sqrt(np.average((values / unit - mean) ** 2, weights=weights)))
    scale = unit * deviation
    # That of the smallest numbers there are is rounded to zero.
    return unit * mean, (scale if deviation > 1e-12 and scale else max(1.0, unit * 1e-12))


def scaled_numbers(
    values: Numbers, centre: Numbers, scale: Numbers, logarithmic: NDArray[np.bool_]
) -> Numbers:
    """Return z of numbers without missing ones, shape (rows, columns).

    Examples
    --------
    >>> one = np.ones(1)
    >>> [scaled_numbers(np.array([[x]]), 0 * one, one, one > 0).item() for x in (0.5, -1.0, np.e)]
    [0.5, -1.0, 2.0]
    """
    found: Numbers = values - centre
    found /= scale
    if logarithmic.any():
        own = found[:, logarithmic]
        far = np.maximum(np.abs(own), 1.0)
        found[:, logarithmic] = np.where(far > 1, np.sign(own) * (1 + np.log(far)), own)
    return found


def _unit(values: Numbers) -> float:
    """Return a power of two by which values become of order 1.

    Statistics of values up to 1e308 must not overflow on the way, nor those of tiny ones vanish.
    """
    _, exponent = np.frexp(np.abs(values).max())
    return float(np.ldexp(1.0, exponent - 1))


def _mean(values: Numbers, weights: Numbers) -> float:
    return float(np.average(values, weights=weights))


def _median(values: Numbers, weights: Numbers) -> float:
    """Return the median of samples that count as often as they weigh."""
    order = np.argsort(values)
    reached = np.cumsum(weights[order])
    half = reached[-1] / 2
    below, above = np.searchsorted(reached, half, "left"), np.searchsorted(reached, half, "right")
    last = len(values) - 1
    return float(values[order[min(below, last)]] + values[order[min(above, last)]]) / 2


def numbers_of(frame: pd.DataFrame, names: Sequence[str | None]) -> Numbers:
    """Return columns as float64 with NaN where missing, named in whatever sentence refuses one.

    Examples
    --------
    >>> numbers_of(pd.DataFrame({"a": [1, 2], "b": [True, None]}), ["a", "b"])
    array([[ 1.,  1.],
           [ 2., nan]])
    """
    if all(isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in frame.dtypes):
        values = frame.to_numpy(dtype=np.float64)
        if not np.isinf(values).any():
            return values
    values = np.empty(frame.shape)
    for position, name in enumerate(names):
        column = frame.iloc[:, position]
        what = f"column {column.name if name is None else name!r}"
        values[:, position] = as_numbers(column, what)
    return values
