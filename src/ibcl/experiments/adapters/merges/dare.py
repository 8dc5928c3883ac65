"""DARE: drop entries of the changes at random, rescale the rest, and average."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ibcl.experiments.adapters.merges.change import (
    Change,
    as_row,
    averaged_head,
    from_row,
    weighted,
)
from ibcl.experiments.adapters.merges.registry import merge


@merge(
    "DARE",
    *({"drop": drop, "scale": scale} for drop in (0.5, 0.9) for scale in (1.0, 2.0)),
)
def dare(
    changes: Sequence[Change],
    weights: Sequence[float],
    *,
    drop: float = 0.9,
    scale: float = 1.0,
    seed: int = 0,
) -> Change:
    """Yu et al., ICML 2024, then the preference's sum of what is left, scaled.

    Parameters
    ----------
    drop
        Probability that an entry is dropped.
    """
    generator = torch.Generator().manual_seed(seed)
    moves = [dropped(as_row(change), drop, generator) for change in changes]
    merged = scale * weighted(moves, weights)
    return Change(from_row(merged, changes[0]), averaged_head(changes, weights))


def dropped(entries: Tensor, drop: float, generator: torch.Generator) -> Tensor:
    """Entries that are 0 with probability p and divided by 1 − p otherwise: the same on average.

    Examples
    --------
    >>> dropped(torch.tensor([1.0, 2.0]), 0.0, torch.Generator()).tolist()
    [1.0, 2.0]
    """
    kept = torch.rand(entries.shape, generator=generator) >= drop
    return torch.where(kept, entries / (1 - drop), 0.0)
