"""A knowledge base in an object store: the same files, the same manifest rule, no locks at all.

The manifest is replaced on the condition that it is as it was, so of two writers one wins and the
other is told, however long either of them stands still. Nothing else needs the order of writers:
see `ibcl.store.folder` on which files are removed, and when.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from ibcl.errors import ChangedSinceError, StoreError
from ibcl.store.objects import Objects, connect
from ibcl.store.storage import UndecidedError

REQUESTS = 16
"""How many objects are written, read or removed at the same time."""
Item = TypeVar("Item")
Result = TypeVar("Result")


class RemoteFolder:
    """Objects below a URL, such as ``s3://bucket/movies.ibcl`` or ``memory://movies.ibcl``.

    Examples
    --------
    >>> import ibcl
    >>> ibcl.IBCL(ibcl.networks.linear(2)).save("memory://doctest.ibcl")
    >>> ibcl.load("memory://doctest.ibcl").tasks
    ()
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._objects: Objects = connect(self.url)

    def __str__(self) -> str:
        return self.url

    @property
    def place(self) -> Path:
        """The URL, in the form that tells it from other places."""
        return Path(self.url)

    def names(self) -> dict[str, int | None]:
        """Everything there; a deeper key is shown as the folder it lies in."""
        found: dict[str, int | None] = {}
        for key, size in self._objects.sizes().items():
            parts = key.split("/")
            found["/".join(parts[:2])] = size if len(parts) <= 2 else None
        return found

    def read(self, name: str, largest: int) -> bytes:
        """Return the bytes of an object."""
        size = self._objects.size(name)
        if size > largest:
            raise StoreError(
                f"{self}/{name} is damaged: it has {size} bytes, at most {largest} are expected."
            )
        return self._objects.read(name)

    def size(self, name: str) -> int:
        """Return the bytes an object has."""
        return self._objects.size(name)

    def write(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Put objects; each is there as a whole once this returns."""
        for _ in _at_once(lambda file: self._objects.put(*file), files):
            pass

    def version(self, name: str) -> str | None:
        """Return what tells an object from those that had its name before."""
        return self._objects.version(name)

    def replace(self, name: str, data: bytes, version: str | None) -> str:
        """Replace an object that is as it was."""
        try:
            return self._objects.put_if(name, data, version)
        except ChangedSinceError:
            # A request whose answer was lost is sent again, and then meets what it put itself.
            present = self._objects.version(name)
            if present is None or self._objects.read(name) != data:
                raise
            return present
        except StoreError as error:
            # The request may have arrived, or arrive yet.
            raise UndecidedError(str(error)) from None

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for _ in _at_once(self._remove, names):
            pass

    def _remove(self, name: str) -> None:
        try:
            self._objects.remove(name)
        except StoreError as error:
            warnings.warn(
                f"{self}/{name} is no longer needed but cannot be removed: {error} The next save "
                "tries again.",
                stacklevel=2,
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuse a place that cannot be written on conditions; nobody needs to wait."""
        self._objects.check_writable()
        yield


def _at_once(work: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Do a piece of work for every item, some at the same time, with few items in memory."""
    left = iter(items)
    with ThreadPoolExecutor(REQUESTS) as pool:
        while some := list(islice(left, 4 * REQUESTS)):
            yield from pool.map(work, some)
