"""Objects by key in a store that is reached by URL, and put there on a condition.

A knowledge base needs one thing more than bytes under names: to replace its manifest only if it is
as it was. S3, Google's and Azure's stores do that by the entity tag (``If-Match`` and
``If-None-Match``), through obstore. What fsspec keeps in memory does it by a lock of this process.
Everything else that fsspec knows can be read, and is refused where it would be written.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from ibcl.errors import ChangedSinceError, StoreError

CONDITIONAL = ("s3", "gs", "az")
"""Schemes of object stores with conditional puts."""

_IN_MEMORY = threading.RLock()
_KEEPING: set[tuple[str, ...]] = set()
"""Buckets that have been seen to keep to conditions."""


class Objects(Protocol):
    """Bytes by key below one URL."""

    def check_writable(self) -> None:
        """Refuse, as a `StoreError`, a place where nothing can be put on a condition."""

    def names(self) -> list[str]:
        """Return every key there."""

    def sizes(self) -> dict[str, int]:
        """Return how many bytes each key has."""

    def size(self, key: str) -> int:
        """Return how many bytes a key has; `FileNotFoundError` where there is none."""

    def read(self, key: str) -> bytes:
        """Return the bytes of a key; `FileNotFoundError` where there is none."""

    def put(self, key: str, data: bytes) -> None:
        """Put bytes under a key, whole or not at all."""

    def version(self, key: str) -> str | None:
        """Return what tells the bytes of a key from other bytes; None where there is none."""

    def put_if(self, key: str, data: bytes, version: str | None) -> str:
        """Put bytes under a key of this version; return the new one, or `ChangedSinceError`."""

    def remove(self, key: str) -> None:
        """Remove a key, if it is there."""


def connect(url: str) -> Objects:
    """Return the objects below a URL.

    Examples
    --------
    >>> objects = connect("memory://doctest-objects")
    >>> version = objects.put_if("greeting", b"hello", None)
    >>> objects.names(), objects.read("greeting")
    (['greeting'], b'hello')
    """
    scheme = url.partition("://")[0]
    try:
        return ConditionalObjects(url) if scheme in CONDITIONAL else FsspecObjects(url)
    except ImportError as error:
        raise StoreError(
            f"{url} needs a package that is not installed ({error}): pip install 'ibcl[remote]'."
        ) from None


class ConditionalObjects:
    """An object store whose puts take a condition: S3 and what speaks its language, GCS, Azure.

    The place and the keys to it come from the environment, as for other tools: for S3
    ``AWS_ENDPOINT_URL``, ``AWS_REGION``, ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``.
    """

    def __init__(self, url: str) -> None:
        import obstore
        from obstore import store

        self.url, self._obstore = url, obstore
        # Only an endpoint that says so itself is spoken to without encryption.
        plain = os.environ.get("AWS_ENDPOINT_URL", "").startswith("http://")
        options: dict[str, Any] = {
            "client_options": {"allow_http": plain, "timeout": "60s"},
            "retry_config": {"max_retries": 3, "retry_timeout": timedelta(seconds=30)},
        }
        try:
            self._store = store.from_url(url, **options)
        except (obstore.exceptions.BaseError, ValueError) as error:
            raise StoreError(f"{url} cannot be opened: {_first_line(error)}.") from None

    def check_writable(self) -> None:
        """Refuse a store that takes conditions and does not keep to them; ask each one once."""
        bucket = os.environ.get("AWS_ENDPOINT_URL", ""), *self.url.split("/")[:3]
        if bucket in _KEEPING:
            return
        key = f".ibcl-{secrets.token_hex(16)}.tmp"
        version = self.put_if(key, b"1", None)
        try:
            for condition in (None, f'"{secrets.token_hex(16)}"'):
                with suppress(ChangedSinceError):
                    self.put_if(key, b"2", condition)
                    raise StoreError(
                        f"{self.url} is in a store that ignores conditions: two writers could "
                        "destroy each other's work. Save to a local folder, or to a store with "
                        "conditional puts."
                    )
            self.put_if(key, b"3", version)
        finally:
            self.remove(key)
        _KEEPING.add(bucket)

    def names(self) -> list[str]:
        """Return every key there."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return how many bytes each key has."""
        pages = self._call("listed", lambda: list(self._obstore.list(self._store)))
        return {item["path"]: int(item["size"]) for page in pages for item in page}

    def size(self, key: str) -> int:
        """Return how many bytes a key has."""
        return int(self._call("read", lambda: self._obstore.head(self._store, key), key)["size"])

    def read(self, key: str) -> bytes:
        """Return the bytes of a key."""
        return bytes(self._call("read", lambda: self._obstore.get(self._store, key).bytes(), key))

    def put(self, key: str, data: bytes) -> None:
        """Put bytes under a key."""
        # In one request: parts of an upload in many would stay behind when it is killed.
        self._call(
            "written",
            lambda: self._obstore.put(self._store, key, data, use_multipart=False),
            key,
        )

    def version(self, key: str) -> str | None:
        """Return the entity tag."""
        try:
            tag = self._call("read", lambda: self._obstore.head(self._store, key), key)["e_tag"]
        except FileNotFoundError:
            return None
        if tag is None:
            raise StoreError(f"{self.url} gives no entity tags: nothing can be kept there safely.")
        return str(tag)

    def put_if(self, key: str, data: bytes, version: str | None) -> str:
        """Put bytes by ``If-Match``, or ``If-None-Match: *`` where nothing may be there."""
        errors = self._obstore.exceptions
        mode: Any = "create" if version is None else {"e_tag": version}
        try:
            result = self._obstore.put(self._store, key, data, mode=mode, use_multipart=False)
        except (errors.AlreadyExistsError, errors.PreconditionError, errors.NotFoundError):
            raise ChangedSinceError(
                f"{self.url}/{key} was changed by another writer at this moment; load it again and "
                "repeat what was to be saved."
            ) from None
        except (errors.NotSupportedError, NotImplementedError):
            raise StoreError(_no_condition(self.url)) from None
        except errors.BaseError as error:
            raise StoreError(f"{self.url}/{key} cannot be written: {_first_line(error)}.") from None
        return str(result["e_tag"])

    def remove(self, key: str) -> None:
        """Remove a key."""
        with suppress(FileNotFoundError):
            self._call("removed", lambda: self._obstore.delete(self._store, key), key)

    def _call(self, what: str, work: Any, key: str = "") -> Any:
        place = f"{self.url}/{key}".rstrip("/")
        try:
            return work()
        except FileNotFoundError:
            raise FileNotFoundError(2, "No such object", place) from None
        except self._obstore.exceptions.BaseError as error:
            raise StoreError(f"{place} cannot be {what}: {_first_line(error)}.") from None


class FsspecObjects:
    """Any file system of fsspec; only the one in memory is written to."""

    def __init__(self, url: str) -> None:
        import fsspec

        self.url = url
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except ValueError as error:
            raise StoreError(f"{url} cannot be opened: {_first_line(error)}.") from None
        self._writable = url.startswith("memory://")

    def names(self) -> list[str]:
        """Return every key there."""
        return sorted(self.sizes())

    def sizes(self) -> dict[str, int]:
        """Return how many bytes each key has."""
        self._files.invalidate_cache()
        prefix = self._root.rstrip("/") + "/"
        found = self._asked(lambda: self._files.find(self._root, detail=True))
        return {
            name.removeprefix(prefix): int(info["size"] or 0)
            for name, info in sorted(found.items())
        }

    def size(self, key: str) -> int:
        """Return how many bytes a key has."""
        size = self._asked(lambda: self._files.size(self._path(key)), key)
        return len(self.read(key)) if size is None else int(size)

    def read(self, key: str) -> bytes:
        """Return the bytes of a key."""
        return bytes(self._asked(lambda: self._files.cat_file(self._path(key)), key))

    def put(self, key: str, data: bytes) -> None:
        """Put bytes under a key."""
        self.check_writable()
        self._files.pipe_file(self._path(key), data)

    def version(self, key: str) -> str | None:
        """Return the hash of the contents."""
        try:
            return hashlib.sha256(self.read(key)).hexdigest()
        except FileNotFoundError:
            return None

    def put_if(self, key: str, data: bytes, version: str | None) -> str:
        """Put bytes while no other thread can."""
        self.check_writable()
        with _IN_MEMORY:
            if self.version(key) != version:
                raise ChangedSinceError(
                    f"{self.url}/{key} was changed by another writer at this moment; load it again "
                    "and repeat what was to be saved."
                )
            self.put(key, data)
        return hashlib.sha256(data).hexdigest()

    def remove(self, key: str) -> None:
        """Remove a key."""
        self.check_writable()
        with suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def _asked(self, work: Any, key: str = "") -> Any:
        place = f"{self.url}/{key}".rstrip("/")
        try:
            return work()
        except FileNotFoundError:
            raise FileNotFoundError(2, "No such file", place) from None
        except Exception as error:
            # Every file system raises errors of its own libraries.
            said = _first_line(error) or type(error).__name__
            raise StoreError(f"{place} cannot be read: {said}.") from None

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}"

    def check_writable(self) -> None:
        """Refuse what cannot be written on a condition."""
        if not self._writable:
            raise StoreError(_no_condition(self.url))


def _no_condition(url: str) -> str:
    return (
        f"{url} can be read, but not written: its storage cannot replace a file on the condition "
        "that nobody else did, so two writers could destroy each other's work. Save to a local "
        f"folder or to one of {', '.join(f'{scheme}://' for scheme in CONDITIONAL)} instead."
    )


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0].rstrip(". ")
