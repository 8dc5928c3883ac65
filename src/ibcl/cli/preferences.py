"""Preferences from files: one column per task, and one row per user."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ibcl.cli.tables import read_table
from ibcl.preference import preference_matrix
from ibcl.tabular import has_no_name, text_of


class Users(NamedTuple):
    """Names of users, and their preferences as a matrix with one row per user."""

    names: pd.Series[Any]
    preferences: Any


def read_users(path: Path, tasks: tuple[str, ...], normalise: bool = False) -> Users:
    """Read preferences from a file with one column per task, and a column ``user`` or none.

    Without it a written index says who they are, unless it only counts the rows.

    Parameters
    ----------
    normalise : divide the weights of each user by their sum.
    """
    if not tasks:
        raise ValueError("There is no task yet: learn one before giving preferences")
    named = "user" not in tasks
    frame = read_table(path, texts=["Unnamed: 0", "user"] if named else ["Unnamed: 0"])
    # No task's name has outer blanks, and people write them behind commas.
    frame.columns = frame.columns.str.strip()
    repeated = frame.columns[frame.columns.duplicated()]
    if len(repeated):
        raise ValueError(f"{path} has more than one column named {repeated[0]!r}")
    unnamed = [name for name in frame.columns if name not in tasks and has_no_name(name)]
    index = frame[unnamed[0]] if unnamed[:1] == [*frame.columns[:1]] else None
    frame = frame.drop(columns=unnamed)
    counted = pd.Series(range(len(frame)), dtype=object).astype(str)
    if named and "user" in frame:
        names = _checked(frame.pop("user"), path)
    elif index is not None and not index.astype(object).astype(str).equals(counted):
        names = _checked(index, path)
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
        users.isna() | users.map(lambda user: isinstance(user, str) and not user.strip())
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
