"""Pieces of work streamed through a Ray cluster, whose files become one folder when all are there.

Pieces are tasks and not calls of a pool of actors, because a task whose worker or node dies is
tried again wherever there is room, but the calls of an actor wait until that actor itself has found
a place again, which on a cluster that has lost a node may be never.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import ibcl
from ibcl.cli.preferences import Users
from ibcl.engines.ray import RETRIES
from ibcl.errors import ExistsError
from ibcl.files import refuse_inside_knowledge_base
from ibcl.store import packed, unpacked


class Shared(NamedTuple):
    """What is in the object store once for all workers of a node, by reference."""

    contents: Any
    """Of the knowledge base."""
    users: Any


def share(learner: ibcl.IBCL, users: Users) -> Shared:
    """Put a knowledge base and users where all workers find them."""
    import ray

    return Shared(ray.put(packed(learner.state)), ray.put(users))


def workers() -> int:
    """Return how many pieces the cluster can work on at the same time."""
    import ray

    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return max(1, int(resources.get("CPU", 1)))


@lru_cache(maxsize=1)
def opened(shared: Shared) -> tuple[ibcl.IBCL, Users]:
    """Open the knowledge base once per process, which outlives the tasks it is given."""
    import ray

    contents, users = ray.get([shared.contents, shared.users])
    return ibcl.IBCL.from_state(unpacked(contents).state), users


def stream(
    work: Callable[..., pd.DataFrame],
    pieces: list[dict[str, int]],
    site: Any,
    title: str,
    quiet: bool,
) -> None:
    """Give every piece to a worker, as a table of one row, and show how many are done.

    Parameters
    ----------
    work
        Takes the table and the site; writes files, and returns a table of one row.
    """
    import ray
    from rich.console import Console
    from rich.progress import track

    context = ray.data.DataContext.get_current()
    # It would tell of its plans between the lines of the progress.
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    context.enable_progress_bars = False
    # Whichever order they end in: their files have numbers.
    context.execution_options.preserve_order = False
    waiting = ray.data.from_items(pieces, override_num_blocks=len(pieces))
    with warnings.catch_warnings():
        # There is no other way to say max_retries, and pyproject.toml admits no Ray without it.
        warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
        done = waiting.map_batches(
            work,
            batch_size=None,
            batch_format="pandas",
            fn_args=(site,),
            num_cpus=1,
            max_retries=RETRIES,
        )
    batches = done.iter_batches(batch_size=1, batch_format="numpy", prefetch_batches=0)
    console = Console(stderr=True)
    try:
        for _ in track(batches, title, total=len(pieces), console=console, disable=quiet):
            pass
    except ray.exceptions.RayTaskError as error:
        raise ValueError(f"A worker failed, so nothing is written: {_reason(error)}") from None
    except ray.exceptions.RayError as error:
        raise ValueError(
            f"A piece was given up after its worker had died {RETRIES + 1} times "
            f"({type(error).__name__}), so nothing is written"
        ) from None


def _reason(error: Any) -> str:
    """Return what a worker raised, in one line."""
    cause = error.cause if error.cause is not None else error
    return f"{type(cause).__name__}: {(str(cause).splitlines() or [''])[0]}"


def file_name(number: int) -> str:
    """Name the Parquet file of a piece.

    Examples
    --------
    >>> file_name(3)
    'part-00000003.parquet'
    """
    return f"part-{number:08}.parquet"


def is_piece(path: Path) -> bool:
    """Tell whether a file is that of a piece."""
    return path.name.startswith("part-") and path.suffix == ".parquet" and path.is_file()


def check_folder(output: Path, force: bool, belongs: Callable[[Path], bool] = is_piece) -> None:
    """Refuse a folder that may not be made, or not be replaced, before the work is done."""
    if not output.absolute().parent.is_dir():
        raise ValueError(f"The output {output} is in a folder that does not exist")
    refuse_inside_knowledge_base(output)
    if output.exists() and not force:
        raise ExistsError(f"The output {output} exists already")
    if output.exists() and not (output.is_dir() and all(belongs(p) for p in output.iterdir())):
        raise ExistsError(
            f"The output {output} holds more than this command writes; it is not replaced"
        )


@contextmanager
def new_folder(output: Path, belongs: Callable[[Path], bool] = is_piece) -> Iterator[Path]:
    """Give a folder to write into, which takes the output's place when the block ends."""
    waiting = output.absolute().with_name(f".{output.name}-{uuid.uuid4().hex}")
    waiting.mkdir()
    try:
        yield waiting
        # What a worker was at when it was killed.
        for path in list(waiting.iterdir()):
            if not belongs(path):
                path.unlink()
        if output.exists():
            shutil.rmtree(output)
        os.replace(waiting, output)
    finally:
        shutil.rmtree(waiting, ignore_errors=True)


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give another name to write to; a worker that dies leaves no half of the file itself."""
    beside = target.with_suffix(f".{uuid.uuid4().hex}")
    yield beside
    os.replace(beside, target)
