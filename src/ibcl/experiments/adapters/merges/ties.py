"""TIES: trim, elect signs, and average the changes that agree."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ibcl.experiments.adapters.merges.change import (
    Change,
    as_row,
    averaged_head,
    from_row,
    weighted,
)
from ibcl.experiments.adapters.merges.registry import merge
from ibcl.experiments.methods.ties import trimmed


@merge(
    "TIES",
    *({"kept": kept, "scale": scale} for kept in (0.2, 0.5) for scale in (0.5, 1.0, 2.0)),
)
def ties(
    changes: Sequence[Change], weights: Sequence[float], *, kept: float = 0.2, scale: float = 1.0
) -> Change:
    """Yadav et al., NeurIPS 2023, with the preference's weights in place of equal ones.

    Parameters
    ----------
    kept
        Share of a task's entries, the largest over all layers, that trimming leaves.
    """
    moves = list(trimmed(torch.stack([as_row(change) for change in changes]), kept))
    elected = torch.sign(weighted(moves, weights))
    agreeing = [torch.where(torch.sign(move) == elected, move, 0.0) for move in moves]
    counted = weighted([(move != 0).float() for move in agreeing], weights)
    total = weighted(agreeing, weights)
    merged = scale * torch.where(counted > 0, total / counted, 0.0)
    return Change(from_row(merged, changes[0]), averaged_head(changes, weights))
