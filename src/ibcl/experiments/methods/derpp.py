"""DER++: dark experience replay with labels."""

from __future__ import annotations

from typing import Any

from torch import nn

from ibcl.experiments.methods.checked import positive
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.der import DER
from ibcl.experiments.methods.registration import REHEARSAL, Range, Registration, register


class DERPlusPlus(DER):
    r"""Buzzega et al., *Dark Experience for General Continual Learning*, NeurIPS 2020, equation 7.

    DER whose memory also answers for its labels:

        L_w(θ) = w_i L_i(θ) + Σ_{k<i} w_k mean over (x, y, z) in memory k of
                 α ‖z − h_θ(x)‖² + β loss(h_θ(x), y).

    One draw from the memory serves both terms (the paper draws twice).

    Parameters
    ----------
    beta
        β, how strongly the stored labels bind.
    """

    name = "derpp"

    def __init__(self, network: nn.Module, *, beta: float = 1.0, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.beta = positive("beta", beta, or_zero=True)


register(
    Registration(
        "derpp",
        "DER++",
        DERPlusPlus,
        REHEARSAL,
        MLP,
        10.0,
        {**GRADIENT, "alpha": 0.1, "beta": 1.0},
        {**DECAYED, "alpha": Range(0.01, 3.0), "beta": Range(0.3, 3.0)},
    )
)
