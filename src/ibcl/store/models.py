"""One model as one file: the plain state dict of its mean model, and where it comes from."""

from __future__ import annotations

import json
from functools import partial
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NoReturn

import pydantic_core
import torch
from pydantic import Field, JsonValue, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from ibcl.errors import reason
from ibcl.learner import append_task_id
from ibcl.model import Model
from ibcl.networks import FlatNetwork
from ibcl.preference import Preference
from ibcl.store.description import (
    describe_likelihood,
    rebuild_module,
    restore_frozen,
    restore_likelihood,
)
from ibcl.store.files import StoreError, read_regular, sha256, write_atomically
from ibcl.store.manifest import Entry, Hash, LikelihoodEntry, Specification, one_sentence

FORMAT: Final = 1
LARGEST_FILE = 2**34


class ModelEntry(Entry):
    """A model's metadata: JSON in the one string ``ibcl``, since safetensors keeps no order."""

    kind: Literal["ibcl model"] = "ibcl model"
    format: Literal[1] = FORMAT
    version: str
    preference: dict[str, float]
    likelihood: LikelihoodEntry
    alpha: Annotated[float, Field(gt=0, lt=1)]
    seed: int
    network: Specification | None
    fingerprint: Hash
    pooling: str
    task_incremental: Annotated[int, Field(ge=1, lt=2**31)] | None
    knowledge: Hash
    """Revision of the knowledge base it was made from."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """The learner's own, such as the names of columns and classes."""


class SavedModel(Model):
    """A mean model from a file; the distribution it was taken from stayed in its knowledge base."""

    def credal_bounds(self, x: Any, samples: int = 0, task: str | None = None) -> NoReturn:
        """Refuse: the credal set is not in the file."""
        _refuse()


def _refuse() -> NoReturn:
    raise ValueError(
        "A model file holds the mean model only; for regions, samples, bounds and uncertainty make "
        "the model from its knowledge base."
    )


def save_model(model: Model, path: str | PathLike[str]) -> None:
    """Save a model's mean model as one safetensors file, with its preference and provenance."""
    network = model.network
    try:
        entry = ModelEntry(
            version=version("ibcl"),
            preference=dict(model.preference),
            likelihood=describe_likelihood(model.likelihood),
            alpha=float(model.alpha),
            seed=int(model.seed),
            network=network.specification,
            fingerprint=network.fingerprint,
            **model.provenance(),
        )
    except ValidationError as error:
        raise StoreError(f"This model cannot be saved ({one_sentence(error)}).") from None
    tensors = {name: value.clone() for name, value in model.module().state_dict().items()}
    contents = entry.model_dump(mode="json")
    contents["checksum"] = _checksum(tensors, contents)
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, save(tensors, metadata={"ibcl": json.dumps(contents)}))
    except OSError as error:
        raise StoreError(f"Cannot write {target}: {reason(error)}.") from None


def load_model(path: str | PathLike[str], network: nn.Module | None = None) -> Model:
    """Load a model that `Model.save` wrote; it predicts the same.

    Parameters
    ----------
    network
        The module it was made with, where `ibcl.networks` did not build it.
    """
    source = Path(path)
    entry, tensors = _read(source)
    largest = sum(tensor.numel() for tensor in tensors.values())
    flat = FlatNetwork(rebuild_module(entry.network, network, source, largest))
    shapes = zip(flat.names, flat.shapes, strict=True)
    try:
        if any(tensors[name].shape != shape for name, shape in shapes):
            raise ValueError("a parameter has another shape")
        theta = torch.cat([tensors.pop(name).flatten() for name in flat.names])
        restore_frozen(flat, tensors)
        preference = Preference(entry.preference)
    except (KeyError, ValueError, RuntimeError) as error:
        raise StoreError(f"{source} does not fit its network: {error}.") from None
    if flat.fingerprint != entry.fingerprint:
        raise StoreError(f"{source} was not made with this network; give its own as network=.")
    likelihood = restore_likelihood(entry.likelihood)
    if isinstance(likelihood, str):
        raise StoreError(f"{source} names no likelihood.")
    return SavedModel(
        flat,
        likelihood,
        preference,
        theta,
        distribution=_refuse,
        extremes=(),
        encode=partial(append_task_id, tasks=tuple(preference), size=entry.task_incremental),
        alpha=entry.alpha,
        seed=entry.seed,
        provenance=lambda: {
            "pooling": entry.pooling,
            "task_incremental": entry.task_incremental,
            "knowledge": entry.knowledge,
            "metadata": entry.metadata,
        },
    )


def _read(source: Path) -> tuple[ModelEntry, dict[str, Tensor]]:
    try:
        data = read_regular(source, LARGEST_FILE)
    except OSError as error:
        raise StoreError(f"Cannot read {source}: {reason(error)}.") from None
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
    if checksum != _checksum(tensors, contents):
        raise StoreError(f"{source} is damaged: its contents do not match its checksum.")
    try:
        return ModelEntry.model_validate_json(json.dumps(contents)), tensors
    except ValidationError as error:
        raise StoreError(f"{source} is not valid ({one_sentence(error)}).") from None


def _checksum(tensors: dict[str, Tensor], contents: dict[str, Any]) -> str:
    return sha256(save(tensors) + json.dumps(contents, sort_keys=True).encode())
