r"""Where a knowledge base is kept: named bytes, some of which are replaced on a condition.

`Storage` is all that saving and loading ask for. `LocalFolder` is a folder of the file system;
`ibcl.store.remote` keeps one in an object store.

A file system has no "replace this file if it is as it was", and its locks do not always work, so
`LocalFolder.replace` makes one of renames, each of which is atomic. To replace version v of a file,

1. the new file is written into a folder of its own, under a name that occurs once;
2. that folder is renamed to the *claim* on v, whose name follows from v. Renaming a folder onto one
   that is not empty fails, so at most one file is in the claim at any time. A claim that is there
   already is revoked, by removing the file in it: its owner is dead, or is refused at step 4;
3. the version is compared with v; if it differs, the claim is withdrawn and the save refused;
4. the file is renamed from the claim to its place. If it is gone, it was revoked: refused.

Only a file in the claim on v can take the place of v, the claim holds one file, and whoever claims
v after another has removed that one's file. So v is replaced at most once, wherever writers stop
and go on. Nobody waits for a writer that has ended, and no clock is read.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Protocol

from filelock import FileLock, Timeout

from ibcl.errors import BusyError, ChangedSinceError, StoreError, reason
from ibcl.files import (
    UNSAFE,
    UNSUPPORTED,
    check_target,
    hash_regular,
    is_temporary,
    path_text,
    put_new,
    read_regular,
    sync_folder,
    warn_not_lasting,
)

LOCK = ".lock"
LOCK_SECONDS = 30.0
"""How long a writer waits for another one to finish."""
# What systems answer where a folder is renamed onto another one.
_TAKEN = frozenset({errno.ENOTEMPTY, errno.EEXIST, errno.EACCES, errno.EPERM})

_URL = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]+):(?P<slashes>/{1,2})(?P<rest>[^/].*)", re.DOTALL | re.IGNORECASE
)


def as_url(path: str | PathLike[str]) -> str | None:
    """Return the URL that a path is, or None for one of the file system.

    A path object has folded the two slashes of a URL into one, which is undone.

    Examples
    --------
    >>> as_url("s3://bucket/movies"), as_url(Path("s3://bucket/movies")), as_url("movies")
    ('s3://bucket/movies', 's3://bucket/movies', None)
    >>> as_url("S3://bucket/movies")
    's3://bucket/movies'
    """
    found = _URL.fullmatch(path_text(path))
    if found is None or (isinstance(path, str) and found["slashes"] == "/"):
        return None
    return f"{found['scheme'].lower()}://{found['rest']}"


class UndecidedError(StoreError):
    """The storage did not say whether it has replaced a file, and may do so later."""


class Readable(Protocol):
    """Named bytes that can be read; its text is what people are told of where they are."""

    def read(self, name: str, largest: int) -> bytes:
        """Return the bytes of a name, at most so many; `FileNotFoundError` where there is none."""


class Storage(Readable, Protocol):
    """Named bytes; names are relative, of at most one subfolder: ``posteriors/3f…``."""

    @property
    def place(self) -> Path:
        """What tells it from every other one."""

    def names(self) -> dict[str, int | None]:
        """Everything there, with the bytes of each plain file and None for anything else.

        What was there all the time is listed; the inside of other folders is not.
        """

    def size(self, name: str) -> int:
        """Return how many bytes a name has; `FileNotFoundError` where there is none."""

    def write(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Put bytes under names that were never used; all are whole and last once this returns."""

    def version(self, name: str) -> str | None:
        """Return what differs whenever the bytes of a name differ; None where there are none."""

    def replace(self, name: str, data: bytes, version: str | None) -> str:
        """Put bytes under a name that has this version still; return the new one.

        Once this returns, everybody reads the new bytes. `ChangedSinceError` or another
        `StoreError` says that they are not there, and never will be; `UndecidedError` that nobody
        knows.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Remove names; where that fails, say so and go on."""

    def lock(self) -> AbstractContextManager[None]:
        """Make the place if need be, and let other writers wait where they can.

        Nothing relies on it: a lock that does not work costs one of two writers a refused save.
        """


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

    def names(self) -> dict[str, int | None]:
        """Everything there, with the bytes of each plain file."""
        found: dict[str, int | None] = {}
        if not os.path.lexists(self.folder):
            return found
        if not self.folder.is_dir():
            raise StoreError(f"{self.folder} is a file; a knowledge base is kept in a folder.")
        try:
            for entry in sorted(os.scandir(self.folder), key=lambda entry: entry.name):
                is_folder = entry.is_dir(follow_symlinks=False)
                if is_folder and entry.name in self.subfolders:
                    with os.scandir(entry.path) as inner:
                        for file in inner:
                            with suppress(FileNotFoundError):
                                found[f"{entry.name}/{file.name}"] = _bytes(file)
                elif is_folder and is_temporary(entry.name):
                    # A file on its way into its place, with the folder around it.
                    found[entry.name] = 0
                else:
                    with suppress(FileNotFoundError):
                        found[entry.name] = _bytes(entry)
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
            if not any(map(_is_link, self._below(path))):
                return path
            real = Path(os.path.realpath(path, strict=True))
        except (FileNotFoundError, NotADirectoryError):
            raise
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {reason(error)}.") from error
        if not real.is_relative_to(self.place):
            raise StoreError(f"{path} is a link that leads out of {self.folder}; it is not read.")
        return path

    def _below(self, path: Path) -> tuple[Path, ...]:
        """Return what a path passes through below the folder."""
        return (path,) if path.parent == self.folder else (path.parent, path)

    def write(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Write new files, and make them last."""
        parents: set[Path] = set()
        for name, data in files:
            path = self._own(name)
            try:
                if path.parent not in parents:
                    path.parent.mkdir(exist_ok=True)
                    parents.add(path.parent)
                put_new(path, data)
            except OSError as error:
                raise StoreError(f"Cannot write {path}: {reason(error)}.") from error
        try:
            for parent in parents:
                sync_folder(parent)
            if parents:
                sync_folder(self.folder)
        except OSError as error:
            raise StoreError(f"Cannot write {self.folder}: {reason(error)}.") from error

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
        """Return the hash of a file's contents."""
        try:
            return hash_regular(self._inside(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"{self.folder / name} cannot be read: {reason(error)}.") from error

    def replace(self, name: str, data: bytes, version: str | None) -> str:
        """Replace a file that is as it was, by a claim on its version."""
        path = self._own(name)
        occurs_once = secrets.token_hex(16)
        prepared = self.folder / f".ibcl-{occurs_once}.tmp"
        key = hashlib.sha256(f"{name} {version}".encode()).hexdigest()[:32]
        claim = self.folder / f".ibcl-{key}.claim"
        claimed = claim / occurs_once
        try:
            mode = check_target(path, overwrite=True)
            prepared.mkdir()
            put_new(prepared / occurs_once, data)
            if mode is not None:
                (prepared / occurs_once).chmod(mode)
            if not _claim(prepared, claim) or self.version(name) != version:
                raise self._changed(path)
            os.rename(claimed, path)
        except FileNotFoundError:
            # Revoked; or a network's file system did it and forgot to say so.
            if self.version(name) != hashlib.sha256(data).hexdigest():
                raise self._changed(path) from None
        except OSError as error:
            raise StoreError(f"Cannot write {path}: {reason(error)}.") from error
        finally:
            for leftover in (prepared, claim):
                with suppress(OSError):
                    os.unlink(leftover / occurs_once)
                with suppress(OSError):
                    os.rmdir(leftover)
        try:
            sync_folder(path.parent)
        except OSError as error:
            warn_not_lasting(path, error)
        return hashlib.sha256(data).hexdigest()

    def _changed(self, path: Path) -> ChangedSinceError:
        return ChangedSinceError(
            f"{path} was changed by another writer at this moment; load it again and repeat what "
            "was to be saved."
        )

    def remove(self, names: Iterable[str]) -> None:
        """Remove files, and folders around files that never came into their place."""
        for name in names:
            path = self._own(name)
            try:
                if is_temporary(name) and path.is_dir() and not path.is_symlink():
                    _remove_folder(path)
                else:
                    path.unlink(missing_ok=True)
            except OSError as error:
                warnings.warn(
                    f"{path} is no longer needed but cannot be removed: {reason(error)}; the next "
                    "save tries again.",
                    stacklevel=3,
                )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder's lock; wait for another writer, and give up with a clear sentence."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._check_lasting()
        except OSError as error:
            raise StoreError(f"Cannot write {self.folder}: {reason(error)}.") from error
        held = FileLock(self.folder / LOCK, timeout=LOCK_SECONDS, fallback_to_soft=False)
        self._check_lock()
        try:
            held.acquire()
        except Timeout:
            raise BusyError(
                f"{self.folder} is being written by another process; try again when it has "
                "finished."
            ) from None
        except OSError as error:
            # A file system without locks will do: of two writers one is refused.
            if error.errno not in UNSUPPORTED:
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

    def _check_lasting(self) -> None:
        """Refuse a file system that cannot make renames last, unless the user accepts that."""
        try:
            sync_folder(self.folder)
        except OSError as error:
            if error.errno not in UNSUPPORTED:
                raise
            raise StoreError(
                f"{self.folder} is on a file system that cannot make a rename last "
                f"({reason(error)}): a crash could lose what was saved last. Choose another place, "
                f"or set the environment variable {UNSAFE}=1 to save there nevertheless."
            ) from error


def _bytes(entry: os.DirEntry[str]) -> int | None:
    """Return the bytes of a plain file; None for anything else."""
    status = entry.stat(follow_symlinks=False)
    return status.st_size if stat.S_ISREG(status.st_mode) else None


def _is_link(path: Path) -> bool:
    return stat.S_ISLNK(os.lstat(path).st_mode)


def _claim(prepared: Path, claim: Path) -> bool:
    """Rename a folder to the claim; remove what another writer left there, and try once more."""
    for _ in range(2):
        try:
            os.rename(prepared, claim)
        except OSError as error:
            if error.errno not in _TAKEN or not claim.is_dir():
                raise
            _remove_folder(claim)
        else:
            return True
    return False


def _remove_folder(folder: Path) -> None:
    """Remove a folder of files, as it is or as another writer changes it at this moment."""
    with suppress(FileNotFoundError):
        for name in os.listdir(folder):
            with suppress(FileNotFoundError):
                os.unlink(folder / name)
        # Another writer's files may have come in the meantime: then it is theirs.
        with suppress(OSError):
            os.rmdir(folder)
