"""Single columns, whatever they came in: as numbers with NaN where missing, or as texts."""

from __future__ import annotations

import numbers
from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_bool_dtype, is_complex_dtype, is_numeric_dtype

Numbers = NDArray[np.float64]

# What pandas calls the contents of a column without a type of its own.
_OF_NUMBERS = {"integer", "floating", "mixed-integer-float", "decimal", "boolean"}
_OF_SEVERAL = {"mixed-integer", "mixed"}
_OF_DATES = {"datetime64", "datetime", "date", "timedelta64", "timedelta", "time", "period"}
_NUMBERS = (numbers.Real, Decimal, np.bool_)


def content(column: pd.Series[Any]) -> Literal["numbers", "texts", "dates", "nothing"]:
    """Say what a column holds; columns of the category dtype count as texts.

    Examples
    --------
    >>> content(pd.Series([1, None, True], dtype=object)), content(pd.Series(["a", None]))
    ('numbers', 'texts')
    """
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biu":
        return "numbers"
    if column.isna().all():
        return "nothing"
    if isinstance(column.dtype, pd.CategoricalDtype):
        return "texts"
    if is_complex_dtype(column.dtype):
        raise ValueError(f"The column {column.name!r} holds complex numbers, which have no order.")
    if is_bool_dtype(column.dtype) or is_numeric_dtype(column.dtype):
        return "numbers"
    found = infer_dtype(column, skipna=True)
    if found in _OF_DATES:
        return "dates"
    if found in _OF_NUMBERS:
        return "numbers"
    if found in _OF_SEVERAL:
        mixed = all(isinstance(value, _NUMBERS) for value in column.dropna())
        return "numbers" if mixed else "texts"
    if found == "string":
        return "texts"
    raise ValueError(
        f"The column {column.name!r} holds values of kind {found}; expected numbers or text."
    )


def as_numbers(column: pd.Series[Any], what: str) -> Numbers:
    """Return a column as float64, NaN where a value is missing; refuse what is no finite number.

    Parameters
    ----------
    what : how a sentence calls the column, such as ``"column 'age'"``.

    Examples
    --------
    >>> as_numbers(pd.Series(["1.5", None]), "column 'a'")
    array([1.5, nan])
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        column = column.astype(column.cat.categories.dtype)
    if is_complex_dtype(column.dtype):
        raise ValueError(f"The {what} holds complex numbers, but must be real.")
    if is_bool_dtype(column.dtype) or is_numeric_dtype(column.dtype):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        missing = column.isna().to_numpy(dtype=bool)
        values = np.full(len(column), np.nan)
        for row in np.flatnonzero(~missing):
            values[row] = _number(column.iloc[row], what, int(row))
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"The {what} holds a value that is not finite in row {infinite[0] + 1}; correct it or "
            "leave the row out."
        )
    return values


def _number(value: Any, what: str, row: int) -> float:
    if isinstance(value, (*_NUMBERS, str)):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = float("nan")
        if number == number:
            return number
    raise ValueError(f"The {what} must be numbers, but row {row + 1} holds {_short(value)}.")


def as_texts(column: pd.Series[Any], what: str) -> NDArray[np.object_]:
    """Return a column as texts, None where a value is missing.

    The same value has the same text wherever it was read from: 1, 1.0 and ``"1"`` are ``"1"``.

    Examples
    --------
    >>> as_texts(pd.Series([1.0, None]), "column 'a'").tolist()
    ['1', None]
    """
    values = column.astype(object).to_numpy()
    try:
        codes, found = pd.factorize(values)
    except (TypeError, UnicodeEncodeError):
        # Something in it is no value; the sentence about it is the same as for a single one.
        codes, found = np.arange(len(values)), values
    texts = np.array([*(text_of(value, what) for value in found), None], dtype=object)
    result: NDArray[np.object_] = texts[codes]
    return result


def text_of(value: Hashable, what: str) -> str:
    """Return the text that stands for a value: a truth value, a number, or text itself.

    Examples
    --------
    >>> text_of(True, "label"), text_of(2.0, "label"), text_of(0.5, "label"), text_of("x", "label")
    ('true', '2', '0.5', 'x')
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real | Decimal):
        number = float(value)
        if not np.isfinite(number):
            raise ValueError(f"The {what} holds a value that is not finite.")
        return str(int(number)) if number.is_integer() else repr(number)
    if not isinstance(value, str):
        raise ValueError(
            f"The {what} holds {_short(value)}, of kind {type(value).__name__}; expected numbers "
            "or text."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"The {what} holds {_short(value)}, which is not valid text and could not be read back "
            "from a file."
        ) from None
    return str(value)


def listing(names: Any, most: int = 12) -> str:
    """List names in a sentence, and no more than a person reads.

    Examples
    --------
    >>> listing(["a", "b"]), listing(range(99), 3)
    ("'a', 'b'", '0, 1, 2 and 96 more')
    """
    every = list(names)
    text = ", ".join(map(repr, every[:most]))
    return text if len(every) <= most else f"{text} and {len(every) - most:,} more"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
