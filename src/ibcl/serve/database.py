"""The database: its tables, how it is opened, and how it is brought up to date.

SQLite keeps a write-ahead log and waits for the disk at every commit (``synchronous=FULL``), so
that what was acknowledged is there after a kill or a power cut.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
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
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

metadata = MetaData()

preferences = Table(
    "preferences",
    metadata,
    Column("user", String(128), primary_key=True),
    Column("weights", Text, nullable=False),
    Column("share_of_new_tasks", Float),
    Column("counts", Text),
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
    engine = create_engine(parsed, pool_pre_ping=not sqlite)
    if sqlite:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_immediate)
    try:
        migrate(engine)
    except SQLAlchemyError as error:
        reason = str(getattr(error, "orig", None) or error).splitlines()[0]
        raise ValueError(f"The database {shown} cannot be used: {reason}") from None
    return engine


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
