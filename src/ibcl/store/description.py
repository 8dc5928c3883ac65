"""A learner as a manifest and the files it names, and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ibcl import networks
from ibcl.inference import METHODS, Inference
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.learner import IBCL
from ibcl.likelihoods import Likelihood, Normal, choose
from ibcl.networks import FlatNetwork
from ibcl.store import posteriors
from ibcl.store.files import StoreError, check, file_name, sha256
from ibcl.store.manifest import (
    NETWORK,
    POSTERIORS,
    FileEntry,
    InferenceEntry,
    LikelihoodEntry,
    Manifest,
    NetworkEntry,
    TaskEntry,
    one_sentence,
)
from ibcl.store.storage import Storage


class NamedFile(NamedTuple):
    """A file that a manifest names, and how to make its bytes."""

    subfolder: str
    entry: FileEntry
    contents: Callable[[], bytes]


def digest(learner: IBCL, knowledge: KnowledgeBase) -> str:
    """Return the revision that saving this knowledge exactly would give the folder."""
    return describe(learner, knowledge, posteriors.EXACT)[0].checksum


def describe(
    learner: IBCL, knowledge: KnowledgeBase, storage: str
) -> tuple[Manifest, tuple[NamedFile, ...]]:
    """Return the manifest of a learner that knows this, and the files it names."""
    prior_encodings = [posteriors.encode(prior) for prior in knowledge.priors]
    encodings: list[posteriors.Encoding] = []
    gaussians = (*knowledge.priors, *knowledge.stored)
    for posterior, base in zip(knowledge.stored, learnt_from(knowledge.records), strict=True):
        before = [*prior_encodings, *encodings][place(base, len(knowledge.priors))]
        prior = gaussians[place(base, len(knowledge.priors))]
        encodings.append(posteriors.encode(posterior, storage, (before.entry.sha256, prior)))
    files = [
        NamedFile(POSTERIORS, encoding.entry, partial(posteriors.contents, gaussian, encoding))
        for gaussian, encoding in zip(gaussians, [*prior_encodings, *encodings], strict=True)
    ]
    frozen = learner.network.frozen_state
    if frozen:
        data = save({name: value.clone() for name, value in frozen.items()})
        entry = FileEntry(sha256=sha256(data), bytes=len(data))
        files.append(NamedFile(NETWORK, entry, lambda: data))
    try:
        manifest = Manifest(
            version=version("ibcl"),
            network=NetworkEntry(
                specification=learner.network.specification,
                fingerprint=learner.network.fingerprint,
                dimension=learner.network.dimension,
                frozen=files[-1].entry if frozen else None,
            ),
            inference=describe_inference(learner.inference),
            likelihood=describe_likelihood(learner.likelihood),
            pooling=learner.pooling,
            d=float(knowledge.d),
            alpha=float(learner.alpha),
            seed=int(learner.seed),
            continual=knowledge.continual,
            task_incremental=learner.task_incremental,
            storage=storage,
            priors=tuple(encoding.entry for encoding in prior_encodings),
            posteriors=tuple(encoding.entry for encoding in encodings),
            tasks=tuple(TaskEntry(**dataclasses.asdict(record)) for record in knowledge.records),
            metadata=learner.metadata,
        )
        manifest.encode()
    except ValidationError as error:
        raise StoreError(f"This learner cannot be saved ({one_sentence(error)}).") from None
    except ValueError as error:
        raise StoreError(f"This learner cannot be saved: {error}.") from None
    return manifest, tuple(files)


def learnt_from(records: Sequence[TaskRecord]) -> list[tuple[int | None, int]]:
    """For each stored posterior, the position of the one it was learnt from, and its prior's index.

    The position is None where it was learnt from the initial prior of that index.
    """
    return [
        (prior, index)
        for record in records
        for index, (prior, pointer) in enumerate(zip(record.priors, record.pointers, strict=True))
        if not pointer
    ]


def place(base: tuple[int | None, int], priors: int) -> int:
    """Where that is in the list of all priors and then all posteriors."""
    position, index = base
    return index if position is None else priors + position


def describe_inference(inference: Inference) -> InferenceEntry:
    """Name an inference method and its settings, or refuse one that could not be rebuilt."""
    for name, method in METHODS.items():
        if type(inference) is method and dataclasses.is_dataclass(inference):
            return InferenceEntry(name=name, settings=dataclasses.asdict(inference))
    raise StoreError(
        f"{type(inference).__name__} cannot be saved: make it a dataclass and add it to "
        "ibcl.inference.METHODS."
    )


def describe_likelihood(likelihood: str | Likelihood) -> LikelihoodEntry:
    """Name a likelihood, or refuse one that could not be rebuilt."""
    if isinstance(likelihood, str):
        return LikelihoodEntry.model_validate({"name": likelihood})
    noise = likelihood.noise if isinstance(likelihood, Normal) else None
    entry = LikelihoodEntry.model_validate({"name": likelihood.name, "noise": noise})
    if restore_likelihood(entry) != likelihood:
        raise StoreError(f"The likelihood {likelihood!r} is not one of ibcl and cannot be saved.")
    return entry


def restore_likelihood(entry: LikelihoodEntry) -> str | Likelihood:
    """Return the likelihood of a manifest."""
    if entry.name == "auto":
        return entry.name
    if entry.noise is not None:
        return Normal(entry.noise)
    return choose(entry.name, torch.empty(0), 1)


def rebuild_inference(entry: InferenceEntry) -> Inference:
    """Return the inference method of a manifest, with every setting of its right type."""
    method = METHODS.get(entry.name)
    if method is None or not dataclasses.is_dataclass(method):
        raise ValueError(f"The inference method {entry.name!r} is not known.")
    hints = typing.get_type_hints(method)
    fields = {field.name for field in dataclasses.fields(method)}
    for name, value in entry.settings.items():
        if name not in fields:
            raise ValueError(f"{entry.name} has no setting {name!r}.")
        try:
            TypeAdapter(hints[name]).validate_python(value, strict=True)
        except ValidationError:
            raise ValueError(f"The setting {name} of {entry.name} is not valid.") from None
    inference: Inference = method(**entry.settings)
    return inference


def rebuild_module(
    specification: Mapping[str, Any] | None, network: nn.Module | None, what: Path, largest: int
) -> nn.Module:
    """Build the described network, if it holds no more numbers than that, or take the one given."""
    if network is not None:
        return network
    if specification is None:
        raise StoreError(
            f"{what} holds what a network learnt that ibcl did not build: give that module as "
            "network=."
        )
    try:
        if _numbers(specification) > largest:
            raise ValueError("it is larger than what is stored of it.")
        return networks.build(specification)
    except (ValueError, TypeError, RuntimeError, MemoryError) as error:
        raise StoreError(f"The network described in {what} cannot be built: {error}") from None


def _numbers(specification: Mapping[str, Any]) -> int:
    """Count the numbers a described network holds, before any of it is built."""
    hidden = specification.get("hidden", specification.get("width", []))
    middle = hidden if isinstance(hidden, list) else [hidden]
    widths = [specification.get("inputs"), *middle, specification.get("outputs")]
    try:
        sizes = TypeAdapter(list[int]).validate_python(widths, strict=True)
    except ValidationError:
        raise ValueError("its sizes are not whole numbers.") from None
    skipped = sizes[0] * sizes[-1] if specification.get("skip") else 0
    return skipped + sum((before + 1) * after for before, after in pairwise(sizes))


def rebuild_network(folder: Storage, entry: NetworkEntry, network: nn.Module | None) -> nn.Module:
    """Return the network of a manifest: built or given, and shown to be the one it was."""
    data = b""
    if entry.frozen is not None:
        # Before anything is built, since its size bounds what may be.
        name = file_name(NETWORK, entry.frozen.sha256)
        data = folder.read(name, entry.frozen.bytes)
        check(data, entry.frozen.sha256, entry.frozen.bytes, f"{folder}/{name}")
    what = Path(str(folder))
    flat = FlatNetwork(
        rebuild_module(entry.specification, network, what, entry.dimension + len(data))
    )
    given = "the network given" if network is not None else "the network described"
    if entry.frozen is not None:
        try:
            restore_frozen(flat, load(data))
        except (ValueError, SafetensorError, RuntimeError) as error:
            raise StoreError(f"{what / name} does not fit {given}: {error}.") from None
    if flat.fingerprint != entry.fingerprint or flat.dimension != entry.dimension:
        raise StoreError(f"{folder} was not learnt with {given}; give its own module as network=.")
    return flat.template


def restore_frozen(network: FlatNetwork, tensors: dict[str, Tensor]) -> None:
    """Set buffers and untrained parameters."""
    state = network.template.state_dict()
    expected = network.frozen_state
    if set(tensors) != set(expected):
        raise ValueError("it names other buffers")
    for name, value in tensors.items():
        if value.shape != expected[name].shape or value.dtype != expected[name].dtype:
            raise ValueError(f"the buffer {name} has another shape or type")
        with torch.no_grad():
            state[name].copy_(value)
