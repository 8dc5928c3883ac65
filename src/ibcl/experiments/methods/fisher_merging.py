"""Fisher merging: averages weighted by how much each parameter matters to each task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.curvature import fisher_diagonal, some_of
from ibcl.experiments.methods.merging import Merging
from ibcl.experiments.methods.registration import MERGING, Range, Registration, register
from ibcl.tasks import TaskData


class FisherMerging(Merging):
    r"""Matena and Raffel, *Merging Models with Fisher-Weighted Averaging*, NeurIPS 2022.

    With F_k the diagonal of the Fisher information of task k at its own model θ_k,

        θ_w = Σ_k w_k (F_k + ε) θ_k / Σ_k w_k (F_k + ε)        coordinate by coordinate.

    Parameters
    ----------
    floor
        ε relative to the mean of all F_k: parameters that matter to no task are averaged plainly.
    samples
        Samples of a task behind its F_k.
    """

    name = "fisher_merging"

    def __init__(
        self, network: nn.Module, *, floor: float = 1e-3, samples: int = 500, **settings: Any
    ) -> None:
        super().__init__(network, **settings)
        self.floor = positive("floor", floor)
        self.samples = at_least("samples", samples, 1)
        self.fishers = torch.empty(0, self.network.dimension)

    def describe(self, theta: Tensor, current: TaskData, generator: torch.Generator) -> None:
        """Keep the diagonal Fisher information."""
        assert not isinstance(self.likelihood, str)
        data = some_of(current, self.samples, generator)
        fisher = fisher_diagonal(self.network, self.likelihood, theta, data)
        self.fishers = torch.cat([self.fishers, fisher[None]])

    def merge(self, preferences: Tensor) -> Tensor:
        """Average with weights w_k (F_k + ε)."""
        weights = self.fishers + self.floor * self.fishers.mean() + torch.finfo().tiny
        return (preferences @ (weights * self.task_models)) / (preferences @ weights)

    @property
    def stored_bytes(self) -> int:
        """Bytes of a model and a diagonal per task."""
        return super().stored_bytes + self.fishers.nbytes


register(
    Registration(
        "fisher_merging",
        "Fisher merging",
        FisherMerging,
        MERGING,
        MLP,
        10.0,
        {**GRADIENT, "floor": 1e-3},
        {**DECAYED, "floor": Range(1e-6, 1.0)},
    )
)
