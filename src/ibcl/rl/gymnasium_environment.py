"""Any gymnasium or mo-gymnasium environment whose reward is a vector, by its id."""

from __future__ import annotations

from typing import Any

import numpy as np

from ibcl.rl.environments import Array, Environment, Mask

try:
    import gymnasium
except ImportError as error:  # pragma: no cover - depends on the installation
    raise ImportError("Environments by name need gymnasium: pip install 'ibcl[rl]'.") from error

DEFAULT_HORIZON = 1000


def _build(name: str, known: tuple[str, ...]) -> Any:
    """Look the id up in gymnasium, then in mo-gymnasium where that is installed."""
    try:
        return gymnasium.make(name)
    except gymnasium.error.UnregisteredEnv:
        pass
    try:
        import mo_gymnasium
    except ImportError:
        hint = " (mo-gymnasium is not installed: pip install mo-gymnasium)"
    else:
        hint = ""
        try:
            return mo_gymnasium.make(name)
        except gymnasium.error.UnregisteredEnv:
            pass
    names = ", ".join(repr(item) for item in known)
    raise ValueError(
        f"There is no environment {name!r}: expected {names}, "
        f"or the id of a gymnasium or mo-gymnasium environment{hint}."
    )


class GymnasiumEnvironment(Environment):
    """Copies of a gymnasium environment with continuous actions and a vector of rewards.

    Actions in [−1, 1] are stretched to the environment's bounds. The first step of a probe episode
    tells how many objectives there are.
    """

    def __init__(
        self, name: str, copies: int, *, known: tuple[str, ...] = (), seed: int = 0
    ) -> None:
        self.name = name
        self.copies = copies
        self._copies = [_build(name, known)]
        probe = self._copies[0]
        space = probe.action_space
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            raise ValueError(
                f"{name} has the action space {space}; policies here need a vector of continuous "
                "actions (a one-dimensional Box)."
            )
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(f"The actions of {name} must have finite bounds.")
        if not isinstance(probe.observation_space, gymnasium.spaces.Box):
            raise ValueError(
                f"{name} has the observation space {probe.observation_space}; expected a Box."
            )
        self._low, self._high = space.low.astype(float), space.high.astype(float)
        self.action_size = int(space.shape[0])
        self.observation_size = int(np.prod(probe.observation_space.shape))
        probe.reset(seed=seed)
        reward = np.asarray(probe.step(((self._low + self._high) / 2).astype(space.dtype))[1])
        if reward.ndim != 1 or reward.size < 2:
            raise ValueError(
                f"The reward of {name} has shape {reward.shape}; expected a vector with one value "
                "an objective, so wrap the environment or choose a multi-objective one."
            )
        self.objectives = tuple(f"objective-{k}" for k in range(reward.size))
        limit = probe.spec.max_episode_steps if probe.spec is not None else None
        self.horizon = int(limit or DEFAULT_HORIZON)
        self._copies += [_build(name, known) for _ in range(copies - 1)]
        self._seeds: list[int | None] = [seed + copy for copy in range(copies)]

    def close(self) -> None:
        """Close every copy."""
        for copy in self._copies:
            copy.close()

    def _begin(self, copy: int) -> Array:
        observation, _ = self._copies[copy].reset(seed=self._seeds[copy])
        self._seeds[copy] = None
        return np.asarray(observation, dtype=np.float64).ravel()

    def _advance(self, actions: Array) -> tuple[Array, Array, Mask]:
        stretched = self._low + (np.clip(actions, -1, 1) + 1) / 2 * (self._high - self._low)
        observations = np.empty((self.copies, self.observation_size))
        rewards = np.empty((self.copies, len(self.objectives)))
        terminated = np.zeros(self.copies, dtype=bool)
        for i, copy in enumerate(self._copies):
            action = stretched[i].astype(copy.action_space.dtype)
            observation, reward, terminated[i], truncated, _ = copy.step(action)
            observations[i] = np.asarray(observation, dtype=np.float64).ravel()
            rewards[i] = reward
            if truncated:
                # The wrapper's own time limit, which stagger may have moved before ours.
                self.elapsed[i] = self.horizon
        return observations, rewards, terminated
