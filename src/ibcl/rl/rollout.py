"""Trajectories: short segments to learn from, whole episodes to score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.rl.checkpoint import Carried, State
from ibcl.rl.environments import Array, Environment
from ibcl.rl.policies import Floats, Policy


@dataclass(frozen=True)
class Segment:
    """T consecutive steps of every copy; arrays have shape (copies, T, …).

    ``following`` holds the features after each step, before any reset, from which the value of
    what comes next is estimated.
    """

    features: Floats
    following: Floats
    actions: Floats
    means: Floats
    rewards: Array
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]


class Sampler(Carried):
    """Walks policies through an environment, one parameter vector a copy.

    Examples
    --------
    >>> from ibcl.rl.environments import make
    >>> cheetah = make("mo-halfcheetah", copies=2)
    >>> policy = Policy(17, 6, hidden=())
    >>> sampler = Sampler(cheetah, policy)
    >>> theta = np.zeros((2, policy.dimension), dtype=np.float32)
    >>> sampler.segment(theta, 3, 0.1, np.random.default_rng(0)).rewards.shape
    (2, 3, 2)
    """

    def __init__(self, environment: Environment, policy: Policy) -> None:
        self.environment = environment
        self.policy = policy
        self.steps = 0
        self._observation = environment.reset(stagger=True)

    def state(self) -> State:
        """Arrays from which `load` continues exactly."""
        return {**self.environment.snapshot(), "steps": np.array(self.steps)}

    def load(self, state: State) -> None:
        """Continue from a checkpoint."""
        self.steps = int(state["steps"])
        self._observation = self.environment.restore(dict(state))

    def restart(self) -> None:
        """Begin a new episode in every copy, so that the next segment shows whole episodes."""
        self._observation = self.environment.reset()

    def segment(
        self, theta: Floats, length: int, action_std: float | Floats, rng: np.random.Generator
    ) -> Segment:
        """Take ``length`` steps with actions N(π_θ(s), action_std²); one std, or one per copy."""
        environment, policy = self.environment, self.policy
        copies, outputs = environment.copies, environment.action_size
        noise = action_std * rng.standard_normal((length, copies, outputs), dtype=np.float32)
        features = policy.features(self._observation)
        rows = []
        for step in range(length):
            means = policy.network.forward(theta, features[:, None])[-1][:, 0]
            actions = means + noise[step]
            outcome = environment.step(actions)
            following = policy.features(outcome.final)
            rows.append((features, following, actions, means, *outcome[1:4]))
            self._observation = outcome.observation
            features = following
            if (outcome.terminated | outcome.truncated).any():
                features = policy.features(outcome.observation)
        self.steps += length * copies
        return Segment(*(np.stack(column, axis=1) for column in zip(*rows, strict=True)))


class Scores(NamedTuple):
    """Return vectors of whole episodes, the steps they took together, and who fell in one."""

    returns: Array
    steps: int
    fell: NDArray[np.bool_]


def play(environment: Environment, act: Callable[[Array], NDArray[np.floating]]) -> Scores:
    """Undiscounted returns of one episode per copy, of shape (copies, objectives).

    ``act`` gives the actions (copies, a) at observations (copies, o).
    """
    observation = environment.reset()
    returns = np.zeros((environment.copies, len(environment.objectives)))
    running = np.ones(environment.copies, dtype=bool)
    fell = np.zeros(environment.copies, dtype=bool)
    steps = 0
    for _ in range(environment.horizon):
        outcome = environment.step(act(observation))
        returns[running] += outcome.reward[running]
        fell |= running & environment.fallen(outcome)
        steps += environment.copies
        running &= ~(outcome.terminated | outcome.truncated)
        observation = outcome.observation
        if not running.any():
            break
    return Scores(returns, steps, fell)


def episode_returns(environment: Environment, policy: Policy, theta: Floats) -> Scores:
    """Play one episode per copy by the mean actions of parameters (copies, D)."""
    return play(environment, lambda observation: policy.act(theta, observation))
