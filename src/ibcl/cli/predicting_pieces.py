"""What a worker does: the predictions of a stretch of users for a block of rows, as a Parquet file.

It imports no more than it needs, since every worker begins with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ibcl.cli.knowledge_bases import text_columns
from ibcl.cli.pieces_on_ray import Shared, file_name, opened, whole_file
from ibcl.cli.predictions import predictions_of_many, users_at_once
from ibcl.cli.preferences import Users
from ibcl.cli.tables import parquet_writer, read_blocks
from ibcl.tabular import Schema

# A piece should take its worker seconds, so that what Ray does between two of them costs little:
# it is up to so many of the blocks that are computed and written at once.
_MOST_BLOCKS = 64
# As long as every worker gets some, so that none is idle for long at the end.
_PIECES_A_WORKER = 8


class Site(NamedTuple):
    """What every worker works with."""

    shared: Shared
    file: Path
    """Of the rows."""
    folder: Path
    """For the predictions."""
    numbers: int
    """How many predictions are made at once, so that all make the same."""


def pieces(
    schema: Schema, lengths: list[int], users: int, numbers: int, workers: int
) -> list[dict[str, int]]:
    """Cut blocks of rows × users into pieces, in the order of the table.

    Parameters
    ----------
    lengths
        Of the blocks of rows.
    numbers
        How many predictions are made at once.
    """
    steps = [users_at_once(schema, length, numbers) for length in lengths]
    blocks = sum(-(-users // step) for step in steps)
    together = min(_MOST_BLOCKS, max(1, blocks // (_PIECES_A_WORKER * workers)))
    found: list[dict[str, int]] = []
    first = 1
    for block, (length, step) in enumerate(zip(lengths, steps, strict=True)):
        for begin in range(0, users, step * together):
            end = min(begin + step * together, users)
            piece = {"block": block, "first": first, "begin": begin, "end": end}
            found.append({"number": len(found), **piece})
        first += length
    return found


def write_predictions(batch: pd.DataFrame, site: Site) -> pd.DataFrame:
    """Write the predictions of each piece of a batch."""
    learner, users = opened(site.shared)
    schema = learner.encoder
    assert isinstance(schema, Schema)
    rows = _rows(site.file, tuple(text_columns(schema)))
    for piece in batch.astype(int).to_dict("records"):
        wanted = slice(piece["begin"], piece["end"])
        some = Users(users.names.iloc[wanted], users.preferences[wanted])
        frame = rows.block(piece["block"])
        tables = predictions_of_many(learner, schema, [frame], some, site.numbers, piece["first"])
        target = site.folder / file_name(piece["number"])
        with whole_file(target) as path, parquet_writer(path) as write:
            for table in tables:
                write(table)
    return batch[["number"]]


class _Rows:
    """Blocks of rows of a file, read as one goes along."""

    def __init__(self, file: Path, texts: tuple[str, ...]) -> None:
        self._file, self._texts = file, texts
        self._number, self._block = -1, pd.DataFrame()
        self._blocks: Iterator[pd.DataFrame] = iter(())

    def block(self, number: int) -> pd.DataFrame:
        """Read on to a block of rows; from the beginning where it lies behind."""
        if number < self._number or self._number < 0:
            self._blocks, self._number = read_blocks(self._file, self._texts), -1
        while self._number < number:
            self._block = next(self._blocks)
            self._number += 1
        return self._block


# Processes outlive the tasks they are given.
_rows = lru_cache(maxsize=1)(_Rows)
