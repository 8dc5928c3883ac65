"""What of peft's LoRA configurations is understood, kept and written."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from pydantic import PositiveFloat, PositiveInt, TypeAdapter, ValidationError
from typing_extensions import TypedDict


class Kept(TypedDict, total=False):
    """Fields that say what an adapter computes.

    All others must be left as peft has them: some would change the base's weights, and some name
    modules to import.
    """

    r: PositiveInt
    lora_alpha: PositiveFloat
    target_modules: list[str] | str
    exclude_modules: list[str] | str
    modules_to_save: list[str]
    layers_to_transform: list[int] | int
    layers_pattern: list[str] | str
    rank_pattern: dict[str, PositiveInt]
    alpha_pattern: dict[str, PositiveFloat]
    fan_in_fan_out: bool
    use_rslora: bool
    use_dora: bool


KEPT = tuple(Kept.__annotations__)
_HARMLESS = {
    "peft_type",
    "task_type",
    "auto_mapping",
    "peft_version",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "lora_dropout",
    "runtime_config",
    "megatron_core",
    "qalora_group_size",
}
# Ways to begin that leave the base's weights as they are.
_PLAIN_STARTS = (True, False, "gaussian", "orthogonal", "eva")
Configuration = dict[str, Any]


def peft() -> Any:
    """Return the package peft, or say how to get it."""
    try:
        return import_module("peft")
    except ImportError:
        raise ValueError(
            "Adapters are made with peft, which is not installed: pip install 'ibcl[adapters]'."
        ) from None


def understood(configuration: Mapping[str, Any]) -> Configuration:
    """Return what is kept of a configuration, or refuse one that asks for more.

    Examples
    --------
    >>> understood({"peft_type": "LORA", "r": 4, "target_modules": ["query"], "bias": "none"})
    {'r': 4, 'target_modules': ['query']}
    >>> understood({"peft_type": "IA3"})
    Traceback (most recent call last):
    ...
    ValueError: the adapter is of the kind 'IA3', and only LORA is known
    """
    kind = configuration.get("peft_type", "LORA")
    if kind != "LORA":
        raise ValueError(f"the adapter is of the kind {kind!r}, and only LORA is known")
    for name, value in configuration.items():
        if name == "init_lora_weights":
            if value not in _PLAIN_STARTS:
                raise ValueError(
                    f"the adapter was begun by {value!r}, which changes the base's own weights"
                )
        elif name not in (*KEPT, *_HARMLESS) and value not in (None, False, "none", {}, []):
            raise ValueError(f"the adapter's setting {name}={value!r} is not understood")
    kept = {name: configuration[name] for name in KEPT if configuration.get(name) is not None}
    listed = {name: sorted(it) if isinstance(it, set) else it for name, it in kept.items()}
    try:
        checked = TypeAdapter(Kept).validate_python(listed, strict=True)
    except ValidationError as error:
        field = error.errors()[0]["loc"][0]
        raise ValueError(f"the adapter's setting {field}={listed[str(field)]!r} is wrong") from None
    return dict(checked)


def lora_config(configuration: Configuration) -> Any:
    """Return peft's own configuration."""
    try:
        return peft().LoraConfig(**configuration)
    except (TypeError, ValueError) as error:
        said = str(error).splitlines()[0].rstrip(".")
        raise ValueError(f"the adapter's configuration is not valid: {said}") from None
