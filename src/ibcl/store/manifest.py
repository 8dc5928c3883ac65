"""The manifest: everything a knowledge base on disk is, apart from its tensors.

One JSON file with a format number and a checksum of its own contents. The checksum tells damage
from intent, and names the revision: two manifests with the same checksum are the same knowledge
base.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from ibcl.store.files import StoreError, read_regular, sha256

KIND: Final = "ibcl knowledge base"
FORMAT: Final = 1
FILE_NAME = "manifest.json"
LARGEST_MANIFEST = 2**26
LARGEST_NETWORK = 2**28
"""Parameters; a description that asks for more is taken for damage."""

Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Position = Annotated[int, Field(ge=0, lt=2**31)]


class Entry(BaseModel):
    """Strict and immutable: nothing is converted, nothing unknown is let in."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class FileEntry(Entry):
    """A file named by the hash of its contents."""

    sha256: Hash
    bytes: Annotated[int, Field(gt=0, lt=2**40)]
    base: Hash | None = None
    """The Gaussian whose precision is to be added to the one in the file."""
    family: str | None = None
    """The family of Gaussians in the file, with ``:float16`` if compact; None in older folders."""


class NetworkEntry(Entry):
    """How to rebuild the network, and what θ does not cover of it."""

    specification: dict[str, JsonValue] | None
    fingerprint: Hash
    dimension: Annotated[int, Field(gt=0, le=LARGEST_NETWORK)]
    frozen: FileEntry | None


class InferenceEntry(Entry):
    """An inference method of `ibcl.inference.METHODS` and its settings."""

    name: str
    settings: dict[str, int | float | bool | str | None]


class LikelihoodEntry(Entry):
    """A likelihood by name; noise belongs to the Gaussian one."""

    name: Literal["auto", "bernoulli", "categorical", "one_vs_rest", "gaussian"]
    noise: Annotated[float, Field(gt=0)] | None = None


class TaskEntry(Entry):
    """A `TaskRecord`."""

    name: str
    posteriors: tuple[Position, ...]
    priors: tuple[Position | None, ...]
    pointers: tuple[bool, ...]
    distances: tuple[Annotated[float, Field(ge=0)] | None, ...]
    samples: Count
    updates: Count


class Manifest(Entry):
    """A knowledge base and the learner it belongs to."""

    kind: Literal["ibcl knowledge base"] = KIND
    format: Literal[1] = FORMAT
    version: str
    """Of the library that wrote it."""
    network: NetworkEntry
    inference: InferenceEntry
    likelihood: LikelihoodEntry
    pooling: str
    d: Annotated[float, Field(ge=0)]
    alpha: Annotated[float, Field(gt=0, lt=1)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)]
    continual: bool
    task_incremental: Annotated[int, Field(ge=1, lt=2**31)] | None
    storage: str
    priors: Annotated[tuple[FileEntry, ...], Field(min_length=1, max_length=1024)]
    posteriors: tuple[FileEntry, ...]
    tasks: tuple[TaskEntry, ...]
    metadata: dict[str, JsonValue]

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        if len(self.priors) * self.network.dimension > 4 * LARGEST_NETWORK:
            raise ValueError("the priors are larger than this library reads")
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError("two tasks have the same name")
        if self.tasks and self.likelihood.name == "auto":
            raise ValueError("tasks have been learnt without a likelihood")
        stored = 0
        for task in self.tasks:
            stored = _check_positions(task, len(self.priors), stored)
        if stored != len(self.posteriors):
            raise ValueError(f"{len(self.posteriors)} posteriors are stored, {stored} are used")
        _check_bases(self.priors, self.posteriors)
        return self

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """All files it names."""
        frozen = self.network.frozen
        return (*self.priors, *self.posteriors, *((frozen,) if frozen else ()))

    def contents(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self.model_dump(mode="json")

    @property
    def checksum(self) -> str:
        """Hash of its contents, its revision."""
        return _checksum(self.contents())

    def encode(self) -> bytes:
        """Return the manifest file's bytes."""
        contents = self.contents()
        return json.dumps({**contents, "checksum": _checksum(contents)}, indent=1).encode() + b"\n"


def _check_positions(task: TaskEntry, priors: int, stored: int) -> int:
    """Check a task's positions against the posteriors stored before it; return how many are then.

    A task's own posteriors follow those stored before; its pointers and priors are among those.
    """
    for values in (task.posteriors, task.priors, task.pointers, task.distances):
        if len(values) != priors:
            raise ValueError(f"task {task.name!r} does not have one entry a prior")
    following = stored
    for position, pointer in zip(task.posteriors, task.pointers, strict=True):
        expected = position < stored if pointer else position == following
        if not expected:
            raise ValueError(f"a posterior of task {task.name!r} is out of range")
        following += not pointer
    if any(position is not None and position >= stored for position in task.priors):
        raise ValueError(f"a prior of task {task.name!r} is out of range")
    return following


def _check_bases(priors: Sequence[FileEntry], posteriors: Sequence[FileEntry]) -> None:
    """A file may be written as a difference to a Gaussian that comes before it."""
    known: set[str | None] = {None}
    for entry in (*priors, *posteriors):
        if entry.base not in known:
            raise ValueError("a posterior builds on one that does not come before it")
        known.add(entry.sha256)


def _checksum(contents: dict[str, Any]) -> str:
    canonical = json.dumps(contents, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(canonical.encode())


def one_sentence(error: ValidationError) -> str:
    """Say in few words what the first thing wrong is."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {reason}" if where else reason


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest of a folder; every fault is a `StoreError`."""
    path = folder / FILE_NAME
    try:
        data = read_regular(path, LARGEST_MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a knowledge base: it has no manifest.json"
        raise StoreError(f"{folder} {what if folder.exists() else 'does not exist'}.") from None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        contents = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError:
        raise StoreError(f"{path} is damaged: it is not JSON.") from None
    if not isinstance(contents, dict) or contents.get("kind") != KIND:
        raise StoreError(f"{path} does not describe an ibcl knowledge base.")
    number = contents.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise StoreError(
            f"{folder} was written in format {number}, but this version of ibcl reads formats up "
            f"to {FORMAT}; upgrade ibcl to open it."
        )
    checksum = contents.pop("checksum", None)
    try:
        intact = checksum == _checksum(contents)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise StoreError(f"{path} is damaged: its contents do not match its checksum.")
    try:
        return Manifest.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        raise StoreError(f"{path} is not valid ({one_sentence(error)}).") from None
