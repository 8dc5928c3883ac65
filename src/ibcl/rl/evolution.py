r"""The gradient-free estimator of Bayesian policy gradient: separable natural evolution strategies.

A population θ = μ + σ ⊙ ε in mirrored pairs each plays one whole episode. With u the centred ranks
of the preferred returns, the natural gradient of E_q[u] is

    ∂μ = σ ⊙ mean(u ε),     ∂log σ = ½ mean(u (ε² − 1)),

and that of KL(q ‖ prior) is σ² ⊙ (μ−μ₀)/σ₀² and ½ (σ²/σ₀² − 1). It needs no critic, no discount
and no action noise, and about ten times the episodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from ibcl.rl.policies import Floats, Policy
from ibcl.rl.rollout import Sampler
from ibcl.rl.variational import Objective, State, Variational


def centred_ranks(values: Floats) -> Floats:
    """Ranks mapped to [−½, ½], ties sharing theirs, so that the scale of returns does not matter.

    Examples
    --------
    >>> centred_ranks(np.array([10.0, -3.0, 500.0])).tolist()
    [0.0, -0.5, 0.5]
    """
    return (rankdata(values) - 1) / (len(values) - 1) - 0.5


@dataclass(frozen=True)
class EvolutionStrategies:
    """Settings of the gradient-free estimator; the population is the number of copies."""

    mean_rate: float = 1.0
    std_rate: float = 0.1

    def search(self, policy: Policy, objectives: int, seed: int) -> EvolutionSearch:
        """Start; nothing is carried between updates."""
        del policy, objectives, seed
        return EvolutionSearch(self)


class EvolutionSearch:
    """One natural-gradient step an update; there is no state besides q itself."""

    def __init__(self, settings: EvolutionStrategies) -> None:
        self.settings = settings

    def begin(self) -> None:
        """Nothing is carried from task to task."""

    def policies(self, mean: Floats) -> Floats:
        """Return the one mean policy."""
        return mean[None]

    def end(self) -> None:
        """Nothing is kept."""

    def state(self) -> State:
        """Nothing to store."""
        return {}

    def load(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        """Nothing to continue from."""

    def update(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> dict[str, float]:
        """Score a mirrored population on whole episodes and move q in place (Algorithm 4)."""
        if objective.trajectory_kl:
            raise ValueError("Evolution strategies know no trajectory KL; use ClippedSurrogate.")
        noise = q.mirrored_noise(sampler.environment.copies, rng)
        returns = sampler.episodes(q.parameters(noise))
        fitness = returns @ objective.weights
        utility = centred_ranks(fitness)[:, None]
        # Centred ranks have variance 1/12; dividing by their deviation makes the rates unit-free.
        utility = utility / np.sqrt(np.square(utility).mean() + 1e-12)
        kl_mean, kl_log_std = q.kl_gradient(objective.prior)
        variance = np.square(q.std)
        by_mean = q.std * (utility * noise).mean(0) - objective.kl_weight * variance * kl_mean
        by_log_std = 0.5 * (utility * (np.square(noise) - 1)).mean(0)
        by_log_std -= 0.5 * objective.kl_weight * kl_log_std
        q.mean += objective.rate * self.settings.mean_rate * by_mean
        q.log_std += objective.rate * self.settings.std_rate * by_log_std
        return {"reward": float(fitness.mean()) / sampler.environment.horizon, "updates": 1.0}
