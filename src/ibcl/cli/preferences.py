"""Preferences from files: a column a task, and a row a user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ibcl import Preference
from ibcl.cli.tables import read_table
from ibcl.preference import preference_matrix


class Users(NamedTuple):
    """Names of users, and their preferences as a matrix with one row a user."""

    names: pd.Series[Any]
    preferences: Any


def read_users(path: Path, tasks: tuple[str, ...]) -> Users:
    """Read preferences from a file with one column a task, and a column ``user`` or none."""
    frame = read_table(path, texts=["user"] if "user" not in tasks else [])
    if "user" in frame and "user" not in tasks:
        names = frame.pop("user").astype(str)
    else:
        names = pd.Series(range(1, len(frame) + 1)).astype(str)
    # The first row says whether the columns are the tasks and hold numbers.
    Preference.parse(dict(frame.iloc[0]), tasks)
    try:
        weights = frame[list(tasks)].to_numpy(dtype=float)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers beside the users: {error}") from None
    return Users(names, preference_matrix(weights, tasks))
