"""Tokens: who may ask for what.

A token is ``ibcl_<id>_<secret>`` with a secret of 256 random bits, of which only the SHA-256 digest
is kept: nobody can guess that many bits, so that a slow hash would protect nothing more. A token
belongs to one user and reads and changes that user only, or to an administrator.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Engine, delete, insert, select

from ibcl.serve import database

_PREFIX = "ibcl"


class Caller(NamedTuple):
    """The caller of a request."""

    name: str
    """The token's id; the address of a caller without one."""
    user: str | None
    """The only user that this caller may ask for; None for an administrator."""

    @property
    def administrator(self) -> bool:
        """Tell whether the caller may do everything."""
        return self.user is None

    def may_ask_for(self, user: str) -> bool:
        """Tell whether the caller may read and change a user."""
        return self.user is None or self.user == user


class TokenFacts(NamedTuple):
    """What may be shown of a token without giving it away."""

    id: str
    user: str | None
    created: datetime


class Tokens:
    """All tokens of a service.

    Parameters
    ----------
    required
        True where callers need a token even while there is none, so that nobody gets in.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     tokens = Tokens(database.open_database(f"sqlite:///{folder}/users.sqlite"))
    ...     token = tokens.issue("ann")
    ...     caller, wrong = tokens.caller(token), tokens.caller(token + "x")
    >>> caller.may_ask_for("ann"), caller.may_ask_for("bob"), wrong
    (True, False, None)
    """

    def __init__(self, engine: Engine, required: bool = False) -> None:
        self._engine, self._required = engine, required
        self._known: dict[str, tuple[str, str | None]] = {}
        self.refresh()

    def issue(self, user: str | None = None) -> str:
        """Make a token for one user, or for an administrator; this is the only time it is seen."""
        name, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        with self._engine.begin() as connection:
            connection.execute(
                insert(database.tokens).values(
                    id=name, digest=_digest(secret), user=user, created=datetime.now(UTC)
                )
            )
        self.refresh()
        return f"{_PREFIX}_{name}_{secret}"

    def revoke(self, name: str) -> bool:
        """Remove a token by its id; False where there is none."""
        with self._engine.begin() as connection:
            statement = delete(database.tokens).where(database.tokens.c.id == name)
            removed = connection.execute(statement).rowcount
        self.refresh()
        return bool(removed)

    def facts(self) -> list[TokenFacts]:
        """Return all tokens, the oldest first."""
        table = database.tokens
        with self._engine.connect() as connection:
            query = select(table.c.id, table.c.user, table.c.created).order_by(table.c.created)
            return [
                TokenFacts(row.id, row.user, database.utc(row.created))
                for row in connection.execute(query)
            ]

    def required(self) -> bool:
        """Tell whether callers must show a token; once they must, revoking tokens opens nothing."""
        return self._required

    def caller(self, token: str) -> Caller | None:
        """Return the owner of a token, None where there is none."""
        prefix, _, rest = token.partition("_")
        name, _, secret = rest.partition("_")
        # An unknown name is compared as well, so that it takes as long as a wrong secret.
        digest, user = self._known.get(name, ("", None))
        same = hmac.compare_digest(digest or _digest(""), _digest(secret))
        return Caller(name, user) if same and digest and prefix == _PREFIX else None

    def refresh(self) -> None:
        """Read the tokens again, for those that another process issued or revoked."""
        table = database.tokens
        with self._engine.execution_options(reads_only=True).connect() as connection:
            rows = connection.execute(select(table.c.id, table.c.digest, table.c.user)).all()
        self._known = {row.id: (row.digest, row.user) for row in rows}
        self._required = self._required or bool(rows)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()
