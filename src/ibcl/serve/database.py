"""The database: its tables, how it is opened, and how it is brought up to date.

SQLite keeps a write-ahead log and waits for the disk at every commit (``synchronous=FULL``), so
that what was acknowledged is there after a kill or a power cut.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import (
    Column,
    DateTime,
    Engine,
    Float,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    event,
    make_url,
)
from sqlalchemy.exc import ArgumentError, DisconnectionError, OperationalError, SQLAlchemyError

from ibcl.serve.errors import ApiError

metadata = MetaData()

_CONNECT_SECONDS = 5
"""To wait for a database, and for a caller to wait before asking again."""

preferences = Table(
    "preferences",
    metadata,
    Column("user", String(128), primary_key=True),
    Column("weights", Text, nullable=False),
    Column("share_of_new_tasks", Float),
    Column("counts", Text),
    Column("identities", Text),
    Column("changed", DateTime(timezone=True), nullable=False),
)

history = Table(
    "preference_history",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("user", String(128), nullable=False),
    Column("source", String(16), nullable=False),
    Column("weights", Text, nullable=False),
    Column("changed", DateTime(timezone=True), nullable=False),
    Index("preference_history_of_user", "user", "id"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("digest", String(64), nullable=False),
    Column("user", String(128)),
    Column("created", DateTime(timezone=True), nullable=False),
)

choices = Table(
    "choices",
    metadata,
    Column("name", String(32), primary_key=True),
    Column("value", Text, nullable=False),
)

lineage = Table(
    "lineage",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("version", String(64), nullable=False, unique=True),
    Column("identities", Text, nullable=False),
)


def open_database(url: str) -> Engine:
    """Open a database and bring its tables up to date.

    Examples
    --------
    >>> import tempfile
    >>> from sqlalchemy import inspect
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     engine = open_database(f"sqlite:///{folder}/users.sqlite")
    ...     "preferences" in inspect(engine).get_table_names()
    True
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise ValueError(f"The database {url!r} is neither a file nor a URL") from None
    shown = parsed.render_as_string(hide_password=True)
    sqlite = parsed.get_backend_name() == "sqlite"
    if sqlite and parsed.database:
        Path(parsed.database).absolute().parent.mkdir(parents=True, exist_ok=True)
    waiting = {} if sqlite else {"connect_timeout": _CONNECT_SECONDS}
    engine = create_engine(
        parsed, pool_pre_ping=not sqlite, pool_timeout=_CONNECT_SECONDS, connect_args=waiting
    )
    if sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    try:
        migrate(engine)
    except CommandError:
        raise ValueError(
            f"The database {shown} was made by a newer version of ibcl; update ibcl, or give "
            "another --database"
        ) from None
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise ValueError(f"The database {shown} cannot be used: {reason}") from None
    if sqlite and parsed.database and parsed.database != ":memory:":
        _stay_with_file(engine, Path(parsed.database).absolute())
    return engine


def utc(moment: datetime) -> datetime:
    """Return a time from a database with its zone, which SQLite does not give back.

    Examples
    --------
    >>> utc(datetime(2026, 1, 2, 3, 4)).isoformat()
    '2026-01-02T03:04:00+00:00'
    """
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def away() -> ApiError:
    """Return the error that callers get while the database is away."""
    return ApiError(
        503, "The database cannot be used now; try again later.", retry_after=_CONNECT_SECONDS
    )


def _stay_with_file(engine: Engine, path: Path) -> None:
    """Use no connection to a file that is no longer where it was, and make no empty one there.

    SQLite would go on with a file that has been removed, and lose what it is told is stored.
    """

    def identity() -> tuple[int, int]:
        try:
            facts = path.stat()
        except OSError as error:
            raise OperationalError("", {}, error) from None
        return facts.st_dev, facts.st_ino

    def before(*_: Any) -> None:
        identity()

    def connect(_: Any, record: Any, *__: Any) -> None:
        record.info["file"] = identity()

    def checkout(_: Any, record: Any, __: Any) -> None:
        if record.info.get("file") != identity():
            raise DisconnectionError("The file of the database is another one now.")

    engine.dispose()
    event.listen(engine, "do_connect", before)
    event.listen(engine, "connect", connect)
    event.listen(engine, "checkout", checkout)


def migrate(engine: Engine, revision: str = "head") -> None:
    """Run the migrations that a database lacks."""
    configuration = Config()
    configuration.set_main_option("script_location", "ibcl.serve:migrations")
    configuration.set_main_option("path_separator", "os")
    with engine.begin() as connection:
        configuration.attributes["connection"] = connection
        command.upgrade(configuration, revision)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    # The driver's own idea of when to begin a transaction would leave reads outside of them.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=10000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_immediate(connection: Any) -> None:
    # A transaction that reads first and writes later could find the database changed in between.
    mode = "" if connection.get_execution_options().get("reads_only") else " IMMEDIATE"
    connection.exec_driver_sql(f"BEGIN{mode}")
