r"""The Bayesian policy gradient of Ghavamzadeh and Engel: Bayesian quadrature with a Fisher kernel.

The gradient of an expected return is an integral over paths ξ, with the score u(ξ) = ∇ log p(ξ),

    ∇η = ∫ R(ξ) u(ξ) p(ξ) dξ.

Monte Carlo averages R u over the paths sampled. Bayesian quadrature instead puts a Gaussian process
prior on the return R, with the Fisher kernel k(ξ, ξ') = u(ξ)ᵀ G⁻¹ u(ξ') and G = E[u uᵀ]. The
integral is then Gaussian as well. With U = [u(ξ₁) … u(ξ_M)], K = Uᵀ G⁻¹ U and noise s² of a return,

    E[∇η | D] = U (K + s² I)⁻¹ r,        Cov[∇η | D] = G − U (K + s² I)⁻¹ Uᵀ

(Ghavamzadeh, Engel and Valko, *Bayesian Policy Gradient and Actor-Critic Algorithms*, JMLR 2016,
their second model). It is exact from as many paths as there are parameters where R is linear in the
score, and its covariance says how far the gradient is known.

Here p is the distribution of paths under the Gaussian over policies: ε is drawn and
θ = μ + σ ⊙ ε acts with Gaussian noise on its actions for a whole episode. The parameters are μ and
log σ, whose scores are s = Σ_t ∇_θ log π_θ(a_t | s_t) and s ⊙ σ ⊙ ε. G is the average of u uᵀ over
the episodes so far, older ones counting less. It has as many rows as there are parameters: this is
an estimator for small policies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from ibcl.rl.adam import Adam
from ibcl.rl.policies import Floats, Policy
from ibcl.rl.rollout import Sampler, Segment
from ibcl.rl.variational import Objective, Search, Variational

Doubles = NDArray[np.float64]


class GradientPosterior(NamedTuple):
    """The Gaussian posterior of a gradient."""

    mean: Doubles
    covariance: Doubles


def gradient_posterior(
    scores: Doubles, returns: Doubles, fisher: Doubles, noise: float
) -> GradientPosterior:
    """Posterior of ∇η from scores (M, n) and returns (M,) of M paths, with Fisher information G.

    Returns are modelled with the prior mean zero: take off what is known of their mean before.

    Examples
    --------
    A return 3 θ under θ ~ N(0, 1) has the gradient 3 in the mean; the score of θ is θ itself. One
    path with hardly any noise is enough, and nothing is left to be known.

    >>> path, earned = np.array([[0.5]]), np.array([1.5])
    >>> mean, covariance = gradient_posterior(path, earned, np.eye(1), noise=1e-12)
    >>> mean.round(6).tolist(), covariance.round(6).tolist()
    ([3.0], [[0.0]])
    """
    kernel = scores @ cho_solve(cho_factor(fisher), scores.T)
    observed = cho_factor(kernel + noise * np.eye(len(kernel)))
    mean = scores.T @ cho_solve(observed, returns)
    covariance = fisher - scores.T @ cho_solve(observed, scores)
    return GradientPosterior(mean, covariance)


@dataclass(frozen=True)
class BayesianQuadrature:
    """Settings of the estimator; every copy of the environment plays one episode an update.

    Parameters
    ----------
    mean_rate, std_rate
        Adam's rates for μ and log σ.
    noise
        Share of the returns' variance that the Gaussian process leaves to noise, relative to what
        it explains a priori.
    fisher_share
        How far the Fisher information moves an update, once that is more than a plain average.
    ridge
        Multiple of the mean diagonal entry that is added to the Fisher information's diagonal.
    """

    mean_rate: float = 1e-2
    std_rate: float = 1e-2
    noise: float = 1.0
    fisher_share: float = 0.05
    ridge: float = 1e-2

    def __post_init__(self) -> None:
        if not (self.noise > 0 and self.ridge > 0 and 0 < self.fisher_share <= 1):
            raise ValueError(
                "noise and ridge must be positive and fisher_share in (0, 1], not "
                f"{self.noise}, {self.ridge} and {self.fisher_share}."
            )

    def search(self, policy: Policy, objectives: int, seed: int) -> QuadratureSearch:
        """Start with nothing known of the Fisher information."""
        del objectives, seed
        return QuadratureSearch(self, policy)


class QuadratureSearch(Search):
    """What the estimator carries from update to update: Fisher information and moments."""

    carried = ("fisher", "count", "mean_adam", "std_adam")

    def __init__(self, settings: BayesianQuadrature, policy: Policy) -> None:
        self.settings = settings
        self.policy = policy
        self.begin()

    def begin(self) -> None:
        """Forget the last task: its paths and gradients are others."""
        dimension = self.policy.dimension
        self.fisher = np.zeros((2 * dimension, 2 * dimension))
        self.count = 0
        self.mean_adam = Adam(dimension)
        self.std_adam = Adam(dimension)

    def update(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> int:
        """Play one episode per copy and move (μ, log σ) along the gradient's posterior mean."""
        if objective.trajectory_kl:
            raise ValueError("BayesianQuadrature knows no trajectory KL; use ClippedSurrogate.")
        settings = self.settings
        noise = q.mirrored_noise(sampler.environment.copies, rng)
        theta = q.parameters(noise)
        sampler.restart()
        segment = sampler.segment(theta, sampler.environment.horizon, objective.action_std, rng)
        by_theta, returns = self._paths(theta, segment, objective)
        scores = np.concatenate([by_theta, by_theta * (q.std * noise)], axis=1)
        scale = returns.std() + 1e-12
        gradient, _ = gradient_posterior(
            scores,
            (returns - returns.mean()) / scale,
            self._information(scores),
            # A path's prior variance, u G⁻¹ u, is n on average.
            settings.noise * scores.shape[1],
        )
        dimension = self.policy.dimension
        kl_mean, kl_log_std = q.kl_gradient(objective.prior)
        down = -gradient.astype(np.float32)
        by_mean = down[:dimension] + objective.kl_weight * kl_mean
        by_log_std = down[dimension:] + objective.kl_weight * kl_log_std
        self.mean_adam.step(q.mean, by_mean, objective.rate * settings.mean_rate)
        self.std_adam.step(q.log_std, by_log_std, objective.rate * settings.std_rate)
        return 1

    def _paths(
        self, theta: Floats, segment: Segment, objective: Objective
    ) -> tuple[Doubles, Doubles]:
        """Σ_t ∇_θ log π_θ(a_t | s_t) and the preferred return of every copy's first episode."""
        ended = segment.terminated | segment.truncated
        # A step belongs to the first episode if none ended before it.
        first: NDArray[np.bool_] = np.cumsum(ended, axis=1) - ended == 0
        rewards = segment.rewards
        if objective.cap is not None:
            rewards = np.minimum(rewards, objective.cap)
        returns = (rewards @ objective.weights * first).sum(1)
        network = self.policy.network
        activations = network.forward(theta, segment.features)
        error = (segment.actions - activations[-1]) / objective.action_std**2
        slopes = network.backward(theta, activations, error * first[..., None])
        return slopes.astype(np.float64), np.asarray(returns, dtype=np.float64)

    def _information(self, scores: Doubles) -> Doubles:
        """G: the average of u uᵀ over the episodes so far, with a ridge that makes it regular."""
        self.count += 1
        share = max(self.settings.fisher_share, 1 / self.count)
        self.fisher += share * (scores.T @ scores / len(scores) - self.fisher)
        size = np.trace(self.fisher) / len(self.fisher)
        ridge = self.settings.ridge * (size + 1e-12)
        return np.asarray(self.fisher + ridge * np.eye(len(self.fisher)))
