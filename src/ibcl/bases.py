"""Base models by where they are: a folder that `transformers` saved, or a function of a module."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any

from torch import nn

from ibcl.files import path_text

NetworkSource = nn.Module | str | PathLike[str]
"""A module, or where `base_model` finds one."""
_CONFIG = "config.json"


def base_model(source: NetworkSource | None) -> nn.Module | None:
    """Return a module: itself, of a folder of `transformers`, or what ``"module:function"`` makes.

    None stays None: no network was given.

    A folder is read as `save_pretrained` wrote it, from safetensors and nothing else. A function is
    called without arguments; its module is found as Python finds any, the current folder included.

    Examples
    --------
    >>> base_model("torch.nn:Identity")
    Identity()
    >>> base_model("nowhere")
    Traceback (most recent call last):
    ...
    ValueError: There is no network 'nowhere': give a torch module, a folder that transformers \
saved, or 'module:function' of Python.
    """
    if source is None or isinstance(source, nn.Module):
        return source
    text = path_text(source)
    if Path(text).is_dir():
        return _saved(Path(text))
    module, _, name = text.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), name)):
        raise ValueError(
            f"There is no network {text!r}: give a torch module, a folder that transformers saved, "
            "or 'module:function' of Python."
        )
    found = _imported(module, name)
    made = found if isinstance(found, nn.Module) or not callable(found) else found()
    if not isinstance(made, nn.Module):
        raise ValueError(f"{text} makes no torch.nn.Module but {type(made).__name__}.")
    return made


def _imported(module: str, name: str) -> Any:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.append(here)
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"The network {module}:{name} cannot be imported: {error}.") from None


def _saved(folder: Path) -> nn.Module:
    try:
        import transformers
    except ImportError:
        raise ImportError(
            f"The network in {folder} is read by transformers, which is not installed: "
            "pip install 'ibcl[adapters]'."
        ) from None
    try:
        kinds = json.loads((folder / _CONFIG).read_text()).get("architectures") or [None]
        # Of the class that was saved: with the head it has, if any.
        made = getattr(transformers, str(kinds[0]), transformers.AutoModel)
        found: nn.Module = made.from_pretrained(folder, use_safetensors=True)
    except (OSError, ValueError, AttributeError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise ValueError(f"{folder} holds no network that transformers can read: {said}.") from None
    return found.eval()
