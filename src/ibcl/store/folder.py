"""A knowledge base as a folder: immutable files named by their hash, and one manifest.

    movies.ibcl/
      manifest.json                       replaced atomically, as the last act of saving
      README.md                           the card, for people; never read back
      posteriors/<sha256>.safetensors     priors and posteriors
      network/<sha256>.safetensors        what the network holds beside its parameters θ
      moments/<sha256>.safetensors        of the tasks' inputs

Killed at any moment, the folder opens as it was after the last finished save; where that was to be
the first, saving again succeeds. One writer holds the folder's lock; readers need none.
"""

from __future__ import annotations

import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import pydantic_core
import torch
from torch import nn

from ibcl.cards import MARK, knowledge_card
from ibcl.errors import ChangedSinceError, OccupiedError, StoreError
from ibcl.files import is_temporary
from ibcl.gaussians import Gaussian
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.learner import IBCL
from ibcl.names import printable
from ibcl.store import posteriors
from ibcl.store.description import (
    NamedFile,
    describe,
    learnt_from,
    place,
    read_moments,
    rebuild_inference,
    rebuild_network,
    restore_encoder,
    restore_likelihood,
    restore_pooling,
)
from ibcl.store.files import check, file_name
from ibcl.store.manifest import (
    FILE_NAME,
    KIND,
    LARGEST_MANIFEST,
    POSTERIORS,
    SUBFOLDERS,
    Manifest,
    read_manifest,
)
from ibcl.store.remote import RemoteFolder
from ibcl.store.storage import LOCK, LocalFolder, Storage, as_url

log = logging.getLogger("ibcl")

# Also the temporary files of versions that wrote format 1.
_OWN_FILE = re.compile(r"[0-9a-f]{64}\.safetensors(\.tmp)?")
_OWN_NAMES = {LOCK, FILE_NAME, f"{FILE_NAME}.tmp"}
CARD = "README.md"
LARGEST_CARD = 2**24


class State(Enum):
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


def local(path: str | PathLike[str]) -> Storage:
    """Return where a knowledge base of this path or URL is kept."""
    url = as_url(path)
    return LocalFolder(Path(path), SUBFOLDERS) if url is None else RemoteFolder(url)


def state(path: str | PathLike[str]) -> State:
    """Tell what a folder holds, before anything is written to it.

    Examples
    --------
    >>> state("nowhere")
    <State.EMPTY: 'nothing'>
    """
    storage = local(path)
    try:
        names = storage.names()
    except StoreError:
        return State.FOREIGN
    if FILE_NAME in names:
        return State.KNOWLEDGE_BASE if _is_described(storage) else State.FOREIGN
    if _foreign(storage, names, everywhere=True):
        return State.FOREIGN
    return State.UNFINISHED if names else State.EMPTY


def exists(path: str | PathLike[str]) -> bool:
    """Tell whether there is anything that saving for the first time would meet.

    Examples
    --------
    >>> exists("nowhere")
    False
    """
    return state(path) in (State.KNOWLEDGE_BASE, State.FOREIGN)


def _is_described(storage: Storage) -> bool:
    """Tell whether the manifest is one of a knowledge base, or too damaged to tell."""
    try:
        contents = pydantic_core.from_json(storage.read(FILE_NAME, LARGEST_MANIFEST))
    except (ValueError, OSError):
        return True
    return isinstance(contents, dict) and contents.get("kind") == KIND


def _foreign(folder: Storage, names: Mapping[str, bool], everywhere: bool) -> str | None:
    """Return the first thing that saving never makes; inside of subfolders too where asked."""
    for name, plain in names.items():
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
    learner: IBCL, path: str | PathLike[str], overwrite: bool = False, storage: str | None = None
) -> None:
    """Save a learner; only what the folder does not hold yet is written.

    Where it fails, the folder is as it was, without anything half written; once the manifest has
    been replaced nothing is reported as failure.

    Parameters
    ----------
    overwrite
        True replaces whatever knowledge base is there; otherwise only the one that this learner
        was loaded from or saved to last, unchanged since.
    storage
        How dense posteriors are kept: ``"exact"``, ``"float16"`` or ``"eigenvectors:64"``; as the
        learner was loaded or saved last without one.

    Examples
    --------
    >>> import tempfile, ibcl
    >>> learner = ibcl.IBCL(ibcl.networks.linear(2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(learner, folder)
    ...     load(folder).tasks
    ()
    """
    if not isinstance(learner, IBCL):
        raise ValueError(f"Only a learner can be saved to a folder, not {type(learner).__name__}.")
    folder = local(path)
    storage = posteriors.check_storage(learner.storage if storage is None else storage)
    try:
        snapshot = learner.snapshot()
        manifest, files = describe(snapshot, storage)
    except RecursionError:
        raise StoreError(
            "This learner cannot be saved: its metadata is nested too deeply."
        ) from None
    encoded, card = manifest.encode(), knowledge_card(snapshot).encode()
    check_writable(learner, path, overwrite)
    with folder.lock():
        version = folder.version(FILE_NAME)
        present = check_writable(learner, path, overwrite)
        # A damaged manifest does not say what it needs: then nothing is removed beforehand.
        known = present is not None or version is None
        before = set(present.names) if present else set()
        if known:
            _clean(folder, before | set(manifest.names))
        with _undone(folder, before if known else None):
            _write_missing(folder, files, set() if overwrite else before)
            folder.replace(FILE_NAME, encoded, version)
        learner.storage = storage
        learner.revisions[folder.place] = manifest.checksum
        log.info("saved %d tasks to %s", len(manifest.tasks), printable(folder))
        try:
            _clean(folder, set(manifest.names))
        except StoreError as error:
            warnings.warn(f"{error} The next save removes what is no longer needed.", stacklevel=2)
        try:
            _write_card(folder, card)
        except StoreError as error:
            warnings.warn(f"{folder} was written, but not its card: {error}", stacklevel=2)


def _write_card(folder: Storage, card: bytes) -> None:
    """Write the card, unless somebody wrote their own in its place."""
    if CARD not in folder.names() or _is_card(folder):
        folder.write(CARD, card)


def _is_card(folder: Storage) -> bool:
    """Tell whether the text there was written here."""
    try:
        return folder.read(CARD, LARGEST_CARD).startswith(MARK.encode())
    except (StoreError, FileNotFoundError):
        return False


def _write_missing(folder: Storage, files: Iterable[NamedFile], trusted: set[str]) -> None:
    """Write the files that are not there, and those that only look as if they were."""
    names = folder.names()
    for subfolder, entry, contents in files:
        name = file_name(subfolder, entry.sha256)
        if name not in trusted or not names.get(name):
            folder.write(name, contents())


@contextmanager
def _undone(folder: Storage, needed: set[str] | None) -> Iterator[None]:
    """Remove what was written if writing fails, so that a full disk is not fuller than before."""
    version = folder.version(FILE_NAME)
    try:
        yield
    except BaseException:
        # Interrupted just after the manifest was replaced, everything new is needed.
        if needed is not None and folder.version(FILE_NAME) == version:
            with suppress(StoreError):
                _clean(folder, needed)
        raise


def check_writable(
    learner: IBCL, path: str | PathLike[str], overwrite: bool = False
) -> Manifest | None:
    """Refuse a folder with anything that saving this learner would destroy.

    Returns the manifest of the knowledge base that the learner continues, None where it starts one.
    """
    folder = local(path)
    names = folder.names()
    foreign = _foreign(folder, names, everywhere=FILE_NAME not in names)
    if foreign:
        what = "no part of a knowledge base" if names[foreign] else "not a plain file"
        raise StoreError(
            f"{folder} holds {printable(foreign)}, which is {what}; choose a folder of its own."
        )
    if FILE_NAME not in names:
        return None
    try:
        present = read_manifest(folder)
    except StoreError as error:
        if overwrite:
            return None
        raise OccupiedError(f"{error} Choose another folder, or overwrite it.") from None
    revision = learner.revisions.get(folder.place)
    if overwrite or present.checksum == revision:
        return present
    tasks = printable(", ".join(task.name for task in present.tasks)) or "no tasks"
    if revision is None:
        raise OccupiedError(
            f"{folder} holds a knowledge base ({tasks}) that this learner was not loaded from; "
            "load it and continue from there, choose another folder, or overwrite it."
        )
    raise ChangedSinceError(
        f"{folder} holds a knowledge base ({tasks}) that somebody changed since; load it again "
        "and repeat what was to be saved, choose another folder, or overwrite it."
    )


def _clean(folder: Storage, needed: set[str]) -> None:
    """Remove what no task needs any more, so that what is forgotten is gone; nothing foreign."""
    for name, plain in folder.names().items():
        subfolder, _, file = name.rpartition("/")
        own = _OWN_FILE.fullmatch(file) if subfolder else file == f"{FILE_NAME}.tmp"
        if plain and name not in needed and (own or is_temporary(file)):
            folder.remove(name)


def size(path: str | PathLike[str]) -> FolderSize:
    """Return the bytes a knowledge base takes on disk."""
    folder = local(path)
    manifest = read_manifest(folder)
    stored = {entry.sha256: entry.bytes for entry in manifest.posteriors}
    total = sum(entry.bytes for entry in manifest.names.values()) + folder.size(FILE_NAME)
    if folder.names().get(CARD):
        total += folder.size(CARD)
    return FolderSize(sum(stored.values()), total)


def load(
    path: str | PathLike[str],
    network: nn.Module | None = None,
    autosave: bool = False,
    device: str | torch.device | None = None,
) -> IBCL:
    """Load a learner; what it predicts, and what it goes on to learn, is as if it had never left.

    Parameters
    ----------
    network
        The module the learner was made with, where `ibcl.networks` did not build it.
    autosave
        True saves to the same folder whenever a task has been learnt or forgotten.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    """
    folder = local(path)
    manifest = read_manifest(folder)
    while True:
        try:
            _check_present(folder, manifest)
            learner = _rebuild(folder, manifest, network, device)
            break
        except (FileNotFoundError, NotADirectoryError) as error:
            # A writer may have replaced the manifest, and removed files, since it was read.
            present = read_manifest(folder)
            if present.checksum == manifest.checksum:
                raise StoreError(f"{folder} is damaged: {error.filename} is missing.") from None
            manifest = present
    learner.storage = manifest.storage
    learner.metadata = dict(manifest.metadata)
    learner.revisions[folder.place] = manifest.checksum
    learner.autosave = Path(path) if autosave else None
    log.info("opened %s with %d tasks", printable(folder), len(manifest.tasks))
    return learner


def _check_present(folder: Storage, manifest: Manifest) -> None:
    """Compare the sizes the manifest declares with the files', before anything is made of them."""
    for name, entry in manifest.names.items():
        found = folder.size(name)
        if found != entry.bytes:
            raise StoreError(
                f"{folder}/{name} is damaged: it has {found} bytes instead of {entry.bytes}."
            )


def _rebuild(
    folder: Storage,
    manifest: Manifest,
    network: nn.Module | None,
    device: str | torch.device | None,
) -> IBCL:
    module = rebuild_network(folder, manifest.network, network, device)
    priors, stored = _read_gaussians(folder, manifest)
    try:
        posteriors.check_storage(manifest.storage)
        likelihood = restore_likelihood(manifest.likelihood)
        learner = IBCL(
            module,
            priors or None,
            None if manifest.inference is None else rebuild_inference(manifest.inference),
            restore_pooling(manifest.pooling, manifest.pooling_settings),
            manifest.d,
            manifest.alpha,
            manifest.seed,
            likelihood=likelihood,
            continual=manifest.continual,
            task_incremental=manifest.task_incremental,
            encoder=restore_encoder(manifest.encoder),
        )
        for task in manifest.tasks:
            learner.knowledge.check_new(task.name)
    except ValueError as error:
        raise StoreError(f"{folder}/{FILE_NAME} is not valid: {error}") from None
    if manifest.tasks:
        empty = learner.knowledge
        knowledge = KnowledgeBase(empty.priors, empty.d, empty.continual)
        records = tuple(TaskRecord(**dict(task)) for task in manifest.tasks)
        moments = read_moments(folder, manifest, learner.network)
        knowledge.restore(tuple(q.to(learner.network.device) for q in stored), records, moments)
        if isinstance(likelihood, str):
            raise StoreError(f"{folder}/{FILE_NAME} is not valid: its likelihood is open.")
        learner.restore(knowledge, likelihood, manifest.choices)
    return learner


def _read_gaussians(
    folder: Storage, manifest: Manifest
) -> tuple[tuple[Gaussian, ...], tuple[Gaussian, ...]]:
    """Read priors and posteriors, each against the one it was written as a difference to."""
    priors = manifest.priors or ()
    count = len(priors)
    records = [TaskRecord(**dict(task)) for task in manifest.tasks]
    entries = (*priors, *manifest.posteriors)
    offered = [None] * count + [entries[place(b, count)].sha256 for b in learnt_from(records)]
    known: dict[str | None, Gaussian] = {}
    # A file that is named more than once is unfolded once.
    read: dict[tuple[str, str | None], Gaussian] = {}
    gaussians = []
    for position, (entry, prior) in enumerate(zip(entries, offered, strict=True)):
        key = entry.sha256, entry.base
        if key not in read:
            name = file_name(POSTERIORS, entry.sha256)
            data = folder.read(name, entry.bytes)
            read[key] = posteriors.decode(
                check(data, entry.sha256, entry.bytes, f"{folder}/{name}"),
                entry,
                manifest.network.dimension,
                posteriors.EXACT if position < count else manifest.storage,
                known.get(entry.base),
                prior,
            )
        known[entry.sha256] = read[key]
        gaussians.append(read[key])
    return tuple(gaussians[:count]), tuple(gaussians[count:])
