"""Versions of the knowledge base: found as they appear, kept, switched, compared.

A version is the state of the folder at one manifest; its name is the manifest's checksum. Files of
a knowledge base never change once written, so that a version is kept by links to them and costs no
space as long as the knowledge base has them too. The service answers from the newest version,
unless told to stay with an earlier one; where all tasks were forgotten, from none.
"""

from __future__ import annotations

import json
import math
import shutil
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

import ibcl
from ibcl.bases import base_model
from ibcl.serve.errors import ApiError
from ibcl.serve.origins import MANIFEST, origin_of
from ibcl.serve.served import Served

_PARTIAL = ".partial"
_LOADED = 3
"""Versions held in memory besides the active one."""
_SHORTEST = 8
_ATTEMPTS = 10
_RETRY_SECONDS = 5.0
"""Between attempts to keep a version that the system could not keep."""
_ABANDONED = 600.0
"""Seconds after which nobody is at work on a version any more."""


class VersionFacts(NamedTuple):
    """What is reported about a version."""

    version: str
    tasks: tuple[str, ...]
    active: bool
    newest: bool


class Versions:
    """The versions of one knowledge base.

    Parameters
    ----------
    place
        The knowledge base, a folder or a URL.
    kept
        Folder for the versions.
    limit
        How many are kept.
    pinned
        Version to stay with, None to follow the newest.
    report
        Called with an event and its details as versions come and go.
    record
        Called with the name and the tasks of every version before it is used, the oldest first.
    network
        The network it was learnt with, where ibcl did not build it, as `ibcl.load` takes it.
    """

    def __init__(
        self,
        place: Path,
        kept: Path,
        limit: int,
        pinned: str | None = None,
        report: Callable[..., Any] = lambda *_, **__: None,
        record: Callable[[str, Sequence[str]], None] = lambda *_: None,
        network: str | None = None,
    ) -> None:
        self._network = base_model(network)
        self._place, self._origin = place, origin_of(place)
        self._kept, self._limit, self._report = kept, limit, report
        self._record = record
        self._lock = threading.RLock()
        self._loaded: OrderedDict[str, Served] = OrderedDict()
        self._seen: Hashable | None = None
        self._failed: Hashable | None = None
        self._again = 0.0
        self._pinned: str | None = None
        kept.mkdir(parents=True, exist_ok=True)
        self._remove_leftovers()
        for path in self._paths():
            record(path.name, _tasks(path))
        self._newest = self._adopt()
        if not self._newest.tasks:
            raise ValueError(
                "The knowledge base has learnt no task yet; learn one before serving it"
            )
        record(self._newest.version, self._newest.tasks)
        self._active = self._newest
        if pinned is not None:
            try:
                self.activate(pinned)
            except ApiError:
                report("version gone", version=pinned)

    @property
    def active(self) -> Served:
        """The version that requests are answered from."""
        return _answering(self._active)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The tasks of that version; none where all were forgotten."""
        return self._active.tasks

    @property
    def pinned(self) -> str | None:
        """The version the service is pinned to."""
        return self._pinned

    def look(self) -> bool:
        """Load a new version, if there is one, and switch to it; tell whether there was one.

        A version that cannot be loaded changes nothing. One that is damaged is tried again when the
        folder changes; where the system was at fault, such as a full disk or a network, it is after
        a while.
        """
        signature = self._origin.signature()
        if signature is None or signature == self._seen:
            return False
        if signature == self._failed and time.monotonic() < self._again:
            return False
        try:
            served = self._adopt()
        except (ValueError, OSError) as error:
            if signature != self._failed:
                self._report("version refused", reason=str(error))
            recovers = isinstance(error, OSError) or self._origin.recovers
            self._failed = signature
            self._again = time.monotonic() + (_RETRY_SECONDS if recovers else math.inf)
            return False
        try:
            self._record(served.version, served.tasks)
        except BaseException:
            # To be looked at again, once it can be written down.
            self._seen = None
            raise
        with self._lock:
            changed = served.version != self._newest.version
            self._newest = served
            if self._pinned is None:
                self._active = served
            self._prune()
        if changed:
            self._report("version loaded", version=served.version, tasks=len(served.tasks))
        return changed

    def get(self, version: str | None) -> Served:
        """Return a version by its name or the beginning of it; the active one without."""
        if version is None:
            return self.active
        with self._lock:
            name = self._full_name(version)
            for served in (self._active, self._newest):
                if served.version == name:
                    return _answering(served)
            if name in self._loaded:
                self._loaded.move_to_end(name)
                return self._loaded[name]
            served = _answering(load(self._kept / name, name, self._network))
            self._record(served.version, served.tasks)
            self._loaded[name] = served
            while len(self._loaded) > _LOADED:
                self._loaded.popitem(last=False)
            return served

    def facts(self) -> list[VersionFacts]:
        """Return all versions kept, the oldest first."""
        with self._lock:
            return [
                VersionFacts(
                    path.name,
                    _tasks(path),
                    path.name == self._active.version,
                    path.name == self._newest.version,
                )
                for path in self._paths()
            ]

    def activate(self, version: str | None) -> Served:
        """Pin this version; None follows the newest again."""
        with self._lock:
            served = self._newest if version is None else self.get(version)
            self._active = served
            self._pinned = None if version is None else served.version
        self._report("version activated", version=served.version, pinned=version is not None)
        return served

    def remove(self, version: str) -> None:
        """Remove a version that is neither active nor the newest."""
        with self._lock:
            name = self._full_name(version)
            if name in (self._active.version, self._newest.version):
                raise ApiError(
                    409, "The active and the newest version cannot be removed; activate another."
                )
            self._loaded.pop(name, None)
            shutil.rmtree(self._kept / name)

    def _full_name(self, version: str) -> str:
        names = [path.name for path in self._paths()]
        matches = [name for name in names if name.startswith(version)]
        if len(version) < _SHORTEST or len(matches) != 1:
            raise ApiError(404, "No version of that name is kept; GET /v1/versions lists them.")
        return matches[0]

    def _paths(self) -> list[Path]:
        found = []
        for path in self._kept.iterdir():
            if not path.name.endswith(_PARTIAL):
                # Another replica may remove one in this moment.
                with suppress(FileNotFoundError):
                    found.append((path.stat().st_mtime_ns, path.name, path))
        return [path for _, _, path in sorted(found)]

    def _remove_leftovers(self) -> None:
        """Remove what a killed process was at; a younger one may be another replica's work."""
        for leftover in self._kept.glob(f"*{_PARTIAL}"):
            with suppress(FileNotFoundError):
                if time.time() - leftover.stat().st_mtime > _ABANDONED:
                    shutil.rmtree(leftover, ignore_errors=True)

    def _prune(self) -> None:
        paths = self._paths()
        used = {self._active.version, self._newest.version}
        for path in paths[: max(0, len(paths) - self._limit)]:
            if path.name not in used:
                self._loaded.pop(path.name, None)
                shutil.rmtree(path, ignore_errors=True)

    def _adopt(self) -> Served:
        """Keep the folder as it is now as a version, and load it."""
        for attempt in range(_ATTEMPTS):
            signature = self._origin.signature()
            try:
                name = self._keep()
                served = load(self._kept / name, name, self._network)
            except (ValueError, OSError):
                # A writer may have replaced the manifest, and removed files, since it was read.
                if self._origin.signature() != signature and attempt < _ATTEMPTS - 1:
                    continue
                ibcl.load(self._place, self._network)  # Says what is wrong, and in which file.
                raise
            self._seen = signature
            return served
        raise AssertionError("unreachable")

    def _keep(self) -> str:
        try:
            manifest = self._origin.manifest()
            name = str(json.loads(manifest)["checksum"])
        except (ValueError, KeyError, TypeError, OSError):
            ibcl.load(self._place, self._network)  # Says what is wrong with it.
            raise
        target = self._kept / name
        if len(name) != 64 or not name.isalnum():
            ibcl.load(self._place, self._network)
        if target.exists() and (target / MANIFEST).read_bytes() == manifest:
            return name
        partial = self._kept / f"{name}.{uuid.uuid4().hex}{_PARTIAL}"
        partial.mkdir()
        try:
            return self._keep_by_way_of(partial, target, manifest)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _keep_by_way_of(self, partial: Path, target: Path, manifest: bytes) -> str:
        self._origin.keep_files(partial, self._kept)
        (partial / MANIFEST).write_bytes(manifest)
        load(partial, target.name, self._network)
        try:
            partial.rename(target)
        except OSError:
            # Another replica was first, and kept the same.
            if not target.exists():
                raise
        return target.name


def load(folder: Path, name: str, network: nn.Module | None = None) -> Served:
    """Load a version, ready to answer at once."""
    served = Served(name, ibcl.load(folder, network))
    if served.tasks:
        served.warm()
    return served


def _answering(served: Served) -> Served:
    """Return a version that has something to answer from."""
    if not served.tasks:
        raise ApiError(503, "All tasks of the knowledge base were forgotten; learn one.")
    return served


def _tasks(folder: Path) -> tuple[str, ...]:
    tasks = json.loads((folder / MANIFEST).read_bytes())["tasks"]
    return tuple(task["name"] for task in tasks)
