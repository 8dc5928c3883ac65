"""One model as one file: the plain state dict of its mean model, and where it comes from."""

from __future__ import annotations

import json
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import pydantic_core
import torch
from pydantic import Field, JsonValue, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ibcl.cards import model_card
from ibcl.encoding import Encoder
from ibcl.errors import reason
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.predictive import Predictive, SingleNetwork
from ibcl.preference import Preference
from ibcl.routing import (
    RoutedNetworks,
    TaskGate,
    gate_from_tensors,
)
from ibcl.store.description import (
    check_backbone,
    describe_backbone,
    describe_encoder,
    describe_likelihood,
    on_base,
    rebuild_module,
    restore_encoder,
    restore_frozen,
    restore_likelihood,
)
from ibcl.store.files import StoreError, path_text, read_regular, sha256, write_atomically
from ibcl.store.manifest import (
    VERSION_0_2,
    BackboneEntry,
    Count,
    Entry,
    Hash,
    LikelihoodEntry,
    Specification,
    likelihood_from_version_0_2,
    one_sentence,
)
from ibcl.store.storage import as_url

FORMAT: Final = 3
LARGEST_FILE = 2**34
# Where a routed model's file keeps what its network holds beside its parameters.
_FIXED = "network."
_CALIBRATION = "calibration."


class ModelEntry(Entry):
    """A model's metadata: JSON in the one string ``ibcl``, beside the Markdown of ``card``."""

    kind: Literal["ibcl model"] = "ibcl model"
    format: Literal[3] = FORMAT
    version: str
    preference: dict[str, float]
    likelihood: LikelihoodEntry
    alpha: Annotated[float, Field(gt=0, lt=1)]
    seed: int
    network: Specification | None
    fingerprint: Hash
    backbone: BackboneEntry | None = None
    pooling: str
    task_incremental: Annotated[int, Field(ge=1, lt=2**31)] | None
    knowledge: Hash
    """Revision of the knowledge base it was made from."""
    encoder: dict[str, JsonValue] | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    """Of the gate; None where the model is one network."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The learner's own."""
    samples: dict[str, Count] = Field(default_factory=dict)
    """How many every task was learnt from."""
    settings: dict[str, str] = Field(default_factory=dict)
    choices: dict[str, str] = Field(default_factory=dict)
    """The learner's, for the model's card."""


class CalibrationScores(NamedTuple):
    """The model's scores of the right answers of all calibration rows, for prediction sets."""

    scores: Tensor
    """Shape (n,), float64."""
    task: Tensor
    """The number of each one's task, int64."""


class ModelFile(NamedTuple):
    """All that a file keeps of a model."""

    predictive: Predictive
    preference: Preference
    encoder: Encoder | None
    alpha: float
    seed: int
    provenance: dict[str, Any]
    calibration: CalibrationScores | None = None


def save_model(model: ModelFile, path: str | PathLike[str], overwrite: bool = True) -> None:
    """Save a model's mean model as one safetensors file, with its preference and provenance.

    Parameters
    ----------
    overwrite
        False refuses a file that is there already.
    """
    write_file(path, model_bytes(model), overwrite)


def write_file(path: str | PathLike[str], data: bytes, overwrite: bool = True) -> None:
    """Write a file that is either whole or absent, in a folder that is made if need be."""
    url = as_url(path)
    if url is not None:
        raise StoreError(
            f"A model's file is written on this machine: give a path in place of {url}, and copy "
            "the file there."
        )
    target = Path(path_text(path))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, data, overwrite=overwrite)
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {reason(error)}.") from None


def model_bytes(model: ModelFile) -> bytes:
    """Return a model's mean model as the bytes of its safetensors file.

    One network is kept as a plain state dict; a routed model as its heads, gate and weights. The
    bytes have been read back and compared.
    """
    if not isinstance(model, ModelFile):
        raise ValueError(f"Only a model can be saved as one, not {type(model).__name__}.")
    predictive, known = model.predictive, model.provenance
    # A subclass may answer otherwise than its tensors say.
    if type(predictive) not in (SingleNetwork, RoutedNetworks):
        raise StoreError(
            f"Models of the pooling rule {known['pooling']!r} cannot be saved as files, which hold "
            "one network, or heads behind a gate; save their knowledge base instead."
        )
    network = predictive.network
    routed = predictive if isinstance(predictive, RoutedNetworks) else None
    try:
        entry = ModelEntry(
            version=version("ibcl"),
            preference=dict(model.preference),
            likelihood=describe_likelihood(predictive.likelihood),
            alpha=float(model.alpha),
            seed=int(model.seed),
            network=network.specification,
            fingerprint=network.fingerprint,
            backbone=describe_backbone(network),
            encoder=describe_encoder(model.encoder),
            temperature=None if routed is None else routed.gate.temperature,
            **known,
        )
    except ValidationError as error:
        raise StoreError(f"This model cannot be saved ({one_sentence(error)}).") from None
    prefix = "" if routed is None else _FIXED
    state = network.frozen_state if network.backbone is None else {}
    fixed = {f"{prefix}{name}": value for name, value in state.items()}
    scores = {} if model.calibration is None else model.calibration._asdict()
    calibration = {f"{_CALIBRATION}{name}": value for name, value in scores.items()}
    kept = {**predictive.tensors(), **fixed, **calibration}
    tensors = {name: value.detach().cpu().clone().contiguous() for name, value in kept.items()}
    return _sealed(entry, tensors, model_card(model.preference, known))


def _sealed(entry: ModelEntry, tensors: dict[str, Tensor], card: str) -> bytes:
    """Return a model file's bytes, which were read back and are this model again.

    The card is for people and other tools; only what is in ``ibcl`` is ever read back.
    """
    try:
        contents = entry.model_dump(mode="json")
        contents["checksum"] = _checksum(tensors, contents)
        text = json.dumps(contents, allow_nan=False)
        data = _in_order(save(tensors, metadata={"ibcl": text, "card": card}))
        # The checksum compares the tensors. The rest is compared as text, which tells 1 from 1.0,
        # 0 from −0, and orders and surrogates apart.
        returned, _ = _parse(data, "what was written")
        same = repr(returned.model_dump()) == repr(entry.model_dump())
        restore_encoder(returned.encoder)
        restore_likelihood(returned.likelihood)
    except (RecursionError, ValueError, SafetensorError):
        same = False
    if not same or len(data) > LARGEST_FILE:
        raise StoreError(
            "This model cannot be saved: a name or its metadata would not come back from disk as "
            "it is; use text of whole characters, finite numbers, and lists and mappings that are "
            "neither nested deeply nor very large."
        )
    return data


def _in_order(data: bytes) -> bytes:
    """Sort a file's metadata, which safetensors writes in a different order every time."""
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    # The format wants tensors to begin at a multiple of eight bytes.
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + data[end:]


def load_model(
    path: str | PathLike[str],
    network: nn.Module | None = None,
    device: str | torch.device | None = None,
) -> ModelFile:
    """Read a model's file.

    Parameters
    ----------
    network
        The module it was made with, where `ibcl.networks` did not build it.
    device
        Where to compute, such as ``"cuda"``; where the network is, without one.
    """
    source = Path(path_text(path))
    entry, tensors = _read(source)
    largest = sum(tensor.numel() for tensor in tensors.values())
    network = on_base(network, entry.backbone)
    flat = FlatNetwork(rebuild_module(entry.network, network, source, largest), device)
    check_backbone(flat, entry.backbone, source)
    tensors = {name: value.to(flat.device) for name, value in tensors.items()}
    try:
        preference = Preference(entry.preference)
        likelihood = restore_likelihood(entry.likelihood)
        encoder = restore_encoder(entry.encoder)
        if isinstance(likelihood, str):
            raise ValueError("it names no likelihood")
        calibration = _calibration(tensors, len(preference))
        if entry.temperature is None:
            predictive: Predictive = _single(flat, likelihood, tensors)
        else:
            predictive = _routed(flat, likelihood, tensors, entry.temperature, len(preference))
    except (KeyError, ValueError, RuntimeError) as error:
        raise StoreError(f"{source} does not fit its network: {error}.") from None
    if flat.fingerprint != entry.fingerprint:
        raise StoreError(f"{source} was not made with this network; give its own as network=.")
    provenance = {
        "pooling": entry.pooling,
        "task_incremental": entry.task_incremental,
        "knowledge": entry.knowledge,
        "metadata": entry.metadata,
        "samples": entry.samples,
        "settings": entry.settings,
        "choices": entry.choices,
    }
    return ModelFile(
        predictive, preference, encoder, entry.alpha, entry.seed, provenance, calibration
    )


def _calibration(tensors: dict[str, Tensor], tasks: int) -> CalibrationScores | None:
    """Take the calibration scores out of a model's tensors, where it has any."""
    names = [f"{_CALIBRATION}{name}" for name in CalibrationScores._fields]
    if not any(name in tensors for name in names):
        return None
    scores, task = (tensors.pop(name).cpu() for name in names)
    fits = scores.ndim == 1 and scores.shape == task.shape and len(scores) > 0
    known = scores.dtype == torch.float64 and task.dtype == torch.int64
    if not fits or not known or bool(scores.isnan().any()):
        raise ValueError("its calibration scores do not fit")
    if not bool(((task >= 0) & (task < tasks)).all()):
        raise ValueError("its calibration is of other tasks")
    return CalibrationScores(scores, task)


def _single(flat: FlatNetwork, likelihood: Likelihood, tensors: dict[str, Tensor]) -> SingleNetwork:
    shapes = zip(flat.names, flat.shapes, strict=True)
    if any(tensors[name].shape != shape for name, shape in shapes):
        raise ValueError("a parameter has another shape")
    theta = torch.cat([tensors.pop(name).flatten() for name in flat.names])
    if flat.backbone is None:
        restore_frozen(flat, tensors)
    return SingleNetwork(flat, likelihood, theta)


def _routed(
    flat: FlatNetwork,
    likelihood: Likelihood,
    tensors: dict[str, Tensor],
    temperature: float,
    tasks: int,
) -> RoutedNetworks:
    fixed = {name: tensors.pop(name) for name in [*tensors] if name.startswith(_FIXED)}
    if flat.backbone is None:
        restore_frozen(flat, {name.removeprefix(_FIXED): value for name, value in fixed.items()})
    gate = gate_from_tensors(tensors, temperature)
    heads, weights = _heads(flat, tensors, gate, tasks)
    if flat.gate_columns not in (None, gate.columns):
        raise ValueError("its gate needs other features")
    return RoutedNetworks(flat, likelihood, heads, gate, weights)


def _heads(
    flat: FlatNetwork, tensors: dict[str, Tensor], gate: TaskGate, tasks: int
) -> tuple[Tensor, Tensor]:
    """Take heads and weights, which are all that may be left, and check them."""
    heads, weights = tensors.pop("heads"), tensors.pop("weights")
    active = int((weights > 0).sum())
    if tensors:
        raise ValueError(f"it also holds {sorted(tensors)[0]}")
    if weights.shape != (tasks,) or gate.tasks != tasks:
        raise ValueError("its preference and its gate are of different tasks")
    if heads.shape != (active, flat.dimension) or not bool(torch.isfinite(heads).all()):
        raise ValueError("its heads do not fit")
    return heads, weights


def _read(source: Path) -> tuple[ModelEntry, dict[str, Tensor]]:
    try:
        data = read_regular(source, LARGEST_FILE)
    except OSError as error:
        raise StoreError(f"Cannot read {source}: {reason(error)}.") from None
    return _parse(data, source)


def _parse(data: bytes, source: object) -> tuple[ModelEntry, dict[str, Tensor]]:
    """Turn a model file's bytes into its metadata and tensors."""
    try:
        tensors = {name: value.clone() for name, value in load(data).items()}
        header = pydantic_core.from_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        contents = pydantic_core.from_json(header["__metadata__"]["ibcl"], allow_inf_nan=False)
        checksum = contents.pop("checksum", None)
        number = contents["format"]
    except (SafetensorError, RuntimeError, ValueError, KeyError, TypeError, AttributeError):
        raise StoreError(f"{source} is not a model of ibcl, or damaged.") from None
    if isinstance(number, int) and number > FORMAT:
        raise StoreError(
            f"{source} was written in format {number}, but this version of ibcl reads formats up "
            f"to {FORMAT}; upgrade ibcl to open it."
        )
    try:
        intact = checksum == _checksum(tensors, contents)
    except (ValueError, RecursionError):
        intact = False
    if not intact:
        raise StoreError(f"{source} is damaged: its contents do not match its checksum.")
    if number == VERSION_0_2:
        contents["format"] = FORMAT
        likelihood_from_version_0_2(contents)
    try:
        return ModelEntry.model_validate_json(json.dumps(contents)), tensors
    except ValidationError as error:
        raise StoreError(f"{source} is not valid ({one_sentence(error)}).") from None


def _checksum(tensors: dict[str, Tensor], contents: dict[str, Any]) -> str:
    return sha256(save(tensors) + json.dumps(contents, sort_keys=True).encode())
