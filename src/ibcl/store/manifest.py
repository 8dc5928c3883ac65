"""The manifest: everything a knowledge base on disk is, apart from its tensors.

One JSON file with a format number and a checksum of its own contents. The checksum tells damage
from intent, and names the revision: two manifests with the same checksum are the same knowledge
base. It leaves out which save wrote it, and which save wrote each file, so the revision is the same
wherever and whenever it is saved. Whatever is written has been read back and compared first, but
for that.

Format 3 calls ``independent`` what format 2, of version 0.2, had as its opposite, ``continual``,
and ``routed1`` what was the rule ``routed`` then.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, Final, Literal

import pydantic_core
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from ibcl.errors import StoreError
from ibcl.files import KNOWLEDGE_BASE, MANIFEST
from ibcl.store.files import file_name, placed_name, sha256, unplaced_name
from ibcl.store.storage import Storage

KIND: Final = KNOWLEDGE_BASE
FORMAT: Final = 3
VERSION_0_2: Final = 2
FILE_NAME = MANIFEST
POSTERIORS, NETWORK, MOMENTS, PARTS = SUBFOLDERS = ("posteriors", "network", "moments", "parts")

# What is declared is bounded before any of it is allocated. The limits lie far beyond what is
# used, and a learner beyond them is refused when it is saved, not when it is opened.
LARGEST_MANIFEST = 2**26
LARGEST_NETWORK = 2**28
"""Parameters."""
LARGEST_UNBACKED = 2**24
"""Numbers that a few bytes may stand for: priors of equal coordinates, a network described."""
MOST_PRIORS, MOST_TASKS = 2**10, 2**16
LONGEST_SPECIFICATION, MOST_LAYERS = 2**16, 2**8
"""Characters of a network's description, and entries of a list in it."""

_WHERE = ("save", "files")
"""Fields that say where a knowledge base lies, not what it is."""
SAVE = r"[0-9a-f]{16}"
Save = Annotated[str, Field(pattern=rf"^{SAVE}$")]
"""The random token of one save."""
FileName = Annotated[
    str, Field(pattern=rf"^({'|'.join(SUBFOLDERS)})/[0-9a-f]{{64}}(-{SAVE})?\.safetensors$")
]
"""A file with the save that wrote it; those of version 0.2 do not say."""
_SAVE_0_2 = "0" * 16
"""Stands for whichever save of version 0.2 wrote a manifest."""
Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Position = Annotated[int, Field(ge=0, lt=2**31)]
Word = Annotated[str, Field(min_length=1, max_length=100)]
Setting = bool | int | float | str | None
Settings = Annotated[dict[Word, Setting], Field(max_length=100)]


def _longest_list(value: Any) -> int:
    """Return the length of the longest list in a network's description."""
    if isinstance(value, dict):
        return max(map(_longest_list, value.values()), default=0)
    return max([len(value), *map(_longest_list, value)]) if isinstance(value, list) else 0


def _bounded(specification: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if len(json.dumps(specification)) > LONGEST_SPECIFICATION:
        raise ValueError("the network's description is too long")
    if _longest_list(specification) > MOST_LAYERS:
        raise ValueError(f"the network's description has more than {MOST_LAYERS} layers")
    return specification


Specification = Annotated[dict[str, JsonValue], AfterValidator(_bounded)]


class Entry(BaseModel):
    """Strict and immutable: nothing is converted, nothing unknown is let in."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


class FileEntry(Entry):
    """A file named by the hash of its contents."""

    sha256: Hash
    bytes: Annotated[int, Field(gt=0, lt=2**40)]
    base: Hash | None = None
    """The Gaussian whose precision is to be added to the one in the file."""
    family: Word | None = None
    """The family of Gaussians in the file, with ``:float16`` if compact; None in older folders."""


class BackboneEntry(Entry):
    """The frozen backbone that a network begins with, which is never stored: its user has it."""

    weights: Hash
    """`FrozenBackbone.fingerprint`."""
    layers: tuple[str, ...]
    pool: Word
    columns: Annotated[int, Field(gt=0, le=LARGEST_NETWORK)]
    outputs: Annotated[int, Field(gt=0, le=LARGEST_NETWORK)]
    input_shape: tuple[Annotated[int, Field(gt=0)], ...] | None
    """Of one sample, where inputs are not token ids and the shape is known."""


class NetworkEntry(Entry):
    """How to rebuild the network, and what θ does not cover of it."""

    specification: Specification | None
    fingerprint: Hash
    dimension: Annotated[int, Field(gt=0, le=LARGEST_NETWORK)]
    frozen: FileEntry | None
    pretrained: bool = True
    """Of a module that ibcl did not build: whether learning starts from its weights."""
    layers: tuple[str, ...] = ()
    """Of a frozen backbone: which of its layers are read, where they were left open or named."""
    backbone: BackboneEntry | None = None


class InferenceEntry(Entry):
    """An inference method of `ibcl.inference.METHODS` and its settings."""

    name: Word
    settings: Settings


class LikelihoodEntry(Entry):
    """A likelihood by name, and its settings."""

    name: Word
    settings: Settings = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees(self) -> LikelihoodEntry:
        if self.name == "auto" and self.settings:
            raise ValueError("a likelihood that is still to be chosen has no settings")
        return self


class TaskEntry(Entry):
    """A `TaskRecord`."""

    name: str
    posteriors: tuple[Position, ...]
    priors: tuple[Position | None, ...]
    pointers: tuple[bool, ...]
    distances: tuple[Annotated[float, Field(ge=0)] | None, ...]
    samples: Count
    updates: Count
    scale: Annotated[float, Field(gt=0)] | None = None
    noise: Annotated[float, Field(gt=0)] | None = None


class Manifest(Entry):
    """A knowledge base and the learner it belongs to.

    A learner that has learnt nothing may have left its priors, its inference, its pooling rule,
    d and the order of learning open: they are None.
    """

    kind: Literal["ibcl knowledge base"] = KIND
    format: Literal[3] = FORMAT
    version: Word
    """Of the library that wrote it."""
    network: NetworkEntry
    inference: InferenceEntry | None
    likelihood: LikelihoodEntry
    pooling: Word | None
    pooling_settings: Settings = Field(default_factory=dict)
    d: Annotated[float, Field(ge=0)] | None
    distance: Word = "rms"
    """Name of what d is compared with."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    seed: Annotated[int, Field(ge=-(2**63), lt=2**64)]
    independent: bool | None
    task_incremental: Annotated[int, Field(ge=1, le=MOST_TASKS)] | None
    calibration: Annotated[float, Field(gt=0)] | None = None
    """How many rows of every task, or which share, are held out for prediction sets."""
    calibration_rows: Literal["kept", "scores"] = "kept"
    """What is kept of these."""
    expert: dict[str, JsonValue] | None = None
    """What answers in place of tasks' heads, as `Expert.description` gives it, with its name."""
    encoder: dict[str, JsonValue] | None = None
    """What turns a user's tables into the network's numbers, as `Encoder.description` gives it."""
    storage: Word
    priors: Annotated[tuple[FileEntry, ...], Field(min_length=1, max_length=MOST_PRIORS)] | None
    posteriors: tuple[FileEntry, ...]
    moments: tuple[FileEntry | None, ...] = ()
    """Of each task's inputs; none at all, or one entry per task."""
    parts: tuple[Annotated[dict[Word, FileEntry], Field(max_length=100)], ...] = ()
    """What else each task keeps, by kind; none at all, or one entry per task."""
    common: Annotated[dict[Word, FileEntry], Field(max_length=100)] = Field(default_factory=dict)
    """Sums over all tasks, by kind."""
    tasks: Annotated[tuple[TaskEntry, ...], Field(max_length=MOST_TASKS)]
    metadata: dict[str, JsonValue]
    choices: Annotated[dict[Word, str], Field(max_length=100)] = Field(default_factory=dict)
    """What had been left open: what was chosen for it, and why."""
    save: Save | None = None
    """Which save wrote this, so that no two manifests in one place are ever the same bytes."""
    files: tuple[FileName, ...] = ()
    """All files it needs, each with the save that wrote it; none before it is placed."""

    @model_validator(mode="after")
    def _consistent(self) -> Manifest:
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError("two tasks have the same name")
        if self.tasks:
            self._check_chosen()
        if self.pooling is None and self.pooling_settings:
            raise ValueError("a pooling rule that is still to be chosen has no settings")
        if self.moments and len(self.moments) != len(self.tasks):
            raise ValueError(f"there are moments of {len(self.moments)} tasks")
        if self.parts and len(self.parts) != len(self.tasks):
            raise ValueError(f"there are parts of {len(self.parts)} tasks")
        if self.common and not self.tasks:
            raise ValueError("there are sums over tasks, but no task")
        priors = self.priors or ()
        stored = 0
        for task in self.tasks:
            stored = _check_positions(task, len(priors), stored)
        if stored != len(self.posteriors):
            raise ValueError(f"{len(self.posteriors)} posteriors are stored, {stored} are used")
        _check_bases(priors, self.posteriors)
        self._check_sizes()
        return self

    def _check_chosen(self) -> None:
        """Where tasks have been learnt, it is known how."""
        for name in ("priors", "inference", "pooling", "d", "independent"):
            if getattr(self, name) is None:
                raise ValueError(f"tasks have been learnt, but {name} was left open")
        likelihood = self.likelihood
        if likelihood.name == "auto":
            raise ValueError("tasks have been learnt without a likelihood")
        own = all(task.noise is not None for task in self.tasks)
        if likelihood.name in ("normal", "gaussian") and not likelihood.settings and not own:
            raise ValueError("tasks have been learnt without the likelihood's noise")

    def _check_sizes(self) -> None:
        """Bound what the files unfold into by what they hold."""
        dimension = self.network.dimension
        gaussians = (*(self.priors or ()), *self.posteriors)
        for entry in gaussians:
            if entry.bytes > 16 * dimension * (dimension + 2) + 2**16:
                raise ValueError("a posterior's file is larger than a posterior can be")
        distinct = {(entry.sha256, entry.base): entry.bytes for entry in gaussians}
        held = sum({entry.sha256: entry.bytes for entry in gaussians}.values())
        described = self.network.specification is not None
        if dimension * (len(distinct) + described) > max(LARGEST_UNBACKED, held):
            raise ValueError("the network and its priors are larger than what is stored of them")

    @property
    def names(self) -> dict[str, FileEntry]:
        """All files it needs, by the hashes of their contents."""
        frozen = self.network.frozen
        groups: dict[str, Sequence[FileEntry | None]] = {
            POSTERIORS: (*(self.priors or ()), *self.posteriors),
            NETWORK: (frozen,),
            MOMENTS: self.moments,
            PARTS: [entry for kept in (*self.parts, self.common) for entry in kept.values()],
        }
        return {
            file_name(subfolder, entry.sha256): entry
            for subfolder, entries in groups.items()
            for entry in entries
            if entry is not None
        }

    def contents(self) -> dict[str, Any]:
        """Return it as plain values."""
        return self.model_dump(mode="json")

    @property
    def located(self) -> dict[str, str]:
        """Where each of these files is: under which name, with the save that wrote it."""
        return {unplaced_name(name): name for name in self.files}

    def placed(self, save: str, kept: Mapping[str, str]) -> Manifest:
        """Return this manifest as a save writes it, which keeps some files and writes the rest."""
        files = tuple(kept.get(name) or placed_name(name, save) for name in self.names)
        return self.model_copy(update={"save": save, "files": files})

    @cached_property
    def checksum(self) -> str:
        """Hash of what it says, its revision: the same wherever it is placed."""
        return _checksum(self.contents())

    def encode(self) -> bytes:
        """Return the manifest file's bytes."""
        contents = {**self.contents(), "checksum": self.checksum}
        data: bytes = pydantic_core.to_json(contents, indent=1, inf_nan_mode="constants") + b"\n"
        if len(data) > LARGEST_MANIFEST:
            raise ValueError(
                f"its manifest has {len(data)} bytes, at most {LARGEST_MANIFEST} are read; "
                "keep less in its metadata"
            )
        return data

    def check_comes_back(self) -> None:
        """Refuse what would not be this manifest again once it is written and read."""
        try:
            returned = parse_manifest(self.encode(), "what was written")
            # As text, which tells 1 from 1.0, 0 from −0, and orders and surrogates apart.
            same = repr(returned.model_dump()) == repr(self.model_dump())
        except (RecursionError, StoreError):
            same = False
        if not same:
            raise ValueError(
                "a name or its metadata would not come back from disk as it is; use text of whole "
                "characters, finite numbers, and lists and mappings that are not nested deeply"
            )


def _check_positions(task: TaskEntry, priors: int, stored: int) -> int:
    """Check a task's positions against the posteriors stored before it; return how many are then.

    A task's own posteriors follow those stored before; its pointers and priors are among those.
    """
    for values in (task.posteriors, task.priors, task.pointers, task.distances):
        if len(values) != priors:
            raise ValueError(f"task {task.name!r} does not have one entry per prior")
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
    said = {name: value for name, value in contents.items() if name not in _WHERE}
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return sha256(canonical.encode())


def one_sentence(error: ValidationError) -> str:
    """Say in few words what the first thing wrong is."""
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    reason = first["msg"].removeprefix("Value error, ")
    return f"{where}: {reason}" if where else reason


def read_manifest(storage: Storage) -> Manifest:
    """Read and check the manifest of a knowledge base; every fault is a `StoreError`."""
    try:
        data = storage.read(FILE_NAME, LARGEST_MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        what = "is not a knowledge base: it has no manifest.json"
        found = storage.place.exists()
        raise StoreError(f"{storage} {what if found else 'does not exist'}.") from None
    manifest = parse_manifest(data, f"{storage}/{FILE_NAME}")
    if set(manifest.located) != set(manifest.names) or manifest.save is None:
        raise StoreError(f"{storage}/{FILE_NAME} is damaged: it does not name its own files.")
    return manifest


def _from_version_0_2(contents: dict[str, Any]) -> None:
    """Turn what version 0.2 wrote into what it means now."""
    continual = contents.pop("continual", None)
    contents |= {"format": FORMAT, "independent": None if continual is None else not continual}
    if contents.get("pooling") == "routed":
        contents["pooling"] = "routed1"
    # Version 0.2 drew the weights of every module anew.
    if isinstance(contents.get("network"), dict):
        contents["network"]["pretrained"] = False
    likelihood_from_version_0_2(contents)


def likelihood_from_version_0_2(contents: dict[str, Any]) -> None:
    """Turn what version 0.2 wrote of a likelihood into what it means now."""
    if isinstance(contents.get("likelihood"), dict):
        contents["likelihood"].pop("noise", None)


def parse_manifest(data: bytes, what: str) -> Manifest:
    """Turn a manifest file's bytes into the manifest."""
    try:
        contents = pydantic_core.from_json(data, allow_inf_nan=False)
    except ValueError:
        raise StoreError(f"{what} is damaged: it is not JSON.") from None
    if not isinstance(contents, dict) or contents.get("kind") != KIND:
        raise StoreError(f"{what} does not describe an ibcl knowledge base.")
    number = contents.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise StoreError(
            f"{what} was written in format {number}, but this version of ibcl reads formats up "
            f"to {FORMAT}; upgrade ibcl to open it."
        )
    checksum = contents.pop("checksum", None)
    try:
        intact = checksum == _checksum(contents)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise StoreError(f"{what} is damaged: its contents do not match its checksum.")
    if number == VERSION_0_2:
        _from_version_0_2(contents)
    try:
        manifest = Manifest.model_validate_json(json.dumps(contents))
    except ValidationError as error:
        raise StoreError(f"{what} is not valid ({one_sentence(error)}).") from None
    if number == VERSION_0_2:
        return manifest.model_copy(update={"save": _SAVE_0_2, "files": tuple(manifest.names)})
    return manifest
