"""What a service is started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

LARGEST_ROWS = 10_000
"""Rows of one call."""
LARGEST_PREFERENCE = 2**16
"""Tasks of one preference: as many as a knowledge base may have."""


@dataclass(frozen=True)
class Settings:
    """The settings of a service.

    Parameters
    ----------
    knowledge_base
        Folder or URL of the knowledge base to serve; it is watched for new versions.
    network
        The network it was learnt with, where ibcl did not build it, as `ibcl.load` takes it.
    data
        Folder of the service's own: its database and the versions it keeps. Beside the knowledge
        base without one; of a knowledge base behind a URL, in the current folder.
    database
        SQLAlchemy URL or file name; a SQLite file in the data folder without one.
    tokens_required
        True where every caller needs a token; without it, those of this machine need none until
        there is a first token. Settled when the service starts, by the address it listens on.
    body_limit
        Bytes of the largest body of a request.
    head_limit, header_count
        Bytes of the largest request line and headers together, and how many headers there may be.
    receive_seconds
        Seconds that a whole request may take to arrive.
    drain_seconds
        Seconds that requests under way have to finish in once the service is asked to stop.
    largest_request
        Rows times tasks of one request at most: what its memory grows with.
    rate
        Requests a second that one caller may make on average; 0 for no limit.
    versions
        So many versions of the knowledge base are kept, the newest ones.
    share_of_new_tasks
        Weight of each task that a stored preference does not know yet.
    forgetting
        Factor by which what a user did counts less with every further example.
    validation
        Tables of labelled rows to measure models on, by task; see ``label``.
    label
        Column of the labels in those tables; the knowledge base's own without one.
    poll
        Seconds between looks at the knowledge base.
    batch_rows, batch_wait
        Rows that are predicted together at most, and seconds to wait for others' rows.

    Examples
    --------
    >>> Settings(Path("movies.ibcl")).database_url
    'sqlite:///movies.ibcl.service/preferences.sqlite'
    """

    knowledge_base: Path
    network: str | None = None
    data: Path | None = None
    database: str | None = None
    tokens_required: bool = False
    body_limit: int = 4 * 2**20
    head_limit: int = 32 * 2**10
    header_count: int = 100
    receive_seconds: float = 30.0
    drain_seconds: float = 10.0
    largest_request: int = 1_000_000
    rate: float = 0.0
    versions: int = 5
    share_of_new_tasks: float = 0.0
    forgetting: float = 0.99
    validation: Mapping[str, Path] = field(default_factory=dict)
    label: str | None = None
    poll: float = 0.5
    batch_rows: int = 4096
    batch_wait: float = 0.001

    def __post_init__(self) -> None:
        if not 0 < self.forgetting <= 1:
            raise ValueError(
                f"The forgetting factor must lie above 0 and be at most 1, not {self.forgetting}."
            )
        if not 0 <= self.share_of_new_tasks < 1:
            raise ValueError(
                "The share of new tasks must be at least 0 and below 1, not "
                f"{self.share_of_new_tasks}."
            )
        for name in (
            "body_limit",
            "head_limit",
            "header_count",
            "receive_seconds",
            "drain_seconds",
            "largest_request",
        ):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}.")
        if self.versions < 1:
            raise ValueError(f"At least 1 version must be kept, not {self.versions}.")

    @property
    def folder(self) -> Path:
        """The service's own folder."""
        # The client reads limits from here, and needs no library that computes.
        from ibcl.store import as_url

        if self.data is not None:
            return self.data
        if as_url(self.knowledge_base) is not None:
            return Path(self.knowledge_base.name + ".service")
        return self.knowledge_base.with_name(self.knowledge_base.name + ".service")

    @property
    def database_url(self) -> str:
        """The database as a URL that SQLAlchemy knows."""
        if self.database is None:
            return f"sqlite:///{self.folder / 'preferences.sqlite'}"
        return database_url(self.database)


def database_url(database: str) -> str:
    """Return the URL of a database given by URL or by the name of an SQLite file.

    Examples
    --------
    >>> database_url("users.sqlite")
    'sqlite:///users.sqlite'
    >>> database_url("postgresql://movies@localhost/users")
    'postgresql+psycopg://movies@localhost/users'
    """
    if "://" not in database:
        return f"sqlite:///{database}"
    scheme, rest = database.split("://", 1)
    if scheme in ("postgres", "postgresql"):
        scheme = "postgresql+psycopg"
    if scheme.partition("+")[0] not in ("sqlite", "postgresql"):
        raise ValueError(
            f"The database must be an SQLite file or a URL that begins with sqlite:// or "
            f"postgresql://, not {scheme}://"
        )
    return f"{scheme}://{rest}"


@lru_cache(1024)
def is_loopback(host: str) -> bool:
    """Tell whether a host can be reached from this machine alone.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    >>> is_loopback("::ffff:127.0.0.1"), is_loopback("::ffff:192.0.2.1")
    (True, False)
    """
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)
