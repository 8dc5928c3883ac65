r"""Replayed experience: n-step transitions with a vector of rewards, the oldest overwritten.

A row holds (s, a, r_t … r_{t+n−1}, s', γ^n, whether s' is terminal, the mixing coefficients of
the policy that chose a). Rewards stay vectors, so a row serves every preference between the
objectives.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.rl.checkpoint import Carried, State
from ibcl.rl.policies import Floats


class Transitions(NamedTuple):
    """Columns of replayed rows; ``discount`` is what the value of ``following`` counts for.

    ``rewards`` has shape (rows, n, objectives), zero after the end of an episode; ``mixing`` holds
    the mixing coefficients of the tasks that are learnt together, one column each.
    """

    features: Floats
    actions: Floats
    rewards: Floats
    following: Floats
    discount: Floats
    terminal: Floats
    mixing: Floats


class Replay(Carried):
    """A ring of rows, sampled uniformly.

    Examples
    --------
    >>> replay = Replay(capacity=4, features=1, actions=1, rewards=(3, 2), tasks=1)
    >>> replay.add(np.ones((6, 12), dtype=np.float32))
    >>> len(replay)
    4
    >>> replay.sample(5, np.random.default_rng(0)).rewards.shape
    (5, 3, 2)
    """

    def __init__(
        self, capacity: int, features: int, actions: int, rewards: tuple[int, int], tasks: int
    ) -> None:
        self.capacity = capacity
        self._reward_shape = rewards
        widths = (features, actions, rewards[0] * rewards[1], features, 1, 1, tasks)
        ends = np.cumsum(widths).tolist()
        self._columns = [slice(end - width, end) for end, width in zip(ends, widths, strict=True)]
        # The operating system hands out zeroed pages only as they are touched.
        self._rows = np.zeros((capacity, ends[-1]), dtype=np.float32)
        self.added = 0

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def add(self, rows: Floats) -> None:
        """Append rows; beyond the capacity the oldest are overwritten."""
        slots = (self.added + np.arange(len(rows))) % self.capacity
        self._rows[slots] = rows
        self.added += len(rows)

    def sample(self, count: int, rng: np.random.Generator) -> Transitions:
        """Draw rows uniformly, with replacement."""
        rows = self._rows[rng.integers(len(self), size=count)]
        columns = Transitions(*(rows[:, columns] for columns in self._columns))
        return columns._replace(rewards=columns.rewards.reshape(count, *self._reward_shape))

    def state(self) -> State:
        """Arrays for a checkpoint."""
        return {"rows": self._rows[: len(self)], "added": np.array(self.added)}

    def load(self, state: State) -> None:
        """Continue from a checkpoint."""
        self.added = int(state["added"])
        self._rows[: len(self)] = state["rows"]


class MultiStep(Carried):
    r"""Turns single steps of many copies into rows of n-step transitions.

    A transition is complete n steps after it began, or where its episode ends: at a time limit its
    last state is bootstrapped like any other, at a termination it is marked terminal.
    """

    def __init__(self, steps: int, discount: float) -> None:
        self.steps = steps
        self.discount = discount
        self._pending: list[list[NDArray[Any]]] = []

    def push(
        self,
        features: Floats,
        actions: Floats,
        rewards: Floats,
        following: Floats,
        terminated: NDArray[np.bool_],
        truncated: NDArray[np.bool_],
        mixing: Floats,
    ) -> Floats:
        """Take one step of every copy; returns the rows it completes."""
        copies, objectives = rewards.shape
        empty = np.zeros((copies, self.steps * objectives), dtype=np.float32)
        self._pending.append([features, actions, empty, mixing, np.ones(copies, dtype=bool)])
        ended = terminated | truncated
        rows = []
        for age, (start, taken, earned, where, running) in enumerate(reversed(self._pending)):
            earned[running, age * objectives : (age + 1) * objectives] = rewards[running]
            done = running if age == self.steps - 1 else running & ended
            if done.any():
                factor = np.full((int(done.sum()), 1), self.discount ** (age + 1))
                row = (
                    start[done],
                    taken[done],
                    earned[done],
                    following[done],
                    factor,
                    terminated[done][:, None],
                    where[done],
                )
                rows.append(np.concatenate(row, axis=1, dtype=np.float32))
            running &= ~ended
        if len(self._pending) == self.steps:
            self._pending.pop(0)
        if not rows:
            width = 2 * features.shape[1] + actions.shape[1] + empty.shape[1] + mixing.shape[1] + 2
            return np.empty((0, width), dtype=np.float32)
        return np.concatenate(rows)

    def state(self) -> State:
        """Arrays for a checkpoint."""
        return {
            f"{index}.{part}": array
            for index, entry in enumerate(self._pending)
            for part, array in enumerate(entry)
        }

    def load(self, state: State) -> None:
        """Continue from a checkpoint."""
        count = 1 + max((int(name.split(".")[0]) for name in state), default=-1)
        self._pending = [
            [state[f"{index}.{part}"].copy() for part in range(5)] for index in range(count)
        ]
