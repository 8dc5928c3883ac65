"""Several routed oracles, whose probabilities are averaged."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, MLP
from ibcl.experiments.methods.registration import ALL_DATA, Registration, register
from ibcl.experiments.methods.routed_oracle import RoutedOracle
from ibcl.networks import FlatNetwork


class RoutedOracleEnsemble(RoutedOracle):
    r"""A deep ensemble of softmaxes over (task, label), trained on all data, and Bayes' rule.

    p(k, c | x) = 1/M Σ_m p_m(k, c | x), the members from different random starts, all in the same
    minibatches (Lakshminarayanan, Pritzel and Blundell, 2017).

    Parameters
    ----------
    members
        M.
    """

    name = "routed_oracle_ensemble"

    def __init__(self, network: nn.Module, *, members: int = 5, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.members = at_least("members", members, 1)

    def starts(self, network: FlatNetwork, generator: torch.Generator) -> Tensor:
        """A random start for every member."""
        return torch.stack([self.start(network, generator) for _ in range(self.members)])

    def scores(self, x: Tensor) -> Tensor:
        """The logarithm of the members' average probabilities."""
        return self.member_scores(x).logsumexp(0) - math.log(self.members)


register(
    Registration(
        "routed_oracle_ensemble",
        "softmax over (task, label), five on all data",
        RoutedOracleEnsemble,
        ALL_DATA,
        MLP,
        10.0,
        GRADIENT,
        DECAYED,
    )
)
