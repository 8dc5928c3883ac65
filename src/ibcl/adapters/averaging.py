r"""The average of adapters as one ordinary LoRA.

A weighted sum of low-rank changes is a low-rank change: with ΔW_k = s_k B_k A_k,

    Σ_k w_k ΔW_k = [w_1 s_1 B_1, ..., w_K s_K B_K] [A_1; ...; A_K],

a LoRA of the ranks' sum, exactly. Heads are averaged too, class by class. It is a merge: one
parameter vector for all inputs, which scores below the adapters behind their gate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ibcl.adapters.adapter import Adapter

_A, _B = ".lora_A.weight", ".lora_B.weight"
# Fields of configurations that must agree, or the sum is no LoRA.
_SHARED = ("target_modules", "exclude_modules", "layers_to_transform", "fan_in_fan_out")


def averaged(adapters: Sequence[Adapter], weights: Sequence[float]) -> Adapter:
    """Return the adapter whose change is the weighted sum of these adapters' changes.

    Parameters
    ----------
    weights
        Of each adapter; those with none are left out, and a single one is returned as it is.
    """
    chosen = [(it, float(w)) for it, w in zip(adapters, weights, strict=True) if w > 0]
    if len(chosen) == 1:
        return chosen[0][0]
    first = chosen[0][0]
    _check([it for it, _ in chosen])
    tensors: dict[str, Tensor] = {}
    for name in first.tensors:
        if name.endswith(_A):
            stem = name.removesuffix(_A)
            tensors[name] = torch.cat([it.tensors[name] for it, _ in chosen])
            tensors[stem + _B] = torch.cat(
                [w * _scale(it) * it.tensors[stem + _B] for it, w in chosen], 1
            )
    rank = sum(int(it.configuration["r"]) for it, _ in chosen)
    configuration = {
        **{name: first.configuration[name] for name in _SHARED if name in first.configuration},
        "r": rank,
        "lora_alpha": rank,
    }
    head, classes = _head([it for it, _ in chosen], [w for _, w in chosen])
    return Adapter(configuration, tensors, head, classes, first.columns)


def _scale(adapter: Adapter) -> float:
    known = adapter.configuration
    rank = float(known["r"])
    return float(known["lora_alpha"]) / (math.sqrt(rank) if known.get("use_rslora") else rank)


def _check(adapters: Sequence[Adapter]) -> None:
    first = adapters[0]
    for each in adapters:
        known = each.configuration
        plain = not any(
            known.get(name)
            for name in ("use_dora", "modules_to_save", "rank_pattern", "alpha_pattern")
        )
        same = all(known.get(name) == first.configuration.get(name) for name in _SHARED)
        if not plain or not same or each.tensors.keys() != first.tensors.keys():
            raise ValueError(
                "These adapters have no average that is a LoRA: they adapt different layers, or "
                "more than low-rank changes of them; export them one by one."
            )


def _head(
    adapters: Sequence[Adapter], weights: Sequence[float]
) -> tuple[tuple[Tensor, Tensor] | None, Tensor | None]:
    """Σ_k w_k (W_k, b_k), each class of it over the tasks that have seen the class."""
    heads = [it.head for it in adapters]
    if any(head is None for head in heads):
        return None, None
    columns = adapters[0].columns
    weight = torch.zeros(columns, heads[0][0].shape[1])  # type: ignore[index]
    bias, total = torch.zeros(columns), torch.zeros(columns)
    for it, w in zip(adapters, weights, strict=True):
        assert it.head is not None
        places = torch.arange(columns) if it.classes is None else it.classes
        weight[places] += w * it.head[0]
        bias[places] += w * it.head[1]
        total[places] += w
    seen = torch.nonzero(total > 0).flatten()
    head = weight[seen] / total[seen, None], bias[seen] / total[seen]
    return head, None if adapters[0].classes is None else seen
