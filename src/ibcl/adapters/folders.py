"""Folders of peft, in and out: configuration and safetensors, and the head beside them."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ibcl.adapters.adapter import HEAD_BIAS, HEAD_WEIGHT, Adapter
from ibcl.adapters.configuration import peft, understood
from ibcl.backbones import FrozenBackbone
from ibcl.errors import StoreError, reason
from ibcl.files import path_text, write_atomically

CONFIGURATION = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
HEAD = "ibcl_head.safetensors"
"""The head behind the adapted base, which peft has no place for."""
_CLASSES = "classes"
_BASE, _READING = "base", "reading"


def read_folder(
    folder: str | PathLike[str],
    columns: int,
    classification: bool = True,
    frozen: FrozenBackbone | None = None,
) -> Adapter:
    """Read an adapter that peft, or `write_folder`, wrote.

    Parameters
    ----------
    columns
        Of an answer: how many classes all tasks have, or how many values an answer.
    frozen
        The base model that it is for: a head that was written behind another one, or behind other
        depths of it, is refused.
    """
    place = Path(path_text(folder))
    try:
        known = json.loads((place / CONFIGURATION).read_text("utf-8"))
    except OSError:
        raise ValueError(
            f"{place} is no folder of an adapter: it has no {CONFIGURATION}."
        ) from None
    except ValueError as error:
        raise ValueError(f"{place / CONFIGURATION} is not valid: {error}.") from None
    try:
        if not isinstance(known, dict):
            raise ValueError("it holds no configuration")
        configuration = understood(known)
        head, classes = _read_head(place, columns, classification)
        if head is not None and frozen is not None:
            _check_base(place, frozen)
        tensors = _read(place / WEIGHTS)
    except (ValueError, TypeError) as error:
        raise ValueError(f"The adapter in {place} cannot be taken: {error}.") from None
    adapter = Adapter(configuration, tensors, head, classes, columns)
    if classification and head is None and adapter.answering == "logits":
        return Adapter(configuration, tensors, None, torch.arange(columns), columns)
    return adapter


def _read(file: Path) -> dict[str, Tensor]:
    try:
        return {name: value.float() for name, value in load_file(file).items()}
    except FileNotFoundError:
        raise ValueError(
            f"it has no {file.name} (weights in other forms, such as pickle, are not read)"
        ) from None
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{file.name} cannot be read ({error})") from None


def _check_base(place: Path, frozen: FrozenBackbone) -> None:
    """Refuse a head behind another base; one that does not say what it was written behind fits."""
    with safe_open(place / HEAD, framework="pt") as file:
        known = file.metadata() or {}
    for name, value in _behind(frozen).items():
        if known.get(name, value) != value:
            what = "other depths of the base model" if name == _READING else "another base model"
            raise ValueError(f"its head was learnt behind {what}")


def _behind(frozen: FrozenBackbone) -> dict[str, str]:
    """What a head stands behind: a hash of the base's weights, and what is read of it."""
    reading = json.dumps([frozen.pool, *frozen.layers])
    return {_BASE: frozen.fingerprint, _READING: reading}


def _read_head(
    place: Path, columns: int, classification: bool
) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
    if not (place / HEAD).exists():
        return None, None
    kept = _read(place / HEAD)
    if not {HEAD_WEIGHT, HEAD_BIAS} <= kept.keys() <= {HEAD_WEIGHT, HEAD_BIAS, _CLASSES}:
        raise ValueError(f"{HEAD} holds no head")
    classes = kept.get(_CLASSES)
    outputs = len(kept[HEAD_BIAS])
    if classification != (classes is not None):
        kinds = ("classes", "values") if classification else ("values", "classes")
        raise ValueError(f"the learner answers with {kinds[0]}, but its head with {kinds[1]}")
    if classes is None and outputs != columns:
        raise ValueError(f"its head has {outputs} values, but an answer has {columns}")
    if classes is not None:
        classes = classes.long()
        if classes.shape != (outputs,) or bool((classes >= columns).any() | (classes < 0).any()):
            raise ValueError(f"its head's classes are not among the {columns} of the learner")
    return (kept[HEAD_WEIGHT], kept[HEAD_BIAS]), classes


def write_folder(
    adapter: Adapter,
    folder: str | PathLike[str],
    base_model: str | None = None,
    card: str | None = None,
    frozen: FrozenBackbone | None = None,
) -> None:
    """Write an adapter as peft does, for `PeftModel.from_pretrained` and servers of adapters.

    Parameters
    ----------
    base_model
        Name or path of the base model, which tools look for in the configuration.
    card
        What to say of it, as Markdown.
    frozen
        The base model that its head stands behind, told by a hash, for `read_folder`.
    """
    place = Path(path_text(folder))
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"The adapter cannot be written to the folder {place}: {reason(error)}."
        ) from None
    config: dict[str, Any] = {
        name: sorted(value) if isinstance(value, set) else value
        for name, value in peft().LoraConfig(**adapter.configuration).to_dict().items()
    }
    config |= {"base_model_name_or_path": base_model, "inference_mode": True}
    text = json.dumps(config, indent=2, sort_keys=True, default=str)
    _write(place / WEIGHTS, save(dict(adapter.tensors), metadata={"format": "pt"}))
    if adapter.head is not None:
        behind = None if frozen is None else _behind(frozen)
        _write(place / HEAD, save(_head(adapter), metadata=behind))
    if card is not None:
        _write(place / "README.md", card.encode())
    _write(place / CONFIGURATION, text.encode())


def _head(adapter: Adapter) -> dict[str, Tensor]:
    assert adapter.head is not None
    head = {HEAD_WEIGHT: adapter.head[0], HEAD_BIAS: adapter.head[1]}
    return head if adapter.classes is None else {**head, _CLASSES: adapter.classes}


def _write(file: Path, data: bytes) -> None:
    write_atomically(file, data, overwrite=True)
