"""Online EWC: one model, held where earlier tasks need it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.checked import at_least, positive, share
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.curvature import fisher_diagonal, some_of
from ibcl.experiments.methods.per_sample import per_sample_gradients
from ibcl.experiments.methods.registration import ONE_MODEL, Range, Registration, register
from ibcl.tasks import TaskData


class OnlineEWC(Baseline):
    r"""Schwarz et al., *Progress & Compress*, ICML 2018: elastic weight consolidation, online.

    With θ* the parameters after the last task and F* the running diagonal Fisher information,

        min_θ L_i(θ) + ½ strength Σ_d F*_d (θ_d − θ*_d)²,     F* ← decay · F* + F_i(θ*).

    It keeps no sample and knows no preference: every preference gets the same model.

    Parameters
    ----------
    strength, decay
        The paper's λ and γ.
    samples
        Samples of a task behind its Fisher information.
    """

    name = "online_ewc"

    def __init__(
        self,
        network: nn.Module,
        *,
        strength: float = 100.0,
        decay: float = 1.0,
        samples: int = 500,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        self.strength = positive("strength", strength, or_zero=True)
        self.decay = share("decay", decay)
        self.samples = at_least("samples", samples, 1)
        self.fisher = torch.zeros(self.network.dimension)

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Minimise the current loss and the quadratic penalty, then update the penalty."""
        assert not isinstance(self.likelihood, str)
        generator = self.generator()
        anchor = (
            self.network.initial_parameters(generator) if self.thetas is None else self.thetas[0]
        )
        thetas = anchor.repeat(1, 1)

        def gradient(thetas: Tensor, rows: Tensor, _: int) -> Tensor:
            slopes = partial(self.slope, y=current.y[rows])
            samples = per_sample_gradients(self.models, thetas, current.x[rows], slopes)
            step = samples.combine(torch.full((1, len(rows)), 1 / len(rows)), out=thetas.grad)
            return step.add_(self.strength * self.fisher * (thetas.detach() - anchor))

        self.descend(thetas, current.size, gradient, generator)
        data = some_of(current, self.samples, generator)
        new = fisher_diagonal(self.network, self.likelihood, thetas[0], data)
        self.fisher = self.decay * self.fisher + new
        return thetas.expand(len(preferences), -1)

    @property
    def stored_bytes(self) -> int:
        """Bytes of the one model and its penalty."""
        return 0 if self.thetas is None else self.thetas[0].nbytes + self.fisher.nbytes


register(
    Registration(
        "online_ewc",
        "online EWC",
        OnlineEWC,
        ONE_MODEL,
        MLP,
        10.0,
        {**GRADIENT, "strength": 100.0},
        {**DECAYED, "strength": Range(0.1, 1e4)},
    )
)
