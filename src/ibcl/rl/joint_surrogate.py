r"""The clipped surrogate for tasks learnt together, so that what pooling makes of them is trained.

Each copy of the environment acts at mixing coefficients λ on the line through the tasks,
by parameters
θ(λ) = Σ_k λ_k (μ_k + σ_k ε_k), and is rewarded as λ says (see `ibcl.rl.family`). The
gradient of the clipped surrogate in θ(λ) goes to the tasks by ∂/∂θ_k = λ_k ∂/∂θ(λ).

The critic has one output per task, and the value at λ is V(s, λ) = Σ_k λ_k V_k(s): what differs
from one λ to another is far larger than what differs from state to state, and one output that had
to explain both would explain the second badly. For the same reason advantages are standardised
within each copy: slow gaits differ by little, and would count for little beside fast ones.

Critic and moments belong to the tasks at hand and go with them; only q stays.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ibcl.rl.clipped_surrogate import ClippedSurrogate, SurrogateSearch
from ibcl.rl.family import Anchor, Family
from ibcl.rl.policies import Floats, Policy
from ibcl.rl.rollout import Sampler, Segment
from ibcl.rl.variational import Objective, Variational


@dataclass(frozen=True)
class JointSurrogate(ClippedSurrogate):
    """Settings of `ClippedSurrogate` for tasks learnt together.

    Parameters
    ----------
    critic_warm_up
        Updates before q moves. A critic that is new spoils what the priors can do already.
    anchors
        The tasks, on a line between two objectives, on the simplex of more.

    Examples
    --------
    >>> JointSurrogate(anchors=(Anchor((1.0, 0.0), kept=True), Anchor((0.0, 1.0)))).segment
    256
    """

    segment: int = 256
    trace: float = 0.97
    value_hidden: tuple[int, ...] = (64, 64)
    critic_warm_up: int = 80
    anchors: tuple[Anchor, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        if len(self.anchors) < 2:
            raise ValueError(
                f"Learning together needs at least two anchors, not {len(self.anchors)}; for one "
                "task there is ClippedSurrogate."
            )

    def family(self, policy: Policy) -> Family:
        """Return how the tasks share parameters."""
        return Family(policy.network, self.anchors)

    def search(self, policy: Policy, objectives: int, seed: int) -> JointSearch:
        """Start with a fresh critic."""
        return JointSearch(self, policy, objectives, seed)


class JointSearch(SurrogateSearch):
    """What the estimator carries from update to update: moments, the critic and λ."""

    settings: JointSurrogate
    carried = (*SurrogateSearch.carried, "count", "mixing")

    def __init__(
        self, settings: JointSurrogate, policy: Policy, objectives: int, seed: int
    ) -> None:
        self.family = settings.family(policy)
        super().__init__(settings, policy, objectives, seed)

    def _critic_outputs(self, objectives: int) -> int:
        """One a task."""
        del objectives
        return self.family.tasks

    def begin(self) -> None:
        """Start with nothing but q."""
        self._start_critic()
        self._start_moments(self.family.dimension)
        self.count = 0
        self.mixing = np.empty((0, 0), dtype=np.float32)

    def policies(self, mean: Floats) -> Floats:
        """Return the mean policy of every task, one row each."""
        return self.family.vertices(mean)

    def _begin_segment(self, sampler: Sampler, rng: np.random.Generator) -> None:
        """Give a new λ to every copy that began an episode since the last segment."""
        self.count += 1
        fresh = sampler.environment.elapsed < self.settings.segment
        self.mixing = self.family.renewed(self.mixing, fresh, rng)

    def _moves(self) -> bool:
        return self.count > self.settings.critic_warm_up

    def _acting(self, q: Variational, noise: Floats) -> Floats:
        return self.family.acting(q.parameters(noise), self.mixing)

    def _shared(self, gradient: Floats) -> Floats:
        return self.family.gradient(gradient, self.mixing)

    def _seen(self, features: Floats) -> Floats:
        """Append λ, by which the outputs are weighed."""
        return self.family.critic_features(features, self._mixing_rows(features.shape[1]))

    def _mixing_rows(self, length: int) -> Floats:
        return np.repeat(self.mixing[:, None], length, axis=1)

    def _rewards(self, segment: Segment, objective: Objective) -> Floats:
        """One column: the reward each λ prefers."""
        copies, length = segment.rewards.shape[:2]
        rewards = segment.rewards.astype(np.float32).reshape(copies * length, 1, -1)
        mixing = self._mixing_rows(length).reshape(copies * length, -1)
        taken = np.ones((copies * length, 1), dtype=np.bool_)
        preferred = self.family.rewards(rewards, mixing, objective.weights, taken)
        return preferred.astype(np.float32).reshape(copies, length, 1)

    def _preferred(self, advantages: Floats, objective: Objective) -> Floats:
        del objective
        scalar = advantages[..., 0]
        centred = scalar - scalar.mean(1, keepdims=True)
        # The floor keeps those of standing still, which are next to nothing, from counting.
        return np.asarray(centred / (scalar.std(1, keepdims=True) + 1e-3))

    def _activations(self, seen: Floats) -> list[Floats]:
        return super()._activations(seen[..., : -self.family.tasks])

    def _outputs(self, activations: list[Floats], seen: Floats) -> Floats:
        mixing = seen[..., -self.family.tasks :]
        return np.asarray((activations[-1] * mixing).sum(-1, keepdims=True))

    def _upstream(self, error: Floats, seen: Floats) -> Floats:
        # Each task's output sees its share of the rows only; as many times makes it as fast as one.
        return error * seen[..., -self.family.tasks :] * self.family.tasks
