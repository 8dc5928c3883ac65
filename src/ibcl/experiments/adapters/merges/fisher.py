"""Fisher merging: every entry averaged with the tasks' Fisher information of it as weights."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ibcl.adapters import Adapter
from ibcl.experiments.adapters.merges.change import HEAD, Change, each_layer, weighted
from ibcl.experiments.adapters.merges.observing import by_position, observed, with_ones
from ibcl.experiments.adapters.merges.registry import merge
from ibcl.networks import FlatNetwork

# Of the mean information of a layer: what an entry has at least, lest nothing be divided by it.
_LEAST = 1e-3


def information(adapter: Adapter, network: FlatNetwork, features: Tensor) -> dict[str, Tensor]:
    r"""Diagonal of the Fisher information of every adapted layer and of the head, per row.

    E_x Σ_y p(y | x) (∂ log p(y | x) / ∂W)², with the model's own probabilities and no labels.
    """
    found: dict[str, Tensor] = {}

    def add(name: str, value: Tensor) -> None:
        found[name] = found.get(name, 0) + value / len(features)

    for seen in observed(adapter, network, features, gradients=True):
        logs = torch.log_softmax(seen.outputs, 1)
        shares = logs.detach().exp()
        for label in range(logs.shape[1]):
            slopes = torch.autograd.grad(
                logs[:, label].sum(), list(seen.returned.values()), retain_graph=True
            )
            for name, slope in zip(seen.returned, slopes, strict=True):
                each = torch.einsum("nto,nti->noi", by_position(slope), seen.inputs[name])
                add(name, torch.einsum("n,noi->oi", shares[:, label], each.square()))
        add(HEAD, (shares * (1 - shares)).T @ with_ones(seen.read).square())
    return found


@merge("Fisher", learning=information)
def fisher(changes: Sequence[Change], weights: Sequence[float]) -> Change:
    """Σ_k w_k F_k θ_k / Σ_k w_k F_k for every entry (Matena and Raffel, NeurIPS 2022)."""

    def merged(name: str, values: Sequence[Tensor]) -> Tensor:
        known = [change.knowledge[name] for change in changes]
        least = _LEAST * torch.stack(known).mean()
        known = [each + least for each in known]
        products = [each * value for each, value in zip(known, values, strict=True)]
        return weighted(products, weights) / weighted(known, weights)

    return each_layer(changes, merged)
