"""A learner as a manifest and the files it names, and back."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import pairwise
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from pydantic import TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ibcl import cards, networks
from ibcl.encoding import ENCODERS, Encoder, encoder_of
from ibcl.experts import EXPERTS, Expert, expert_of
from ibcl.gaussians import Gaussian
from ibcl.inference import METHODS, Inference
from ibcl.knowledge import PARTS as KINDS
from ibcl.knowledge import CommonPart, KnowledgeBase, Part, Parts, TaskRecord, scaled
from ibcl.likelihoods import LIKELIHOODS, Likelihood
from ibcl.likelihoods import from_description as likelihood_of
from ibcl.networks import FlatNetwork
from ibcl.routing import Moments
from ibcl.state import State
from ibcl.store import posteriors
from ibcl.store.files import StoreError, check, file_name, sha256
from ibcl.store.manifest import (
    MOMENTS,
    NETWORK,
    PARTS,
    POSTERIORS,
    BackboneEntry,
    FileEntry,
    InferenceEntry,
    LikelihoodEntry,
    Manifest,
    NetworkEntry,
    TaskEntry,
    one_sentence,
)
from ibcl.store.storage import Readable


class NamedFile(NamedTuple):
    """A file that a manifest names, and how to make its bytes."""

    subfolder: str
    entry: FileEntry
    contents: Callable[[], bytes]


def digest(state: State, metadata: Mapping[str, Any]) -> str:
    """Return the revision that saving this exactly would give the folder."""
    return describe(state, metadata, posteriors.EXACT)[0].checksum


def provenance(state: State, metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Say where a model made from this comes from."""
    rule = state.rule
    return {
        "pooling": None if rule is None else rule.name,
        "task_incremental": state.settings.task_incremental,
        "knowledge": digest(state, metadata),
        "metadata": metadata,
        "samples": {record.name: record.samples for record in state.knowledge.records},
        "settings": {name: cards.text(it) for name, it in cards.settings(state).items()},
        "choices": dict(state.reasons),
    }


def describe(
    state: State, metadata: Mapping[str, Any], storage: str
) -> tuple[Manifest, tuple[NamedFile, ...]]:
    """Return the manifest of what a learner is at one moment, and the files it names."""
    given, settings = state.given, state.settings
    knowledge, network = state.knowledge, state.network
    learnt = state.learnt
    gaussians, encodings = _encoded(knowledge, storage)
    settled = learnt or given.priors is not None
    count = len(knowledge.priors)
    files = [
        NamedFile(POSTERIORS, encoding.entry, partial(posteriors.contents, gaussian, encoding))
        for gaussian, encoding in zip(gaussians, encodings, strict=True)
    ]
    frozen = None
    if network.backbone is None and network.frozen_state:
        frozen = _file(NETWORK, network.frozen_state)
        files.append(frozen)
    kept = [None if moments is None else _moments_file(moments) for moments in knowledge.moments]
    files += [file for file in kept if file is not None]
    parts = [
        {kind: _part_file(part) for kind, part in of_task.items()} for of_task in knowledge.parts
    ]
    common = {kind: _part_file(part) for kind, part in knowledge.common.items()}
    files += [file for of_task in (*parts, common) for file in of_task.values()]
    # Before the first task, what is open is not settled by what it would become.
    rule = state.rule if learnt or given.pooling is not None else None
    inference = state.inference if learnt else given.inference
    try:
        manifest = Manifest(
            version=version("ibcl"),
            network=NetworkEntry(
                specification=network.specification,
                fingerprint=network.fingerprint,
                dimension=network.dimension,
                frozen=None if frozen is None else frozen.entry,
                pretrained=network.pretrained,
                layers=() if network.backbone is None else network.backbone.layers,
                backbone=describe_backbone(network),
            ),
            inference=None if inference is None else describe_inference(inference),
            likelihood=describe_likelihood(settings.likelihood if learnt else given.likelihood),
            pooling=None if rule is None else rule.name,
            pooling_settings={} if rule is None else rule.settings(),
            d=float(knowledge.d) if learnt or given.d is not None else None,
            distance=knowledge.distance,
            alpha=float(settings.alpha),
            seed=int(settings.seed),
            independent=knowledge.independent if learnt else given.independent,
            task_incremental=settings.task_incremental,
            calibration=None if settings.calibration is None else float(settings.calibration),
            calibration_rows=settings.calibration_rows,
            expert=describe_expert(settings.expert),
            encoder=describe_encoder(state.encoder),
            storage=storage,
            priors=tuple(e.entry for e in encodings[:count]) if settled else None,
            posteriors=tuple(encoding.entry for encoding in encodings[count:]),
            moments=tuple(None if file is None else file.entry for file in kept)
            if any(kept)
            else (),
            parts=tuple({kind: file.entry for kind, file in each.items()} for each in parts)
            if any(parts)
            else (),
            common={kind: file.entry for kind, file in common.items()},
            tasks=tuple(TaskEntry(**vars(record)) for record in knowledge.records),
            metadata=dict(metadata),
            choices=dict(state.reasons) if learnt else {},
        )
        manifest.check_comes_back()
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
    # Few priors and few scales are the beginning of very many posteriors.
    begun: dict[tuple[int, float | None], Gaussian] = {}
    for posterior, base in zip(knowledge.stored, learnt_from(knowledge.records), strict=True):
        key = place(base, len(knowledge.priors)), base.scale
        if key not in begun:
            begun[key] = scaled(gaussians[key[0]], base.scale)
        before = encodings[key[0]].entry.sha256, begun[key]
        encodings.append(posteriors.encode(posterior, storage, before))
    return gaussians, encodings


def _file(subfolder: str, tensors: Mapping[str, Tensor]) -> NamedFile:
    """Tensors as a file named by its contents."""
    return _contents(
        subfolder, save({name: value.cpu().clone() for name, value in tensors.items()})
    )


def _contents(subfolder: str, data: bytes) -> NamedFile:
    """Bytes as a file named by its contents."""
    return NamedFile(subfolder, FileEntry(sha256=sha256(data), bytes=len(data)), lambda: data)


def read_parts(folder: Readable, manifest: Manifest) -> tuple[Parts, ...]:
    """Read what else each task keeps."""
    return tuple(
        {kind: _part(folder, kind, entry) for kind, entry in of_task.items()}
        for of_task in manifest.parts or ({},) * len(manifest.tasks)
    )


def read_common(folder: Readable, manifest: Manifest) -> dict[str, CommonPart]:
    """Read the sums over all tasks."""
    found = {}
    for kind, entry in manifest.common.items():
        part = _part(folder, kind, entry)
        if not isinstance(part, CommonPart):
            raise StoreError(f"{folder} has a sum over tasks of {kind!r}, which is none.")
        found[kind] = part
    return found


def _part(folder: Readable, kind: str, entry: FileEntry) -> Part:
    name = file_name(PARTS, entry.sha256)
    if kind not in KINDS:
        raise StoreError(
            f"{folder} keeps {kind!r} with its tasks, which this version of ibcl does not know; "
            "import the module that registers it."
        )
    data = check(folder.read(name, entry.bytes), entry.sha256, entry.bytes, f"{folder}/{name}")
    try:
        part = KINDS[kind].decode(data)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise StoreError(f"{folder}/{name} is not valid: {str(error).rstrip('.')}.") from None
    if _is_itself_alone(part):
        _PARTS[part] = entry
    return part


# Moments and parts never change, so their files are made once: saving a task encodes that task
# only.
_MOMENTS: WeakKeyDictionary[Moments, FileEntry] = WeakKeyDictionary()
_PARTS: WeakKeyDictionary[Part, FileEntry] = WeakKeyDictionary()


def _is_itself_alone(part: Part) -> bool:
    """Whether a part equals nothing but itself, and can be remembered by that."""
    own = type(part)
    return own.__eq__ is object.__eq__ and hasattr(own, "__weakref__")


def _part_file(part: Part) -> NamedFile:
    """A part as a file, whose bytes are made again where they are needed."""
    if not _is_itself_alone(part):
        return _contents(PARTS, part.encode())
    if part not in _PARTS:
        _PARTS[part] = _contents(PARTS, part.encode()).entry
    return NamedFile(PARTS, _PARTS[part], part.encode)


def _moments_file(moments: Moments) -> NamedFile:
    """Moments as a file, whose bytes are made again where they are needed."""
    if moments not in _MOMENTS:
        _MOMENTS[moments] = _file(MOMENTS, moments.tensors()).entry
    return NamedFile(
        MOMENTS, _MOMENTS[moments], lambda: _file(MOMENTS, moments.tensors()).contents()
    )


def read_moments(
    folder: Readable, manifest: Manifest, network: FlatNetwork
) -> tuple[Moments | None, ...]:
    """Read each task's moments, where it has any, for this network's features and device."""
    columns = network.columns
    return tuple(
        None if entry is None else _moments(folder, entry, columns, network.device)
        for entry in manifest.moments or (None,) * len(manifest.tasks)
    )


def _moments(
    folder: Readable, entry: FileEntry, columns: int | None, device: torch.device
) -> Moments:
    name = file_name(MOMENTS, entry.sha256)
    data = check(folder.read(name, entry.bytes), entry.sha256, entry.bytes, f"{folder}/{name}")
    try:
        moments = Moments.from_tensors(load(data), columns)
    except (ValueError, RuntimeError, SafetensorError) as error:
        raise StoreError(f"{folder}/{name} is not valid: {str(error).rstrip('.')}.") from None
    if moments.counts.device != device:
        moments = moments.to(device)
    _MOMENTS[moments] = entry
    return moments


class LearntFrom(NamedTuple):
    """What a stored posterior was learnt from."""

    position: int | None
    """Of another stored posterior; None where it was an initial prior."""
    prior: int
    """Number of that prior."""
    scale: float | None
    """That its task multiplied the prior by."""


def learnt_from(records: Sequence[TaskRecord]) -> list[LearntFrom]:
    """For each stored posterior, what it was learnt from."""
    return [
        LearntFrom(prior, index, record.scale if prior is None else None)
        for record in records
        for index, (prior, pointer) in enumerate(zip(record.priors, record.pointers, strict=True))
        if not pointer
    ]


def place(base: LearntFrom, priors: int) -> int:
    """Where that is in the list of all priors and then all posteriors."""
    return base.prior if base.position is None else priors + base.position


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
    settings = entry.settings
    if entry.name == "auto":
        return entry.name
    known = LIKELIHOODS.get(entry.name)
    open_settings = (
        known is not None and dataclasses.is_dataclass(known) and dataclasses.fields(known)
    )
    if open_settings and not settings:
        return entry.name
    return likelihood_of({"name": entry.name, **settings})


def describe_expert(expert: Expert | None) -> dict[str, Any] | None:
    """Return an expert as plain JSON, with its name; refuse one that could not be rebuilt."""
    if expert is None:
        return None
    if expert.name not in EXPERTS:
        raise StoreError(
            f"An expert of the name {expert.name!r} cannot be saved: add it to "
            "ibcl.experts.EXPERTS."
        )
    return {"name": expert.name, "description": expert.description()}


def restore_expert(entry: Mapping[str, Any] | None) -> Expert | None:
    """Return the expert of a manifest."""
    if entry is None:
        return None
    if set(entry) != {"name", "description"} or not isinstance(entry["name"], str):
        raise ValueError("an expert needs a name and a description")
    return expert_of(entry["name"]).from_description(entry["description"])


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


def describe_backbone(network: FlatNetwork) -> BackboneEntry | None:
    """Return what is stored of a network's frozen backbone."""
    frozen = network.backbone
    if frozen is None or not network.is_linear:
        return None
    layer = network.linear_head().layer
    return BackboneEntry(
        weights=frozen.fingerprint,
        layers=frozen.layers,
        pool=frozen.pool,
        columns=layer.in_features,
        outputs=layer.out_features,
        input_shape=frozen.input_shape,
    )


def on_base(network: nn.Module | None, entry: BackboneEntry | None) -> nn.Module | None:
    """Return the network given; a base model given alone, as the network that was learnt on it."""
    if network is None or entry is None or networks.begins_with_backbone(network):
        return network
    try:
        made = networks.with_backbone(
            network, entry.columns, entry.outputs, layers=entry.layers, pool=entry.pool
        )
    except ValueError as error:
        raise StoreError(f"The network given is not the one it was learnt on: {error}") from None
    frozen = made[0]
    assert isinstance(frozen, networks.FrozenBackbone)
    frozen.input_shape = entry.input_shape
    return made


def check_backbone(network: FlatNetwork, entry: BackboneEntry | None, what: object) -> None:
    """Refuse a backbone with other weights than the one that was learnt on."""
    frozen = network.backbone
    if entry is not None and (frozen is None or frozen.fingerprint != entry.weights):
        raise StoreError(
            f"{what} was learnt on a base model with other weights than the network given; give "
            "that one as network=."
        )


def rebuild_network(
    folder: Readable,
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
    module = rebuild_module(entry.specification, network, what, entry.dimension + len(data))
    if entry.layers:
        module = networks.with_chosen_layers(module, entry.layers, entry.dimension)
    if entry.specification is None and not entry.pretrained:
        module = networks.redrawn(module)
    flat = FlatNetwork(module, device)
    given = "the network given" if network is not None else "the network described"
    check_backbone(flat, entry.backbone, what)
    # A backbone's weights, which older folders hold, are only compared.
    if entry.frozen is not None and flat.backbone is None:
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
