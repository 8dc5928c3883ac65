"""CSV files, whole or block by block, read without guessing.

A file has names in its first line that is not empty, and one row per line after it. Cells are
delimited by commas; where the first line has none outside of quotations, by the semicolons, tabs or
bars that it has; a line ``sep=;`` before the names, as spreadsheets write it, says so itself. Every
row has as many cells as there are names; further cells must be empty, as where all lines end in a
delimiter. What a column is, is decided for the column as a whole: whole numbers, numbers or truth
values where every cell is one, empty, or a word for a missing number beside them; texts otherwise,
exactly as they are written. The empty cell is missing.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_integer_dtype, is_numeric_dtype

from ibcl.tabular.values import MISSING_WORDS, TRUTH_WORDS, distinct, number_in

BLOCK_ROWS = 65_536
DELIMITERS = ";\t|"
"""What delimits cells where there is no comma."""
_SEPARATOR = re.compile(rf"sep=([,{DELIMITERS}])")

Kind = Literal["numbers", "booleans", "words", "nothing", "texts"]
"""What cells are; ``words`` are such as NA and inf, which mean something else beside numbers or
texts."""


class _Cells(NamedTuple):
    kind: Kind
    values: pd.Series[Any]


class _Shape(NamedTuple):
    """What the first line says, and where the rows begin."""

    names: list[str]
    lines: int
    """Lines up to the first row, where a quotation over several lines counts as one."""
    cells: int
    """The most cells that a row has; those beyond the names are empty."""
    delimiter: str


def read_csv(path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
    r"""Read a file with one row per sample.

    Parameters
    ----------
    texts : columns whose values are texts, also where they look like numbers.

    Raises
    ------
    ValueError
        If two columns have one name, if a row has more or fewer cells than there are names, or if
        a quotation does not end.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "t.csv"
    ...     _ = path.write_text("a,b,c\n1,NA,NA\n,x,2.5\n")
    ...     read_csv(path).to_dict("list")
    {'a': [1.0, nan], 'b': ['NA', 'x'], 'c': [nan, 2.5]}
    """
    shape = _checked_shape(path)
    found: dict[str, list[_Cells]] = {name: [] for name in shape.names}
    for block in _blocks(path, shape, frozenset(texts), BLOCK_ROWS):
        for name, parts in found.items():
            parts.append(_cells(block[name], name in texts))
    # Where a column proves to hold text only after some blocks of numbers, these are read again.
    changed = [
        name
        for name, parts in found.items()
        if _kind(parts) == "texts" and any(part.kind != "texts" for part in parts)
    ]
    if changed:
        for name in changed:
            found[name] = []
        for block in _blocks(path, shape, frozenset(changed), BLOCK_ROWS, only=changed):
            for name in changed:
                found[name].append(_cells(block[name], as_texts=True))
    return pd.DataFrame({name: _joined(parts) for name, parts in found.items() if parts})


def csv_blocks(
    path: Path, texts: Collection[str] = (), rows: int = BLOCK_ROWS
) -> Generator[pd.DataFrame, None, None]:
    """Read a file block by block, so that it need not fit into memory.

    What a column is, is decided in each block for itself, unless it is among the texts. A
    `ibcl.tabular.Schema` reads either the same.
    """
    shape = _checked_shape(path)
    with closing(_blocks(path, shape, frozenset(texts), rows)) as blocks:
        for block in blocks:
            yield pd.DataFrame(
                {name: _block_column(block[name], name in texts) for name in shape.names}
            )


def _blocks(
    path: Path,
    shape: _Shape,
    texts: frozenset[str],
    rows: int,
    only: Sequence[str] | None = None,
) -> Generator[pd.DataFrame, None, None]:
    """Read blocks of a checked file, in which nothing but the empty cell is missing."""
    if not shape.names:
        return
    called = [*shape.names, *(f"cell {place}" for place in range(len(shape.names), shape.cells))]
    try:
        reader = pd.read_csv(
            path,
            sep=shape.delimiter,
            header=None,
            skiprows=shape.lines,
            # By position, since a name could be that of a cell beyond the names.
            names=list(range(shape.cells)),
            usecols=[shape.names.index(name) for name in only] if only else None,
            index_col=False,
            dtype={place: object for place, name in enumerate(shape.names) if name in texts},
            keep_default_na=False,
            na_values=[""],
            chunksize=rows,
            low_memory=False,
            encoding="utf-8",
            **_EXACT,
        )
    except pd.errors.EmptyDataError:
        return
    with reader:
        for block in (each for each in reader if len(each)):
            yield block.rename(columns=dict(enumerate(called))).reset_index(drop=True)


# From pandas 3 on, numbers are read to the last bit without being asked for.
_EXACT: dict[str, Any] = (
    {"float_precision": "round_trip"} if int(pd.__version__.split(".")[0]) < 3 else {}
)


def _block_column(column: pd.Series[Any], as_texts: bool) -> pd.Series[Any]:
    cells = _cells(column, as_texts)
    return (_cells(column, as_texts=True) if _kind([cells]) == "texts" else cells).values


def _cells(column: pd.Series[Any], as_texts: bool) -> _Cells:
    """Say what the cells of a block are, and read words beside numbers as missing."""
    if as_texts:
        return _Cells("texts", column.astype(object))
    if column.isna().all():
        return _Cells("nothing", column.astype(np.float64))
    if is_bool_dtype(column.dtype):
        return _Cells("booleans", column)
    if is_numeric_dtype(column.dtype):
        finite = is_integer_dtype(column.dtype) or bool(np.isfinite(column).any())
        return _Cells("numbers" if finite else "words", column)
    return _by_word(column)


def _by_word(column: pd.Series[Any]) -> _Cells:
    """Look at each different cell, where not all are plain numbers or truth values."""
    found = distinct(column)
    values: list[Any] = []
    for cell in found.values:
        # Truth values beside an empty cell, and whole numbers of many digits, come as such.
        word = cell.strip() if isinstance(cell, str) else str(cell)
        if word in TRUTH_WORDS:
            values.append(TRUTH_WORDS[word])
        elif word.lower() in MISSING_WORDS:
            values.append(None)
        else:
            number = number_in(word)
            if number is None:
                return _Cells("texts", column.astype(object))
            values.append(number)
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) > 1:
        return _Cells("texts", column.astype(object))
    each = np.empty(len(values) + 1, dtype=object if kinds == {bool} else np.float64)
    each[:] = [*values, None]
    # "inf" is a number beside others only.
    finite = any(value is not None and np.isfinite(value) for value in values)
    kind: Kind = "booleans" if kinds == {bool} else "numbers" if finite else "words"
    return _Cells(kind, pd.Series(each[found.codes]))


def _kind(parts: Sequence[_Cells]) -> Kind:
    """Say what a column is as a whole."""
    kinds = {part.kind for part in parts} - {"nothing"}
    if not kinds:
        return "nothing"
    for kind in ("numbers", "booleans"):
        if kinds <= {kind, "words"} and kind in kinds:
            return kind
    return "texts"


def _joined(parts: Sequence[_Cells]) -> pd.Series[Any]:
    series = [part.values for part in parts]
    if len({part.dtype for part in series}) == 1:
        return pd.concat(series, ignore_index=True)
    of_objects = _kind(parts) in ("booleans", "texts")
    values = [part.to_numpy(dtype=object if of_objects else np.float64) for part in series]
    return pd.Series(np.concatenate(values))


def _checked_shape(path: Path) -> _Shape:
    """Read the names and see that every row has a cell for each, and nothing beyond them."""
    delimiter, lines, header = _beginning(path)
    shape = _Shape(_names(header), lines, len(header), delimiter)
    most = shape.cells
    for row, cells in _odd_rows(path, shape):
        most = max(most, len(cells))
        _refuse_unfitting(cells, shape.names, row)
    return shape._replace(cells=most)


def _beginning(path: Path) -> tuple[str, int, list[str]]:
    """Return what delimits cells, how many lines end with the names, and the names."""
    found: dict[str, tuple[int, list[str]]] = {}
    refusal = None
    for mark in "," + DELIMITERS:
        try:
            lines, header = _header(path, mark)
        except ValueError as error:
            # A quotation that ends before another mark does not end before this one.
            refusal = refusal or error
            continue
        if mark == "," and (said := _SEPARATOR.fullmatch(",".join(header))):
            return said[1], *_header(path, said[1], lines)
        if mark == "," and len(header) > 1:
            return mark, lines, header
        found[mark] = lines, header
    if not found:
        assert refusal is not None
        raise refusal
    delimiter = max(found, key=lambda mark: len(found[mark][1]))
    return delimiter, *found[delimiter]


def _header(path: Path, delimiter: str, skipped: int = 0) -> tuple[int, list[str]]:
    """Return the cells of the first line that is not empty, and how many lines end there."""
    found = (
        (lines, cells)
        for lines, cells in enumerate(_lines(path, delimiter), start=1)
        if lines > skipped and _filled(cells)
    )
    return next(found, (0, []))


def _lines(path: Path, delimiter: str) -> Iterator[list[str]]:
    """Give the cells of every line, where a quotation over several lines counts as one."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file, strict=True, delimiter=delimiter)
        try:
            yield from reader
        except csv.Error as error:
            if "field limit" in str(error):
                raise ValueError(
                    f"line {reader.line_num} holds a cell of more than "
                    f"{csv.field_size_limit():,} characters; leave such a column out"
                ) from None
            raise ValueError(
                f"line {reader.line_num} does not fall into cells ({error}); a quotation ends "
                "where its cell does, and a mark inside of it is written twice"
            ) from None


def _filled(cells: list[str]) -> bool:
    return len(cells) > 1 or any(cell.strip() for cell in cells)


def _odd_rows(path: Path, shape: _Shape) -> Iterator[tuple[int, list[str]]]:
    """Give the rows that do not have as many cells as there are names, with their numbers.

    Where there is no quotation, a line has one delimiter less than cells.
    """
    row, left, cells = 0, shape.lines, len(shape.names)
    with path.open("rb") as file:
        for block in _whole_lines(file):
            if b'"' in block or block.count(b"\r") != block.count(b"\r\n"):
                break
            codes = np.frombuffer(block, dtype=np.uint8)
            ends = np.flatnonzero(codes == ord("\n"))
            delimiters = np.searchsorted(np.flatnonzero(codes == ord(shape.delimiter)), ends)
            odd = np.diff(delimiters, prepend=0) != cells - 1
            skipped = min(left, len(ends))
            left -= skipped
            for place in (np.flatnonzero(odd[skipped:]) + skipped).tolist():
                line = block[ends[place - 1] + 1 if place else 0 : ends[place]].decode()
                if line.strip():
                    yield row + place - skipped + 1, line.rstrip("\r").split(shape.delimiter)
                else:
                    row -= 1
            row += len(ends) - skipped
        else:
            return
    lines = enumerate(_lines(path, shape.delimiter))
    rows = (cells for line, cells in lines if line >= shape.lines and _filled(cells))
    for place, found in enumerate(rows, start=1):
        if len(found) != cells:
            yield place, found


def _whole_lines(file: Any, size: int = 2**22) -> Iterator[bytes]:
    """Give a file in blocks that end where a line does."""
    rest = b""
    while block := file.read(size):
        whole, end, after = (rest + block).rpartition(b"\n")
        if end:
            yield whole + end
        rest = after
    if rest:
        yield rest + b"\n"


def _names(header: list[str]) -> list[str]:
    """Return the names of columns; one without a name is called as pandas calls it."""
    names = [name or f"Unnamed: {place}" for place, name in enumerate(header)]
    repeated = [name for place, name in enumerate(names) if name in names[:place]]
    if repeated:
        raise ValueError(f"there is more than one column named {repeated[0]!r}")
    return names


def _refuse_unfitting(cells: list[str], names: list[str], row: int) -> None:
    """Refuse a row unless its further cells are empty, or the names it has no cell for."""
    unnamed = all(
        name == f"Unnamed: {place}"
        for place, name in enumerate(names[len(cells) :], start=len(cells))
    )
    if any(cell.strip() for cell in cells[len(names) :]) or not unnamed:
        raise ValueError(
            f"row {row} has {len(cells)} cells, but the first line names {len(names)} columns"
        )
