"""Where a knowledge base is kept: named bytes, one of which is replaced conditionally.

`Storage` is all that saving and loading ask for. `LocalFolder` is a folder of the file system;
`ibcl.store.remote` keeps one in an object store.
"""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from ibcl.errors import BusyError, ChangedSinceError, StoreError, reason
from ibcl.files import (
    UNSAFE,
    UNSUPPORTED,
    path_text,
    put,
    read_regular,
    sync_folder,
    unsafe,
    warn_not_lasting,
)

LOCK = ".lock"
LOCK_SECONDS = 30.0
"""How long a writer waits for another one to finish."""


_URL = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]+):(?P<slashes>/{1,2})(?P<rest>[^/].*)", re.DOTALL)


def as_url(path: str | PathLike[str]) -> str | None:
    """Return the URL that a path is, or None for one of the file system.

    A path object has folded the two slashes of a URL into one, which is undone.

    Examples
    --------
    >>> as_url("s3://bucket/movies"), as_url(Path("s3://bucket/movies")), as_url("movies")
    ('s3://bucket/movies', 's3://bucket/movies', None)
    """
    found = _URL.fullmatch(path_text(path))
    if found is None or (isinstance(path, str) and found["slashes"] == "/"):
        return None
    return f"{found['scheme']}://{found['rest']}"


class Storage(Protocol):
    """Named bytes; names are relative, of at most one subfolder: ``posteriors/3f…``.

    Its text, ``str(storage)``, is what people are told of where it is.
    """

    @property
    def place(self) -> Path:
        """What tells it from every other one."""

    def names(self) -> dict[str, bool]:
        """Everything there, and whether it is a plain file; not the inside of other folders."""

    def read(self, name: str, largest: int) -> bytes:
        """Return the bytes of a name, at most so many; `FileNotFoundError` where there is none."""

    def size(self, name: str) -> int:
        """Return how many bytes that is; `FileNotFoundError` where there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Put bytes under a name, whole and lasting or not at all."""

    def version(self, name: str) -> str | None:
        """Return what changes whenever the bytes of a name are replaced; None where none are."""

    def replace(self, name: str, data: bytes, version: str | None) -> None:
        """Put bytes under a name that has this version still, else `ChangedSinceError`.

        Once this returns, everybody reads the new bytes.
        """

    def remove(self, name: str) -> None:
        """Remove a name."""

    def lock(self) -> AbstractContextManager[None]:
        """Make the place if need be, and keep other writers out of it."""


class LocalFolder:
    """A folder of the file system; links out of it are not followed.

    Parameters
    ----------
    subfolders
        Names of the folders in it that belong to it.
    """

    def __init__(self, folder: Path, subfolders: Sequence[str]) -> None:
        self.folder = folder
        self.subfolders = tuple(subfolders)

    def __str__(self) -> str:
        return str(self.folder)

    @property
    def place(self) -> Path:
        """The folder itself, whatever it is called here."""
        return self.folder.resolve()

    def names(self) -> dict[str, bool]:
        """Everything there, and whether it is a plain file."""
        found: dict[str, bool] = {}
        if not os.path.lexists(self.folder):
            return found
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is a file; a knowledge base is kept in a folder.")
        try:
            for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
                if entry.name in self.subfolders and entry.is_dir(follow_symlinks=False):
                    with os.scandir(entry.path) as inner:
                        for file in inner:
                            name = f"{entry.name}/{file.name}"
                            found[name] = file.is_file(follow_symlinks=False)
                else:
                    found[entry.name] = entry.is_file(follow_symlinks=False)
        except OSError as error:
            raise StoreError(f"Cannot read {self.folder}: {reason(error)}.") from error
        return found

    def read(self, name: str, largest: int) -> bytes:
        """Return the bytes of a file."""
        path = self._inside(name)
        try:
            return read_regular(path, largest)
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {reason(error)}.") from error

    def size(self, name: str) -> int:
        """Return the bytes a file has."""
        path = self._inside(name)
        try:
            return path.stat().st_size
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {reason(error)}.") from error

    def _inside(self, name: str) -> Path:
        """Return a file's path; refuse one that links lead out of the folder."""
        path = self.folder / name
        try:
            real = Path(os.path.realpath(path, strict=True))
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {reason(error)}.") from error
        if not real.is_relative_to(self.place):
            raise StoreError(f"{path} is a link that leads out of {self.folder}; it is not read.")
        return path

    def write(self, name: str, data: bytes) -> None:
        """Write a file, and make it last."""
        path = self._own(name)
        try:
            if not path.parent.is_dir():
                path.parent.mkdir(exist_ok=True)
                sync_folder(self.folder)
            put(path, data)
            sync_folder(path.parent)
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {reason(error)}.") from error

    def _own(self, name: str) -> Path:
        """Return a file's path; refuse one in a linked subfolder."""
        path = self.folder / name
        if path.parent != self.folder and path.parent.is_symlink():
            raise StoreError(
                f"{path.parent} is a symbolic link; a knowledge base is kept in a folder of its "
                "own, and nothing is written or removed through links."
            )
        return path

    def version(self, name: str) -> str | None:
        """Return what tells a file from those that had its name before."""
        try:
            status = (self.folder / name).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"Cannot read {self.folder}: {reason(error)}.") from error
        return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"

    def replace(self, name: str, data: bytes, version: str | None) -> None:
        """Replace a file that is as it was; afterwards nothing is reported as failure."""
        path = self._own(name)
        if self.version(name) != version:
            raise ChangedSinceError(
                f"{path} was changed by somebody else in this moment; load it again and repeat "
                "what was to be saved."
            )
        put(path, data)
        try:
            sync_folder(path.parent)
        except OSError as error:
            warn_not_lasting(path, error)

    def remove(self, name: str) -> None:
        """Remove a file; where that fails, say so and go on."""
        path = self._own(name)
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            warnings.warn(
                f"{path} is no longer needed but cannot be removed: {reason(error)}; the next "
                "save tries again.",
                stacklevel=4,
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; wait for another writer, and give up with a clear sentence."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._supported("cannot make a rename last"):
                sync_folder(self.folder)
        except OSError as error:
            raise StoreError(f"Cannot write {self.folder}: {reason(error)}.") from error
        held = FileLock(self.folder / LOCK, timeout=LOCK_SECONDS, fallback_to_soft=False)
        self._check_lock()
        try:
            with self._supported("has no locks"):
                held.acquire()
        except Timeout:
            raise BusyError(
                f"{self.folder} is being written by another process; try again when it has "
                "finished."
            ) from None
        except OSError as error:
            raise StoreError(f"Cannot lock {self.folder}: {reason(error)}.") from error
        try:
            yield
        finally:
            # The lock ends with its file's descriptor at the latest, and what was saved is saved.
            with suppress(OSError):
                held.release()

    def _check_lock(self) -> None:
        path = self.folder / LOCK
        if os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode):
            raise StoreError(f"{path} is not a plain file, and cannot be this folder's lock.")

    @contextmanager
    def _supported(self, lack: str) -> Iterator[None]:
        """Refuse a file system that cannot do this, unless the user accepts that."""
        try:
            yield
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            if not unsafe():
                raise StoreError(
                    f"{self.folder} is on a file system that {lack} ({reason(error)}): a crash, or "
                    "two writers at once, could lose what was saved last. Choose another place, "
                    f"or set the environment variable {UNSAFE}=1 to save there nevertheless."
                ) from error
