"""Convex combinations of deterministic models, one model per task."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import MERGING, Registration, register
from ibcl.tasks import TaskData


class ConvexCombination(Baseline):
    r"""θ_w = Σ_k w_k θ_k, where θ_k was trained on task k alone, from a start of its own.

    The deterministic counterpart of IBCL's Wasserstein barycentre; weight averaging as in model
    soups (Wortsman et al., *Model soups*, ICML 2022) and rewarded soups (Ramé et al., NeurIPS
    2023). Networks trained from different starts are unrelated solutions (the hidden units of one
    do not match those of another), so their average is expected to fail where there are hidden
    layers; `ConvexCombinationSharedStart` is the variant that can work.

    No model is trained for a preference. Updates at task i: n_i · e / b (the paper's table has the
    number of preferences as a factor before it, which the method does not need).
    """

    name = "convex_combination"
    shared_start: ClassVar[bool] = False

    def __init__(self, network: nn.Module, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.task_models = torch.empty(0, self.network.dimension)

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Train the task's own model, and combine all of them by each preference."""
        generator = self.generator()
        first = torch.Generator().manual_seed(self.seed)
        start = self.network.initial_parameters(first if self.shared_start else generator)
        theta = self.minimise(start, current, torch.ones(1, current.size), generator)
        self.task_models = torch.cat([self.task_models, theta])
        return preferences @ self.task_models

    @property
    def stored_bytes(self) -> int:
        """Bytes of one model per task."""
        return self.task_models.nbytes


class ConvexCombinationSharedStart(ConvexCombination):
    """The same, with every task's model trained from one shared random start.

    Models that begin at the same point tend to stay in one basin of the loss, where averages of
    weights are meaningful (Frankle et al., *Linear mode connectivity*, ICML 2020).
    """

    name = "convex_combination_shared_start"
    shared_start = True


register(
    Registration(
        "convex_combination",
        "convex combination",
        ConvexCombination,
        MERGING,
        MLP,
        10.0,
        GRADIENT,
        DECAYED,
    )
)

register(
    Registration(
        "convex_combination_shared_start",
        "convex combination, shared start",
        ConvexCombinationSharedStart,
        MERGING,
        MLP,
        10.0,
        GRADIENT,
        DECAYED,
    )
)
