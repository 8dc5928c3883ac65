"""What a task's adapter changes, as dense matrices that can be merged entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from ibcl.adapters import Adapter

HEAD = "head"
"""The head's name among the layers of `Change.knowledge`."""
_A, _B = ".lora_A.weight", ".lora_B.weight"
# Before the names of a base's layers, in the files of peft.
_PREFIX = "base_model.model."


@dataclass(frozen=True)
class Change:
    """ΔW of every adapted layer, and the head.

    Parameters
    ----------
    layers
        Shape (outputs, inputs) each, by the layer's name in the base; linear layers, and
        convolutions of one pixel.
    head
        Weight and bias side by side, shape (classes, columns + 1).
    knowledge
        What a merge wants to know of the task beside the change: a tensor for every layer, and one
        for `HEAD`.
    """

    layers: Mapping[str, Tensor]
    head: Tensor
    knowledge: Mapping[str, Tensor] = field(default_factory=dict)


def change_of(adapter: Adapter) -> Change:
    """Return an adapter's change; one that has not seen all classes is refused."""
    if adapter.head is None or adapter.classes is None or len(adapter.classes) != adapter.columns:
        raise ValueError("Only adapters whose heads know the same classes are merged.")
    scale = adapter.configuration["lora_alpha"] / adapter.configuration["r"]
    layers = {
        name.removeprefix(_PREFIX).removesuffix(_A): scale
        * (adapter.tensors[name.removesuffix(_A) + _B].flatten(1) @ tensor.flatten(1))
        for name, tensor in adapter.tensors.items()
        if name.endswith(_A)
    }
    weight, bias = adapter.head
    return Change(layers, torch.cat([weight, bias[:, None]], 1))


def as_adapter(change: Change, like: Adapter) -> Adapter:
    """Return a change as a LoRA of full rank: BA = ΔW with a unit matrix for one of the two.

    Parameters
    ----------
    like
        One of the adapters that were merged.
    """
    rank = max(min(layer.shape) for layer in change.layers.values())
    tensors = {}
    for name, layer in change.layers.items():
        outputs, inputs = layer.shape
        a, b = (torch.eye(inputs), layer) if inputs <= rank else (layer, torch.eye(outputs))
        # Of convolutions of one pixel, two more dimensions.
        more = like.tensors[_PREFIX + name + _A].shape[2:]
        wide = functional.pad(a, (0, 0, 0, rank - len(a)))
        tall = functional.pad(b, (0, rank - b.shape[1]))
        tensors[_PREFIX + name + _A] = wide.reshape(*wide.shape, *more)
        tensors[_PREFIX + name + _B] = tall.reshape(*tall.shape, *more)
    known = {**like.configuration, "r": rank, "lora_alpha": rank}
    head = change.head[:, :-1].contiguous(), change.head[:, -1].contiguous()
    return Adapter(known, tensors, head, like.classes, like.columns)


def weighted(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """Σ_k w_k T_k.

    Examples
    --------
    >>> weighted([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])], [0.5, 0.25])
    tensor([0.5000, 0.5000])
    """
    return torch.stack([w * each for w, each in zip(weights, tensors, strict=True)]).sum(0)


def averaged_head(changes: Sequence[Change], weights: Sequence[float]) -> Tensor:
    """Σ_k w_k [W_k | b_k]: heads have no common start that they would be changes of."""
    return weighted([change.head for change in changes], weights)


def as_row(change: Change) -> Tensor:
    """All entries of ΔW, one layer after another."""
    return torch.cat([layer.flatten() for layer in change.layers.values()])


def from_row(row: Tensor, like: Change) -> dict[str, Tensor]:
    """Layers of the entries that `as_row` returned.

    Examples
    --------
    >>> change = Change({"a": torch.ones(1, 2), "b": torch.zeros(2, 1)}, torch.ones(2, 1))
    >>> from_row(as_row(change), change)["b"].tolist()
    [[0.0], [0.0]]
    """
    parts = torch.split(row, [layer.numel() for layer in like.layers.values()])
    return {
        name: part.reshape(layer.shape)
        for part, (name, layer) in zip(parts, like.layers.items(), strict=True)
    }


def each_layer(
    changes: Sequence[Change], merged: Callable[[str, Sequence[Tensor]], Tensor]
) -> Change:
    """Merge layer by layer, the head like any other."""
    layers = {
        name: merged(name, [change.layers[name] for change in changes])
        for name in changes[0].layers
    }
    return Change(layers, merged(HEAD, [change.head for change in changes]))
