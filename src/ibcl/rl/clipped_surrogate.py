r"""The gradient estimator of Bayesian policy gradient: a clipped surrogate through θ = μ + σε.

For each copy of the environment one ε is drawn, in mirrored pairs (ε, −ε), and its parameters
θ = μ + σ ⊙ ε act for a short segment. With Â the generalised advantage estimate and
ρ = π_θ(a|s) / π_θ_old(a|s) the likelihood ratio, one update ascends

    E_ε E_s,a [ min(ρ Â, clip(ρ, 1±c) Â) ] − β KL(q ‖ prior) / D

in μ and log σ; the chain rule gives ∂/∂μ = g and ∂/∂log σ = g ⊙ σ ⊙ ε for the gradient g in θ.

A critic with one output per objective makes the advantage of any preference w a weighted sum, so it
carries over from task to task. Its last output is the *trajectory* KL: the dynamics cancel in

    KL(p(τ|θ) ‖ p(τ|prior)) = E Σ_t KL(π_θ(·|s_t) ‖ π_prior(·|s_t)),

which the action distributions N(m, ½I) turn into ‖m_θ(s) − m_prior(s)‖² a step. It measures a
departure from the prior by what the policy does instead of by its weights. The reward carries the
sampled ‖a − m_prior(s)‖², equal to it in expectation up to a constant, because a likelihood-ratio
gradient only sees what depends on the sampled action.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.rl.adam import Adam
from ibcl.rl.policies import Floats, Perceptron, Policy
from ibcl.rl.rollout import Sampler, Segment
from ibcl.rl.variational import Objective, Search, Variational


class SurrogateGradient(NamedTuple):
    """Loss (the negative surrogate), its gradient per copy, and the mean action KL so far."""

    loss: float
    gradient: Floats
    divergence: float


def surrogate(
    network: Perceptron,
    theta: Floats,
    features: Floats,
    actions: Floats,
    old_means: Floats,
    advantages: Floats,
    action_std: float,
    clip: float,
    saturation: float,
) -> SurrogateGradient:
    r"""Negative clipped surrogate plus a penalty on mean actions beyond ±1, and ∂/∂θ.

    Arrays have shape (copies, N, …) and θ (copies, D). The penalty is
    ``saturation`` · mean Σ max(0, \|m\| − 1)²: actions are clipped by the simulator, so without it
    nothing pulls a saturated one back.
    """
    activations = network.forward(theta, features)
    means = activations[-1]
    count = advantages.size
    precision = 1 / action_std**2
    error = actions - means
    log_ratio = 0.5 * precision * (np.square(actions - old_means) - np.square(error)).sum(-1)
    ratio = np.exp(log_ratio)
    clipped = np.clip(ratio, 1 - clip, 1 + clip)
    unclipped_value, clipped_value = ratio * advantages, clipped * advantages
    active = unclipped_value <= clipped_value
    excess = np.maximum(np.abs(means) - 1, 0)
    loss = -np.minimum(unclipped_value, clipped_value).mean()
    loss += saturation * np.square(excess).sum() / count
    gradient = -(active * unclipped_value)[..., None] * error * precision
    gradient += 2 * saturation * excess * np.sign(means)
    divergence = 0.5 * precision * float(np.square(means - old_means).sum(-1).mean())
    gradient = network.backward(theta, activations, gradient / count)
    return SurrogateGradient(float(loss), gradient, divergence)


def generalised_advantages(
    rewards: Floats,
    values: Floats,
    following: Floats,
    terminated: NDArray[np.bool_],
    truncated: NDArray[np.bool_],
    discount: float,
    trace: float,
) -> Floats:
    r"""Â_t = Σ_l (γλ)^l δ_{t+l} with δ_t = r_t + γ V(s_{t+1}) − V(s_t), cut at episode ends.

    Time limits are no part of the problem: there V(s_{t+1}) still counts. Arrays have shape
    (copies, T, columns).

    Examples
    --------
    >>> one = np.ones((1, 2, 1)); never = np.zeros((1, 2), dtype=bool)
    >>> generalised_advantages(one, 0 * one, 0 * one, never, never, 0.5, 1.0).ravel().tolist()
    [1.5, 1.0]
    """
    alive = ~terminated[..., None]
    delta = rewards + discount * following * alive - values
    carries = discount * trace * (alive & ~truncated[..., None])
    advantages = np.empty_like(delta)
    running = np.zeros_like(delta[:, 0])
    for step in range(delta.shape[1] - 1, -1, -1):
        running = delta[:, step] + carries[:, step] * running
        advantages[:, step] = running
    return advantages


@dataclass(frozen=True)
class ClippedSurrogate:
    """Settings of the gradient estimator; `search` starts it on a policy."""

    segment: int = 128
    epochs: int = 8
    minibatches: int = 4
    clip: float = 0.2
    discount: float = 0.99
    trace: float = 0.95
    divergence_limit: float = 0.03
    gradient_norm: float = 0.5
    mean_rate: float = 7e-4
    std_rate: float = 6e-3
    value_rate: float = 1e-3
    saturation: float = 0.1
    value_hidden: tuple[int, ...] = (64,)

    def search(self, policy: Policy, objectives: int, seed: int) -> SurrogateSearch:
        """Start with a fresh critic."""
        return SurrogateSearch(self, policy, objectives, seed)


class SurrogateSearch(Search):
    """What the estimator carries from update to update: optimiser moments and the critic."""

    carried: ClassVar[tuple[str, ...]] = ("value", "value_adam", "mean_adam", "std_adam")

    def __init__(
        self, settings: ClippedSurrogate, policy: Policy, objectives: int, seed: int
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.seed = seed
        outputs = self._critic_outputs(objectives)
        self.critic = Perceptron((policy.network.sizes[0], *settings.value_hidden, outputs))
        self._start_critic()
        self.begin()

    def _critic_outputs(self, objectives: int) -> int:
        """One an objective and one for the trajectory KL."""
        return objectives + 1

    def _start_critic(self) -> None:
        self.value = self.critic.initial(np.random.default_rng([self.seed, 1]), last=0.1)
        self.value_adam = Adam(self.critic.dimension)

    def _start_moments(self, dimension: int) -> None:
        self.mean_adam = Adam(dimension)
        self.std_adam = Adam(dimension)

    def begin(self) -> None:
        """Forget the moments of q, as a new task's gradients are others; keep the critic."""
        self._start_moments(self.policy.dimension)

    def update(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> int:
        """Sample policies from q, roll them out, and move (μ, log σ) in place (Algorithm 4)."""
        settings, network = self.settings, self.policy.network
        self._begin_segment(sampler, rng)
        noise = q.mirrored_noise(sampler.environment.copies, rng)
        action_std, rate = objective.action_std, objective.rate
        segment = sampler.segment(self._acting(q, noise), settings.segment, action_std, rng)
        rewards = self._rewards(segment, objective)
        seen = self._seen(segment.features)
        advantages, targets = self._advantages(segment, seen, rewards)
        scalar = self._preferred(advantages, objective)

        divergence, moves = 0.0, self._moves()
        for _ in range(settings.epochs):
            for block in np.array_split(rng.permutation(settings.segment), settings.minibatches):
                self._fit_critic(seen[:, block], targets[:, block])
                if not moves:
                    continue
                part = surrogate(
                    network,
                    self._acting(q, noise),
                    segment.features[:, block],
                    segment.actions[:, block],
                    segment.means[:, block],
                    scalar[:, block],
                    action_std,
                    settings.clip,
                    settings.saturation,
                )
                divergence = part.divergence
                gradient = self._shared(part.gradient)
                by_mean, by_log_std = q.kl_gradient(objective.prior)
                by_mean = gradient.sum(0) + objective.kl_weight * by_mean
                by_log_std = q.std * (gradient * noise).sum(0) + objective.kl_weight * by_log_std
                self.mean_adam.step(q.mean, self._limited(by_mean), rate * settings.mean_rate)
                self.std_adam.step(q.log_std, self._limited(by_log_std), rate * settings.std_rate)
            if divergence > settings.divergence_limit:
                break
        return 1

    def _begin_segment(self, sampler: Sampler, rng: np.random.Generator) -> None:
        """Nothing is decided before a segment."""

    def _moves(self) -> bool:
        """Tell whether this update moves q, or only the critic."""
        return True

    def _acting(self, q: Variational, noise: Floats) -> Floats:
        """Parameters of the policy that acts in each copy."""
        return q.parameters(noise)

    def _seen(self, features: Floats) -> Floats:
        """Return what the critic sees of features (copies, T, …)."""
        return features

    def _shared(self, gradient: Floats) -> Floats:
        """∂/∂(μ + σε) of each copy from that of its acting policy."""
        return gradient

    def _rewards(self, segment: Segment, objective: Objective) -> Floats:
        """Columns of rewards: one per objective, and the departure from the prior's actions."""
        network = self.policy.network
        prior_means = network.forward(objective.prior.mean[None], segment.features)[-1]
        departure = np.square(segment.actions - prior_means).sum(-1, keepdims=True)
        earned = segment.rewards
        if objective.cap is not None:
            earned = np.minimum(earned, objective.cap)
        return np.concatenate([earned, departure], axis=-1).astype(np.float32)

    def _preferred(self, advantages: Floats, objective: Objective) -> Floats:
        """Weigh the columns of advantages and standardise the result."""
        weights = np.append(objective.weights, -objective.trajectory_kl).astype(np.float32)
        scalar = advantages @ weights
        return np.asarray((scalar - scalar.mean()) / (scalar.std() + 1e-8))

    def _limited(self, gradient: Floats) -> Floats:
        norm = float(np.linalg.norm(gradient))
        return gradient * min(1.0, self.settings.gradient_norm / (norm + 1e-8))

    def _values(self, seen: Floats) -> Floats:
        """V per column; the critic itself learns (1 − γ) V, which is of the rewards' size."""
        flat = seen.reshape(1, -1, seen.shape[-1])
        values = self._outputs(self._activations(flat), flat) / (1 - self.settings.discount)
        return values.reshape(*seen.shape[:-1], -1)

    def _activations(self, seen: Floats) -> list[Floats]:
        """Run the critic on rows (1, N, …)."""
        return self.critic.forward(self.value[None], seen)

    def _outputs(self, activations: list[Floats], seen: Floats) -> Floats:
        """Return the columns of (1 − γ) V from the critic's last layer."""
        del seen
        return activations[-1]

    def _upstream(self, error: Floats, seen: Floats) -> Floats:
        """∂/∂(last layer) from the error of the columns."""
        del seen
        return error

    def _advantages(self, segment: Segment, seen: Floats, rewards: Floats) -> tuple[Floats, Floats]:
        values = self._values(seen)
        following = np.concatenate([values[:, 1:], values[:, :1]], axis=1)
        ends = segment.terminated | segment.truncated
        ends[:, -1] = True
        following[ends] = self._values(self._seen(segment.following)[ends])
        advantages = generalised_advantages(
            rewards,
            values,
            following,
            segment.terminated,
            segment.truncated,
            self.settings.discount,
            self.settings.trace,
        )
        return advantages, (values + advantages) * (1 - self.settings.discount)

    def _fit_critic(self, seen: Floats, targets: Floats) -> None:
        flat = seen.reshape(1, -1, seen.shape[-1])
        activations = self._activations(flat)
        error = self._outputs(activations, flat) - targets.reshape(1, -1, targets.shape[-1])
        upstream = self._upstream(error, flat) / error.shape[1]
        gradient = self.critic.backward(self.value[None], activations, upstream)
        self.value_adam.step(self.value, self._limited(gradient[0]), self.settings.value_rate)
