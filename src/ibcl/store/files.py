"""Files named by the hash of their contents, and by the save that wrote them.

The hash says what a file holds; the save's token, which is random, keeps a name from ever being
used twice. So a file that nobody names any more can be removed at any later moment: what is learnt
again, or restored, is written under another name.
"""

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
    "placed_name",
    "read_regular",
    "sha256",
    "unplaced_name",
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


def placed_name(name: str, save: str) -> str:
    """Return what a file is called that was written by this save.

    Examples
    --------
    >>> placed_name("posteriors/e3b0.safetensors", "5eed")
    'posteriors/e3b0-5eed.safetensors'
    """
    return f"{name.removesuffix(SUFFIX)}-{save}{SUFFIX}"


def unplaced_name(name: str) -> str:
    """Return the name of a file's contents, whichever save wrote it.

    Examples
    --------
    >>> unplaced_name("posteriors/e3b0-5eed.safetensors")
    'posteriors/e3b0.safetensors'
    """
    return f"{name.removesuffix(SUFFIX).partition('-')[0]}{SUFFIX}"


def check(data: bytes, digest: str, size: int, what: str) -> bytes:
    """Return a file's contents if they have this hash and size."""
    if len(data) != size or sha256(data) != digest:
        raise StoreError(f"{what} is damaged: its contents do not match its name.")
    return data
