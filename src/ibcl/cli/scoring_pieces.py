"""What a worker does: the predictions of a slice of users for a block of rows, as a Parquet file.

It imports no more than it needs, since every worker begins with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ibcl.cli.knowledge_bases import text_columns
from ibcl.cli.pieces_on_ray import whole_file
from ibcl.cli.predictions import long_table, user_slices
from ibcl.cli.preferences import Users
from ibcl.cli.tables import read_blocks
from ibcl.store import unpacked
from ibcl.tabular import Schema


class Site(NamedTuple):
    """What every worker works with; the first two are in the object store once for all of them."""

    contents: Any
    """Reference to the packed knowledge base."""
    users: Any
    """Reference to the users."""
    file: Path
    """Of the rows."""
    folder: Path
    """For the predictions."""


def pieces(schema: Schema, lengths: list[int], users: int) -> Iterator[dict[str, int]]:
    """Yield the blocks of rows and slices of users, in the order of the table."""
    number = first = 0
    for block, length in enumerate(lengths):
        for wanted in user_slices(schema, length, users):
            yield {
                "number": number,
                "block": block,
                "first": first + 1,
                "begin": wanted.start,
                "end": wanted.stop,
            }
            number += 1
        first += length


def file_name(number: int) -> str:
    """Name the file of a piece.

    Examples
    --------
    >>> file_name(3)
    'part-00000003.parquet'
    """
    return f"part-{number:08}.parquet"


def is_piece(path: Path) -> bool:
    """Tell whether a file is that of a piece."""
    return path.name.startswith("part-") and path.suffix == ".parquet" and path.is_file()


def write_scores(batch: pd.DataFrame, site: Site) -> pd.DataFrame:
    """Write the predictions of each piece of a batch."""
    scorer = _scorer(site)
    numbers = batch[["number", "block", "first", "begin", "end"]].to_numpy(dtype=int)
    for number, block, first, begin, end in numbers.tolist():
        table = scorer.predictions(block, first, slice(begin, end))
        with whole_file(site.folder / file_name(number)) as path:
            table.to_parquet(path, index=False)
    return batch[["number"]]


class _Scorer:
    """A knowledge base opened once a process, reading the rows as it goes along."""

    def __init__(self, site: Site) -> None:
        import ray

        contents, self._users = ray.get([site.contents, site.users])
        self._learner = unpacked(contents)
        schema = self._learner.encoder
        assert isinstance(schema, Schema)
        self._schema = schema
        self._file = site.file
        self._block, self._frame = -1, pd.DataFrame()
        self._blocks: Iterator[pd.DataFrame] = iter(())

    def predictions(self, block: int, first: int, wanted: slice) -> pd.DataFrame:
        """Return what the models of some users say about a block of rows."""
        self._seek(block)
        users: Users = self._users
        values = self._learner.predict_many(self._frame, users.preferences[wanted])
        return long_table(self._schema, users.names.iloc[wanted], first, np.asarray(values))

    def _seek(self, block: int) -> None:
        """Read on to a block of rows; from the beginning where it lies behind."""
        if block < self._block or self._block < 0:
            self._blocks = read_blocks(self._file, text_columns(self._schema))
            self._block = -1
        while self._block < block:
            self._frame = next(self._blocks)
            self._block += 1


# Processes outlive the tasks they are given, so each opens the knowledge base once.
_scorer = lru_cache(maxsize=1)(_Scorer)
