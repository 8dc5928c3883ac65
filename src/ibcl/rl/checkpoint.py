"""Checkpoints: arrays and a few facts in one safetensors file, replaced atomically."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ibcl.files import write_atomically

Arrays = dict[str, NDArray[Any]]


class Checkpoint:
    """One file that holds the latest state of a run.

    Examples
    --------
    >>> import tempfile
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()) / "run.safetensors")
    >>> checkpoint.read() is None
    True
    >>> checkpoint.write({"x": np.arange(3)}, {"iteration": 7})
    >>> arrays, facts = checkpoint.read()
    >>> arrays["x"].tolist(), facts["iteration"]
    ([0, 1, 2], 7)
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
        """Replace what is stored."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        write_atomically(self.path, save(contiguous, {"facts": json.dumps(dict(facts))}))

    def read(self) -> tuple[Arrays, dict[str, Any]] | None:
        """Return what is stored, or None when there is nothing yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                facts: dict[str, Any] = json.loads(file.metadata()["facts"])
                return {name: file.get_tensor(name) for name in file.keys()}, facts  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of a policy run or is damaged; "
                "remove it to start that task again."
            ) from error
