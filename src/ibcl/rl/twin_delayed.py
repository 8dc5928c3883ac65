r"""The off-policy estimator of Bayesian policy gradient: twin delayed policy gradients (TD3).

Experience is replayed. Twin critics learn the preferred return of acting by a and by the policy
afterwards, from n-step targets

    y = Σ_{k<n} γ^k w·r_{t+k} + γ^n min_i Q̄_i(s_{t+n}, π_θ̄(s_{t+n}) + noise),

and the Gaussian over policy parameters climbs the first of them by reparameterisation,

    max_q  E_{θ=μ+σε} E_s[ Q₁(s, π_θ(s)) ] − β KL(q ‖ prior) / D,

with ∂/∂μ = g and ∂/∂log σ = g ⊙ σ ⊙ ε for the gradient g in θ. Every copy of the environment acts
by a draw of its own, which is refreshed often, and explores with noise of its own size.

With `anchors`, several tasks are learnt together by parameters that average between them (see
`ibcl.rl.family`); the critics then see the mixing
coefficients λ as further inputs.

Replay, critics and moments belong to the task at hand and go with it; only q stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from ibcl.rl.adam import FlatAdam
from ibcl.rl.environments import Environment
from ibcl.rl.family import Anchor, Family
from ibcl.rl.policies import Floats, Policy
from ibcl.rl.replay import MultiStep, Replay, Transitions
from ibcl.rl.rollout import Sampler
from ibcl.rl.symmetry import Reflection
from ibcl.rl.twin_critics import TwinCritics
from ibcl.rl.variational import Objective, Search, Variational


@dataclass(frozen=True)
class TwinDelayed:
    """Settings of the off-policy estimator; `search` starts it on a policy.

    Parameters
    ----------
    rounds
        Rounds an iteration; a round is ``length`` steps of every copy and then ``updates`` critic
        updates.
    updates, batch, reuse
        Critic updates per round, rows in each, and how often a sampled row is used in its round:
        targets are computed once for all rows of a round.
    delay
        Critic updates for one of the policy.
    steps, discount
        n and γ.
    reward_scale
        Keeps values near one.
    critic_rate, actor_rate, std_rate
        Adam's rates for the critics, μ and log σ.
    target_share, average_share
        How far the targets, and the moving average of μ that is the result, move a round.
    saturation
        Pull on mean actions beyond ±1, for policies that do not squash theirs.
    target_noise, noise_limit
        Noise on the target's actions, which smooths the critics, and its limit.
    least_noise
        Exploration noise is geometric over the copies, from this share of the largest to it.
    fall_value
        A fall is worth this share of the mean value instead of nothing: ants that fear falls are
        slow.
    critic_warm_up
        Rounds before the policy moves, so that the critics can learn about the prior's first.
    refresh
        Rounds between draws of the copies' parameters.
    capacity
        Rows of the replay.
    mirrored
        Show every second row in the environment's mirror, which the task, or the tasks learnt
        together, must look the same in.
    anchors
        Tasks learnt together, on a line between two objectives, on the simplex of more.
    """

    rounds: int = 100
    length: int = 1
    updates: int = 16
    batch: int = 128
    reuse: int = 2
    delay: int = 2
    hidden: tuple[int, ...] = (128, 128)
    steps: int = 3
    discount: float = 0.97
    reward_scale: float = 0.1
    critic_rate: float = 1e-3
    actor_rate: float = 6e-4
    std_rate: float = 1e-3
    target_share: float = 0.1
    average_share: float = 0.005
    saturation: float = 0.1
    target_noise: float = 0.12
    noise_limit: float = 0.4
    least_noise: float = 0.16
    fall_value: float = 0.0
    critic_warm_up: int = 100
    refresh: int = 10
    capacity: int = 480_000
    mirrored: bool = False
    anchors: tuple[Anchor, ...] = ()

    def __post_init__(self) -> None:
        if self.updates % self.reuse:
            raise ValueError(f"reuse must divide updates ({self.updates}), {self.reuse} does not.")
        if not 0 < self.discount < 1:
            raise ValueError(f"discount must lie between 0 and 1, not be {self.discount}.")

    def family(self, policy: Policy) -> Family:
        """Return how the tasks share parameters."""
        return Family(policy.network, self.anchors)

    def search(self, policy: Policy, objectives: int, seed: int) -> TwinDelayedSearch:
        """Start with fresh critics and nothing to replay."""
        return TwinDelayedSearch(self, policy, objectives, seed)


class TwinDelayedSearch(Search):
    """What the estimator carries from round to round: replay, critics, moments and draws."""

    carried = (
        *("iterate", "target", "drawn", "mixing", "round", "mean_value"),
        *("critics", "replay", "multi_step", "mean_adam", "std_adam"),
    )

    def __init__(self, settings: TwinDelayed, policy: Policy, objectives: int, seed: int) -> None:
        self.settings = settings
        self.policy = policy
        self.objectives = objectives
        self.seed = seed
        self.family = settings.family(policy)
        self.begin()

    def policies(self, mean: Floats) -> Floats:
        """Return the mean policy of every task, one row each."""
        return self.family.vertices(mean)

    def begin(self) -> None:
        """Start a task with nothing but q."""
        settings, family = self.settings, self.family
        rng = np.random.default_rng([self.seed, 2])
        inputs, actions = self.policy.network.sizes[0], self.policy.network.sizes[-1]
        self.critics = TwinCritics(inputs + family.context + actions, settings.hidden, rng)
        rewards = (settings.steps, self.objectives)
        self.replay = Replay(settings.capacity, inputs, actions, rewards, family.tasks)
        self.multi_step = MultiStep(settings.steps, settings.discount)
        self.mean_adam = FlatAdam(family.dimension)
        self.std_adam = FlatAdam(family.dimension)
        self.round = 0
        self.mean_value = 0.0
        self.iterate = np.empty(0, dtype=np.float32)
        self.target = np.empty(0, dtype=np.float32)
        self.drawn = np.empty((0, 0), dtype=np.float32)
        self.mixing = np.empty((0, 0), dtype=np.float32)

    def end(self) -> None:
        """Forget the experience of a finished task."""
        self.replay.added = 0

    def prepare(self, q: Variational) -> None:
        """Begin the policy that is moved, and its target, at the mean of q."""
        if not self.iterate.size:
            self.iterate, self.target = q.mean.copy(), q.mean.copy()

    def update(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> int:
        """Collect, replay and move q in place for one iteration's rounds (Algorithm 4)."""
        settings = self.settings
        if objective.trajectory_kl:
            raise ValueError("TwinDelayed knows no trajectory KL; use ClippedSurrogate.")
        self.prepare(q)
        mirror = None
        if settings.mirrored:
            mirror = _Mirror(sampler.environment, settings.anchors, objective.weights)
        updates = 0
        # Networks this small gain nothing from a second thread, and lose by waiting for it.
        with threadpool_limits(1, user_api="blas"):
            for _ in range(settings.rounds):
                self._collect(q, objective, sampler, rng)
                if len(self.replay) >= settings.updates * settings.batch:
                    self.learn(q, objective, mirror, rng)
                    updates += settings.updates
                self.round += 1
        return updates

    def _collect(
        self, q: Variational, objective: Objective, sampler: Sampler, rng: np.random.Generator
    ) -> None:
        """Take a round's steps with every copy."""
        settings, copies = self.settings, sampler.environment.copies
        fresh = sampler.environment.elapsed < settings.length
        self.mixing = self.family.renewed(self.mixing, fresh, rng)
        if self.round % settings.refresh == 0 or not len(self.drawn):
            noise = q.mirrored_noise(copies, rng)
            noise *= q.std
            noise += self.iterate
            self.drawn = noise
        theta = self.family.acting(self.drawn, self.mixing)
        sizes = np.geomspace(settings.least_noise, 1.0, copies, dtype=np.float32)[:, None]
        segment = sampler.segment(theta, settings.length, objective.action_std * sizes, rng)
        actions = np.clip(segment.actions, -1, 1)
        rewards = segment.rewards.astype(np.float32)
        for step in range(settings.length):
            rows = self.multi_step.push(
                segment.features[:, step],
                actions[:, step],
                rewards[:, step],
                segment.following[:, step],
                segment.terminated[:, step],
                segment.truncated[:, step],
                self.mixing.copy(),
            )
            self.replay.add(rows)

    def _sample(
        self, objective: Objective, mirror: _Mirror | None, rng: np.random.Generator
    ) -> tuple[Transitions, Floats]:
        """Draw a round's rows in blocks, each with one mixing, and their preferred rewards."""
        settings, family = self.settings, self.family
        rows = self.replay.sample(settings.updates * settings.batch // settings.reuse, rng)
        if mirror is not None:
            rows = mirror.every_second(rows)
        if family.tasks > 1:
            # Half of the rows are looked at from elsewhere: any action teaches any task. Sorted,
            # the rows of a block come from a λ close to the one they are all given.
            mixing = rows.mixing.copy()
            mixing[::2] = family.draw_mixing(len(mixing[::2]), rng)
            order = np.argsort(family.order(mixing, rng), kind="stable")
            blocks = mixing[order].reshape(-1, settings.batch, family.tasks)
            mixing = np.repeat(blocks.mean(1), settings.batch, axis=0)
            rows = Transitions(*(column[order] for column in rows))._replace(mixing=mixing)
        powers = settings.reward_scale * settings.discount ** np.arange(settings.steps)
        # A row of k steps is discounted by γ^k; half a step more or less is beyond rounding.
        earned = rows.discount < settings.discount ** (np.arange(settings.steps) + 0.5)
        rewards = family.rewards(rows.rewards, rows.mixing, objective.weights, earned)
        return rows, np.asarray(rewards @ powers.astype(np.float32))

    def _targets(self, rows: Transitions, rewards: Floats, rng: np.random.Generator) -> Floats:
        """y, computed once for all rows of a round."""
        settings, family = self.settings, self.family
        mixings = rows.mixing[:: settings.batch]
        following = np.ascontiguousarray(family.actor_features(rows.following, rows.mixing))
        actions = np.concatenate(
            [
                family.network.act(family.policies(self.target[None], mixing[None])[0], block)[0]
                for mixing, block in zip(mixings, np.split(following, len(mixings)), strict=True)
            ]
        )
        noise = settings.target_noise * rng.standard_normal(actions.shape, dtype=np.float32)
        actions += np.clip(noise, -settings.noise_limit, settings.noise_limit)
        np.clip(actions, -1, 1, out=actions)
        seen = family.critic_features(rows.following, rows.mixing)
        values = self.critics.target_values(np.concatenate([seen, actions], axis=1))
        self.mean_value += 0.01 * (float(values.mean()) - self.mean_value)
        values = np.where(rows.terminal[:, 0] > 0, settings.fall_value * self.mean_value, values)
        return np.asarray(rewards + rows.discount[:, 0] * values)

    def learn(
        self,
        q: Variational,
        objective: Objective,
        mirror: _Mirror | None,
        rng: np.random.Generator,
    ) -> None:
        """Replay: one round's updates of critics, policy and targets."""
        settings, family = self.settings, self.family
        rows, rewards = self._sample(objective, mirror, rng)
        targets = self._targets(rows, rewards, rng)
        seen = family.critic_features(rows.features, rows.mixing)
        inputs = np.concatenate([seen, rows.actions], axis=1)
        moves = self.round >= settings.critic_warm_up
        step = _PolicyStep.of(q, self.iterate, objective, rng)
        critic_rate = objective.rate * settings.critic_rate
        blocks = rng.permutation(len(inputs) // settings.batch)
        update = 0
        for _ in range(settings.reuse):
            order = rng.permutation(len(inputs))
            shuffled, wanted = inputs[order], targets[order]
            for start in range(0, len(inputs), settings.batch):
                block = slice(start, start + settings.batch)
                self.critics.fit(shuffled[block], wanted[block], critic_rate)
                update += 1
                if moves and update % settings.delay == 0:
                    turn = blocks[(update // settings.delay) % len(blocks)] * settings.batch
                    self._improve(step, rows, slice(turn, turn + settings.batch), objective.rate)
        self.critics.follow(settings.target_share)
        self.target += settings.target_share * (self.iterate - self.target)
        # A plain mean at first, a moving average once that is the shorter memory.
        share = max(settings.average_share, 1 / (1 + self.round))
        q.mean += np.float32(share) * (self.iterate - q.mean)

    def _improve(self, step: _PolicyStep, rows: Transitions, block: slice, rate: float) -> None:
        """Move (μ, log σ) up the first critic and towards the prior, at the states of a block."""
        settings, family = self.settings, self.family
        features, mixing = rows.features[block], rows.mixing[block]
        theta = family.policies((step.mean + step.shift)[None], mixing[:1])[0]
        seen = np.ascontiguousarray(family.actor_features(features, mixing))
        means, activations = family.network.act(theta, seen)
        actions = np.clip(means, -1, 1)
        tried = np.concatenate([family.critic_features(features, mixing), actions], axis=1)
        slope = self.critics.slope(tried, actions.shape[1])
        if not family.network.squashed:
            # Beyond ±1 the environment clips: no gain from further out, only the way back.
            slope = np.where(np.abs(means) > 1, np.minimum(slope * np.sign(means), 0), slope)
            slope = slope * np.where(np.abs(means) > 1, np.sign(means), 1)
            slope = slope - settings.saturation * (means - actions)
        upstream = slope * np.float32(-1 / len(features))
        gradient = family.network.gradient(theta, seen, activations, upstream)
        (gradient,) = family.gradient(gradient[None], mixing[:1])
        by_log_std = step.shift * gradient + step.spread_pull
        gradient += step.pull * (step.mean - step.prior_mean)
        self.mean_adam.step(step.mean, gradient, rate * settings.actor_rate)
        self.std_adam.step(step.log_std, by_log_std, rate * settings.std_rate)


class _PolicyStep(NamedTuple):
    """What a round's policy updates share: one draw ε, and the pull of β KL(q ‖ prior) / D."""

    mean: Floats
    log_std: Floats
    shift: Floats
    """σ ⊙ ε."""
    prior_mean: Floats
    pull: Floats
    spread_pull: Floats

    @classmethod
    def of(
        cls, q: Variational, mean: Floats, objective: Objective, rng: np.random.Generator
    ) -> _PolicyStep:
        prior, std = objective.prior, q.std
        noise = rng.standard_normal(std.size, dtype=np.float32)
        pull = np.float32(objective.kl_weight / std.size) / np.square(prior.std)
        spread_pull = np.square(std) * pull - np.float32(objective.kl_weight / std.size)
        return cls(mean, q.log_std, std * noise, prior.mean, pull, spread_pull)


class _Mirror:
    """Shows replayed rows in the environment's reflection."""

    def __init__(
        self, environment: Environment, anchors: Sequence[Anchor], weights: Floats
    ) -> None:
        reflection = environment.reflection
        if reflection is None:
            raise ValueError(f"{environment.name} declares no reflection to learn with.")
        tasks = anchors or (Anchor(tuple(weights.tolist())),)
        images = [_image(anchor, reflection) for anchor in tasks]
        plain = [replace(anchor, kept=False) for anchor in tasks]
        if any(image not in plain for image in images):
            wanted = ", ".join(str(list(task.weights)) for task in tasks)
            raise ValueError(
                f"What is wanted, {wanted}, is not its own mirror image; learn it without the "
                "mirror."
            )
        order = [images.index(anchor) for anchor in plain]
        self._columns: dict[str, Callable[[Floats], Floats]] = {
            "features": reflection.observation,
            "following": reflection.observation,
            "actions": reflection.action,
            "rewards": lambda rewards: rewards[..., list(reflection.objectives)],
            "mixing": lambda mixing: mixing[:, order],
        }

    def every_second(self, rows: Transitions) -> Transitions:
        """Mirror the odd rows, their rewards and their mixing coefficients."""
        changed = {}
        for name, image in self._columns.items():
            column = getattr(rows, name).copy()
            column[1::2] = image(column[1::2])
            changed[name] = column
        return rows._replace(**changed)


def _image(anchor: Anchor, reflection: Reflection) -> Anchor:
    """Return the task as it is in the mirror."""

    def mirrored(values: tuple[float, ...] | None) -> tuple[float, ...] | None:
        return None if values is None else tuple(values[index] for index in reflection.objectives)

    weights = tuple(reflection.preference(anchor.weights).tolist())
    return Anchor(weights, mirrored(anchor.cap), mirrored(anchor.base))
