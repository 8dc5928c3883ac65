"""Users' preferences, kept in a database with their history.

Many users are read by one query and many changes written by one transaction: waiting for the disk
once for all of them is what makes every acknowledged change durable at little cost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from ibcl.serve import database

_BLOCK = 500
"""Users asked for in one query; databases limit the parameters of one."""
_ATTEMPTS = 5


@dataclass(frozen=True)
class Stored:
    """What is kept of a user."""

    weights: dict[str, float]
    """The preference, over the tasks there were when it was stored."""
    share_of_new_tasks: float | None = None
    """Weight of each task learnt since; the service's own without one."""
    counts: dict[str, float] | None = None
    """Dirichlet counts of what the user did; see `ibcl.preference.follow`."""
    identities: dict[str, str] | None = None
    """Of the tasks it is about; see `ibcl.serve.lineage`. None for those that were there first."""
    changed: datetime | None = None


class Past(NamedTuple):
    """One entry of a user's history."""

    weights: dict[str, float]
    source: str
    changed: datetime


@dataclass(frozen=True)
class Change:
    """A change of one user's preference.

    Parameters
    ----------
    make
        From what is stored, None where nothing is, to what is to be stored, None for nothing; a
        change that must not be made raises.
    source
        Why, for the history.
    erase
        True removes the user's history as well.
    """

    user: str
    make: Callable[[Stored | None], Stored | None]
    source: str
    erase: bool = False


class Preferences:
    """The preferences of all users.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     kept = Preferences(database.open_database(f"sqlite:///{folder}/users.sqlite"))
    ...     change = Change("ann", lambda _: Stored({"sci-fi": 1.0}), "set")
    ...     _ = kept.change([change])
    ...     kept.read(["ann", "bob"])["ann"].weights
    {'sci-fi': 1.0}
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reader = engine.execution_options(reads_only=True)

    def read(self, users: Iterable[str]) -> dict[str, Stored]:
        """Return what is stored of these users; those without a preference are left out."""
        with self._reader.connect() as connection:
            return _read(connection, sorted(set(users)))

    def history(self, user: str, limit: int) -> list[Past]:
        """Return the latest entries of a user's history, the newest first."""
        table = database.history
        query = (
            select(table.c.weights, table.c.source, table.c.changed)
            .where(table.c.user == user)
            .order_by(table.c.id.desc())
            .limit(limit)
        )
        with self._reader.connect() as connection:
            rows = connection.execute(query).all()
        return [
            Past(json.loads(row.weights), row.source, database.utc(row.changed)) for row in rows
        ]

    def change(self, changes: Sequence[Change]) -> list[Stored | Exception | None]:
        """Make changes, all in one transaction; each one sees those before it.

        A change that raises is not made, and its exception stands in its place.
        """
        for attempt in range(_ATTEMPTS):
            try:
                with self._engine.begin() as connection:
                    return _change(connection, changes)
            except IntegrityError:
                # Another server stored a new user at the same moment.
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("unreachable")


def _change(connection: Connection, changes: Sequence[Change]) -> list[Stored | Exception | None]:
    users = sorted({change.user for change in changes})
    before = _read(connection, users, lock=True)
    now = dict(before)
    past: list[dict[str, Any]] = []
    erased: set[str] = set()
    results: list[Stored | Exception | None] = []
    for change in changes:
        moment = datetime.now(UTC)
        try:
            made = change.make(now.get(change.user))
        except Exception as error:
            results.append(error)
            continue
        if change.erase:
            erased.add(change.user)
            past = [entry for entry in past if entry["user"] != change.user]
        else:
            past.append(
                {
                    "user": change.user,
                    "source": change.source,
                    "weights": json.dumps({} if made is None else made.weights),
                    "changed": moment,
                }
            )
        if made is None:
            now.pop(change.user, None)
        else:
            made = replace(made, changed=moment)
            now[change.user] = made
        results.append(made)
    _write(connection, users, before, now)
    for user in sorted(erased):
        connection.execute(delete(database.history).where(database.history.c.user == user))
    if past:
        connection.execute(insert(database.history), past)
    return results


def _write(
    connection: Connection,
    users: Sequence[str],
    before: dict[str, Stored],
    now: dict[str, Stored],
) -> None:
    table = database.preferences
    added = []
    for user in users:
        stored = now.get(user)
        if stored is before.get(user):
            continue
        if stored is None:
            connection.execute(delete(table).where(table.c.user == user))
            continue
        values = {
            "weights": json.dumps(stored.weights),
            "share_of_new_tasks": stored.share_of_new_tasks,
            "counts": None if stored.counts is None else json.dumps(stored.counts),
            "identities": None if stored.identities is None else json.dumps(stored.identities),
            "changed": stored.changed,
        }
        if user in before:
            connection.execute(update(table).where(table.c.user == user).values(**values))
        else:
            added.append({"user": user, **values})
    if added:
        connection.execute(insert(table), added)


def _read(connection: Connection, users: Sequence[str], lock: bool = False) -> dict[str, Stored]:
    table = database.preferences
    found: dict[str, Stored] = {}
    for begin in range(0, len(users), _BLOCK):
        query = select(table).where(table.c.user.in_(users[begin : begin + _BLOCK]))
        # In one order for all, so that two servers never wait for each other.
        query = query.order_by(table.c.user)
        for row in connection.execute(query.with_for_update() if lock else query):
            found[row.user] = Stored(
                json.loads(row.weights),
                row.share_of_new_tasks,
                None if row.counts is None else json.loads(row.counts),
                None if row.identities is None else json.loads(row.identities),
                database.utc(row.changed),
            )
    return found
