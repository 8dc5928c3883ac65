"""Files named by the hash of their contents."""

from __future__ import annotations

import hashlib

from ibcl.errors import BusyError, ChangedSinceError, ExistsError, OccupiedError, StoreError
from ibcl.files import path_text, read_regular, write_atomically

SUFFIX = ".safetensors"

__all__ = [
    "SUFFIX",
    "BusyError",
    "ChangedSinceError",
    "ExistsError",
    "OccupiedError",
    "StoreError",
    "check",
    "file_name",
    "path_text",
    "read_regular",
    "sha256",
    "write_atomically",
]


def sha256(data: bytes) -> str:
    """Return the content hash that names a file.

    Examples
    --------
    >>> sha256(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def file_name(subfolder: str, digest: str) -> str:
    """Return where in a knowledge base the file of this hash is kept.

    Examples
    --------
    >>> file_name("posteriors", "e3b0")
    'posteriors/e3b0.safetensors'
    """
    return f"{subfolder}/{digest}{SUFFIX}"


def check(data: bytes, digest: str, size: int, what: str) -> bytes:
    """Return a file's contents if they have this hash and size."""
    if len(data) != size or sha256(data) != digest:
        raise StoreError(f"{what} is damaged: its contents do not match its name.")
    return data
