"""Features on disk, named by the content they were computed from.

A file's name is the hash of everything that determines what is in it (the data, the backbone and
its settings), so a file is never out of date: other data or settings have another name. Files are
written to the side and renamed, so a killed run leaves no half-written one, and each carries a
hash of its own numbers, so damage is noticed and the features are computed again.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FloatArray = NDArray[np.float32]


class DamagedCacheWarning(UserWarning):
    """A cached feature file could not be read and is being computed again."""


def default_folder() -> Path:
    """Return the cache folder: ``IBCL_CACHE``, or ``ibcl`` in the user's cache folder.

    Examples
    --------
    >>> os.environ["IBCL_CACHE"] = "features"
    >>> default_folder().name
    'features'
    >>> del os.environ["IBCL_CACHE"]
    >>> default_folder().name
    'ibcl'
    """
    if chosen := os.environ.get("IBCL_CACHE"):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "ibcl"


def content_hash(items: Iterable[str | bytes]) -> str:
    """Hash a sequence of texts or encoded images: their bytes, and where each ends.

    Examples
    --------
    >>> content_hash(["ab", "c"]) == content_hash(["a", "bc"])
    False
    """
    digest = hashlib.sha256()
    for item in items:
        data = item.encode("utf-8", "surrogatepass") if isinstance(item, str) else item
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def array_hash(array: NDArray[Any]) -> str:
    """Hash an array: its type, its shape and its numbers.

    Examples
    --------
    >>> array_hash(np.zeros(2)) == array_hash(np.zeros((2, 1)))
    False
    """
    digest = hashlib.sha256(f"{array.dtype.str}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


class FeatureCache:
    """A folder of feature arrays.

    Parameters
    ----------
    folder
        Where to keep them; made when the first array is written.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = FeatureCache(Path(folder))
    ...     key = {"data": "digest of the data", "backbone": "resnet18"}
    ...     first = cache.get(key, compute=lambda: np.ones((2, 3), np.float32))
    ...     again = cache.get(key, compute=lambda: np.zeros((2, 3), np.float32))
    >>> again.sum()
    np.float32(6.0)
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "features"

    def path(self, key: Mapping[str, Any]) -> Path:
        """Return the file in which the features of ``key`` are, or would be."""
        canonical = json.dumps(key, sort_keys=True)
        return self.folder / f"{hashlib.sha256(canonical.encode()).hexdigest()}.safetensors"

    def get(self, key: Mapping[str, Any], compute: Callable[[], FloatArray]) -> FloatArray:
        """Return the features of ``key``, computing and keeping them if they are not there.

        Two processes that need the same features do not both compute them: the second waits.
        """
        path = self.path(key)
        if path.exists() and (found := _read(path)) is not None:
            return found
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if path.exists() and (found := _read(path, warn=False)) is not None:
                return found
            features = np.ascontiguousarray(compute(), dtype=np.float32)
            _write(path, features, key)
        return features


def _read(path: Path, *, warn: bool = True) -> FloatArray | None:
    try:
        with safe_open(path, framework="numpy") as file:
            features: FloatArray = file.get_tensor("features")
            expected = (file.metadata() or {}).get("sha256")
    except (SafetensorError, OSError) as error:
        problem = str(error)
    else:
        if array_hash(features) == expected:
            return features
        problem = "its numbers do not match its hash"
    if warn:
        warnings.warn(
            f"the cached features {path} are damaged ({problem}) and are computed again",
            DamagedCacheWarning,
            stacklevel=4,
        )
    return None


def _write(path: Path, features: FloatArray, key: Mapping[str, Any]) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".writing-")
    os.close(handle)
    metadata = {"sha256": array_hash(features), "key": json.dumps(key, sort_keys=True)}
    try:
        save_file({"features": features}, name, metadata=metadata)
        with open(name, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
