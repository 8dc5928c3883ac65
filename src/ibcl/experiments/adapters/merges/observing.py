"""What goes into the adapted layers of a model, and what comes out of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.adapters import Adapter
from ibcl.adapters.adapted import Adapted
from ibcl.networks import FlatNetwork

# Rows at once: the gradients of each are held.
_ROWS = 16


@dataclass(frozen=True)
class Observed:
    """One batch.

    Parameters
    ----------
    inputs
        Of every adapted layer, shape (rows, positions, columns).
    returned
        Of every adapted layer, as it is returned.
    mask
        Which positions count, shape (rows, positions).
    read
        What the head reads, shape (rows, columns).
    outputs
        Of the head, shape (rows, classes).
    """

    inputs: dict[str, Tensor]
    returned: dict[str, Tensor]
    mask: Tensor
    read: Tensor
    outputs: Tensor


def observed(
    adapter: Adapter, network: FlatNetwork, features: Tensor, gradients: bool = False
) -> Iterator[Observed]:
    """Yield batches of what a model computes.

    Parameters
    ----------
    features
        φ with all that it carries.
    gradients
        Whether outputs are to be differentiated by what layers return.
    """
    adapted = adapter.on(network).adapted
    assert adapter.head is not None
    inputs: dict[str, Tensor] = {}
    returned: dict[str, Tensor] = {}

    def keep(name: str) -> Any:
        def note(_module: Any, given: Any, output: Tensor) -> None:
            inputs[name], returned[name] = by_position(given[0].detach()), output

        return note

    if gradients:
        adapted.learnable()
    for name in adapted.layers():
        adapted.frozen.backbone.get_submodule(name).register_forward_hook(keep(name))
    for rows in torch.split(features.flatten(1), _ROWS):
        carried = rows[:, network.columns :]
        with torch.set_grad_enabled(gradients):
            read = adapted(rows[:, : network.columns], carried)
            outputs = functional.linear(read, *adapter.head)
        yield Observed(
            dict(inputs), dict(returned), _mask(adapted, carried, inputs), read.detach(), outputs
        )


def by_position(values: Tensor) -> Tensor:
    """Of an image, pixels as positions; shape (rows, positions, columns)."""
    return values.flatten(2).transpose(1, 2) if values.ndim == 4 else values


def _mask(adapted: Adapted, carried: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Which positions count, where the base says so; all of them otherwise."""
    if adapted.frozen.takes_tokens:
        return adapted.frozen.given(carried)[0][:, 1].bool()
    told = getattr(adapted.frozen.backbone, "positions", None)
    found = None if told is None else told(adapted.frozen.given(carried)[0])
    if found is None:
        return torch.ones(next(iter(inputs.values())).shape[:2], dtype=torch.bool)
    assert isinstance(found, Tensor)
    return found


def with_ones(rows: Tensor) -> Tensor:
    """Rows with a column of ones behind, for the bias.

    Examples
    --------
    >>> with_ones(torch.tensor([[2.0, 3.0]]))
    tensor([[2., 3., 1.]])
    """
    return functional.pad(rows, (0, 1), value=1.0)
