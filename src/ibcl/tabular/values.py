"""Single values, whatever they came in: one reading of them, everywhere.

*Empty is missing, text is text.* None, NaN, NaT and the empty text are missing. Any other text is
itself, also where it reads "NA", "None" or "null"; only in a column of numbers or dates, where text
can mean nothing else, do the usual words for a missing value (`MISSING_WORDS`) stand for one.

What Python, pandas, JSON and CSV files write differently is one value: 1 and 1.0, ``"1"`` and
``"1.0"``; True, ``"True"``, ``"true"`` and ``"TRUE"``. A truth value is no number: True and 1 are
two values. ``"01"`` and ``"1.50"`` are not how anything writes a number, so as texts they stay what
they are.
"""

from __future__ import annotations

import datetime
import numbers
from collections.abc import Hashable
from decimal import Decimal
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import infer_dtype, is_bool_dtype, is_complex_dtype, is_numeric_dtype

from ibcl.tabular.calendar_dates import is_date_text

Numbers = NDArray[np.float64]

MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none", "nat", "#n/a", "<na>"})
"""Texts that stand for a missing value in a column of numbers or dates, whatever their case, and
with or without spaces around them."""
TRUTH_WORDS = {"True": True, "true": True, "TRUE": True, "False": False, "false": False}
TRUTH_WORDS["FALSE"] = False
_NUMBERS = (numbers.Real, Decimal, np.bool_)
_DATES = (datetime.date, np.datetime64)

Content = Literal["numbers", "texts", "dates", "nothing", "other"]


class Distinct(NamedTuple):
    """The different values of a column, and which one each row has."""

    codes: NDArray[np.intp]
    """Positions in ``values``; -1 where the value is missing."""
    values: list[Any]

    def first_row(self, position: int) -> int:
        """Return the first row that holds a value."""
        return int(np.flatnonzero(self.codes == position)[0])


def distinct(column: pd.Series[Any]) -> Distinct:
    """Find the different values of a column, by type as well: True, 1 and ``"1"`` are three.

    Examples
    --------
    >>> distinct(pd.Series([True, 1, None, "1", True], dtype=object))
    Distinct(codes=array([ 0,  1, -1,  2,  0]), values=[True, 1, '1'])
    """
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = column.cat.codes.to_numpy().astype(np.intp)
        used, codes_of_used = np.unique(codes[codes >= 0], return_inverse=True)
        codes[codes >= 0] = codes_of_used
        return Distinct(codes, [column.cat.categories[code] for code in used])
    if column.dtype == object and infer_dtype(column, skipna=True) != "string":
        return _distinct_objects(column.to_numpy())
    try:
        codes, found = pd.factorize(column)
    except (TypeError, ValueError, NotImplementedError):
        # Half a character, or lists and records in a column of Arrow's.
        return _distinct_objects(column.astype(object).to_numpy())
    return _without_missing(codes.astype(np.intp), list(found))


def _distinct_objects(values: NDArray[Any]) -> Distinct:
    places: dict[Any, int] = {}
    found: list[Any] = []
    codes = np.empty(len(values), dtype=np.intp)
    for row, value in enumerate(values):
        try:
            key = type(value), value
            code = places.get(key)
        except TypeError:
            key = type(value), id(value)
            code = places.get(key)
        if code is None:
            code = -1 if is_missing(value) else len(found)
            if code >= 0:
                found.append(value)
            places[key] = code
        codes[row] = code
    return Distinct(codes, found)


def _without_missing(codes: NDArray[np.intp], found: list[Any]) -> Distinct:
    """Take out what a dtype of its own has for NaN."""
    missing = np.array([is_missing(value) for value in found], dtype=bool)
    if not missing.any():
        return Distinct(codes, found)
    places = np.append(np.where(missing, -1, np.cumsum(~missing) - 1), -1)
    return Distinct(places[codes], [value for value in found if not is_missing(value)])


def is_missing(value: Any) -> bool:
    """Whether a value is missing by its type; the empty text is so by its meaning.

    Examples
    --------
    >>> is_missing(None), is_missing(float("nan")), is_missing(0), is_missing("NA")
    (True, True, False, False)
    """
    if value is None or value is pd.NA or value is pd.NaT:
        return True
    if isinstance(value, float | np.floating):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    return isinstance(value, np.datetime64 | np.timedelta64) and bool(np.isnat(value))


def is_empty(value: Any) -> bool:
    """Whether a value is the empty text.

    Examples
    --------
    >>> is_empty(""), is_empty(" "), is_empty([])
    (True, False, False)
    """
    return isinstance(value, str) and not value


def content(column: pd.Series[Any]) -> Content:
    """Say what a column holds; numbers of the category dtype are categories and count as texts.

    Texts that are all dates as of ISO 8601 (``2024-02-29``, ``2024-02-29 12:30:00+01:00``) are
    dates. Missing values, and beside numbers or dates the words for them, do not matter.

    Examples
    --------
    >>> content(pd.Series([1, None, True], dtype=object)), content(pd.Series(["a", None]))
    ('numbers', 'texts')
    >>> content(pd.Series(["2024-02-29"])), content(pd.Series([[1, 2]]))
    ('dates', 'other')
    """
    dtype = column.dtype
    categories = isinstance(dtype, pd.CategoricalDtype)
    if not categories and not is_complex_dtype(dtype):
        if is_bool_dtype(dtype) or is_numeric_dtype(dtype):
            return "nothing" if bool(column.isna().all()) and len(column) else "numbers"
        if isinstance(dtype, pd.DatetimeTZDtype) or getattr(dtype, "kind", "") == "M":
            return "nothing" if bool(column.isna().all()) else "dates"
    values = [value for value in distinct(column).values if not is_empty(value)]
    texts = [value for value in values if isinstance(value, str)]
    others = [value for value in values if not isinstance(value, str)]
    if not values:
        return "nothing"
    if not others:
        return "dates" if all(map(is_date_text, texts)) else "texts"
    if all(isinstance(value, _DATES) for value in others):
        return "dates" if all(_is_date_or_missing(text) for text in texts) else "other"
    if not all(isinstance(value, _NUMBERS) for value in others):
        return "other"
    if categories or any(text.strip().lower() not in MISSING_WORDS for text in texts):
        return "texts"
    return "numbers"


def _is_date_or_missing(text: str) -> bool:
    return text.strip().lower() in MISSING_WORDS or is_date_text(text)


def number_in(text: str) -> float | None:
    """Return the number a text is, None where it is none.

    Examples
    --------
    >>> number_in("1e3"), number_in(" 01 "), number_in("1_000"), number_in("nan"), number_in("x")
    (1000.0, 1.0, None, None, None)
    """
    if "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number == number else None


def as_numbers(column: pd.Series[Any], what: str) -> Numbers:
    """Return a column as float64, NaN where a value is missing; refuse what is no finite number.

    Parameters
    ----------
    what : how a sentence calls the column, such as ``"column 'age'"``.

    Examples
    --------
    >>> as_numbers(pd.Series(["1.5", None, "", "NA", "true"]), "column 'a'")
    array([1.5, nan, nan, nan, 1. ])
    """
    if is_complex_dtype(column.dtype):
        raise ValueError(f"The {what} holds complex numbers, but must be real.")
    plain = not isinstance(column.dtype, pd.CategoricalDtype)
    if plain and (is_bool_dtype(column.dtype) or is_numeric_dtype(column.dtype)):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        found = distinct(column)
        each = np.full(len(found.values) + 1, np.nan)
        for position, value in enumerate(found.values):
            number = _number(value)
            if number is None:
                row = found.first_row(position) + 1
                raise ValueError(f"The {what} must be numbers, but row {row} holds {short(value)}.")
            each[position] = number
        values = each[found.codes]
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        raise ValueError(
            f"The {what} holds a value that is not finite in row {infinite[0] + 1}; correct it or "
            "leave the row out."
        )
    return values


def _number(value: Any) -> float | None:
    """Return a value as a number, NaN where it stands for a missing one, None where it is none."""
    if isinstance(value, str):
        word = value.strip()
        if word.lower() in MISSING_WORDS:
            return float("nan")
        return float(TRUTH_WORDS[word]) if word in TRUTH_WORDS else number_in(word)
    if isinstance(value, _NUMBERS):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    return None


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
        # The shortest text of single precision is that of the number which was meant.
        number = float(str(value)) if isinstance(value, np.float32 | np.float16) else float(value)
        if not np.isfinite(number):
            raise ValueError(f"The {what} holds a value that is not finite.")
        return str(int(number)) if number.is_integer() else repr(number)
    if not isinstance(value, str):
        raise ValueError(
            f"The {what} holds {short(value)}, of kind {type(value).__name__}; expected numbers "
            "or text."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(
            f"The {what} holds {short(value)}, which is not valid text and could not be read back "
            "from a file."
        ) from None
    return str(value)


def canonical(text: str) -> str:
    """Return one text for all the ways in which programs write the same value.

    Examples
    --------
    >>> canonical("1.0"), canonical("1e+20"), canonical("True"), canonical("01"), canonical("NA")
    ('1', '100000000000000000000', 'true', '01', 'NA')
    """
    if text in TRUTH_WORDS:
        return text.lower()
    if text[:1] in _BEGINS_A_NUMBER:
        number = number_in(text)
        if number is not None and np.isfinite(number) and repr(number) == text:
            return text_of(number, "value")
    return text


# Not the empty text, which would be in any string.
_BEGINS_A_NUMBER = frozenset("-0123456789")


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


def short(value: Any) -> str:
    """Write a value in a sentence, and no more of it than a person reads.

    Examples
    --------
    >>> short("x"), len(short("x" * 99))
    ("'x'", 60)
    """
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
