"""Online Laplace: a Gaussian around the last solution is the prior of the next task."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.checked import CheckedMethod, at_least, positive
from ibcl.experiments.methods.common_settings import LINEAR, PRIOR
from ibcl.experiments.methods.curvature import fisher_matrix
from ibcl.experiments.methods.registration import ONE_MODEL, Range, Registration, register
from ibcl.tasks import TaskData, as_inputs

_LARGEST = 5_000


class OnlineLaplace(CheckedMethod):
    r"""Ritter, Botev and Barber, *Online Structured Laplace Approximations*, NeurIPS 2018.

    The posterior after task i is N(θ_i, P_i⁻¹), with θ_i its mode and P_i the curvature there:

        θ_i = argmin n_i L_i(θ) + ½ (θ − θ_{i−1})ᵀ P_{i−1} (θ − θ_{i−1}),
        P_i = P_{i−1} + strength · n_i F_i(θ_i),      P_0 = I / prior_std².

    The paper's P is Kronecker-factored; for a linear head it is kept **in full**, the limit of
    that. Newton's method finds the mode, so there are no minibatch updates. It knows no preference:
    every one gets the same model.

    Parameters
    ----------
    prior_std
        Of the prior N(0, prior_std² I).
    strength
        The paper's λ, a factor of the curvature.
    steps
        At most so many Newton steps per task.
    """

    name = "online_laplace"

    def __init__(
        self,
        network: nn.Module,
        *,
        prior_std: float = 1.0,
        strength: float = 1.0,
        steps: int = 50,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        dimension = self.network.dimension
        if dimension > _LARGEST:
            raise ValueError(
                f"online_laplace keeps a full precision matrix: give a network of at most "
                f"{_LARGEST} parameters, such as ibcl.networks.linear, not one of {dimension}."
            )
        self.prior_std = positive("prior_std", prior_std)
        self.strength = positive("strength", strength)
        self.steps = at_least("steps", steps, 1)
        self.theta = torch.zeros(dimension, dtype=torch.float64)
        self.precision = torch.eye(dimension, dtype=torch.float64) / self.prior_std**2
        self.asked = 0

    def absorb(self, current: TaskData, preferences: Tensor) -> None:
        """Find the mode by damped Newton steps, and add the curvature there."""
        anchor, theta = self.theta, self.theta.clone()

        def objective(theta: Tensor) -> Tensor:
            loss = self.loss(self.network(theta.float(), current.x), current.y).double().sum()
            away = theta - anchor
            return loss + 0.5 * away @ self.precision @ away

        for _ in range(self.steps):
            probe = theta.clone().requires_grad_()
            value = objective(probe)
            (slope,) = torch.autograd.grad(value, probe)
            step = torch.linalg.solve(self.precision + self._curvature(theta, current), slope)
            size = 1.0
            with torch.no_grad():
                while size > 1e-4 and float(objective(theta - size * step)) > float(value) + 1e-9:
                    size /= 2
            theta = theta - size * step
            if float(slope @ step) < 1e-5:
                break
        self.theta = theta
        self.precision = self.precision + self.strength * self._curvature(theta, current)
        self.asked = len(preferences)

    def _curvature(self, theta: Tensor, data: TaskData) -> Tensor:
        assert not isinstance(self.likelihood, str)
        fisher = fisher_matrix(self.network, self.likelihood, theta.float(), data)
        return data.size * fisher

    def predict_logits(self, x: Any) -> Tensor:
        """Return the mode's outputs, the same for every preference."""
        if not self.asked:
            raise ValueError(f"{self.name} has not learnt a task yet: call learn first.")
        with torch.no_grad():
            outputs = self.network(self.theta.float(), as_inputs(x))
        return outputs.expand(self.asked, *outputs.shape)

    @property
    def stored_bytes(self) -> int:
        """Bytes of mode and precision."""
        return self.theta.nbytes + self.precision.nbytes if self.asked else 0


register(
    Registration(
        "online_laplace",
        "online Laplace, linear head",
        OnlineLaplace,
        ONE_MODEL,
        LINEAR,
        3.0,
        {"prior_std": 1.0, "strength": 1.0},
        {**PRIOR, "strength": Range(0.1, 10.0)},
    )
)
