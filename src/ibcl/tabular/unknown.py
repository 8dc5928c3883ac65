"""Categories of a table that are unknown, and a word about them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.tabular.categories import MISSING, UNKNOWN


class UnknownCategoriesWarning(UserWarning):
    """Most categories of some rows are unknown, so that they have no say in the predictions."""


class Unknown(NamedTuple):
    """Unknown categories of a table."""

    columns: dict[str, int]
    """Number of unknown values by column, of those columns that have some."""
    rows: NDArray[np.bool_]
    """Whether more than half of the categories that a row gives are unknown."""


def counted(places: Mapping[str, NDArray[np.intp]], rows: int) -> Unknown:
    """Count unknown values, given where each value stands, by column.

    Examples
    --------
    >>> counted({"town": np.array([0, UNKNOWN, MISSING])}, 3).rows.tolist()
    [False, True, False]
    """
    unknown, given = np.zeros(rows, dtype=int), np.zeros(rows, dtype=int)
    columns = {}
    for name, found in places.items():
        unknown += found == UNKNOWN
        given += found != MISSING
        count = int((found == UNKNOWN).sum())
        if count:
            columns[name] = count
    return Unknown(columns, 2 * unknown > given)


def warn_of_unknown(unknown: Unknown) -> None:
    """Warn if there are rows of which most categories are unknown."""
    affected = int(unknown.rows.sum())
    if affected:
        names = ", ".join(f"{name!r} ({count:,})" for name, count in unknown.columns.items())
        warnings.warn(
            f"Most categories of {affected:,} of {len(unknown.rows):,} rows were never learnt, so "
            f"their predictions do not depend on them; unknown values by column: {names}.",
            UnknownCategoriesWarning,
            stacklevel=3,
        )
