"""MaTS: merging as a linear system in the tasks' curvatures."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.sparse.linalg import LinearOperator, cg
from torch import Tensor, nn

from ibcl.experiments.methods.checked import at_least
from ibcl.experiments.methods.common_settings import DECAYED, GRADIENT, LINEAR
from ibcl.experiments.methods.curvature import fisher_matrix
from ibcl.experiments.methods.merging import Merging
from ibcl.experiments.methods.registration import MERGING, Range, Registration, register
from ibcl.tasks import TaskData

# Parameters beyond which a full Fisher matrix per task is not sensible.
_LARGEST = 5_000


class MaTS(Merging):
    r"""Tam, Bansal and Raffel, *Merging by Matching Models in Task Parameter Subspaces*, TMLR 2024.

    The merged model solves Σ_k w_k F_k (θ − θ_k) = 0 by a number of steps of conjugate gradients
    from the plain average Σ_k w_k θ_k. The paper approximates F_k by blocks; for a linear head it
    is kept **in full**, the limit of all those approximations.

    Parameters
    ----------
    steps
        Of conjugate gradients; few of them stay near the average where curvature is small.
    """

    name = "mats"

    def __init__(self, network: nn.Module, *, steps: int = 30, **settings: Any) -> None:
        super().__init__(network, **settings)
        self.steps = at_least("steps", steps, 1)
        if self.network.dimension > _LARGEST:
            raise ValueError(
                f"mats keeps full Fisher matrices: give a network of at most {_LARGEST} "
                f"parameters, such as ibcl.networks.linear, not one of {self.network.dimension}."
            )
        self.fishers: list[Tensor] = []

    def describe(self, theta: Tensor, current: TaskData, generator: torch.Generator) -> None:
        """Keep the Fisher matrix."""
        assert not isinstance(self.likelihood, str)
        self.fishers.append(fisher_matrix(self.network, self.likelihood, theta, current))

    def merge(self, preferences: Tensor) -> Tensor:
        """Solve the system of every preference."""
        fishers, models = torch.stack(self.fishers), self.task_models.double()
        pulls = torch.einsum("kij,kj->ki", fishers, models)
        merged = []
        for weights in preferences.double():
            matrix = torch.einsum("k,kij->ij", weights, fishers).numpy()
            operator = LinearOperator(matrix.shape, matvec=matrix.__matmul__, dtype=np.float64)
            solution, _ = cg(
                operator,
                (weights @ pulls).numpy(),
                x0=(weights @ models).numpy(),
                maxiter=self.steps,
            )
            merged.append(torch.from_numpy(solution).float())
        return torch.stack(merged)

    @property
    def stored_bytes(self) -> int:
        """Bytes of a model and a Fisher matrix per task."""
        return super().stored_bytes + sum(fisher.nbytes for fisher in self.fishers)


register(
    Registration(
        "mats",
        "MaTS, full Fisher, linear head",
        MaTS,
        MERGING,
        LINEAR,
        10.0,
        {**GRADIENT, "learning_rate": 1e-2, "steps": 30},
        {**DECAYED, "steps": Range(3, 300)},
    )
)
