"""Which columns of a table to learn from, where none are named."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ibcl.tabular.columns import LARGEST_TEXT, MOST_CATEGORIES
from ibcl.tabular.tables import as_table
from ibcl.tabular.values import content, distinct, is_empty, number_in, short

MANY_TEXTS = 20
"""More different texts than this are no categories where most rows to come hold none of them."""
INDEX = "ibcl: columns that were an index"
"""Key of a frame's `attrs` that names the columns which were its index where it was written."""
# What pandas calls a column without a name, and what Parquet files call an index without one.
_UNNAMED = re.compile(r"\s*|Unnamed: \d+(\.\d+)*|__index_level_\d+__")


def has_no_name(column: str) -> bool:
    """Whether a column has the name of one without a name, such as a written index.

    Examples
    --------
    >>> [has_no_name(name) for name in ("Unnamed: 0", "__index_level_0__", " ", "age")]
    [True, True, True, False]
    """
    return _UNNAMED.fullmatch(column) is not None


def usable_columns(frame: pd.DataFrame) -> tuple[list[str], dict[str, str]]:
    """Choose the columns to learn from where none are named.

    Numbers, truth values, dates and categories are used. Left out are columns without a name (such
    as the index that pandas writes), those without any value, lists, records and durations, and
    texts that look like identifiers or prose: more than 1,000 different ones, or more than 20 of
    which most stand there once, so that most rows to come would hold one that was never seen (the
    estimate of Good and Turing).

    Returns
    -------
    used : names of the columns, in the frame's order.
    left_out : the others, each with its reason.

    Examples
    --------
    >>> usable_columns(pd.DataFrame({"Unnamed: 0": [0], "a": [1], "b": [[1, 2]]}))
    (['a'], {'Unnamed: 0': 'no name, like a written index', 'b': 'values of kind list'})
    """
    used: list[str] = []
    left_out: dict[str, str] = {}
    index = frame.attrs.get(INDEX, ())
    for name, column in as_table(frame).frame.items():
        reason = "a written index" if name in index else _reason_against(str(name), column)
        if reason is None:
            used.append(str(name))
        else:
            left_out[str(name)] = reason
    if not used:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:5])
        raise ValueError(
            "There is no column beside the label to learn from: none of numbers, truth values, "
            f"dates or categories{f' ({reasons})' if reasons else ''}."
        )
    return used, left_out


def numbers_as_texts(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """Find columns of texts of which most look like numbers.

    Numbers in another notation than that of programs (decimal commas, thousands apart, percent
    signs, currencies), or a few words between numbers, such as "?": such a column is one of
    categories, and a user who meant numbers is warned.

    Returns
    -------
    One of the texts that is no number, by the name of the column.

    Examples
    --------
    >>> frame = pd.DataFrame({"a": ["1,5", "2", "3"], "b": ["x", "1,5", "y"], "c": ["1", "2", "?"]})
    >>> numbers_as_texts(frame, ["a", "b", "c"])
    {'a': '1,5', 'c': '?'}
    """
    found = {}
    for name in names:
        if content(frame[name]) != "texts" or isinstance(frame[name].dtype, pd.CategoricalDtype):
            continue
        odd = _odd_among_numbers(distinct(frame[name]).values)
        if odd is not None:
            found[name] = odd
    return found


def _new_texts(codes: NDArray[np.intp]) -> float:
    """Estimate how probably the next value is one that was never seen, as Good and Turing do.

    It is the share of the values that stand there once.
    """
    counts = np.bincount(codes[codes >= 0])
    return float((counts == 1).sum() / counts.sum())


def _odd_among_numbers(values: Sequence[Any]) -> str | None:
    """Return a text that is no number among values of which most look like numbers."""
    given = [value for value in values if not is_empty(value)]
    odd = [value for value in given if isinstance(value, str) and number_in(value) is None]
    others = [text for text in odd if not _NUMBER.fullmatch(text.strip())]
    if not odd or 2 * len(others) >= len(given):
        return None
    return (others or odd)[0]


# Digits with a decimal point or comma, or in groups of three, and signs before or behind them.
_NUMBER = re.compile(
    r"[-+]?\s?[$€£¥]?\s?(\d+([.,]\d+)?|\d{1,3}([.,'\s]\d{3})+([.,]\d+)?)\s?[%$€£¥]?"
)


def _reason_against(name: str, column: pd.Series[Any]) -> str | None:
    if has_no_name(name):
        return "no name, like a written index"
    kind = content(column)
    if kind == "nothing":
        return "no values"
    if kind == "other":
        values = distinct(column).values
        odd = next((v for v in values if not isinstance(v, str | int | float)), values[0])
        return f"values of kind {type(odd).__name__}"
    if kind != "texts":
        return None
    found = distinct(column)
    texts = [value for value in found.values if not is_empty(value)]
    if len(texts) > MOST_CATEGORIES or (len(texts) > MANY_TEXTS and _new_texts(found.codes) > 0.5):
        odd = _odd_among_numbers(texts)
        such = f"{short(texts[0])}" if odd is None else f"{short(odd)}, most of them numbers"
        return f"{len(texts):,} different texts such as {such}"
    if any(isinstance(text, str) and len(text) > LARGEST_TEXT for text in texts):
        return f"texts of more than {LARGEST_TEXT:,} characters"
    return None
