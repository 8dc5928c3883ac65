"""Models of many preferences, slice by slice: as files of their own, or as rows of Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

import ibcl
from ibcl.cli.pieces_on_ray import Shared, file_name, opened, whole_file
from ibcl.cli.preferences import Users
from ibcl.cli.tables import parquet_writer
from ibcl.store import model_bytes

# Models that are made and written at once.
_SLICE = 256


class Site(NamedTuple):
    """What every worker works with."""

    shared: Shared
    folder: Path
    """For the models."""
    as_table: bool
    """Rows of Parquet files instead of files of their own."""


def pieces(models: int) -> list[dict[str, int]]:
    """Return slices of the preferences.

    Examples
    --------
    >>> pieces(300)
    [{'number': 0, 'begin': 0, 'end': 256}, {'number': 1, 'begin': 256, 'end': 300}]
    """
    begins = range(0, models, _SLICE)
    return [
        {"number": number, "begin": begin, "end": min(begin + _SLICE, models)}
        for number, begin in enumerate(begins)
    ]


def model_name(number: int, models: int) -> str:
    """Name the file of a model among so many, counted from 1.

    Examples
    --------
    >>> model_name(7, models=120)
    'model-007.safetensors'
    """
    return f"model-{number:0{len(str(models))}}.safetensors"


def is_model(path: Path) -> bool:
    """Tell whether a file is a model's."""
    return path.name.startswith("model-") and path.suffix == ".safetensors" and path.is_file()


def model_tables(learner: ibcl.IBCL, users: Users) -> Iterator[pd.DataFrame]:
    """Yield one row per preference: the user, the weights of all tasks, and the model's file."""
    for piece in pieces(len(users.names)):
        yield _table(learner, users, slice(piece["begin"], piece["end"]))


def _table(learner: ibcl.IBCL, users: Users, wanted: slice) -> pd.DataFrame:
    weights = pd.DataFrame(users.preferences[wanted], columns=list(learner.tasks))
    # Not beside the weights, since a task may be called 'user' or 'model'.
    return pd.DataFrame(
        {
            "user": users.names.iloc[wanted].to_numpy(),
            "preference": weights.to_dict("records"),
            "model": [model_bytes(learner.model(w).file()) for w in users.preferences[wanted]],
        }
    )


def write_models(batch: pd.DataFrame, site: Site) -> pd.DataFrame:
    """Write the models of each slice of a batch; what a worker of Ray does."""
    learner, users = opened(site.shared)
    for number, begin, end in batch[["number", "begin", "end"]].to_numpy(dtype=int).tolist():
        if site.as_table:
            target = site.folder / file_name(number)
            with whole_file(target) as path, parquet_writer(path) as write:
                write(_table(learner, users, slice(begin, end)))
        else:
            for position in range(begin, end):
                name = model_name(position + 1, len(users.names))
                learner.model(users.preferences[position]).save(site.folder / name)
    return batch[["number"]]
