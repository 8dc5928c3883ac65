"""Dates and times as moments of universal time, whatever they came in."""

from __future__ import annotations

import datetime
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

Moments = NDArray[np.datetime64]

_DATE = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"([ T]\d{2}:\d{2}(:\d{2}([.,]\d{1,9})?)?(Z|[+-]\d{2}(:?\d{2})?)?)?"
)


def is_date_text(text: str) -> bool:
    """Whether a text is a date as of ISO 8601, with a time or without, and blanks around or none.

    Examples
    --------
    >>> is_date_text("2024-02-29"), is_date_text("2023-02-29"), is_date_text("1/2/2024")
    (True, False, False)
    """
    return moment(text) is not None


def moment(value: Any) -> np.datetime64 | None:
    """Return the moment that a value names; None where it names none.

    What says how far it is from universal time is taken there; what does not stays as written.

    Examples
    --------
    >>> moment("2024-02-29T12:00:00+01:00"), moment(datetime.date(2024, 2, 29))
    (np.datetime64('2024-02-29T11:00:00.000000'), np.datetime64('2024-02-29T00:00:00.000000'))
    """
    if isinstance(value, str):
        written = value.strip()
        if _DATE.fullmatch(written) is None:
            return None
        try:
            value = datetime.datetime.fromisoformat(written)
        except ValueError:
            return None
    if isinstance(value, np.datetime64):
        exact: np.datetime64 = value.astype("datetime64[us]")
        return exact
    if isinstance(value, datetime.datetime):
        if value.tzinfo is not None:
            try:
                value = value.astimezone(datetime.UTC).replace(tzinfo=None)
            except OverflowError:
                return None
    elif not isinstance(value, datetime.date):
        return None
    return np.datetime64(value, "us")


def calendar_parts(moments: Moments) -> NDArray[np.float64]:
    """Return year, month, day of the week (Monday is 0), hour, and days since 1970, as columns.

    Examples
    --------
    >>> calendar_parts(np.array(["2024-02-29T12:00"], dtype="datetime64[us]")).tolist()
    [[2024.0, 2.0, 3.0, 12.0, 19782.5]]
    """
    missing = np.isnat(moments)
    known = np.where(missing, np.datetime64(0, "us"), moments).astype("datetime64[us]")
    days = known.astype("datetime64[D]")
    since = known.astype(np.int64) / 86_400e6
    columns = [
        known.astype("datetime64[Y]").astype(np.int64) + 1970,
        known.astype("datetime64[M]").astype(np.int64) % 12 + 1,
        (days.astype(np.int64) + 3) % 7,
        (known - days).astype("timedelta64[h]").astype(np.int64),
        since,
    ]
    parts = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns])
    parts[missing] = np.nan
    return parts
