"""RegMean: every layer answers, in least squares, what the tasks' own layers answer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ibcl.adapters import Adapter
from ibcl.experiments.adapters.merges.change import HEAD, Change, each_layer, weighted
from ibcl.experiments.adapters.merges.observing import observed, with_ones
from ibcl.experiments.adapters.merges.registry import merge
from ibcl.networks import FlatNetwork

# Of the moments' mean diagonal: added to it, lest a direction without inputs be divided by.
_RIDGE = 1e-6


def moments(adapter: Adapter, network: FlatNetwork, features: Tensor) -> dict[str, Tensor]:
    """E[x xᵀ] of the inputs of every adapted layer, over tokens, and of the head."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def add(name: str, rows: Tensor) -> None:
        sums[name] = sums.get(name, 0) + rows.T @ rows
        counts[name] = counts.get(name, 0) + len(rows)

    for seen in observed(adapter, network, features):
        for name, inputs in seen.inputs.items():
            add(name, inputs[seen.mask].double())
        add(HEAD, with_ones(seen.read).double())
    return {name: (total / counts[name]).float() for name, total in sums.items()}


@merge("RegMean", *({"kept": kept} for kept in (0.1, 0.5, 0.9, 1.0)), learning=moments)
def regmean(changes: Sequence[Change], weights: Sequence[float], *, kept: float = 0.9) -> Change:
    """W = Σ_k w_k W_k G_k (Σ_k w_k G_k)⁻¹ with G_k = E[x xᵀ] (Jin et al., ICLR 2023).

    The base's part of W_k is the same in all, so that changes are merged just as weights are.

    Parameters
    ----------
    kept
        What off-diagonal entries of G_k are multiplied by.
    """

    def merged(name: str, values: Sequence[Tensor]) -> Tensor:
        known = [_shrunk(change.knowledge[name].double(), kept) for change in changes]
        products = [value.double() @ each for each, value in zip(known, values, strict=True)]
        total = weighted(known, weights)
        total.diagonal().add_(_RIDGE * total.diagonal().mean())
        found: Tensor = torch.linalg.solve(total, weighted(products, weights), left=False)
        return found.float()

    return each_layer(changes, merged)


def _shrunk(moments: Tensor, kept: float) -> Tensor:
    diagonal = torch.diag(moments.diagonal())
    return kept * moments + (1 - kept) * diagonal
