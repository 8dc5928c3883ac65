r"""IBCRL: tasks learnt one by one, then a policy for any preference between the objectives.

A task is a preference over the environment's objectives, in the paper one of the extremes. Its
posterior over policy parameters comes from Bayesian policy gradient (Algorithm 4) and goes into
the knowledge base (Algorithm 1); a preference picks the learnt tasks around it, pools their
posteriors and takes the highest density region (Algorithm 2), all without training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from ibcl.gaussians import DiagonalGaussian, Distribution
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling import pool
from ibcl.preference import Preference
from ibcl.region import HighestDensityRegion
from ibcl.rl.bayesian_policy_gradient import (
    BayesianPolicyGradient,
    Estimator,
    PolicyInference,
    ProgressCallback,
)
from ibcl.rl.checkpoint import Checkpoint
from ibcl.rl.coordinates import task_weights
from ibcl.rl.environments import Environment, make
from ibcl.rl.joint_surrogate import JointSurrogate
from ibcl.rl.policies import Floats, Normaliser, Policy
from ibcl.rl.rollout import Sampler, Scores, episode_returns
from ibcl.rl.symmetry import Reflection, Turn
from ibcl.rl.twin_delayed import TwinDelayed
from ibcl.rl.variational import Search

EnvironmentFactory = Callable[[int], Environment]


@dataclass(frozen=True)
class PreferredPolicy:
    """What a preference asks for: a distribution over policies and its region."""

    preference: Preference
    """Over the objectives."""
    tasks: Preference
    """Over the learnt tasks whose posteriors were pooled."""
    q: Distribution
    region: HighestDensityRegion
    architecture: Policy

    def act(self, observation: ArrayLike) -> NDArray[np.float64]:
        """Act by the mean policy at one observation."""
        row = np.asarray(observation, dtype=np.float64)[None]
        action = self.architecture.act(self.q.mean.numpy()[None], row)
        return np.asarray(action[0], dtype=np.float64)


class IBCRL:
    """Imprecise Bayesian continual reinforcement learning.

    Parameters
    ----------
    environment
        A name for `ibcl.rl.make`, or a function from a number of copies to an `Environment`.
    training_environment
        Where policies are sampled, if that is to be another one than where they are scored.
    hidden, squashed
        The policy: sizes of its hidden layers (none is a linear policy), and whether its actions
        pass through tanh, as `TwinDelayed` needs them.
    normalise
        Whether observations are standardised, by the scales the environment declares or else by
        what random actions show at the start.
    inference
        How a task is learnt, unless `learn` is told otherwise.
    copies
        Environments run side by side; each samples its own policy from q.
    initial_std
        σ of the prior of the first task, whose mean is a freshly initialised network that does
        next to nothing.
    pooling, d, alpha, seed
        As in `ibcl.IBCL`. With the default d every posterior is stored.
    """

    def __init__(
        self,
        environment: str | EnvironmentFactory,
        *,
        training_environment: str | EnvironmentFactory | None = None,
        hidden: tuple[int, ...] = (64,),
        squashed: bool = False,
        normalise: bool = True,
        inference: BayesianPolicyGradient | None = None,
        copies: int = 16,
        initial_std: float = 0.02,
        pooling: str = "wasserstein",
        d: float = 0.0,
        alpha: float = 0.01,
        seed: int = 0,
        threads: int = 1,
    ) -> None:
        if pooling not in ("wasserstein", "mixture"):
            raise ValueError(
                f"pooling must be 'wasserstein' or 'mixture', not {pooling!r}: returns are no "
                "likelihood that evidence could be taken from."
            )
        self._build = _factory(environment, threads, seed)
        training = self._build
        if training_environment is not None:
            training = _factory(training_environment, threads, seed)
        self.inference = inference or BayesianPolicyGradient()
        self.pooling = pooling
        self.alpha = alpha
        self.seed = seed
        self.scoring = self._build(1)
        walkers = training(copies)
        self.objectives = self.scoring.objectives
        rng = np.random.default_rng([seed, 0])
        normaliser = _normaliser(walkers, rng) if normalise else None
        self.policy_class = Policy(
            walkers.observation_size,
            walkers.action_size,
            hidden=hidden,
            squashed=squashed,
            normaliser=normaliser,
        )
        self.sampler = Sampler(walkers, self.policy_class)
        self._searches: dict[Estimator, Search] = {}
        last = 0.1 if squashed else 0.01
        mean = torch.tensor(self.policy_class.network.initial(rng, last))
        prior = DiagonalGaussian(mean, torch.full_like(mean, initial_std))
        self.knowledge = KnowledgeBase([prior], d=d)
        self.preferences: dict[str, tuple[float, ...]] = {}
        self.results: dict[str, PolicyInference] = {}

    def learn(
        self,
        preference: Any,
        task: str | None = None,
        *,
        prior: str | Sequence[str] | None = None,
        inference: BayesianPolicyGradient | None = None,
        checkpoint: str | Path | None = None,
        until: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> PolicyInference:
        """Learn the task of satisfying a preference over the objectives.

        Parameters
        ----------
        preference
            Anything `Preference.parse` reads; an objective's name is its extreme.
        task
            The task's name; by default that of the one objective it asks for, or its weights.
        prior
            The task whose posterior is the prior; by default the one learnt last. Of several, the
            one whose mean policy earns most in the new task, so that a task which was learnt badly
            is passed over. The episodes that tell count as steps.
        checkpoint
            A file written as often as the inference says. If it holds a part of this very task,
            learning continues from there, and if it holds all of it, nothing is learnt again.
        until
            Pause after so many iterations, to compare starts. What is known by then is returned,
            but the task counts as learnt only after the same call without ``until``, by this
            learner or another of its seed, has gone on from the checkpoint.
        """
        if until is not None and checkpoint is None:
            raise ValueError("A run that pauses needs a checkpoint to go on from.")
        wanted = Preference.parse(preference, self.objectives)
        name = task or _name(wanted)
        self.knowledge.check_new(name)
        method = inference or self.inference
        if method.anchors:
            raise ValueError("An estimator with anchors is for tasks learnt with learn_together.")
        first, compared = self._first_choice(prior, wanted, method)
        result = self._infer(
            method, wanted.vector(), self._prior(first), checkpoint, progress, until
        )
        result = replace(result, steps=result.steps + compared)
        if until is None:
            self._keep(name, wanted.vector(), result)
        return result

    def _first_choice(
        self, prior: str | Sequence[str] | None, wanted: Preference, method: BayesianPolicyGradient
    ) -> tuple[str | None, int]:
        """Return the best of the tasks named for a prior, and the steps it took to tell."""
        if prior is None or isinstance(prior, str):
            return prior, 0
        if not prior:
            raise ValueError("No task is named whose posterior could be the prior.")
        method.check_cap(self.scoring)
        scores = {task: self.task_scores(task) for task in prior}
        best = max(
            scores,
            key=lambda task: method.preferred(
                scores[task].returns[0], wanted.vector(), self.scoring.horizon
            ),
        )
        return best, sum(score.steps for score in scores.values())

    def learn_together(
        self,
        tasks: Mapping[str, Any],
        *,
        inference: BayesianPolicyGradient,
        priors: Sequence[str] | None = None,
        checkpoint: str | Path | None = None,
        progress: ProgressCallback | None = None,
    ) -> PolicyInference:
        """Learn several tasks at once, so that what pooling makes of them is trained too.

        Parameters
        ----------
        tasks
            The preference each task is combined for, in the order of the anchors of the
            inference's estimator (`JointSurrogate` or `TwinDelayed`), which say what the task
            rewards. Tasks whose anchor is ``kept`` are known already and stay as they are; the
            others are new.
        priors
            The task whose posterior is each one's prior; by default the one learnt last for all
            that are new. The prior of a kept one is itself.
        """
        estimator, anchors = inference.estimator, inference.anchors
        if not isinstance(estimator, JointSurrogate | TwinDelayed) or len(anchors) != len(tasks):
            raise ValueError(
                f"Learning {len(tasks)} tasks together needs JointSurrogate or TwinDelayed with as "
                "many anchors."
            )
        if any(inference.trajectory_kl):
            raise ValueError("Tasks learnt together know no trajectory KL.")
        if priors is not None and len(priors) != len(tasks):
            raise ValueError(f"{len(tasks)} tasks need as many priors, not {len(priors)}.")
        kept = [anchor.kept for anchor in anchors]
        if all(kept):
            raise ValueError("Every task is kept, so that there is nothing to learn.")
        wanted = [Preference.parse(each, self.objectives) for each in tasks.values()]
        for name, known, each in zip(tasks, kept, wanted, strict=True):
            if not known:
                self.knowledge.check_new(name)
            elif not np.allclose(self.preferences[self.knowledge.record(name).name], each.vector()):
                raise ValueError(
                    f"The task {name!r} was learnt for {self.preferences[name]}, which cannot be "
                    "changed while it is kept."
                )
        chosen: Sequence[str | None] = priors or [None] * len(tasks)
        sources = [
            self._prior(name if known else prior)
            for name, known, prior in zip(tasks, kept, chosen, strict=True)
        ]
        family = estimator.family(self.policy_class)
        weights = np.mean([anchor.weights for anchor in anchors], axis=0)
        result = self._infer(inference, weights, family.join(sources), checkpoint, progress)
        spent = result
        for index, (name, q) in enumerate(zip(tasks, family.split(result.posterior), strict=True)):
            if kept[index]:
                continue
            first = 2 + index * len(self.objectives)
            columns = [0, 1, *range(first, first + len(self.objectives))]
            own = replace(spent, posterior=q, history=result.history[:, columns])
            self._keep(name, wanted[index].vector(), own)
            # The cost is counted once, with the first of them.
            spent = PolicyInference(q)
        return result

    def image(self, task: str, name: str, *, degrees: float | None = None) -> PolicyInference:
        """Add the image of a learnt task as a task of its own, without any training.

        It is the task turned by an angle of the environment's rotation, or without an angle its
        mirror image in the environment's reflection. Either maps parameters linearly, so that the
        image of a Gaussian is a Gaussian.
        """
        symmetry = self._symmetry(degrees)
        self.knowledge.check_new(name)
        weights = symmetry.preference(self.preferences[self.knowledge.record(task).name])
        result = PolicyInference(symmetry.gaussian(self.policy_class, self._prior(task)))
        self._keep(name, weights, result)
        return result

    def _symmetry(self, degrees: float | None) -> Reflection | Turn:
        reflection, rotation = self.scoring.reflection, self.scoring.rotation
        if degrees is None:
            if reflection is None:
                raise ValueError(f"{self.scoring.name} declares no reflection.")
            return reflection
        if rotation is None:
            raise ValueError(f"{self.scoring.name} declares no rotation.")
        return rotation.by(degrees)

    def _keep(self, name: str, weights: Floats, result: PolicyInference) -> None:
        self.knowledge.add(name, [result.posterior], result.steps, result.updates)
        self.preferences[name] = tuple(weights.tolist())
        self.results[name] = result

    def _infer(
        self,
        method: BayesianPolicyGradient,
        weights: Floats,
        prior: DiagonalGaussian,
        checkpoint: str | Path | None,
        progress: ProgressCallback | None,
        until: int | None = None,
    ) -> PolicyInference:
        """Learn from a prior; an estimator carries its critic from task to task."""
        estimator = method.estimator
        if estimator not in self._searches:
            objectives = len(self.objectives)
            self._searches[estimator] = estimator.search(self.policy_class, objectives, self.seed)
        return method.infer(
            self.policy_class,
            weights,
            prior,
            self.sampler,
            self.scoring,
            search=self._searches[estimator],
            checkpoint=Checkpoint(checkpoint) if checkpoint is not None else None,
            until=until,
            seed=[self.seed, 1 + len(self.preferences)],
            progress=progress,
        )

    def _prior(self, task: str | None) -> DiagonalGaussian:
        """Return the posterior of a task, or what the next task begins at."""
        known = self.knowledge
        (found,) = known.next_priors() if task is None else known.extremes(task)
        assert isinstance(found, DiagonalGaussian), "policies are learnt as diagonal Gaussians"
        return found

    def policy(self, preference: Any, tasks: Sequence[str] | None = None) -> PreferredPolicy:
        """Generate the policy of a preference over the objectives, without training.

        ``tasks`` restricts what may be combined; by default, of tasks with the same preference
        the one learnt last.
        """
        wanted = Preference.parse(preference, self.objectives)
        chosen = task_weights(self._combinable(tasks), wanted.vector())
        every = Preference({name: chosen.get(name, 0.0) for name in self.knowledge.tasks})
        q = pool(self.knowledge, every, self.pooling)
        region = HighestDensityRegion(q, self.alpha)
        return PreferredPolicy(wanted, chosen, q, region, self.policy_class)

    def _combinable(self, tasks: Sequence[str] | None) -> dict[str, tuple[float, ...]]:
        if tasks is None:
            latest = {weights: name for name, weights in self.preferences.items()}
            return {name: weights for weights, name in latest.items()}
        return {self.knowledge.record(name).name: self.preferences[name] for name in tasks}

    def scores(self, theta: Floats) -> Scores:
        """Return vectors of parameter vectors (n, D), one episode each, and which of them fell."""
        environment = self._build(len(theta))
        try:
            rows = np.asarray(theta, dtype=np.float32)
            return episode_returns(environment, self.policy_class, rows)
        finally:
            environment.close()

    def task_scores(self, task: str) -> Scores:
        """Score the mean policy of a task's posterior."""
        return self.scores(self._prior(task).mean.numpy()[None])

    def returns(self, theta: Floats) -> NDArray[np.float64]:
        """Return vectors of parameter vectors (n, D), one episode each."""
        return self.scores(theta).returns

    def means(self, preferences: ArrayLike, tasks: Sequence[str] | None = None) -> Floats:
        """Parameters (n, D) of the mean policies of many preferences (n, objectives)."""
        policies = [self.policy(row, tasks) for row in np.asarray(preferences, dtype=np.float64)]
        return np.stack([policy.q.mean.numpy() for policy in policies])

    def front(
        self, preferences: ArrayLike, tasks: Sequence[str] | None = None
    ) -> NDArray[np.float64]:
        """Return vectors of the mean policies of many preferences (n, objectives)."""
        return self.returns(self.means(preferences, tasks))


def _name(preference: Preference) -> str:
    """Name a task by its only objective, or by its weights."""
    chosen = [objective for objective, weight in preference.items() if weight == 1]
    return chosen[0] if chosen else str(preference).replace(",", " ")


def _normaliser(environment: Environment, rng: np.random.Generator) -> Normaliser:
    """Return the scales an environment declares, or fit them (mirrored as the problem is)."""
    if environment.normaliser is not None:
        return environment.normaliser
    fitted = Normaliser.fit(environment, 300, rng)
    return environment.reflection.normaliser(fitted) if environment.reflection else fitted


def _factory(environment: str | EnvironmentFactory, threads: int, seed: int) -> EnvironmentFactory:
    if not isinstance(environment, str):
        return environment
    return lambda copies: make(environment, copies, threads=threads, seed=seed)
