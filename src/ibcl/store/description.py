"""A learner as a manifest and the files it names, and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ibcl import networks
from ibcl.encoding import ENCODERS, Encoder, encoder_of
from ibcl.gaussians import Gaussian
from ibcl.inference import METHODS, Inference
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.likelihoods import LIKELIHOODS, Likelihood
from ibcl.likelihoods import from_description as likelihood_of
from ibcl.moments import Moments
from ibcl.networks import FlatNetwork
from ibcl.pooling import Routed
from ibcl.snapshot import Snapshot
from ibcl.store import posteriors
from ibcl.store.files import StoreError, check, file_name, sha256
from ibcl.store.manifest import (
    MOMENTS,
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


def digest(snapshot: Snapshot) -> str:
    """Return the revision that saving this exactly would give the folder."""
    return describe(snapshot, posteriors.EXACT)[0].checksum


def describe(snapshot: Snapshot, storage: str) -> tuple[Manifest, tuple[NamedFile, ...]]:
    """Return the manifest of what a learner is at one moment, and the files it names."""
    view, given = snapshot.view, snapshot.given
    knowledge, network = view.knowledge, view.network
    learnt = bool(knowledge.records)
    gaussians, encodings = _encoded(knowledge, storage)
    settled = learnt or given.priors is not None
    count = len(knowledge.priors)
    files = [
        NamedFile(POSTERIORS, encoding.entry, partial(posteriors.contents, gaussian, encoding))
        for gaussian, encoding in zip(gaussians, encodings, strict=True)
    ]
    frozen = None
    if network.frozen_state:
        frozen = _file(NETWORK, network.frozen_state)
        files.append(frozen)
    kept = [None if m is None else _file(MOMENTS, m.tensors()) for m in knowledge.moments]
    files += [file for file in kept if file is not None]
    pooled = learnt or given.pooling is not None
    rule = view.pooling
    try:
        manifest = Manifest(
            version=version("ibcl"),
            network=NetworkEntry(
                specification=network.specification,
                fingerprint=network.fingerprint,
                dimension=network.dimension,
                frozen=None if frozen is None else frozen.entry,
            ),
            inference=None
            if snapshot.inference is None
            else describe_inference(snapshot.inference),
            likelihood=describe_likelihood(view.likelihood or given.likelihood),
            pooling=view.pooling_name if pooled else None,
            pooling_settings=rule.settings() if pooled and isinstance(rule, Routed) else {},
            d=float(knowledge.d) if learnt or given.d is not None else None,
            alpha=float(view.alpha),
            seed=int(view.seed),
            continual=knowledge.continual if learnt else given.continual,
            task_incremental=view.task_incremental,
            encoder=describe_encoder(view.encoder),
            storage=storage,
            priors=tuple(e.entry for e in encodings[:count]) if settled else None,
            posteriors=tuple(encoding.entry for encoding in encodings[count:]),
            moments=tuple(None if file is None else file.entry for file in kept)
            if any(kept)
            else (),
            tasks=tuple(TaskEntry(**dataclasses.asdict(record)) for record in knowledge.records),
            metadata=snapshot.metadata,
            choices=snapshot.choices,
        )
        manifest.encode()
    except ValidationError as error:
        raise StoreError(f"This learner cannot be saved ({one_sentence(error)}).") from None
    except ValueError as error:
        raise StoreError(f"This learner cannot be saved: {str(error).rstrip('.')}.") from None
    return manifest, tuple(file for file in files if settled or file.subfolder != POSTERIORS)


def _encoded(
    knowledge: KnowledgeBase, storage: str
) -> tuple[tuple[Gaussian, ...], list[posteriors.Encoding]]:
    """Priors and posteriors, with the file of each."""
    gaussians = (*knowledge.priors, *knowledge.stored)
    encodings = [posteriors.encode(prior) for prior in knowledge.priors]
    for posterior, base in zip(knowledge.stored, learnt_from(knowledge.records), strict=True):
        position = place(base, len(knowledge.priors))
        before = encodings[position].entry.sha256, gaussians[position]
        encodings.append(posteriors.encode(posterior, storage, before))
    return gaussians, encodings


def _file(subfolder: str, tensors: Mapping[str, Tensor]) -> NamedFile:
    """Tensors as a file named by its contents."""
    data = save({name: value.cpu().clone() for name, value in tensors.items()})
    return NamedFile(subfolder, FileEntry(sha256=sha256(data), bytes=len(data)), lambda: data)


def read_moments(
    folder: Storage, manifest: Manifest, network: FlatNetwork
) -> tuple[Moments | None, ...]:
    """Read each task's moments, where it has any, for this network's features and device."""
    return tuple(
        None if entry is None else _moments(folder, entry, network.columns).to(network.device)
        for entry in manifest.moments or (None,) * len(manifest.tasks)
    )


def _moments(folder: Storage, entry: FileEntry, columns: int | None) -> Moments:
    name = file_name(MOMENTS, entry.sha256)
    data = check(folder.read(name, entry.bytes), entry.sha256, entry.bytes, f"{folder}/{name}")
    try:
        return Moments.from_tensors(load(data), columns)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise StoreError(f"{folder}/{name} is not valid: {str(error).rstrip('.')}.") from None


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
    """Name a likelihood and its settings, or refuse one that could not be rebuilt."""
    if isinstance(likelihood, str):
        return LikelihoodEntry(name=likelihood)
    settings = likelihood.description()
    entry = LikelihoodEntry(name=settings.pop("name"), settings=settings)
    try:
        if restore_likelihood(entry) == likelihood:
            return entry
    except ValueError:
        pass
    raise StoreError(
        f"The likelihood {likelihood!r} cannot be saved: make it a dataclass known by "
        "ibcl.likelihoods.register."
    )


def restore_likelihood(entry: LikelihoodEntry) -> str | Likelihood:
    """Return the likelihood of a manifest; a name alone where it is still to be settled."""
    settings = entry.settings if entry.noise is None else {"noise": entry.noise}
    if entry.name == "auto":
        return entry.name
    known = LIKELIHOODS.get(entry.name)
    open_settings = (
        known is not None and dataclasses.is_dataclass(known) and dataclasses.fields(known)
    )
    if open_settings and not settings:
        return entry.name
    return likelihood_of({"name": entry.name, **settings})


def describe_encoder(encoder: Encoder | None) -> dict[str, Any] | None:
    """Return an encoder as plain JSON, with its kind; refuse one that could not be rebuilt."""
    if encoder is None:
        return None
    if encoder.kind not in ENCODERS:
        raise StoreError(
            f"An encoder of kind {encoder.kind!r} cannot be saved: add it to "
            "ibcl.encoding.ENCODERS."
        )
    return {"kind": encoder.kind, "description": encoder.description()}


def restore_encoder(entry: Mapping[str, Any] | None) -> Encoder | None:
    """Return the encoder of a manifest or a model."""
    if entry is None:
        return None
    if set(entry) != {"kind", "description"} or not isinstance(entry["kind"], str):
        raise ValueError("the encoder is not described by kind and description")
    return encoder_of(entry["kind"], entry["description"])


def restore_pooling(name: str | None, settings: Mapping[str, Any]) -> str | Routed | None:
    """Return a pooling rule as `IBCL` takes it."""
    if not settings:
        return name
    if name != Routed.name:
        raise ValueError(f"The pooling rule {name!r} has no settings.")
    fields = {field.name for field in dataclasses.fields(Routed)}
    unknown = sorted(set(settings) - fields)
    if unknown:
        raise ValueError(f"The pooling rule 'routed' has no setting {unknown[0]!r}.")
    hints = typing.get_type_hints(Routed)
    for key, value in settings.items():
        try:
            TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError:
            raise ValueError(f"The setting {key} of the pooling rule is not valid.") from None
    return Routed(**settings)


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
    specification: Mapping[str, Any] | None, network: nn.Module | None, what: object, largest: int
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


def rebuild_network(
    folder: Storage,
    entry: NetworkEntry,
    network: nn.Module | None,
    device: str | torch.device | None = None,
) -> nn.Module:
    """Return the network of a manifest: built or given, and shown to be the one it was."""
    data = b""
    if entry.frozen is not None:
        # Before anything is built, since its size bounds what may be.
        name = file_name(NETWORK, entry.frozen.sha256)
        data = folder.read(name, entry.frozen.bytes)
        check(data, entry.frozen.sha256, entry.frozen.bytes, f"{folder}/{name}")
    what = str(folder)
    flat = FlatNetwork(
        rebuild_module(entry.specification, network, what, entry.dimension + len(data)), device
    )
    given = "the network given" if network is not None else "the network described"
    if entry.frozen is not None:
        try:
            restore_frozen(flat, load(data))
        except (ValueError, SafetensorError, RuntimeError) as error:
            raise StoreError(f"{what}/{name} does not fit {given}: {error}.") from None
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
