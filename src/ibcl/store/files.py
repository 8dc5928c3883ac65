"""Files that are either whole or absent: atomic writing, checked reading, one writer at a time."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"
LOCK_SECONDS = 30.0
"""How long a writer waits for another one to finish."""
TEMPORARY = ".tmp"


class StoreError(ValueError):
    """What is on disk cannot be used, or must not be written over; its text says why."""


def sha256(data: bytes) -> str:
    """Return the content hash that names a file.

    Examples
    --------
    >>> sha256(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that after a crash it holds either its old contents or these."""
    temporary = path.with_name(path.name + TEMPORARY)
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a crash of the machine, where the system can do that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_regular(path: Path, largest: int) -> bytes:
    """Read a plain file of bounded size; never waits on a pipe or a device."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise StoreError(f"{path} is not a plain file.")
        if status.st_size > largest:
            raise StoreError(
                f"{path} is damaged: it has {status.st_size} bytes, at most {largest} are expected."
            )
        return file.read(largest + 1)


def read_checked(path: Path, name: str, size: int) -> bytes:
    """Read a file whose hash and size are known; `FileNotFoundError` where it is gone."""
    try:
        data = read_regular(path, size)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from None
    if len(data) != size or sha256(data) != name:
        raise StoreError(f"{path} is damaged: its contents do not match its name.")
    return data


@contextmanager
def one_writer(folder: Path) -> Iterator[None]:
    """Hold the folder's lock; wait for another writer, and give up with a clear sentence."""
    try:
        with FileLock(folder / LOCK, timeout=LOCK_SECONDS):
            yield
    except Timeout:
        raise StoreError(
            f"{folder} is being written by another process; try again when it has finished."
        ) from None
