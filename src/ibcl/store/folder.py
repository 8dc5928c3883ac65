"""A knowledge base as a folder: immutable files named by their hash, and one manifest.

    movies.ibcl/
      manifest.json                       replaced atomically, as the last act of saving
      posteriors/<sha256>.safetensors     priors and posteriors
      network/<sha256>.safetensors        what the network holds beside its parameters θ

Killed at any moment, the folder opens as it was after the last finished save. One writer holds the
folder's lock; readers need none.
"""

from __future__ import annotations

import re
import warnings
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from torch import nn

from ibcl.gaussians import Gaussian
from ibcl.knowledge import TaskRecord
from ibcl.learner import IBCL
from ibcl.store import posteriors
from ibcl.store.description import (
    NETWORK,
    POSTERIORS,
    describe,
    learnt_from,
    place,
    rebuild_inference,
    rebuild_network,
    restore_likelihood,
)
from ibcl.store.files import LOCK, TEMPORARY, StoreError, one_writer, read_checked, write_atomically
from ibcl.store.manifest import FILE_NAME, Manifest, read_manifest

_OURS = {LOCK, FILE_NAME, FILE_NAME + TEMPORARY, POSTERIORS, NETWORK}
_NAME = re.compile(rf"[0-9a-f]{{64}}\.safetensors({re.escape(TEMPORARY)})?")


class FolderSize(NamedTuple):
    """Bytes on disk."""

    posteriors: int
    """Of the posteriors, each file once."""
    total: int
    """Of everything, with priors, network and manifest."""


def save(
    learner: IBCL, path: str | PathLike[str], overwrite: bool = False, storage: str | None = None
) -> None:
    """Save a learner; only what the folder does not hold yet is written.

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
    folder = Path(path)
    storage = posteriors.check_storage(learner.storage if storage is None else storage)
    manifest, files = describe(learner, learner.knowledge, storage)
    check_writable(learner, folder, overwrite)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with one_writer(folder):
            present = check_writable(learner, folder, overwrite)
            trusted = {entry.sha256 for entry in present.files} if present else set()
            for subfolder, entry, contents in files:
                target = folder / subfolder / f"{entry.sha256}.safetensors"
                if overwrite or entry.sha256 not in trusted or not target.exists():
                    target.parent.mkdir(exist_ok=True)
                    write_atomically(target, contents())
            write_atomically(folder / FILE_NAME, manifest.encode())
            learner.storage = storage
            learner.revisions[folder.resolve()] = manifest.checksum
            _remove_unreferenced(folder, manifest)
    except OSError as error:
        raise StoreError(f"Cannot write {folder}: {error.strerror or error}.") from None


def check_writable(
    learner: IBCL, path: str | PathLike[str], overwrite: bool = False
) -> Manifest | None:
    """Refuse a folder with anything that saving this learner would destroy.

    Returns the manifest of the knowledge base that the learner continues, None where it starts one.
    """
    folder = Path(path)
    if folder.exists() and not folder.is_dir():
        raise StoreError(f"{folder} is a file; a knowledge base is kept in a folder.")
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    foreign = sorted(names - _OURS)
    if foreign:
        raise StoreError(
            f"{folder} holds {foreign[0]}, which is no part of a knowledge base; choose a folder "
            "of its own."
        )
    if FILE_NAME not in names:
        return None
    try:
        present = read_manifest(folder)
    except StoreError as error:
        if overwrite:
            return None
        raise StoreError(f"{error} Save with overwrite=True to replace it.") from None
    revision = learner.revisions.get(folder.resolve())
    if overwrite or present.checksum == revision:
        return present
    tasks = ", ".join(task.name for task in present.tasks) or "no tasks"
    reason = "that this learner was not loaded from" if revision is None else "changed since"
    raise StoreError(
        f"{folder} holds a knowledge base ({tasks}) {reason}; load it and continue from there, "
        "choose another folder, or save with overwrite=True to replace it."
    )


def _remove_unreferenced(folder: Path, manifest: Manifest) -> None:
    """Remove what no task needs any more, so that what is forgotten is gone."""
    kept = {f"{entry.sha256}.safetensors" for entry in manifest.files}
    for subfolder in (POSTERIORS, NETWORK):
        for path in (folder / subfolder).glob("*"):
            if path.name not in kept and _NAME.fullmatch(path.name):
                try:
                    path.unlink()
                except OSError as error:
                    warnings.warn(
                        f"{path} is no longer needed but cannot be removed: {error.strerror}; the "
                        "next save tries again.",
                        stacklevel=3,
                    )


def size(path: str | PathLike[str]) -> FolderSize:
    """Return the bytes a knowledge base takes on disk."""
    folder = Path(path)
    manifest = read_manifest(folder)
    stored = {entry.sha256: entry.bytes for entry in manifest.posteriors}
    files = {entry.sha256: entry.bytes for entry in manifest.files}
    total = sum(files.values()) + (folder / FILE_NAME).stat().st_size
    return FolderSize(sum(stored.values()), total)


def load(
    path: str | PathLike[str], network: nn.Module | None = None, autosave: bool = False
) -> IBCL:
    """Load a learner; what it predicts, and what it goes on to learn, is as if it had never left.

    Parameters
    ----------
    network
        The module the learner was made with, where `ibcl.networks` did not build it.
    autosave
        True saves to the same folder whenever a task has been learnt or forgotten.
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    while True:
        try:
            learner = _rebuild(folder, manifest, network)
            break
        except FileNotFoundError as error:
            # A writer may have replaced the manifest, and removed files, since it was read.
            present = read_manifest(folder)
            if present.checksum == manifest.checksum:
                raise StoreError(f"{folder} is damaged: {error.filename} is missing.") from None
            manifest = present
    learner.storage = manifest.storage
    learner.metadata = dict(manifest.metadata)
    learner.revisions[folder.resolve()] = manifest.checksum
    learner.autosave = folder if autosave else None
    return learner


def _rebuild(folder: Path, manifest: Manifest, network: nn.Module | None) -> IBCL:
    module = rebuild_network(folder, manifest.network, network)
    priors, stored = _read_gaussians(folder, manifest)
    try:
        posteriors.check_storage(manifest.storage)
        learner = IBCL(
            module,
            priors,
            rebuild_inference(manifest.inference),
            manifest.pooling,
            manifest.d,
            manifest.alpha,
            manifest.seed,
            likelihood=restore_likelihood(manifest.likelihood),
            continual=manifest.continual,
            task_incremental=manifest.task_incremental,
        )
        for task in manifest.tasks:
            learner.knowledge.check_new(task.name)
    except ValueError as error:
        raise StoreError(f"{folder / FILE_NAME} is not valid: {error}") from None
    records = tuple(TaskRecord(**dict(task)) for task in manifest.tasks)
    learner.knowledge.restore(stored, records)
    return learner


def _read_gaussians(
    folder: Path, manifest: Manifest
) -> tuple[tuple[Gaussian, ...], tuple[Gaussian, ...]]:
    """Read priors and posteriors, each against the one it was written as a difference to."""
    count = len(manifest.priors)
    records = [TaskRecord(**dict(task)) for task in manifest.tasks]
    entries = (*manifest.priors, *manifest.posteriors)
    offered = [None] * count + [entries[place(b, count)].sha256 for b in learnt_from(records)]
    known: dict[str | None, Gaussian] = {}
    gaussians = []
    for position, (entry, prior) in enumerate(zip(entries, offered, strict=True)):
        data = read_checked(
            folder / POSTERIORS / f"{entry.sha256}.safetensors", entry.sha256, entry.bytes
        )
        gaussian = posteriors.decode(
            data,
            entry,
            manifest.network.dimension,
            posteriors.EXACT if position < count else manifest.storage,
            known.get(entry.base),
            prior,
        )
        known[entry.sha256] = gaussian
        gaussians.append(gaussian)
    return tuple(gaussians[:count]), tuple(gaussians[count:])
