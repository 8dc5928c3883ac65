"""A stronger oracle: a wider network, trained longer, on all data for every preference."""

from __future__ import annotations

from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT
from ibcl.experiments.methods.oracle import Oracle
from ibcl.experiments.methods.registration import ALL_DATA, Registration, register


class MLPOracle(Oracle):
    """`Oracle` with 256 hidden units and three times its epochs, so that neither is a limit."""

    name = "mlp_oracle"


register(
    Registration(
        "mlp_oracle",
        "oracle, wide network",
        MLPOracle,
        ALL_DATA,
        "mlp:256",
        10.0,
        {**GRADIENT, "epochs": 30, "learning_rate": 1e-3, "weight_decay": 1e-4},
        DECAYED,
    )
)
