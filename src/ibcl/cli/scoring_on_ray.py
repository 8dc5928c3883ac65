"""Predictions of many users on Ray: pieces of users × rows, streamed through a pool of workers.

The knowledge base and the users' preferences are put in the object store once. A piece is a block
of rows and a slice of users, the same as where this machine does it alone; the worker that gets it
writes its predictions as one Parquet file. The pieces' files, in the order of their names, are
together the table that one machine writes, in a folder that appears when all of them are there.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ibcl.cli.knowledge_bases import load_tabular, text_columns
from ibcl.cli.output import count, emit
from ibcl.cli.predictions import long_table, user_slices
from ibcl.cli.preferences import Users, read_users
from ibcl.cli.tables import read_blocks
from ibcl.errors import ExistsError
from ibcl.experiments.ray_engine import connect
from ibcl.files import refuse_inside_knowledge_base
from ibcl.store import packed, unpacked
from ibcl.tabular import Schema


def write_predictions_on_ray(
    knowledge_base: Path,
    file: Path,
    preferences: Path,
    output: Path,
    force: bool,
    as_json: bool,
    address: str,
) -> None:
    """Write one row a user and row of the file, as a folder of Parquet files."""
    import ray
    from rich.console import Console
    from rich.progress import track

    _check_folder(output, force)
    learner, schema = load_tabular(knowledge_base)
    users = read_users(preferences, learner.tasks)
    lengths = [len(block) for block in read_blocks(file, text_columns(schema))]
    connect(address)
    waiting = output.absolute().with_name(f".{output.name}-{uuid.uuid4().hex}")
    waiting.mkdir()
    try:
        pieces = list(_pieces(schema, lengths, len(users.names)))
        cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        workers = min(len(pieces), max(1, int(cluster["CPU"])))
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        scored = ray.data.from_items(pieces, override_num_blocks=len(pieces)).map_batches(
            Scorer,
            batch_size=1,
            batch_format="pandas",
            fn_constructor_args=(
                ray.put(packed(learner)),
                ray.put(users),
                file.absolute(),
                waiting,
            ),
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=1,
        )
        batches = scored.iter_batches(batch_size=1, batch_format="numpy", prefetch_batches=0)
        console = Console(stderr=True)
        for _ in track(batches, "Scoring", total=len(pieces), console=console, disable=as_json):
            pass
        # What a worker was at when it was killed.
        for path in list(waiting.iterdir()):
            if not _is_piece(path):
                path.unlink()
        if output.exists():
            shutil.rmtree(output)
        os.replace(waiting, output)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)
    written = sum(lengths) * len(users.names)
    emit(
        {"users": len(users.names), "rows": sum(lengths), "output": output},
        as_json,
        f"{count(written, 'prediction')} for {count(len(users.names), 'user')} are in {output}, "
        f"in {count(len(pieces), 'Parquet file')}.",
    )


def _check_folder(output: Path, force: bool) -> None:
    if output.suffix.lower() != ".parquet":
        raise ValueError(f"The output {output} must end in .parquet where Ray writes it")
    if not output.absolute().parent.is_dir():
        raise ValueError(f"The output {output} is in a folder that does not exist")
    refuse_inside_knowledge_base(output)
    if output.exists() and not force:
        raise ExistsError(f"The output {output} exists already")
    if output.exists() and not (output.is_dir() and all(_is_piece(p) for p in output.iterdir())):
        raise ExistsError(f"The output {output} is not a folder of predictions; it is not replaced")


def _is_piece(path: Path) -> bool:
    return path.name.startswith("part-") and path.suffix == ".parquet" and path.is_file()


def _pieces(schema: Schema, lengths: list[int], users: int) -> Iterator[dict[str, int]]:
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


class Scorer:
    """A worker with the knowledge base open, reading the rows as it goes along."""

    def __init__(self, contents: Any, users: Any, file: Path, folder: Path) -> None:
        import ray

        contents, users = (
            ray.get(value) if isinstance(value, ray.ObjectRef) else value
            for value in (contents, users)
        )
        self._learner = unpacked(contents)
        schema = self._learner.encoder
        assert isinstance(schema, Schema)
        self._schema = schema
        self._users: Users = users
        self._file, self._folder = file, folder
        self._block, self._frame = -1, pd.DataFrame()
        self._blocks: Iterator[pd.DataFrame] = iter(())

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """Write the predictions of each piece."""
        numbers = batch[["number", "block", "first", "begin", "end"]].to_numpy(dtype=int)
        for number, block, first, begin, end in numbers.tolist():
            self._seek(block)
            wanted = slice(begin, end)
            values = self._learner.predict_many(self._frame, self._users.preferences[wanted])
            names = self._users.names.iloc[wanted]
            table = long_table(self._schema, names, first, np.asarray(values))
            target = self._folder / f"part-{number:08}.parquet"
            # A worker that dies leaves no half of a file, and another writes the same one.
            beside = target.with_suffix(f".{uuid.uuid4().hex}")
            table.to_parquet(beside, index=False)
            os.replace(beside, target)
        return batch[["number"]]

    def _seek(self, block: int) -> None:
        """Read on to a block of rows; from the beginning where it lies behind."""
        if block < self._block or self._block < 0:
            self._blocks = read_blocks(self._file, text_columns(self._schema))
            self._block = -1
        while self._block < block:
            self._frame = next(self._blocks)
            self._block += 1
