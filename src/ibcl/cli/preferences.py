"""Preferences from files: one column per task, and one row per user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ibcl.cli.tables import read_table
from ibcl.preference import preference_matrix
from ibcl.tabular import text_of


class Users(NamedTuple):
    """Names of users, and their preferences as a matrix with one row per user."""

    names: pd.Series[Any]
    preferences: Any


def read_users(path: Path, tasks: tuple[str, ...], normalise: bool = False) -> Users:
    """Read preferences from a file with one column per task, and a column ``user`` or none.

    Parameters
    ----------
    normalise : divide the weights of each user by their sum.
    """
    named = "user" not in tasks
    frame = read_table(path, texts=["user"] if named else [])
    # No task's name has outer blanks, and people write them behind commas.
    plain = frame.columns.str.strip()
    if plain.is_unique:
        frame.columns = plain
    for name in frame.columns:
        if name not in tasks and name.startswith("Unnamed: "):
            # The index that pandas writes; a task's name is never empty.
            frame = frame.drop(columns=name)
    if named and "user" in frame:
        names = _checked(frame.pop("user"), path)
    else:
        names = pd.Series(range(1, len(frame) + 1)).astype(str)
    _refuse_other_tasks(frame, tasks, path)
    weights = np.column_stack([_numbers(frame[task], names, path) for task in tasks])
    try:
        return Users(
            names, preference_matrix(weights, tasks, normalise=normalise, users=list(names))
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _checked(users: pd.Series[Any], path: Path) -> pd.Series[Any]:
    """Return the names of users as texts; refuse empty ones, and two of one name."""
    empty = np.flatnonzero(
        users.isna() | users.map(lambda user: isinstance(user, str) and not user)
    )
    if len(empty):
        raise ValueError(f"{path}: row {empty[0] + 1} names no user; give every user a name")
    names = pd.Series([text_of(user, "column 'user'") for user in users], dtype=object)
    repeated = np.flatnonzero(names.duplicated())
    if len(repeated):
        raise ValueError(
            f"{path} has more than one row for the user {names[repeated[0]]!r}, the second of them "
            f"row {repeated[0] + 1}; keep one"
        )
    return names


def _refuse_other_tasks(frame: pd.DataFrame, tasks: tuple[str, ...], path: Path) -> None:
    unknown = [name for name in frame.columns if name not in tasks]
    lacking = [task for task in tasks if task not in frame.columns]
    if unknown:
        raise ValueError(
            f"{path}: Unknown task {', '.join(unknown)}; known tasks are {', '.join(tasks)}"
        )
    if lacking:
        raise ValueError(
            f"{path}: The preference leaves out {', '.join(lacking)}; give every task a column (0 "
            "for no interest)"
        )


def _numbers(column: pd.Series[Any], users: pd.Series[Any], path: Path) -> Any:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(dtype=float, na_value=np.nan)
    wrong = np.flatnonzero(np.isnan(numbers))
    if len(wrong):
        row = int(wrong[0])
        whose = f"{path}: Row {row + 1}, user {users[row]!r}"
        if pd.isna(column.iloc[row]):
            raise ValueError(
                f"{whose}: The weight of task {column.name!r} is missing; give 0 for no interest"
            )
        raise ValueError(
            f"{whose}: The weight of task {column.name!r} must be a number, not "
            f"{column.iloc[row]!r}"
        )
    return numbers
