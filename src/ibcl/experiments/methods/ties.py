"""TIES: trim, elect signs, and merge the tasks' moves from a shared start."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import positive, share
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.merging import Merging
from ibcl.experiments.methods.registration import MERGING, Range, Registration, register
from ibcl.tasks import TaskData


class TIES(Merging):
    r"""Yadav et al., *TIES-Merging: Resolving Interference When Merging Models*, NeurIPS 2023.

    From the shared start θ₀ task k moved by τ_k = θ_k − θ₀.

    1. *Trim*: keep the `kept` share of τ_k's entries of largest magnitude, set the others to 0.
    2. *Elect*: the sign of each entry is that of Σ_k w_k τ_k.
    3. *Merge*: average, with weights w_k, the entries of the tasks that agree with it and are not
       0.

    θ_w = θ₀ + scale · the merged move. The paper has equal weights; w is the preference.

    Parameters
    ----------
    kept, scale
        The paper's k (20 % there) and λ.
    """

    name = "ties"

    def __init__(
        self, network: nn.Module, *, kept: float = 0.5, scale: float = 1.0, **settings: Any
    ) -> None:
        super().__init__(network, **settings)
        self.kept = share("kept", kept)
        self.scale = positive("scale", scale)

    def describe(self, theta: Tensor, current: TaskData, generator: torch.Generator) -> None:
        """Nothing besides the model is kept."""

    def merge(self, preferences: Tensor) -> Tensor:
        """Trim, elect and merge, for every preference."""
        moves = trimmed(self.task_models - self.start, self.kept)
        signs = torch.sign(preferences @ moves)
        total, weight = torch.zeros_like(signs), torch.zeros_like(signs)
        for k, move in enumerate(moves):
            agrees = (torch.sign(move) == signs) & (move != 0)
            share_k = torch.where(agrees, preferences[:, k : k + 1], 0.0)
            total += share_k * move
            weight += share_k
        merged = torch.where(weight > 0, total / weight.clamp(min=1e-12), 0.0)
        return self.start + self.scale * merged

    @property
    def stored_bytes(self) -> int:
        """Bytes of a model per task, and of the start."""
        return super().stored_bytes + (self.start.nbytes if len(self.task_models) else 0)


def trimmed(moves: Tensor, kept: float) -> Tensor:
    """Set all but the largest entries of every row to 0.

    Examples
    --------
    >>> trimmed(torch.tensor([[1.0, -3.0, 2.0, 0.5]]), 0.5)
    tensor([[ 0., -3.,  2.,  0.]])
    """
    n = max(1, round(kept * moves.shape[1]))
    chosen = moves.abs().topk(n, dim=1).indices
    return torch.zeros_like(moves).scatter(1, chosen, moves.gather(1, chosen))


register(
    Registration(
        "ties",
        "TIES",
        TIES,
        MERGING,
        MLP,
        10.0,
        {**GRADIENT, "kept": 0.5, "scale": 1.0},
        {**DECAYED, "kept": (0.1, 0.2, 0.5, 1.0), "scale": Range(0.3, 3.0)},
    )
)
