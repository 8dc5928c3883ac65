"""A PostgreSQL server for the tests, where Debian's binaries are there."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server of its own and give the URL of an empty database."""
    pytest.importorskip("psycopg", reason="PostgreSQL is reached by the package 'psycopg'")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("there is no PostgreSQL under /usr/lib/postgresql")
    demote = _demotion()
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    if demote:
        shutil.chown(folder, "postgres")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def run(program: str, *arguments: str) -> None:
        command = [binaries / program, *arguments]
        subprocess.run(command, check=True, capture_output=True, cwd=folder, **demote)

    data = str(folder / "data")
    run("initdb", "-D", data, "-U", "movies", "-A", "trust", "--no-sync")
    options = f"-c listen_addresses=127.0.0.1 -p {port} -c unix_socket_directories={folder}"
    log = str(folder / "log")
    try:
        run("pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")
        yield f"postgresql://movies@127.0.0.1:{port}/postgres"
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


def _demotion() -> dict[str, str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
    return {"user": "postgres", "group": "postgres"}
