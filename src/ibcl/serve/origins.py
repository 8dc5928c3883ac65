"""Where the knowledge base is that is served: a folder of this machine, or an object store's URL.

Files of a knowledge base never change once written. Those of a folder are kept by links to them;
those behind a URL are fetched once, and then shared by all versions that have them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Hashable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ibcl.store import StoreError, as_url, storage_at

MANIFEST = "manifest.json"
_FILES = ".safetensors"
_LARGEST_MANIFEST = 2**26


class Origin(Protocol):
    """A knowledge base that others may write to."""

    recovers: bool
    """Whether what could not be read may be readable later, without anybody writing to it."""

    def signature(self) -> Hashable | None:
        """Return what changes when the manifest does; None where that cannot be told now."""

    def manifest(self) -> bytes:
        """Return the manifest as it is now."""

    def keep_files(self, target: Path, versions: Path) -> None:
        """Put all files into a folder; those that are removed meanwhile are left out.

        Parameters
        ----------
        versions
            Holds the versions kept before, one folder each.
        """


def origin_of(place: Path) -> Origin:
    """Return the knowledge base at a path or URL.

    Examples
    --------
    >>> origin_of(Path("movies.ibcl")).recovers, origin_of(Path("memory://movies.ibcl")).recovers
    (False, True)
    """
    return FolderOrigin(place) if as_url(place) is None else RemoteOrigin(place)


class FolderOrigin:
    """A folder of this machine."""

    recovers = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def signature(self) -> Hashable | None:
        """Return time, size and identity of the manifest."""
        try:
            facts = (self._folder / MANIFEST).stat()
        except OSError:
            return None
        return facts.st_mtime_ns, facts.st_size, facts.st_ino

    def manifest(self) -> bytes:
        """Return the manifest's bytes."""
        return (self._folder / MANIFEST).read_bytes()

    def keep_files(self, target: Path, versions: Path) -> None:
        """Link to all files; copy those of another file system."""
        for source in sorted(self._folder.rglob(f"*{_FILES}")):
            copy = target / source.relative_to(self._folder)
            copy.parent.mkdir(parents=True, exist_ok=True)
            # Its writer may be removing what the manifest no longer names; of what it does name,
            # loading misses whatever is not there.
            with suppress(FileNotFoundError):
                _link_or_copy(source, copy)


class RemoteOrigin:
    """Objects below a URL."""

    recovers = True

    def __init__(self, place: Path) -> None:
        self._storage = storage_at(place)

    def signature(self) -> Hashable | None:
        """Return the entity tag of the manifest."""
        try:
            return self._storage.version(MANIFEST)
        except StoreError:
            return None

    def manifest(self) -> bytes:
        """Return the manifest's bytes."""
        return self._storage.read(MANIFEST, _LARGEST_MANIFEST)

    def keep_files(self, target: Path, versions: Path) -> None:
        """Fetch the files that no version kept before has."""
        kept = [path for path in versions.iterdir() if path != target]
        for name, size in self._storage.names().items():
            if size is None or not name.endswith(_FILES):
                continue
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                source = next((path / name for path in kept if (path / name).exists()), None)
                if source is None:
                    copy.write_bytes(self._storage.read(name, size))
                else:
                    _link_or_copy(source, copy)


def _link_or_copy(source: Path, copy: Path) -> None:
    try:
        os.link(source, copy)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, copy)
