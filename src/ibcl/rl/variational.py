r"""The Gaussian q = N(μ, diag(σ²)) while it is being learnt, and what it is learnt for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.checkpoint import Carried
from ibcl.rl.policies import Floats
from ibcl.rl.rollout import Sampler


@dataclass
class Variational(Carried):
    """μ and log σ as arrays that an estimator moves in place.

    Examples
    --------
    >>> q = Variational.of(DiagonalGaussian([0.0, 1.0], [1.0, 1.0]))
    >>> q.kl_gradient(q)[0].tolist()
    [0.0, 0.0]
    """

    carried = ("mean", "log_std")

    mean: Floats
    log_std: Floats

    @classmethod
    def of(cls, gaussian: DiagonalGaussian) -> Variational:
        """Start from a stored distribution."""
        mean = gaussian.mean.numpy().astype(np.float32)
        return cls(mean, np.log(gaussian.std.numpy().astype(np.float32)))

    def gaussian(self) -> DiagonalGaussian:
        """Freeze it for the knowledge base."""
        return DiagonalGaussian(torch.tensor(self.mean), torch.tensor(self.std))

    def copy(self) -> Variational:
        """Return an independent copy."""
        return Variational(self.mean.copy(), self.log_std.copy())

    @property
    def std(self) -> Floats:
        """σ."""
        return np.exp(self.log_std)

    def mirrored_noise(self, rows: int, rng: np.random.Generator) -> Floats:
        """Draw standard normal noise in pairs (ε, −ε), which halves the gradient's variance."""
        half = rng.standard_normal((rows // 2, self.mean.size), dtype=np.float32)
        return np.concatenate([half, -half])

    def parameters(self, noise: Floats) -> Floats:
        """θ = μ + σ ⊙ ε, one row per draw."""
        return self.mean + self.std * noise

    def kl_gradient(self, prior: Variational) -> tuple[Floats, Floats]:
        r"""Gradient of KL(q ‖ prior) / D in μ and log σ: (μ−μ₀)/σ₀² and σ²/σ₀² − 1, over D."""
        by_mean = (self.mean - prior.mean) / np.square(prior.std)
        by_log_std = np.square(self.std / prior.std) - 1
        return by_mean / self.mean.size, by_log_std / self.mean.size


@dataclass(frozen=True)
class Objective:
    r"""What one update ascends: E_q[Σ_k w_k R_k] − β KL(q ‖ prior)/D − κ KL(trajectories).

    ``action_std`` is the exploration noise on actions and ``rate`` scales the learning rates. Of a
    step's rewards no more than ``cap`` counts, where there is one.
    """

    weights: Floats
    prior: Variational
    action_std: float = 0.0
    rate: float = 1.0
    kl_weight: float = 0.0
    trajectory_kl: float = 0.0
    cap: Floats | None = None


class Search(Carried, ABC):
    """The running state of an estimator: updates q, and can be stored and continued."""

    @abstractmethod
    def begin(self) -> None:
        """Prepare for a new task."""

    @abstractmethod
    def update(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> int:
        """Sample policies from q, roll them out, move q in place; returns how many updates."""

    def policies(self, mean: Floats) -> Floats:
        """Return the mean policies to score, one row for each task learnt."""
        return mean[None]

    def end(self) -> None:
        """Forget what no later task needs."""
