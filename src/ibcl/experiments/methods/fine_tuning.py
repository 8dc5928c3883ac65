"""Plain sequential fine-tuning: the lower bound."""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import ONE_MODEL, Registration, register
from ibcl.tasks import TaskData


class FineTuning(Baseline):
    """One model, trained on each task in turn from where the last one left it.

    It keeps no sample and knows no preference: every preference gets the same model, which has
    forgotten whatever the present task does not need. What a method gains over it is what its
    memory, prior or combination is worth.

    Updates at task i: n_i · e / b.
    """

    name = "fine_tuning"

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Minimise L_i(θ) from the θ of task i − 1."""
        generator = self.generator()
        start = (
            self.network.initial_parameters(generator) if self.thetas is None else self.thetas[0]
        )
        theta = self.minimise(start, current, torch.ones(1, current.size), generator)
        return theta.expand(len(preferences), -1)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the one model."""
        return 0 if self.thetas is None else self.thetas[0].nbytes


register(
    Registration("fine_tuning", "fine-tuning", FineTuning, ONE_MODEL, MLP, 10.0, GRADIENT, DECAYED)
)
