"""CSV and Parquet files in and out, whole or block by block; Parquet needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd

from ibcl.errors import ExistsError
from ibcl.files import atomic_output, check_target, refuse_inside_knowledge_base
from ibcl.tabular import INDEX, csv_blocks, read_csv

ENDINGS = (".csv", ".parquet")
# A row group of a Parquet file is read as a whole, so blocks need not be smaller than this.
BLOCK_ROWS = 16_384


def read_table(path: Path, texts: Collection[str] = ()) -> pd.DataFrame:
    """Read a file with one row per sample; in every column, empty is missing and text is text.

    Parameters
    ----------
    texts : columns whose values are texts, also where they look like numbers.
    """
    _check_readable(path)
    with _sentence_about(path):
        csv = path.suffix.lower() == ".csv"
        frame = read_csv(path, texts) if csv else _read_parquet(path)
    return _checked(frame, path)


def read_blocks(
    path: Path, texts: Collection[str] = (), rows: int = BLOCK_ROWS
) -> Iterator[pd.DataFrame]:
    """Read a file block by block, so that it need not fit into memory."""
    _check_readable(path)
    with ExitStack() as opened:
        with _sentence_about(path):
            iterator = iter(_open_blocks(path, texts, rows, opened))
        empty = True
        while True:
            with _sentence_about(path):
                block = next(iterator, None)
            if block is None:
                break
            empty = False
            yield _checked(block, path)
    if empty:
        raise ValueError(f"{path} has no rows")


def _open_blocks(
    path: Path, texts: Collection[str], rows: int, opened: ExitStack
) -> Iterable[pd.DataFrame]:
    if path.suffix.lower() == ".csv":
        return opened.enter_context(closing(csv_blocks(path, texts, rows)))
    from pyarrow.parquet import ParquetFile

    file = opened.enter_context(ParquetFile(path))
    categories = _categories(file)
    return (
        _with_index(_categorical(batch.to_pandas(), categories))
        for batch in file.iter_batches(batch_size=rows)
    )


def _read_parquet(path: Path) -> pd.DataFrame:
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        categories = _categories(file)
    return _with_index(_categorical(pd.read_parquet(path), categories))


def _categories(file: Any) -> list[str]:
    """Name the columns that pandas wrote as categories; Parquet itself forgets it of numbers."""
    written = (file.schema_arrow.pandas_metadata or {}).get("columns", ())
    return [str(column["name"]) for column in written if column["pandas_type"] == "categorical"]


def _categorical(frame: pd.DataFrame, categories: list[str]) -> pd.DataFrame:
    return frame.astype({name: "category" for name in categories if name in frame})


def _with_index(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table with its index as columns, known as such by `attrs`.

    One without a name is called as Parquet files call it, and is none where it counts the rows.
    """
    if frame.index.name is None and isinstance(frame.index, pd.RangeIndex):
        return frame.reset_index(drop=True)
    levels = enumerate(frame.index.names)
    names = [f"__index_level_{level}__" if name is None else str(name) for level, name in levels]
    frame = frame.reset_index(names=names)
    frame.attrs[INDEX] = tuple(names)
    return frame


def _check_readable(path: Path) -> None:
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} must end in {' or '.join(ENDINGS)}")
    if not path.is_file():
        raise ValueError(f"{path} is not a file that exists")
    _check_parquet(path)


def _check_parquet(path: Path) -> None:
    """Say which package is missing, before pandas says it in many words."""
    if path.suffix.lower() == ".parquet":
        import_module("pyarrow.parquet")


@contextmanager
def _sentence_about(path: Path) -> Iterator[None]:
    """Readers raise many kinds of errors on damaged files, and all mean the same to the user."""
    try:
        yield
    except (OSError, MemoryError):
        raise
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} cannot be read as a {path.suffix[1:]} file: it is not text in UTF-8; save it "
            "as such (spreadsheets call it 'CSV UTF-8'), and unpack it if it is compressed"
        ) from None
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise ValueError(f"{path} cannot be read as a {path.suffix[1:]} file: {reason}") from None


def _checked(frame: pd.DataFrame, path: Path) -> pd.DataFrame:
    frame.columns = frame.columns.map(str)
    _refuse_repeated(frame.columns, path)
    if frame.empty:
        raise ValueError(f"{path} has no rows")
    return frame


def _refuse_repeated(names: pd.Index[Any], path: Path) -> None:
    repeated = names[names.duplicated()]
    if len(repeated):
        raise ValueError(f"{path} has more than one column named {repeated[0]!r}")


def column(frame: pd.DataFrame, name: str, path: Path) -> pd.Series[Any]:
    """Return a column of a file, or say that there is none."""
    if name not in frame:
        raise ValueError(
            f"{path} has no column {name!r}; it has {', '.join(map(repr, frame.columns))}"
        )
    return frame[name]


def check_output(
    path: Path, force: bool, inputs: Iterable[Path] = (), endings: Collection[str] = ENDINGS
) -> None:
    """Refuse an output file before the work is done, not after."""
    if path.suffix.lower() not in endings:
        raise ValueError(f"The output {path} must end in {' or '.join(endings)}")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"The output {path} is in a folder that does not exist")
    _check_parquet(path)
    refuse_inside_knowledge_base(path)
    for source in inputs:
        if not force and path.exists() and source.exists() and path.samefile(source):
            raise ExistsError(f"The output {path} is the input itself")
    check_target(path, force)


@contextmanager
def table_writer(path: Path, force: bool) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Give a function that adds rows to a new file, which appears when all are written."""
    open_writer = _csv_writer if path.suffix.lower() == ".csv" else parquet_writer
    with atomic_output(path, force) as beside, open_writer(beside) as write:
        yield write


@contextmanager
def _csv_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    with path.open("w", newline="", encoding="utf-8") as file:

        def write(frame: pd.DataFrame) -> None:
            # The names stand above the first rows.
            frame.to_csv(file, index=False, header=file.tell() == 0, lineterminator="\n")

        yield write


@contextmanager
def parquet_writer(path: Path) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Give a function that adds rows to a Parquet file; categories come back as what they name."""
    import pyarrow as pa

    with ExitStack() as opened:
        writer: Any = None
        schema: Any = None

        def write(frame: pd.DataFrame) -> None:
            nonlocal writer, schema
            if writer is None:
                schema = _schema_of(frame)
                writer = opened.enter_context(_open_parquet(path, schema))
            block = pa.Table.from_pandas(frame, schema=schema, preserve_index=False)
            writer.write_table(block)

        yield write


def _schema_of(frame: pd.DataFrame) -> Any:
    """Return the columns' types, with room for more categories than the first rows have."""
    import pyarrow as pa

    found = pa.Schema.from_pandas(frame, preserve_index=False).remove_metadata()
    return pa.schema(
        field.with_type(pa.dictionary(pa.int32(), field.type.value_type))
        if pa.types.is_dictionary(field.type)
        else field
        for field in found
    )


def _open_parquet(path: Path, schema: Any) -> Any:
    """Open a Parquet file for columns of whole numbers, texts and scores.

    Whole numbers are written as differences and texts as numbers into a list of them. Scores hardly
    repeat and are not searched for, so to look for repetitions among them, or to note the smallest
    and largest, would take most of the time.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    kinds = pa.types
    whole = [field.name for field in schema if kinds.is_integer(field.type)]
    texts = [
        field.name
        for field in schema
        if any(
            is_text(field.type)
            for is_text in (kinds.is_dictionary, kinds.is_string, kinds.is_large_string)
        )
    ]
    return ParquetWriter(
        path,
        schema,
        store_schema=False,
        use_dictionary=texts,
        column_encoding=dict.fromkeys(whole, "DELTA_BINARY_PACKED"),
        write_statistics=[*whole, *texts],
    )


def rows_of(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows as plain Python values."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]
