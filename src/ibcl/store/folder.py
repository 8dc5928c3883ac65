"""A knowledge base as a folder: files that never change, and one manifest that names them.

    movies.ibcl/
      manifest.json                              replaced atomically, as the last act of saving
      README.md                                  the card, for people; never read back
      posteriors/<sha256>-<save>.safetensors     priors and posteriors
      network/<sha256>-<save>.safetensors        what the network holds beside its parameters θ
      moments/<sha256>-<save>.safetensors        of the tasks' inputs
      parts/<sha256>-<save>.safetensors          what else a task keeps

Killed at any moment, the folder opens as it was after the last finished save; where that was to be
the first, saving again succeeds. Readers need no lock, and writers no lock that works: a save

1. lists the files there, and reads the manifest's version;
2. writes the files that manifest does not name, under names with its own random ``<save>``;
3. replaces the manifest on the condition that it has that version still, or is refused;
4. removes the files of the list, and of the manifest before, that the new one does not name.

*Why nothing is removed that anybody needs*, however long a writer stands still between two steps,
and whoever else saves meanwhile. A manifest names files of the one it replaced, and files of its
own save. Let a writer that put the manifest M remove a file X at some later time. M does not name
X, and X was there before M was. A save that replaces M, or one that follows it, writes its own
files after it has seen M or a later manifest, hence later than X, and under a token that is not
X's. So no manifest after M names X. A save that began before M, to which X may belong, is refused
at step 3, because no two manifests of one place are the same bytes: each holds its save's token.
This is also why no clock is asked for the age of a file, which a writer that stands still would
outlive.

*Why nothing stays of what is forgotten*. The forgotten task's files were listed before the manifest
without it was put, so step 4 removes them at once. What a writer leaves that is killed on the way
is removed by the next save, even by one with nothing new in it. A card is replaced on the condition
that it is as it was while the manifest of its save was in place, so a late writer cannot bring back
an old one.

A save that fails removes what it wrote, which only it can name, unless the storage did not say
whether the manifest was replaced.
"""

from __future__ import annotations

import logging
import re
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pydantic_core
import torch
from torch import nn

from ibcl.cards import MARK, knowledge_card
from ibcl.errors import ChangedSinceError, OccupiedError, StoreError
from ibcl.files import is_temporary, path_text, refuse_inside_knowledge_base
from ibcl.gaussians import Gaussian
from ibcl.knowledge import TaskRecord, scaled
from ibcl.learning import empty_knowledge
from ibcl.names import listed, printable
from ibcl.networks import FlatNetwork
from ibcl.pooling import rule_with
from ibcl.settings import Settings
from ibcl.state import State
from ibcl.store import posteriors
from ibcl.store.description import (
    describe,
    learnt_from,
    on_base,
    place,
    read_common,
    read_moments,
    read_parts,
    rebuild_inference,
    rebuild_network,
    restore_encoder,
    restore_expert,
    restore_likelihood,
)
from ibcl.store.files import check, file_name
from ibcl.store.manifest import (
    FILE_NAME,
    KIND,
    LARGEST_MANIFEST,
    POSTERIORS,
    SAVE,
    SUBFOLDERS,
    Manifest,
    read_manifest,
)
from ibcl.store.remote import RemoteFolder
from ibcl.store.storage import LOCK, LocalFolder, Readable, Storage, UndecidedError, as_url

log = logging.getLogger("ibcl")

# What looks like a URL, and would be a folder of that name.
_NO_PLACE = re.compile(r"file:/|[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_OWN_FILE = re.compile(rf"[0-9a-f]{{64}}(-{SAVE})?\.safetensors")
_OWN_NAMES = {LOCK, FILE_NAME}
CARD = "README.md"
LARGEST_CARD = 2**24
_CARD_ATTEMPTS = 5


class Contents(Enum):
    """What a folder holds."""

    EMPTY = "nothing"
    UNFINISHED = "a first save that was interrupted, which saving again completes"
    KNOWLEDGE_BASE = "a knowledge base, perhaps a damaged one"
    FOREIGN = "something else"


class FolderSize(NamedTuple):
    """Bytes on disk."""

    posteriors: int
    """Of the posteriors, each file once."""
    total: int
    """Of everything, with priors, network, manifest and card."""


class Stored(NamedTuple):
    """What a folder holds of a learner."""

    state: State
    metadata: dict[str, Any]
    storage: str
    """How dense posteriors are kept."""
    revision: str


def storage_at(path: str | PathLike[str]) -> Storage:
    """Return where a knowledge base of this path or URL is kept.

    Examples
    --------
    >>> print(storage_at("movies.ibcl"), storage_at("memory://movies.ibcl"))
    movies.ibcl memory://movies.ibcl
    """
    url, text = as_url(path), path_text(path)
    if _NO_PLACE.match(text) and (url is None or url.startswith("file://")):
        raise StoreError(
            f"{text} names no place for a knowledge base: a folder of this machine is given by its "
            "path alone, and an object store as in s3://bucket/name."
        )
    return LocalFolder(Path(path), SUBFOLDERS) if url is None else RemoteFolder(url)


def contents(path: str | PathLike[str]) -> Contents:
    """Tell what a folder holds, before anything is written to it.

    Examples
    --------
    >>> contents("nowhere")
    <Contents.EMPTY: 'nothing'>
    """
    storage = storage_at(path)
    try:
        names = storage.names()
    except StoreError:
        return Contents.FOREIGN
    if FILE_NAME in names:
        return Contents.KNOWLEDGE_BASE if _is_described(storage) else Contents.FOREIGN
    if _foreign(storage, names, everywhere=True):
        return Contents.FOREIGN
    return Contents.UNFINISHED if names else Contents.EMPTY


def exists(path: str | PathLike[str]) -> bool:
    """Tell whether there is anything that saving for the first time would meet.

    Examples
    --------
    >>> exists("nowhere")
    False
    """
    return contents(path) in (Contents.KNOWLEDGE_BASE, Contents.FOREIGN)


def _is_described(storage: Storage) -> bool:
    """Tell whether the manifest is one of a knowledge base, or too damaged to tell."""
    try:
        contents = pydantic_core.from_json(storage.read(FILE_NAME, LARGEST_MANIFEST))
    except (ValueError, OSError):
        return True
    return isinstance(contents, dict) and contents.get("kind") == KIND


def _foreign(folder: Storage, names: Mapping[str, int | None], everywhere: bool) -> str | None:
    """Return the first thing that saving never makes; inside of subfolders too where asked."""
    for name, size in names.items():
        plain = size is not None
        subfolder, _, file = name.rpartition("/")
        if subfolder and not everywhere:
            continue
        # Beside a manifest somebody's own text is left alone; without one the folder is theirs.
        card = name == CARD and plain and (FILE_NAME in names or _is_card(folder))
        own = _OWN_FILE.fullmatch(file) if subfolder else name in _OWN_NAMES or card
        if not plain or not (own or is_temporary(file)):
            return name
    return None


def save(
    state: State,
    metadata: Mapping[str, Any],
    folder: Storage,
    storage: str = posteriors.EXACT,
    revision: str | None = None,
    overwrite: bool = False,
) -> str:
    """Save a learner's state; only what the folder does not hold yet is written.

    Where it fails, the folder is as it was, without anything half written; once the manifest has
    been replaced nothing is reported as failure.

    Parameters
    ----------
    storage
        How dense posteriors are kept: ``"exact"``, ``"float16"`` or ``"eigenvectors:64"``.
    revision
        The one last read from or written to this folder, which may be replaced.
    overwrite
        True replaces whatever knowledge base is there.

    Returns
    -------
    The new revision.

    Examples
    --------
    >>> import tempfile, ibcl
    >>> learner = ibcl.IBCL(ibcl.networks.linear(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     revision = save(learner.state, {}, storage_at(folder))
    ...     load(storage_at(folder)).state.tasks
    ()
    """
    storage = posteriors.check_storage(storage)
    try:
        manifest, files = describe(state, metadata, storage)
    except RecursionError:
        raise StoreError(
            "This learner cannot be saved: its metadata is nested too deeply."
        ) from None
    card = knowledge_card(state, metadata).encode()
    names = folder.names()
    _refuse_foreign(folder, names)
    version = folder.version(FILE_NAME)
    present = _continued(folder, revision, overwrite)
    with folder.lock():
        locked = folder.version(FILE_NAME)
        if locked != version:
            version, present = locked, _continued(folder, revision, overwrite)
        kept = _kept(present, names) if present and not overwrite else {}
        placed = manifest.placed(secrets.token_hex(8), kept)
        located = placed.located
        # The present manifest's files may be younger than the list.
        found = {**dict.fromkeys(present.files if present else (), 0), **names}
        unneeded = sorted(_own_files(found) - set(placed.files))
        same = present is not None and present.checksum == manifest.checksum
        if version is None or not same or unneeded or len(kept) < len(located):
            written = {
                located[name]: contents
                for subfolder, entry, contents in files
                if (name := file_name(subfolder, entry.sha256)) not in kept
            }
            encoded = placed.encode()
            with _discarded_after(BaseException, folder, written):
                folder.write((name, contents()) for name, contents in written.items())
            with _discarded_after(StoreError, folder, written):
                version = folder.replace(FILE_NAME, encoded, version)
        log.info("saved %d tasks to %s", len(manifest.tasks), printable(folder))
        folder.remove(unneeded)
        try:
            _write_card(folder, card, version)
        except StoreError as error:
            warnings.warn(f"{folder} was written, but not its card: {error}", stacklevel=2)
    return manifest.checksum


def _kept(present: Manifest, names: Mapping[str, int | None]) -> dict[str, str]:
    """Return where the files are that the present manifest names, as far as they look whole."""
    located = present.located
    return {
        name: located[name]
        for name, entry in present.names.items()
        if names.get(located[name]) == entry.bytes
    }


def _own_files(names: Mapping[str, int | None]) -> set[str]:
    """Return the files that are a save's, whichever, and those on their way; nothing foreign."""
    own = set()
    for name, size in names.items():
        subfolder, _, file = name.rpartition("/")
        if size is not None and (is_temporary(file) or (subfolder and _OWN_FILE.fullmatch(file))):
            own.add(name)
    return own


@contextmanager
def _discarded_after(
    failure: type[BaseException], folder: Storage, written: Mapping[str, object]
) -> Iterator[None]:
    """Remove what was written if saving fails, so that a full disk is not fuller than before."""
    try:
        yield
    except UndecidedError:
        raise
    except failure:
        with suppress(StoreError):
            found = folder.version(FILE_NAME) is not None
            # A refused save may have been done, where an answer was lost, and continued since.
            needed = set(read_manifest(folder).files) if found else set()
            folder.remove(name for name in written if name not in needed)
        raise


def _write_card(folder: Storage, card: bytes, version: str | None) -> None:
    """Write the card while the manifest is of this version, unless somebody wrote their own."""
    for _ in range(_CARD_ATTEMPTS):
        seen = folder.version(CARD)
        if seen is not None and not _is_card(folder):
            return
        if folder.version(FILE_NAME) != version:
            return
        with suppress(ChangedSinceError):
            if seen is None or folder.read(CARD, LARGEST_CARD) != card:
                folder.replace(CARD, card, seen)
            return


def _is_card(folder: Storage) -> bool:
    """Tell whether the text there was written here."""
    try:
        return folder.read(CARD, LARGEST_CARD).startswith(MARK.encode())
    except (StoreError, FileNotFoundError):
        return False


def check_writable(folder: Storage, revision: str | None, overwrite: bool = False) -> None:
    """Refuse a folder with anything that saving would destroy.

    Parameters
    ----------
    revision
        The one last read from or written to this folder.
    """
    _refuse_foreign(folder, folder.names())
    _continued(folder, revision, overwrite)


def _refuse_foreign(folder: Storage, names: Mapping[str, int | None]) -> None:
    if isinstance(folder, LocalFolder):
        refuse_inside_knowledge_base(folder.folder)
    foreign = _foreign(folder, names, everywhere=FILE_NAME not in names)
    if foreign:
        what = "not a plain file" if names[foreign] is None else "no part of a knowledge base"
        raise StoreError(
            f"{folder} holds {printable(foreign)}, which is {what}; choose a folder of its own."
        )


def _continued(folder: Storage, revision: str | None, overwrite: bool) -> Manifest | None:
    """Return the manifest that is continued, None where it starts a knowledge base."""
    if folder.version(FILE_NAME) is None:
        return None
    try:
        present = read_manifest(folder)
    except StoreError as error:
        if overwrite:
            return None
        raise OccupiedError(f"{error} Choose another folder, or overwrite it.") from None
    if overwrite or present.checksum == revision:
        return present
    tasks = printable(listed([task.name for task in present.tasks])) or "no tasks"
    if revision is None:
        raise OccupiedError(
            f"{folder} holds a knowledge base ({tasks}) that this learner was not loaded from; "
            "load it and continue from there, choose another folder, or overwrite it."
        )
    raise ChangedSinceError(
        f"{folder} holds a knowledge base ({tasks}) that another writer has changed since; load it "
        "again and repeat what was to be saved, choose another folder, or overwrite it."
    )


def size(path: str | PathLike[str]) -> FolderSize:
    """Return the bytes a knowledge base takes on disk."""
    folder = storage_at(path)
    manifest = read_manifest(folder)
    stored = {entry.sha256: entry.bytes for entry in manifest.posteriors}
    total = sum(entry.bytes for entry in manifest.names.values()) + folder.size(FILE_NAME)
    with suppress(FileNotFoundError):
        total += folder.size(CARD)
    return FolderSize(sum(stored.values()), total)


def load(
    folder: Storage,
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
) -> Stored:
    """Read what a folder holds of a learner.

    Parameters
    ----------
    network
        The module the learner was made with, where `ibcl.networks` did not build it.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    """
    manifest = read_manifest(folder)
    while True:
        try:
            _check_present(folder, manifest)
            contents = _Contents(folder, manifest.located)
            state = _rebuild(contents, manifest, network, device)
            break
        except (FileNotFoundError, NotADirectoryError) as error:
            # A writer may have replaced the manifest, and removed files, since it was read.
            present = read_manifest(folder)
            if present.save == manifest.save:
                raise StoreError(f"{folder} is damaged: {error.filename} is missing.") from None
            manifest = present
    log.info("opened %s with %d tasks", printable(folder), len(manifest.tasks))
    return Stored(state, dict(manifest.metadata), manifest.storage, manifest.checksum)


def _check_present(folder: Storage, manifest: Manifest) -> None:
    """Compare the sizes the manifest declares with the files', before anything is made of them."""
    sizes, located = folder.names(), manifest.located
    for name, entry in manifest.names.items():
        file = located[name]
        found = sizes.get(file)
        # What is not listed as a plain file is a link, or missing.
        found = folder.size(file) if found is None else found
        if found != entry.bytes:
            raise StoreError(
                f"{folder}/{file} is damaged: it has {found} bytes instead of {entry.bytes}."
            )


@dataclass(frozen=True)
class _Contents:
    """The files of one manifest, by the hashes of their contents."""

    storage: Storage
    located: Mapping[str, str]

    def __str__(self) -> str:
        return str(self.storage)

    def read(self, name: str, largest: int) -> bytes:
        return self.storage.read(self.located[name], largest)


def _rebuild(
    folder: Readable,
    manifest: Manifest,
    network: nn.Module | None,
    device: str | torch.device | None,
) -> State:
    try:
        expert = restore_expert(manifest.expert)
    except ValueError as error:
        raise StoreError(f"{folder}/{FILE_NAME} is not valid: {error}") from None
    network = on_base(network, manifest.network.backbone)
    if expert is not None and network is not None:
        network = expert.network(network)
    flat = FlatNetwork(rebuild_network(folder, manifest.network, network, device))
    priors, stored = _read_gaussians(folder, manifest)
    try:
        posteriors.check_storage(manifest.storage)
        inference = manifest.inference
        settings = Settings(
            priors or None,
            None if inference is None else rebuild_inference(inference),
            None
            if manifest.pooling is None
            else rule_with(manifest.pooling, manifest.pooling_settings),
            manifest.d,
            manifest.alpha,
            manifest.seed,
            restore_likelihood(manifest.likelihood),
            manifest.independent,
            manifest.task_incremental,
            manifest.calibration,
            manifest.calibration_rows,
            expert=expert,
            distance=manifest.distance,
        )
        knowledge = empty_knowledge(settings, flat)
        for task in manifest.tasks:
            knowledge.check_new(task.name)
        # Tasks with a scale of their own tell that the priors had been left open.
        own = any(task.scale is not None for task in manifest.tasks)
        given = replace(settings, priors=None) if own else settings
        state = State(flat, knowledge, given, encoder=restore_encoder(manifest.encoder))
        if not manifest.tasks:
            return state
        records = tuple(TaskRecord(**dict(task)) for task in manifest.tasks)
        moments = read_moments(folder, manifest, flat)
        parts = read_parts(folder, manifest)
        common = read_common(folder, manifest)
        posteriors_there = tuple(q.to(flat.device) for q in stored)
        knowledge.restore(posteriors_there, records, moments, parts, common)
        state = replace(state, settled=settings, reasons=dict(manifest.choices))
        _ = state.likelihood
        return state
    except StoreError:
        raise
    except ValueError as error:
        raise StoreError(f"{folder}/{FILE_NAME} is not valid: {error}") from None


def _read_gaussians(
    folder: Readable, manifest: Manifest
) -> tuple[tuple[Gaussian, ...], tuple[Gaussian, ...]]:
    """Read priors and posteriors, each against the one it was written as a difference to."""
    priors = manifest.priors or ()
    count = len(priors)
    records = [TaskRecord(**dict(task)) for task in manifest.tasks]
    entries = (*priors, *manifest.posteriors)
    bases = learnt_from(records)
    offered = [None] * count + [entries[place(base, count)].sha256 for base in bases]
    scales = [None] * count + [base.scale for base in bases]
    known: dict[str | None, Gaussian] = {}
    # A file that is named more than once is unfolded once.
    read: dict[tuple[str, str | None, float | None], Gaussian] = {}
    gaussians = []
    for position, (entry, prior, scale) in enumerate(zip(entries, offered, scales, strict=True)):
        key = entry.sha256, entry.base, scale
        if key not in read:
            name = file_name(POSTERIORS, entry.sha256)
            data = folder.read(name, entry.bytes)
            read[key] = posteriors.decode(
                check(data, entry.sha256, entry.bytes, f"{folder}/{name}"),
                entry,
                manifest.network.dimension,
                posteriors.EXACT if position < count else manifest.storage,
                None if entry.base is None else scaled(known[entry.base], scale),
                prior,
            )
        known[entry.sha256] = read[key]
        gaussians.append(read[key])
    return tuple(gaussians[:count]), tuple(gaussians[count:])
