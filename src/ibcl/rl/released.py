r"""Policies that other groups have released, read without running any code of theirs.

An `Actor` is a function of observations (n, o) and preferences (n, k) that gives actions (n, a).
`read_actor` makes one of a file, by its format:

- **PD-MORL** (Basaklar et al., 2023): the state dictionary of one network with the preference as
  further inputs, ``affine_in``, ``affine_hid.i``, ``affine_out``; ReLU between, tanh at the end.
- **Hyper-MORL** (Shu et al., 2024): ``policy.pt``, the state dictionary of a hypernet that gives
  the parameters of a tanh network for each preference, θ(w) = f(w) W + b, and beside it
  ``normalization.pkl`` with the mean and the variance of the observations.
- **TorchScript**: any module saved by ``torch.jit.save`` from a state, or from a state and a
  preference, to an action.

State dictionaries are loaded with ``weights_only=True``. ``objs.txt`` of Hyper-MORL has returns
and no policy: `read_returns`. A further state dictionary is one more line in `STATE_FORMATS`.
"""

from __future__ import annotations

import inspect
import pickle
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear

Rows = NDArray[np.float64]
Actor = Callable[[Rows, Rows], Rows]
StateDict = Mapping[str, Tensor]


class Released(NamedTuple):
    """A policy read from a file, and the name of its format."""

    method: str
    actor: Actor


class _StateFormat(NamedTuple):
    """How a state dictionary is known (by one of its entries) and made into an actor."""

    method: str
    known_by: str
    actor: Callable[[StateDict, Path], Actor]


def pd_morl_actor(state: StateDict, path: Path) -> Actor:
    """One network that sees the state and the preference."""
    del path
    hidden = sum(name.startswith("affine_hid.") and name.endswith("weight") for name in state)
    names = ["affine_in", *(f"affine_hid.{index}" for index in range(hidden))]

    def act(observations: Rows, preferences: Rows) -> Rows:
        values = _tensor(np.concatenate([observations, preferences], axis=1), state)
        for name in names:
            values = torch.relu(linear(values, state[f"{name}.weight"], state[f"{name}.bias"]))
        last = linear(values, state["affine_out.weight"], state["affine_out.bias"])
        return _array(torch.tanh(last))

    _check_entries(state, [f"{name}.{kind}" for name in [*names, "affine_out"] for kind in _KINDS])
    return act


def hyper_morl_actor(state: StateDict, path: Path) -> Actor:
    """A hypernet from the preference to the parameters of a network that sees the state."""
    _check_entries(
        state,
        [
            *(f"hypernet.pref_mlp.{layer}.{kind}" for layer in (0, 2, 4) for kind in _KINDS),
            *(f"target_policy.{layer}.{kind}" for layer in _HYPER_LAYERS for kind in _KINDS),
            "hypernet.W",
            "hypernet.b",
        ],
    )
    mean, variance = _hyper_morl_scales(path.with_name("normalization.pkl"))
    # W and b hold all parameters of the target policy, one after the other in its own order.
    target = {k: v.shape for k, v in state.items() if k.startswith("target_policy.")}
    ends = np.cumsum([shape.numel() for shape in target.values()]).tolist()
    starts = dict(zip(target, [0, *ends], strict=False))

    def part(parameters: Tensor, name: str) -> Tensor:
        start, shape = starts[name], target[name]
        return parameters[:, start : start + shape.numel()].reshape(-1, *shape)

    def act(observations: Rows, preferences: Rows) -> Rows:
        features = _tensor(preferences, state)
        for layer in (0, 2, 4):
            weight, bias = (state[f"hypernet.pref_mlp.{layer}.{kind}"] for kind in _KINDS)
            features = linear(features, weight, bias)
            features = torch.relu(features) if layer < 4 else features
        parameters = features @ state["hypernet.W"] + state["hypernet.b"]
        scaled = np.clip((observations - mean) / np.sqrt(variance + 1e-8), -10, 10)
        values = _tensor(scaled, state)
        for name in _HYPER_LAYERS:
            weight, bias = (part(parameters, f"target_policy.{name}.{kind}") for kind in _KINDS)
            values = torch.einsum("noi,ni->no", weight, values) + bias
            values = torch.tanh(values) if name != _HYPER_LAYERS[-1] else values
        return _array(values)

    return act


_KINDS = ("weight", "bias")
_HYPER_LAYERS = ("base.actor.0", "base.actor.2", "dist.fc_mean")

STATE_FORMATS = (
    _StateFormat("PD-MORL", "affine_in.weight", pd_morl_actor),
    _StateFormat("Hyper-MORL", "hypernet.W", hyper_morl_actor),
)


def read_actor(path: str | Path) -> Released:
    """Read a released policy, whatever its format.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "actor.pt"
    >>> torch.jit.script(torch.nn.Linear(3, 1)).save(file)
    >>> method, actor = read_actor(file)
    >>> method, actor(np.zeros((5, 3)), np.ones((5, 2))).shape
    ('TorchScript', (5, 1))
    """
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"There is no file {file}; give the file of a released policy.")
    if _is_torchscript(file):
        return Released("TorchScript", module_actor(_torchscript(file)))
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # whatever is wrong with somebody else's file
        raise ValueError(
            f"{file} cannot be read as weights without running code; give a state dictionary of "
            f"{_known()}, or a TorchScript file."
        ) from error
    if isinstance(state, Mapping) and all(isinstance(each, Tensor) for each in state.values()):
        for method, known_by, make in STATE_FORMATS:
            if known_by in state:
                return Released(method, make(state, file))
    raise ValueError(
        f"{file} holds weights of none of {_known()}; save the policy by torch.jit.save instead."
    )


def module_actor(module: torch.nn.Module) -> Actor:
    """Make an actor of any torch module from a state, or a state and a preference, to an action."""
    module.eval()
    likeness = dict(module.state_dict())
    names = _arguments(module)
    if len(names) not in (1, 2):
        raise ValueError(
            f"The policy takes {len(names)} arguments ({', '.join(names)}); it must take a state, "
            "or a state and a preference."
        )

    def act(observations: Rows, preferences: Rows) -> Rows:
        given = [_tensor(observations, likeness), _tensor(preferences, likeness)]
        return _array(module(*given[: len(names)]))

    return act


def _arguments(module: torch.nn.Module) -> list[str]:
    if isinstance(module, torch.jit.ScriptModule):
        # The first one is the module itself, whatever it is called.
        return [argument.name for argument in module.forward.schema.arguments[1:]]  # type: ignore[attr-defined]
    return list(inspect.signature(module.forward).parameters)


def read_returns(path: str | Path) -> NDArray[np.float64]:
    r"""Read return vectors as Hyper-MORL writes them: ``name=value`` lines, then one row a policy.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "objs.txt"
    >>> _ = file.write_text("hv=3.00\ntime=1.50\n2.0,1.0\n1.0,2.0\n")
    >>> read_returns(file).tolist()
    [[2.0, 1.0], [1.0, 2.0]]
    """
    file = Path(path)
    try:
        lines = [
            line
            for line in file.read_text("utf-8-sig").splitlines()
            if line.strip() and "=" not in line
        ]
        returns = np.array([[float(value) for value in line.split(",")] for line in lines])
    except (OSError, ValueError) as error:
        raise ValueError(f"{file} has no rows of returns, such as 2410.5,1780.2.") from error
    if returns.ndim != 2 or not np.isfinite(returns).all():
        raise ValueError(f"{file} has no rows of returns, such as 2410.5,1780.2.")
    return returns


class _Inert:
    """Stands for the classes of somebody else's pickle: it has attributes and does nothing."""


class _ArraysOnly(pickle.Unpickler):
    """Reads arrays and the attributes that hold them; everything else is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in (("numpy", "ndarray"), ("numpy", "dtype")):
            return getattr(np, name)
        if name == "_reconstruct" and module in _NUMPY_MODULES:
            return np._core.multiarray._reconstruct  # type: ignore[attr-defined]
        if name in ("NormalizationRecorder", "RunningMeanStd"):
            return _Inert
        raise pickle.UnpicklingError(f"{module}.{name} is not an array")


_NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")


def _hyper_morl_scales(path: Path) -> tuple[Rows, Rows]:
    """Mean and variance of the observations from Hyper-MORL's ``normalization.pkl``."""
    try:
        with path.open("rb") as file:
            scales = _attributes(file).norm["ob_rms"]
        return np.asarray(scales.mean, dtype=float), np.asarray(scales.var, dtype=float)
    except (OSError, EOFError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} does not hold the mean and variance of observations.") from error
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path} holds more than arrays ({error}) and is not read.") from error


def _attributes(file: IO[bytes]) -> Any:
    return _ArraysOnly(file).load()


def _torchscript(file: Path) -> torch.nn.Module:
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} does not match its checksum")
        module: torch.nn.Module = torch.jit.load(file, map_location="cpu")  # type: ignore[no-untyped-call]
    except (RuntimeError, ValueError, zipfile.BadZipFile) as error:
        said = str(error).strip().splitlines()[0].rstrip(".")
        raise ValueError(f"{file} is a damaged TorchScript file: {said}.") from error
    return module


def _is_torchscript(file: Path) -> bool:
    if not zipfile.is_zipfile(file):
        return False
    with zipfile.ZipFile(file) as archive:
        return any("/code/" in name for name in archive.namelist())


def _check_entries(state: StateDict, names: list[str]) -> None:
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(f"The policy's weights have no entry {missing[0]!r}.")


def _known() -> str:
    return " or ".join(each.method for each in STATE_FORMATS)


def _tensor(rows: Rows, state: StateDict) -> Tensor:
    """Return rows in the precision of the weights."""
    floating = [each.dtype for each in state.values() if each.is_floating_point()]
    return torch.tensor(rows, dtype=floating[0] if floating else torch.float32)


def _array(values: Any) -> Rows:
    if not isinstance(values, Tensor):
        raise ValueError(
            f"The policy gives a {type(values).__name__}, not the actions alone as a tensor."
        )
    return np.asarray(values.detach().double().numpy())
