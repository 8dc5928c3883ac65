"""Task arithmetic: the preference's sum of the changes, scaled."""

from __future__ import annotations

from collections.abc import Sequence

from ibcl.experiments.adapters.merges.change import Change, averaged_head, weighted
from ibcl.experiments.adapters.merges.registry import merge


@merge("task arithmetic", *({"scale": scale} for scale in (0.5, 1.0, 1.5, 2.0, 3.0)))
def task_arithmetic(
    changes: Sequence[Change], weights: Sequence[float], *, scale: float = 1.0
) -> Change:
    """ΔW = scale · Σ_k w_k ΔW_k (Ilharco et al., ICLR 2023); with scale 1 it is the soup.

    Their λ Σ_k ΔW_k over K tasks is the scale λK at the equal preference.
    """
    layers = {
        name: scale * weighted([change.layers[name] for change in changes], weights)
        for name in changes[0].layers
    }
    return Change(layers, averaged_head(changes, weights))
