r"""Environments with a vector of rewards, many copies stepped together.

`make` knows those of `ibcl.rl.locomotion.DEFINITIONS` by name; any other name is looked up in
gymnasium, then in mo-gymnasium.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ibcl.rl.policies import Normaliser
    from ibcl.rl.symmetry import Reflection, Rotation

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Step(NamedTuple):
    """What one step of every copy gives back.

    ``observation`` already belongs to the next episode where one ended; ``final`` is the last
    observation of the old one. An episode is `truncated` at the time limit and `terminated` where
    the problem itself ends.
    """

    observation: Array
    reward: Array
    terminated: Mask
    truncated: Mask
    final: Array


class Environment(ABC):
    """Copies of one problem stepped together; rewards have one column per objective.

    Subclasses set the attributes below and say how to begin and advance an episode; the time limit
    and the start of the next episode are handled here.
    """

    name: str
    copies: int
    observation_size: int
    action_size: int
    objectives: tuple[str, ...]
    horizon: int
    elapsed: NDArray[np.int64]
    reflection: Reflection | None = None
    """A mirror in which the problem looks the same, if it has one."""
    rotation: Rotation | None = None
    """Turns under which the problem looks the same, if there are any."""
    normaliser: Normaliser | None = None
    """Scales of the observations, where the problem declares them."""

    @abstractmethod
    def _begin(self, copy: int) -> Array:
        """Put one copy at the start of an episode and return its observation."""

    @abstractmethod
    def _advance(self, actions: Array) -> tuple[Array, Array, Mask]:
        """Step every copy; return observations, reward vectors and terminations."""

    def fallen(self, outcome: Step) -> Mask:
        """Tell which copies have fallen over in the last step; here, whose episodes terminated."""
        return outcome.terminated

    def snapshot(self) -> dict[str, NDArray[np.generic]]:
        """State of all copies, from which `restore` continues exactly."""
        return {"elapsed": self.elapsed.copy()}

    def restore(self, snapshot: dict[str, NDArray[np.generic]]) -> Array:
        """Continue from a snapshot; returns the observations.

        A simulator that cannot be put into a given state starts its episodes afresh.
        """
        del snapshot
        return self.reset(stagger=True)

    def close(self) -> None:  # noqa: B027 - most simulators hold nothing
        """Free what the simulator holds."""

    def reset(self, *, stagger: bool = False) -> Array:
        """Start every copy afresh.

        With ``stagger`` the copies' first time limits are spread over the horizon, so that a short
        segment of all copies together shows every part of an episode.
        """
        self.elapsed = np.zeros(self.copies, dtype=np.int64)
        if stagger:
            self.elapsed = np.arange(self.copies, dtype=np.int64) * self.horizon // self.copies
        return np.stack([self._begin(copy) for copy in range(self.copies)])

    def step(self, actions: NDArray[np.floating]) -> Step:
        """Apply one action per copy; actions are clipped to [−1, 1] where a problem needs it."""
        final, reward, terminated = self._advance(np.asarray(actions, dtype=np.float64))
        self.elapsed += 1
        truncated = (self.elapsed >= self.horizon) & ~terminated
        observation = final
        if (terminated | truncated).any():
            observation = final.copy()
            for copy in np.flatnonzero(terminated | truncated):
                observation[copy] = self._begin(int(copy))
                self.elapsed[copy] = 0
        return Step(observation, reward, terminated, truncated, final)


def make(name: str, copies: int, *, threads: int = 1, seed: int = 0) -> Environment:
    """Build an environment by name.

    Examples
    --------
    >>> environment = make("mo-halfcheetah", copies=2)
    >>> environment.reset().shape
    (2, 17)
    >>> make("mo-halfcheetah", copies=0)
    Traceback (most recent call last):
    ...
    ValueError: An environment needs at least one copy, not 0.
    """
    if copies < 1:
        raise ValueError(f"An environment needs at least one copy, not {copies}.")
    from ibcl.rl.locomotion import DEFINITIONS, Locomotion

    if name in DEFINITIONS:
        return Locomotion(name, copies, threads=threads)
    from ibcl.rl.gymnasium_environment import GymnasiumEnvironment

    return GymnasiumEnvironment(name, copies, known=tuple(sorted(DEFINITIONS)), seed=seed)
