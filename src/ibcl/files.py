"""Files that are either whole or absent: the one way in which anything here is written.

A file is written beside its target, under a name nobody can guess, made to last, and renamed.
Whatever fails, the old file stands and nothing stays beside it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Final

from ibcl.errors import ExistsError, StoreError, reason

UNSAFE = "IBCL_UNSAFE_FILES"
"""Environment variable: 1 saves where a file system cannot make files and renames last."""
UNSUPPORTED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})
"""What file systems answer that cannot do something at all."""
MANIFEST = "manifest.json"
KNOWLEDGE_BASE: Final = "ibcl knowledge base"
"""What a knowledge base's manifest says it is."""

_TEMPORARY = re.compile(r"\.ibcl-[0-9a-f]{32}\.(tmp(\..*)?|claim)", re.DOTALL)
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


def path_text(path: str | PathLike[str]) -> str:
    """Return the text of a path, or say in one sentence why there can be no file of that name.

    Examples
    --------
    >>> path_text(Path("movies.ibcl"))
    'movies.ibcl'
    """
    text = path if isinstance(path, str) else path.__fspath__() if isinstance(path, PathLike) else 0
    if not isinstance(text, str):
        raise StoreError(f"A file or folder is named by text or by a path object, not by {path!r}.")
    if "\0" in text:
        raise StoreError(f"No file or folder can be named {text!r}: a name holds no NUL character.")
    return text


def write_atomically(path: str | PathLike[str], data: bytes, overwrite: bool = True) -> None:
    """Write a file so that after a crash it holds either its old contents or these.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder) / "greeting", b"hello")
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('greeting', b'hello')]
    """
    target = Path(path_text(path))
    refuse_inside_knowledge_base(target)
    put(target, data, overwrite)
    _last(target)


@contextmanager
def atomic_output(path: str | PathLike[str], force: bool = False) -> Iterator[Path]:
    """Give a path to write to, of the same suffix; it becomes the file when the block ends.

    Only the writing belongs into the block: what the system refuses there is reported as a failure
    to write this file.

    Parameters
    ----------
    force
        True replaces a file that is there; otherwise it is refused.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with atomic_output(Path(folder) / "table.csv") as path:
    ...         _ = path.write_text("x,y")
    ...     [path.name for path in Path(folder).iterdir()]
    ['table.csv']
    """
    target = Path(path_text(path))
    refuse_inside_knowledge_base(target)
    with _beside(target, force) as (descriptor, temporary):
        os.close(descriptor)
        yield temporary
    _last(target)


def put(target: Path, data: bytes, overwrite: bool = True) -> None:
    """Write and rename, for callers that make the folder itself last."""
    with _beside(target, overwrite) as (descriptor, _):
        try:
            _write(descriptor, data)
        finally:
            os.close(descriptor)


def put_new(path: Path, data: bytes) -> None:
    """Write a file of a name that nobody reads yet, so that no rename is needed; whole or gone."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS, 0o666)
    try:
        try:
            _write(descriptor, data)
            _sync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


@contextmanager
def _beside(target: Path, overwrite: bool) -> Iterator[tuple[int, Path]]:
    """Open a new file in the target's folder; it takes the target's place unless something fails.

    The caller closes the descriptor.
    """
    try:
        mode = check_target(target, overwrite)
        suffix = "".join(target.suffixes[-2:])
        name = f".ibcl-{secrets.token_hex(16)}.tmp{suffix if len(suffix) < 100 else ''}"
        temporary = target.with_name(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS
        descriptor = os.open(temporary, flags, 0o666)
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {reason(error)}.") from error
    try:
        yield descriptor, temporary
        _sync_file(temporary)
        if mode is not None:
            temporary.chmod(mode)
        _rename(temporary, target, overwrite)
    except BaseException as error:
        with suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError):
            raise StoreError(f"Cannot write {target}: {reason(error)}.") from error
        raise


def check_target(target: Path, overwrite: bool) -> int | None:
    """Refuse what must not be written over; return the permissions of the file there, if any."""
    try:
        status = target.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{target} is a symbolic link; give the place of the file itself.")
    if stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{target} is a folder; give the name of a file.")
    if not stat.S_ISREG(status.st_mode):
        raise StoreError(f"{target} is not a plain file, and nothing is written to it.")
    if not overwrite:
        raise ExistsError(f"{target} exists already; choose another name, or replace it knowingly.")
    return stat.S_IMODE(status.st_mode)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0) | _NO_LINKS)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"{path} was replaced by something else while it was written.")
        _sync(descriptor)
    finally:
        os.close(descriptor)


def _sync(descriptor: int) -> None:
    """Make what was written to a file or folder last, where the system can."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if not (unsafe() and error.errno in UNSUPPORTED):
            raise


def _rename(temporary: Path, target: Path, overwrite: bool) -> None:
    """Give the finished file its name; without overwriting, also against a race."""
    if not overwrite:
        try:
            os.link(temporary, target, follow_symlinks=False)
        except FileExistsError:
            raise ExistsError(f"{target} exists already, written by another process.") from None
        except (OSError, NotImplementedError):
            # A file system without hard links: look once more, and rename.
            check_target(target, overwrite=False)
        else:
            # The file is there: a second name for it that stays is no failure.
            with suppress(OSError):
                temporary.unlink()
            return
    temporary.replace(target)


def _last(target: Path) -> None:
    """Make the new name survive a crash of the machine; the file is there in any case."""
    try:
        sync_folder(target.parent)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            warn_not_lasting(target, error)


def warn_not_lasting(what: object, error: OSError) -> None:
    """Say that something was written, and might not survive a crash of the machine."""
    warnings.warn(
        f"{what} was written, but the system cannot promise that it survives a power cut: "
        f"{reason(error)}.",
        RuntimeWarning,
        stacklevel=4,
    )


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a crash of the machine."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        _sync(descriptor)
    finally:
        os.close(descriptor)


def unsafe() -> bool:
    """Tell whether the user accepts file systems without lasting renames."""
    return os.environ.get(UNSAFE) == "1"


def is_temporary(name: str) -> bool:
    """Tell whether a file's name is one that only a writer of this module gives.

    Examples
    --------
    >>> is_temporary(f".ibcl-{'0' * 32}.tmp.csv"), is_temporary("table.tmp")
    (True, False)
    """
    return _TEMPORARY.fullmatch(name) is not None


def read_regular(path: Path, largest: int) -> bytes:
    """Read a plain file of bounded size; never waits on a pipe or a device."""
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise StoreError(
                f"{path} is damaged: it has {size} bytes, at most {largest} are expected."
            )
        return file.read(largest + 1)


def hash_regular(path: Path) -> str:
    """Return the SHA-256 of a plain file of any size; never waits on a pipe or a device."""
    with _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[BufferedReader]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StoreError(f"{path} is not a plain file.")
        yield file


def refuse_inside_knowledge_base(target: Path) -> None:
    """Refuse an output among a knowledge base's own files, which it would be foreign to."""
    for folder in list(target.absolute().parents)[:2]:
        try:
            descriptor = os.open(folder / MANIFEST, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as file, suppress(OSError):
            if KNOWLEDGE_BASE.encode() in file.read(1024):
                raise StoreError(
                    f"{target} lies inside the knowledge base {folder}; choose a place outside."
                )
