"""The linear oracle, exactly: weighted logistic regression on all data for every preference."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod, at_least, positive
from ibcl.experiments.methods.common_settings import LINEAR, NORM
from ibcl.experiments.methods.registration import ALL_DATA, Range, Registration, register
from ibcl.experiments.methods.rehearsal import Pool
from ibcl.tasks import TaskData, as_inputs


class MAPOracle(CheckedMethod):
    r"""For every preference w the minimum of Σ_k w_k L_k(θ) + ½ λ ‖θ‖², to convergence.

    A head linear in its parameters makes this convex, so that the linear oracle does not depend on
    how it is trained. All preferences are solved together by L-BFGS, in coordinates where the
    features are uncorrelated, which takes a few dozen passes over the data instead of thousands:
    θ = L⁻ᵀ u with L Lᵀ = mean φ φᵀ / 4 + λ I, a bound of the Hessian of two classes.

    It keeps **all data of all tasks**.

    Parameters
    ----------
    weight_decay
        λ.
    passes
        At most so many.
    """

    name = "map_oracle"

    def __init__(
        self, network: nn.Module, *, weight_decay: float = 1e-4, passes: int = 500, **settings: Any
    ) -> None:
        super().__init__(network, **settings)
        self.weight_decay = positive("weight_decay", weight_decay)
        self.passes = at_least("passes", passes, 1)
        self.head = self.network.linear_head()
        self.seen: list[TaskData] = []
        self.weights: Tensor | None = None

    def keep(self, task: str, train: TaskData) -> None:
        """Keep a task's data without solving: the next task solves with everything anyway."""
        self._check_new(task)
        self.seen.append(self._checked(train))
        self.tasks.append(task)

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Solve for every preference on everything seen so far."""
        self.seen.append(current)
        pool = Pool(self.seen)
        phi = self._features(pool.data.x)
        importance = pool.importance(preferences) / pool.size
        second_moment = (phi.T @ phi).double() / len(phi)
        bound = second_moment / 4 + self.weight_decay * torch.eye(len(second_moment)).double()
        factor = torch.linalg.cholesky(bound)
        white = torch.linalg.solve_triangular(factor, phi.double().T, upper=False).T.float()
        outputs = self.head.layer.out_features
        shape = (len(preferences), outputs, white.shape[1])

        def objective(flat: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
            u = torch.from_numpy(flat).reshape(shape)
            f = (white @ u.float().flatten(0, 1).T).reshape(-1, *shape[:2]).transpose(0, 1)
            f = f.contiguous().requires_grad_()
            losses = (importance * self.loss(f, pool.data.y)).double().sum()
            (by_output,) = torch.autograd.grad(losses, f)
            slope = (by_output.transpose(0, 1).flatten(1).T @ white).double().reshape(shape)
            theta = torch.linalg.solve_triangular(factor.T, u.flatten(0, 1).T, upper=True)
            value = losses.detach() + 0.5 * self.weight_decay * theta.square().sum()
            penalty = torch.linalg.solve_triangular(factor, theta, upper=False).T.reshape(shape)
            gradient = slope + self.weight_decay * penalty
            return float(value), gradient.flatten().numpy()

        found = minimize(
            objective,
            np.zeros(int(np.prod(shape))),
            jac=True,
            method="L-BFGS-B",
            options={
                "maxiter": self.passes,
                "maxfun": 2 * self.passes,
                "gtol": 1e-7,
                "ftol": 1e-12,
            },
        )
        u = torch.from_numpy(found.x).reshape(-1, shape[2])
        theta = torch.linalg.solve_triangular(factor.T, u.T, upper=True).T
        self.weights = theta.reshape(shape).float()

    def _features(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            fixed = self.head.features(x)
        bias = self.head.layer.bias is not None
        return torch.cat([fixed, torch.ones(len(x), 1)], 1) if bias else fixed

    def predict_logits(self, x: Any) -> Tensor:
        """Return the outputs of each preference's solution, (preferences, n, outputs)."""
        if self.weights is None:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        return self._features(as_inputs(x)) @ self.weights.mT

    @property
    def stored_bytes(self) -> int:
        """Bytes of all data seen."""
        return sum(task.x.nbytes + task.y.nbytes for task in self.seen)


register(
    Registration(
        "map_oracle",
        "oracle, linear head",
        MAPOracle,
        ALL_DATA,
        LINEAR,
        10.0,
        {"weight_decay": 1e-4},
        {**NORM, "weight_decay": Range(1e-7, 1e-1)},
    )
)
