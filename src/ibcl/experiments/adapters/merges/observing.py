"""What goes into the adapted layers of a model, and what comes out of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.adapters import Adapter
from ibcl.networks import FlatNetwork

# Rows at once: the gradients of each are held.
_ROWS = 16


@dataclass(frozen=True)
class Observed:
    """One batch.

    Parameters
    ----------
    inputs, returned
        Of every adapted layer, shape (rows, positions, columns).
    mask
        Which positions are tokens, shape (rows, positions).
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
    """Yield batches of what a model of tokens computes.

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
            inputs[name], returned[name] = given[0].detach(), output

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
        mask = adapted.frozen.given(carried)[0][:, 1].bool()
        yield Observed(dict(inputs), dict(returned), mask, read.detach(), outputs)


def with_ones(rows: Tensor) -> Tensor:
    """Rows with a column of ones behind, for the bias.

    Examples
    --------
    >>> with_ones(torch.tensor([[2.0, 3.0]]))
    tensor([[2., 3., 1.]])
    """
    return functional.pad(rows, (0, 1), value=1.0)
