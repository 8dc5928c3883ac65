r"""What is remembered of one column, fitted on the first task.

A number x becomes :math:`z = (x - c) / s` with the mean c and standard deviation s of the first
task. Where it is missing, the first task's median takes its place; if the first task had missing
values in that column, an indicator column says where (0 or 1). A column without any in the first
task has no indicator: values missing there later are filled in all the same.

A category becomes one column of 0 and 1 a category of the first task, in alphabetical order. A
category that the first task did not have is all zeros, and so is a missing one, which has an
indicator by the same rule as a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ibcl.tabular.values import Numbers, as_numbers, as_texts

MOST_CATEGORIES = 1000
"""A column of more different texts than this is an identifier or prose, not a category."""
LARGEST_TEXT = 4096

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
            name=name, indicator=bool(missing.any()), centre=centre, scale=scale, fill=float(fill)
        )


class CategoricalColumn(_Remembered):
    """A column of texts, one column of 0 and 1 a category."""

    kind: Literal["categorical"] = "categorical"
    categories: Annotated[tuple[Text, ...], Field(min_length=1, max_length=MOST_CATEGORIES)]

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
        """
        texts = as_texts(column, f"column {name!r}")
        found = sorted({text for text in texts if text is not None})
        if len(found) > MOST_CATEGORIES or max(map(len, found)) > LARGEST_TEXT:
            raise ValueError(
                f"The column {name!r} holds {len(found):,} different texts, of up to "
                f"{max(map(len, found)):,} characters; a column of categories has at most "
                f"{MOST_CATEGORIES:,} of {LARGEST_TEXT:,}. Leave it out, or make numbers of it."
            )
        missing = bool(pd.isna(texts).any())
        return cls(name=name, indicator=missing, categories=tuple(found))

    @property
    def width(self) -> int:
        """Number of columns it becomes."""
        return len(self.categories) + self.indicator

    def encode(self, column: pd.Series[Any]) -> Numbers:
        """Return the columns of 0 and 1, the indicator last."""
        texts = as_texts(column, f"column {self.name!r}")
        codes = pd.Index(self.categories).get_indexer(pd.Index(texts, dtype=object))
        encoded = np.zeros((len(column), self.width))
        known = np.flatnonzero(codes >= 0)
        encoded[known, codes[known]] = 1
        if self.indicator:
            encoded[:, -1] = pd.isna(texts)
        return encoded


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
    return unit * mean, (unit * deviation if deviation > 1e-12 else max(1.0, unit * 1e-12))


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
