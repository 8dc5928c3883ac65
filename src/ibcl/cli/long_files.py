"""Files of more rows than are learnt from at once: block by block, in bounded memory.

The first block makes the task, and each further one extends it, as batches do that come one after
another. What a column is, its scale and its categories are the first block's; the classes are those
of the whole file, whose labels are read once before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pandas as pd

from ibcl.cli.tables import column, read_blocks, read_table
from ibcl.tabular import ClassTarget

LONG_ROWS = 262_144
"""A file of more rows than this is learnt from in blocks."""
BLOCK_ROWS = 131_072


def is_long(path: Path) -> bool:
    """Say whether a file has more rows than are learnt from at once."""
    if not path.is_file():
        return False
    if path.suffix.lower() == ".parquet":
        from pyarrow import ArrowInvalid
        from pyarrow.parquet import read_metadata

        try:
            return bool(read_metadata(path).num_rows > LONG_ROWS)
        except ArrowInvalid:
            return False
    with path.open("rb") as file:
        lines = 0
        while block := file.read(2**22):
            lines += block.count(b"\n")
            if lines > LONG_ROWS:
                return True
    return False


def first_rows(path: Path, in_blocks: bool, texts: Collection[str] = ()) -> pd.DataFrame:
    """Read a file, or its first block."""
    return next(read_blocks(path, texts, BLOCK_ROWS)) if in_blocks else read_table(path, texts)


def further_blocks(path: Path, texts: Collection[str]) -> Iterator[pd.DataFrame]:
    """Read what follows the first block."""
    return islice(read_blocks(path, texts, BLOCK_ROWS), 1, None)


def classes_in(path: Path, label: str) -> tuple[Any, ...]:
    """Return the classes of a whole file; refuse labels that look like values."""
    labels = [column(block, label, path) for block in read_blocks(path, (), BLOCK_ROWS)]
    return ClassTarget.fit(pd.concat(labels, ignore_index=True)).classes
