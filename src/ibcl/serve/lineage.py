"""Which tasks of two versions are the same ones, and not others under the same name.

A task that was forgotten and then learnt under its old name is another task, and no user has said
what they think of it. Every version is compared with the one before it: a task goes on where both
have it in the same order, and begins anew where the earlier version lacks it, or where it stands
behind a task that it stood before, since tasks are learnt at the end.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, Engine, delete, insert, select
from sqlalchemy.exc import IntegrityError

from ibcl.serve import database

FIRST = ""
"""The identity of tasks that were there before anything was written down."""
_KEPT = 100
"""Versions whose tasks are written down."""


def following(before: Mapping[str, str], tasks: Sequence[str]) -> dict[str, str]:
    """Return the identities of a version's tasks, from those of the version before it.

    Examples
    --------
    >>> before = {"sci-fi": "1", "horror": "2"}
    >>> following(before, ["sci-fi", "horror"])
    {'sci-fi': '1', 'horror': '2'}
    >>> again = following(before, ["horror", "sci-fi"])
    >>> again["horror"], again["sci-fi"] == "1"
    ('2', False)
    """
    places = {task: place for place, task in enumerate(before)}
    furthest, found = -1, {}
    for task in tasks:
        goes_on = places.get(task, -1) > furthest
        furthest = max(furthest, places.get(task, -1))
        found[task] = before[task] if goes_on else secrets.token_hex(8)
    return found


class Lineage:
    """The identities of the tasks of every version, shared by all who use a database.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lineage = Lineage(database.open_database(f"sqlite:///{folder}/users.sqlite"))
    ...     for version, tasks in (("1", ["a", "b"]), ("2", ["b"]), ("3", ["b", "a"])):
    ...         lineage.record(version, tasks)
    >>> [lineage.of("1")[task] == lineage.of("3")[task] for task in ("a", "b")]
    [False, True]
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known: dict[str, dict[str, str]] = {}

    def of(self, version: str) -> dict[str, str]:
        """Return the identities of the tasks of a version that was recorded."""
        return self._known[version]

    def record(self, version: str, tasks: Sequence[str]) -> None:
        """Write a version down as the one that follows the last, unless it is known."""
        if version in self._known:
            return
        try:
            with self._engine.begin() as connection:
                found = _recorded(connection, version)
                if found is None:
                    found = _record(connection, version, tasks)
        except IntegrityError:
            # Another server was first.
            with self._engine.connect() as connection:
                found = _recorded(connection, version)
            assert found is not None
        self._known[version] = found


def _recorded(connection: Connection, version: str) -> dict[str, str] | None:
    table = database.lineage
    query = select(table.c.identities).where(table.c.version == version)
    text = connection.execute(query).scalar_one_or_none()
    return None if text is None else json.loads(text)


def _record(connection: Connection, version: str, tasks: Sequence[str]) -> dict[str, str]:
    table = database.lineage
    query = select(table.c.id, table.c.identities).order_by(table.c.id.desc()).limit(1)
    last = connection.execute(query).one_or_none()
    if last is None:
        found = dict.fromkeys(tasks, FIRST)
    else:
        found = following(json.loads(last.identities), tasks)
        connection.execute(delete(table).where(table.c.id <= last.id - _KEPT))
    connection.execute(insert(table).values(version=version, identities=json.dumps(found)))
    return found
