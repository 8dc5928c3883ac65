"""Gates read back from the tensors of a routed model's file."""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.routing.densities import SETTINGS, DensityGate, DensitySettings
from ibcl.routing.gate import SEEN, Gate, TaskGate

_PREFIX = "gate."


def gate_from_tensors(tensors: dict[str, Tensor], temperature: float) -> TaskGate:
    """Return the gate among the tensors of a `RoutedNetworks`, and take it out of them.

    Parameters
    ----------
    temperature
        Of a gate whose tensors do not say it.
    """
    names = [name for name in tensors if name.startswith(_PREFIX)]
    parts = {name.removeprefix(_PREFIX): tensors.pop(name) for name in names}
    if SETTINGS not in tensors:
        return Gate(parts, temperature, tensors.pop(SEEN, None))
    numbers = tensors.pop(SETTINGS)
    # Gates of earlier versions have no typical length, or no sharpness.
    if (
        numbers.ndim != 1
        or len(numbers) not in (3, 4, 5)
        or not bool(torch.isfinite(numbers).all())
    ):
        raise ValueError("its settings do not fit")
    return DensityGate(parts, DensitySettings(*numbers.cpu().tolist()))
