r"""Bayesian policy gradient (Algorithm 4): variational inference with returns for a likelihood.

From a prior over policy parameters, repeat: sample policies from q, roll them out, and move q
towards higher preferred returns without straying needlessly from the prior,

    max_q  E_{θ~q}[ Σ_k w_k R_k(θ) ] − β KL(q ‖ prior) / D − κ KL(trajectories ‖ prior's).

How the gradient is estimated is the estimator's business: `ClippedSurrogate` (on-policy; for tasks
learnt together `JointSurrogate`), `TwinDelayed` (off-policy, from replayed experience) or
`BayesianQuadrature` (Ghavamzadeh and Engel's Gaussian process over whole episodes).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.bayesian_quadrature import BayesianQuadrature
from ibcl.rl.checkpoint import Carried, Checkpoint
from ibcl.rl.clipped_surrogate import ClippedSurrogate
from ibcl.rl.environments import Environment
from ibcl.rl.family import Anchor
from ibcl.rl.joint_surrogate import JointSurrogate
from ibcl.rl.policies import Policy
from ibcl.rl.rollout import Sampler, episode_returns
from ibcl.rl.twin_delayed import TwinDelayed
from ibcl.rl.variational import Objective, Search, Variational

Estimator = ClippedSurrogate | JointSurrogate | TwinDelayed | BayesianQuadrature


class PolicyProgress(NamedTuple):
    """How far a task has come.

    ``returns`` are those of the mean policy when last scored, one after the other where several
    tasks are learnt together.
    """

    iteration: int
    iterations: int
    returns: tuple[float, ...]
    kl: float
    steps: int
    steps_per_second: float
    updates_per_second: float


ProgressCallback = Callable[[PolicyProgress], Any]


def scheduled(values: Sequence[float], fraction: float) -> float:
    """Value at a fraction of the run of numbers spread evenly over it, linear in between.

    Examples
    --------
    >>> scheduled((0.4, 0.2), 0.5), scheduled((0.0, 1.0, 0.0), 0.5), scheduled((3.0,), 0.7)
    (0.30000000000000004, 1.0, 3.0)
    """
    return float(np.interp(fraction, np.linspace(0, 1, len(values)), values))


@dataclass(frozen=True)
class PolicyInference:
    """The posterior of a task, or of several side by side, and how learning went."""

    posterior: DiagonalGaussian
    updates: int = 0
    steps: int = 0
    """Environment steps taken, scoring included."""
    cpu_seconds: float = 0.0
    history: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """Learning curve: iteration, steps, returns of the mean policies."""


@dataclass(frozen=True)
class BayesianPolicyGradient:
    """Settings of one task's learning.

    Parameters
    ----------
    iterations
        Updates of q.
    estimator
        `ClippedSurrogate`, `JointSurrogate`, `TwinDelayed` or `BayesianQuadrature`.
    action_std, rate, trajectory_kl
        Schedules: values spread evenly over the run, linear in between. The exploration noise on
        actions, a factor on the estimator's learning rates, and κ.
    kl_weight
        β, per parameter.
    std_bounds
        σ is kept within; a collapsed σ stops exploring, a wide one drowns the gradient.
    score_every
        Updates between scoring episodes of the mean policy. The posterior returned is the best
        scored one of the last quarter of the run.
    checkpoint_every
        Updates between checkpoints; replayed experience is large.
    cap
        What of a step's rewards counts at most, one value per objective: a speed beyond it is not
        wanted, so that the task is a pace and its price. `TwinDelayed` does not take
        it; anchors have caps of their own.
    """

    iterations: int = 300
    estimator: Estimator = field(default_factory=ClippedSurrogate)
    action_std: tuple[float, ...] = (0.4, 0.2)
    rate: tuple[float, ...] = (1.0,)
    kl_weight: float = 1e-4
    trajectory_kl: tuple[float, ...] = (0.0,)
    std_bounds: tuple[float, float] = (1e-3, 0.1)
    score_every: int = 5
    checkpoint_every: int = 1
    cap: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.iterations < 1 or self.score_every < 1:
            raise ValueError("iterations and score_every must be at least 1.")
        if not 0 < self.std_bounds[0] <= self.std_bounds[1]:
            raise ValueError(f"std_bounds must be positive and ordered, not {self.std_bounds}.")
        if self.cap is not None and (isinstance(self.estimator, TwinDelayed) or self.anchors):
            raise ValueError(
                "A cap on rewards needs ClippedSurrogate or BayesianQuadrature; anchors have caps "
                "of their own."
            )

    @property
    def anchors(self) -> tuple[Anchor, ...]:
        """Tasks that the estimator learns together; none where it learns one alone."""
        if isinstance(self.estimator, JointSurrogate | TwinDelayed):
            return self.estimator.anchors
        return ()

    def check_cap(self, environment: Environment) -> None:
        """Refuse a cap that has not one value per objective."""
        objectives = len(environment.objectives)
        if self.cap is not None and len(self.cap) != objectives:
            raise ValueError(
                f"The cap has {len(self.cap)} values, but {environment.name} has {objectives} "
                "objectives."
            )

    def preferred(self, returns: ArrayLike, weights: ArrayLike, horizon: int) -> float:
        """Weigh an episode's returns, of which no more counts than the cap at every step.

        Examples
        --------
        >>> pace = BayesianPolicyGradient(cap=(2.0, np.inf))
        >>> pace.preferred([900.0, 100.0], [0.5, 0.5], horizon=300)
        350.0
        """
        most = np.inf if self.cap is None else np.array(self.cap) * horizon
        return float(np.minimum(returns, most) @ np.asarray(weights))

    def infer(
        self,
        policy: Policy,
        weights: ArrayLike,
        prior: DiagonalGaussian,
        sampler: Sampler,
        scoring: Environment,
        *,
        search: Search | None = None,
        checkpoint: Checkpoint | None = None,
        until: int | None = None,
        seed: int | Sequence[int] = 0,
        progress: ProgressCallback | None = None,
    ) -> PolicyInference:
        """Return the posterior.

        Parameters
        ----------
        weights
            The task: a preference over the environment's objectives.
        sampler
            Walks sampled policies through the training environment.
        scoring
            One copy of the environment in which mean policies are scored.
        search
            The estimator's state carried over from earlier tasks.
        checkpoint
            Written after every update; a run that finds one continues from it, exactly.
        until
            Pause after so many iterations: what is returned is q as it is then. The same call
            without it goes on from the checkpoint.
        """
        if until is not None and not self.score_every <= until < self.iterations:
            raise ValueError(
                f"A run can pause between its first score and its last iteration "
                f"({self.score_every} to {self.iterations - 1}), not after {until}."
            )
        if sampler.environment.copies % 2:
            raise ValueError(
                f"Policies are sampled in mirrored pairs, so the number of copies must be even, "
                f"not {sampler.environment.copies}."
            )
        preference = np.asarray(weights, dtype=np.float32)
        if preference.shape != (len(scoring.objectives),):
            raise ValueError(
                f"The preference has {preference.size} weights, but {scoring.name} has "
                f"{len(scoring.objectives)} objectives: {', '.join(scoring.objectives)}."
            )
        self.check_cap(scoring)
        entropy = [seed] if isinstance(seed, int) else list(seed)
        search = search or self.estimator.search(policy, len(preference), entropy[0])
        run = _Run(self, policy, preference, prior, sampler, scoring, search, entropy)
        return run.finish(checkpoint, progress, until)


class _Run(Carried):
    """The loop of Algorithm 4 around what has to survive an interruption."""

    carried = (
        *("q", "best", "best_value", "iteration", "updates", "scoring_steps", "cpu_seconds"),
        *("history", "first_step", "search", "sampler"),
    )

    def __init__(
        self,
        settings: BayesianPolicyGradient,
        policy: Policy,
        weights: NDArray[np.float32],
        prior: DiagonalGaussian,
        sampler: Sampler,
        scoring: Environment,
        search: Search,
        entropy: list[int],
    ) -> None:
        self.settings = settings
        self.policy = policy
        self.weights = weights
        self.prior = prior
        self.sampler = sampler
        self.scoring = scoring
        self.search = search
        # The zero is part of every seed that results were made with.
        self.entropy = [*entropy, 0]
        self.q = Variational.of(prior)
        self.best = self.q.copy()
        self.best_value = -np.inf
        self.iteration = 0
        self.updates = 0
        self.scoring_steps = 0
        self.cpu_seconds = 0.0
        self.history: list[list[float]] = []
        self.first_step = sampler.steps
        self.cap = None if settings.cap is None else np.array(settings.cap, dtype=np.float32)

    def finish(
        self, checkpoint: Checkpoint | None, progress: ProgressCallback | None, until: int | None
    ) -> PolicyInference:
        """Run, or continue, to the last iteration or to a pause before it."""
        settings = self.settings
        end = settings.iterations if until is None else until
        self.search.begin()
        name = repr((settings, self.weights.tolist(), self.entropy, self.scoring.name))
        stored = None if checkpoint is None else checkpoint.read(name)
        if stored is not None:
            self.load(stored)
        prior = Variational.of(self.prior)
        started, steps_before, updates_before = time.monotonic(), self.sampler.steps, self.updates
        while self.iteration < end:
            cpu = time.process_time()
            self._update(prior)
            self.iteration += 1
            self._score()
            if self.iteration == settings.iterations:
                self.search.end()
            self.cpu_seconds += time.process_time() - cpu
            due = self.iteration % settings.checkpoint_every == 0 or self.iteration == end
            if checkpoint is not None and due:
                checkpoint.write(self.state(), name)
            if progress is not None:
                elapsed = max(time.monotonic() - started, 1e-9)
                progress(
                    PolicyProgress(
                        self.iteration,
                        settings.iterations,
                        tuple(self.history[-1][2:]) if self.history else (),
                        self.q.gaussian().kl(self.prior),
                        self.steps,
                        (self.sampler.steps - steps_before) / elapsed,
                        (self.updates - updates_before) / elapsed,
                    )
                )
        found = self.best if until is None else self.q
        history = np.array([row for row in self.history if row[0] <= end])
        return PolicyInference(
            found.gaussian(), self.updates, self.steps, self.cpu_seconds, history
        )

    def _update(self, prior: Variational) -> None:
        settings, rotation = self.settings, self.scoring.rotation
        fraction = self.iteration / max(1, settings.iterations - 1)
        objective = Objective(
            self.weights,
            prior,
            action_std=scheduled(settings.action_std, fraction),
            rate=scheduled(settings.rate, fraction),
            kl_weight=settings.kl_weight,
            trajectory_kl=scheduled(settings.trajectory_kl, fraction),
            cap=self.cap,
        )
        # A generator of its own for every update makes a resumed run equal to a straight one.
        rng = np.random.default_rng([*self.entropy, self.iteration])
        self.updates += self.search.update(self.q, objective, self.sampler, rng)
        if rotation is not None:
            for row in self.search.policies(self.q.log_std):
                rotation.tie(self.policy, row)
        np.clip(self.q.log_std, *np.log(settings.std_bounds), out=self.q.log_std)

    @property
    def steps(self) -> int:
        """Environment steps since the task began, scoring included."""
        return self.sampler.steps - self.first_step + self.scoring_steps

    def _score(self) -> None:
        """Now and then play one episode with the mean policy, and remember the best."""
        last = self.iteration == self.settings.iterations
        if self.iteration % self.settings.score_every and not last:
            return
        rows = self.search.policies(self.q.mean)
        scores = [episode_returns(self.scoring, self.policy, row[None]) for row in rows]
        self.scoring_steps += sum(score.steps for score in scores)
        returns = np.concatenate([score.returns for score in scores])
        self.history.append([float(self.iteration), float(self.steps), *returns.ravel().tolist()])
        # Several tasks have no common scale on which one moment would be the best: the last is.
        value = float(self.iteration)
        if len(rows) == 1:
            value = self.settings.preferred(returns[0], self.weights, self.scoring.horizon)
        if self.iteration >= 0.75 * self.settings.iterations and value >= self.best_value:
            self.best, self.best_value = self.q.copy(), value
