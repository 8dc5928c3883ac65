"""Where results are kept: files of a folder, or objects below a URL, each whole or not there.

A path may be a URL such as ``s3://bucket/runs``, also in the form that a `Path` folds it into. A
cell's table is written by one process, under a name of its own, so no condition is needed: two
writers of the same cell write the same table.
"""

from __future__ import annotations

from pathlib import Path

from ibcl.files import is_temporary, write_atomically
from ibcl.store import as_url, connect


def absolute(folder: Path) -> Path:
    """Return a folder as any other process of this machine would name it; a URL as it is.

    Examples
    --------
    >>> absolute(Path("s3://bucket/runs")).parts[1:]
    ('bucket', 'runs')
    """
    return folder if as_url(folder) else folder.absolute()


def read_bytes(path: Path) -> bytes:
    """Read a file or an object; `FileNotFoundError` where there is none."""
    url = as_url(path)
    if url is None:
        return path.read_bytes()
    place, _, key = url.rpartition("/")
    return connect(place).read(key)


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file or an object that is either whole or not there.

    Examples
    --------
    >>> write_bytes(Path("memory://doctest-results/one"), b"table")
    >>> read_bytes(Path("memory://doctest-results/one"))
    b'table'
    """
    url = as_url(path)
    if url is not None:
        place, _, key = url.rpartition("/")
        connect(place).put(key, data)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)


def tables(folder: Path) -> list[Path]:
    """Return the Parquet files of a folder, in order of their names; not those of its folders.

    Examples
    --------
    >>> write_bytes(Path("memory://doctest-tables/a.parquet"), b"")
    >>> [path.name for path in tables(Path("memory://doctest-tables"))]
    ['a.parquet']
    """
    url = as_url(folder)
    if url is None:
        return sorted(p for p in folder.glob("*.parquet") if not is_temporary(p.name))
    names = connect(url).names()
    return [folder / name for name in names if name.endswith(".parquet") and "/" not in name]


def of_one_process(folder: Path) -> bool:
    """Tell whether only the process that writes there can read it.

    Examples
    --------
    >>> of_one_process(Path("memory://runs")), of_one_process(Path("s3://bucket/runs"))
    (True, False)
    """
    return (as_url(folder) or "").startswith("memory://")
