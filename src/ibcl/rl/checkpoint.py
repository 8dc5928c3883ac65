"""Checkpoints: what a run carries from update to update, in one safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from ibcl.files import write_atomically

State = Mapping[str, NDArray[Any]]


class Carried:
    """Something whose attributes named in ``carried`` survive an interruption.

    They are arrays, numbers, lists of rows, or are themselves carried.

    Examples
    --------
    >>> class Run(Carried):
    ...     carried = ("count", "mean")
    ...     count, mean = 7, np.zeros(2)
    >>> found = Run()
    >>> found.load({"count": np.array(9), "mean": np.ones(2)})
    >>> found.count, found.mean.tolist()
    (9, [1.0, 1.0])
    """

    carried: ClassVar[tuple[str, ...]] = ()

    def state(self) -> State:
        """Arrays for a checkpoint."""
        found: dict[str, NDArray[Any]] = {}
        for name in self.carried:
            value = getattr(self, name)
            inner = value.state() if isinstance(value, Carried) else None
            if inner is None:
                found[name] = np.asarray(value)
            else:
                found |= {f"{name}.{part}": array for part, array in inner.items()}
        return found

    def load(self, state: State) -> None:
        """Continue from a checkpoint."""
        for name in self.carried:
            value = getattr(self, name)
            if isinstance(value, Carried):
                start = f"{name}."
                inner = {k.removeprefix(start): v for k, v in state.items() if k.startswith(start)}
                value.load(inner)
            elif isinstance(value, list):
                setattr(self, name, state[name].tolist())
            else:
                array = state[name]
                if np.size(value) and np.shape(value) != array.shape:
                    raise ValueError(
                        f"The checkpoint's {name} has shape {array.shape}, not {np.shape(value)}: "
                        "it belongs to another policy."
                    )
                setattr(self, name, array.copy() if array.ndim else array.item())


class Checkpoint:
    """One file that holds the latest state of a run, and which run that is.

    Examples
    --------
    >>> import tempfile
    >>> checkpoint = Checkpoint(Path(tempfile.mkdtemp()) / "run.safetensors")
    >>> checkpoint.read("seed 0") is None
    True
    >>> checkpoint.write({"x": np.arange(3)}, "seed 0")
    >>> checkpoint.read("seed 0")["x"].tolist()
    [0, 1, 2]
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, state: State, run: str) -> None:
        """Replace what is stored."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        contiguous = {name: np.asarray(array, order="C") for name, array in state.items()}
        write_atomically(self.path, save(contiguous, {"run": run}))

    def read(self, run: str) -> State | None:
        """Return what is stored of a run, or None when there is nothing yet."""
        if not self.path.exists():
            return None
        try:
            with safe_open(self.path, framework="numpy") as file:
                stored = file.metadata()["run"]
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path} is not a checkpoint of a policy run or is damaged; "
                "remove it to start that task again."
            ) from error
        if stored != run:
            raise ValueError(
                f"{self.path} belongs to a run with other settings; "
                "choose another folder or remove it."
            )
        return state
