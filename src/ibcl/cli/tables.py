"""CSV and Parquet files in and out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

_READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": pd.read_csv,
    ".parquet": pd.read_parquet,
}
_ENDINGS = " or ".join(_READERS)


def read_table(path: Path) -> pd.DataFrame:
    """Read a file with one row a sample."""
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path} must end in {_ENDINGS}")
    if not path.is_file():
        raise ValueError(f"{path} is not a file that exists")
    try:
        frame = reader(path)
    except PermissionError:
        raise
    # Readers raise many kinds of errors on damaged files, and all mean the same to the user.
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path} cannot be read as a {path.suffix[1:]} file: {reason}") from None
    frame.columns = frame.columns.map(str)
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"{path} has more than one column named {repeated[0]!r}")
    if frame.empty:
        raise ValueError(f"{path} has no rows")
    return frame


def check_writable(path: Path) -> None:
    """Refuse an output file before the work is done, not after."""
    if path.suffix.lower() not in _READERS:
        raise ValueError(f"The output {path} must end in {_ENDINGS}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"The output {path} is in a folder that does not exist")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a file, CSV or Parquet by its ending."""
    check_writable(path)
    if path.suffix.lower() == ".csv":
        frame.to_csv(path, index=False)
    else:
        frame.to_parquet(path, index=False)


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain Python values."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
