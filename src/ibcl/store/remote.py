"""A knowledge base in an object store: the same files, the same manifest rule, no file locks.

The manifest is replaced on the condition that it is as it was, so of two writers one wins and the
other is told. Removing what is no longer needed has no such condition, so writers keep out of each
other's way by a *lease*: the object ``.lock``, created on the condition that there is none, and
replaced every few seconds while its owner lives. A writer that finds it unchanged for the length of
a lease, by its own clock, takes it over; clocks of different machines are never compared.
"""

from __future__ import annotations

import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ibcl.errors import BusyError, ChangedSinceError, StoreError
from ibcl.store.objects import Objects, connect
from ibcl.store.storage import LOCK, LOCK_SECONDS

LEASE_SECONDS = 12.0
"""How long a lock must be seen unchanged to be that of a writer that has ended."""
_RENEWALS = 4
_POLLS = 20


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
        self._lease: _Lease | None = None

    def __str__(self) -> str:
        return self.url

    @property
    def place(self) -> Path:
        """The URL, in the form that tells it from other places."""
        return Path(self.url)

    def names(self) -> dict[str, bool]:
        """Everything there; a deeper key is shown as the folder it lies in."""
        found: dict[str, bool] = {}
        for key in self._objects.names():
            parts = key.split("/")
            found["/".join(parts[:2])] = len(parts) <= 2
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

    def write(self, name: str, data: bytes) -> None:
        """Put an object; it is there as a whole once this returns."""
        self._objects.put(name, data)

    def version(self, name: str) -> str | None:
        """Return what tells an object from those that had its name before."""
        return self._objects.version(name)

    def replace(self, name: str, data: bytes, version: str | None) -> None:
        """Replace an object that is as it was, while this writer's lease holds."""
        if self._lease is not None:
            self._lease.renew()
        self._objects.put_if(name, data, version)

    def remove(self, name: str) -> None:
        """Remove an object; where that fails, say so and go on."""
        try:
            self._objects.remove(name)
        except StoreError as error:
            warnings.warn(
                f"{self}/{name} is no longer needed but cannot be removed: {error} The next save "
                "tries again.",
                stacklevel=4,
            )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lease; wait for another writer, and give up with a clear sentence."""
        self._objects.check_writable()
        lease = _Lease(self._objects, str(self))
        lease.acquire()
        self._lease = lease
        try:
            yield
        finally:
            self._lease = None
            lease.release()


class _Lease:
    """The object ``.lock``, renewed in the background until it is released."""

    def __init__(self, objects: Objects, what: str) -> None:
        self._objects, self._what = objects, what
        self._version: str | None = None
        self._ended = threading.Event()
        self._renewing = threading.Lock()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def acquire(self) -> None:
        """Create the lock, or take over one whose owner has ended."""
        seen, since = None, time.monotonic()
        until = since + LOCK_SECONDS
        while self._version is None:
            present = self._objects.version(LOCK)
            now = time.monotonic()
            if present != seen:
                seen, since = present, now
            if present is None or now - since >= LEASE_SECONDS:
                with suppress(ChangedSinceError):
                    self._version = self._objects.put_if(LOCK, _fresh(), present)
                continue
            if now > until:
                raise BusyError(
                    f"{self._what} is being written by another process; try again when it has "
                    "finished."
                )
            time.sleep(LEASE_SECONDS / _POLLS)
        self._check_conditions(self._version)
        self._thread.start()

    def _check_conditions(self, version: str) -> None:
        """Refuse a store that takes conditions and does not keep to them."""
        for condition in (None, f'"{uuid.uuid4().hex}"'):
            try:
                version = self._objects.put_if(LOCK, _fresh(), condition)
            except ChangedSinceError:
                continue
            self._objects.remove(LOCK)
            raise StoreError(
                f"{self._what} is in a store that ignores conditions: two writers could destroy "
                "each other's work. Save to a local folder, or to a store with conditional puts."
            )
        if self._objects.version(LOCK) != version:
            raise BusyError(f"{self._what} was taken over by another writer; try again.")

    def renew(self) -> None:
        """Show that the owner lives; say so if somebody has taken over."""
        with self._renewing:
            try:
                self._version = self._objects.put_if(LOCK, _fresh(), self._version)
            except ChangedSinceError:
                self._ended.set()
                raise BusyError(
                    f"{self._what} was taken over by another writer while this one stood still; "
                    "load it again and repeat what was to be saved."
                ) from None

    def _keep(self) -> None:
        while not self._ended.wait(LEASE_SECONDS / _RENEWALS):
            # A failure here shows at the next renewal, before the manifest is replaced.
            with suppress(StoreError):
                self.renew()

    def release(self) -> None:
        """Remove the lock if it is still this writer's."""
        self._ended.set()
        self._thread.join()
        with suppress(StoreError):
            if self._objects.version(LOCK) == self._version:
                self._objects.remove(LOCK)


def _fresh() -> bytes:
    """Bytes that were never there before, so that a renewed lock has another version."""
    return uuid.uuid4().hex.encode()
