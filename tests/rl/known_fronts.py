"""Small problems whose Pareto front is known in closed form."""

import numpy as np

from ibcl.rl.environments import Environment
from ibcl.rl.expected_utility import even_preferences


class LinearQuadratic(Environment):
    """x' = x + u from x = 1 (even copies) or −1 (odd ones), with rewards −x² and −u² after it.

    Every Pareto-optimal policy is u = −k x with k between 0 (never move) and 1 (go home at once),
    so the policies between the two extremes are the whole front.
    """

    name = "linear-quadratic"
    observation_size = action_size = 1
    objectives = ("state", "effort")
    horizon = 20

    def __init__(self, copies):
        self.copies = copies
        self._x = np.ones(copies)

    def _begin(self, copy):
        # With both signs a constant action never helps, so the gain is all there is to learn.
        self._x[copy] = -1.0 if copy % 2 else 1.0
        return self._x[[copy]]

    def _advance(self, actions):
        self._x = self._x + actions[:, 0]
        reward = np.stack([-np.square(self._x), -np.square(actions[:, 0])], axis=1)
        return self._x[:, None].copy(), reward, np.zeros(self.copies, dtype=bool)

    def snapshot(self):
        return {"elapsed": self.elapsed.copy(), "x": self._x.copy()}

    def restore(self, snapshot):
        self.elapsed = snapshot["elapsed"].copy()
        self._x = snapshot["x"].copy()
        return self._x[:, None].copy()

    @classmethod
    def returns(cls, gain):
        """Exact returns of u = −gain · x: x_t = (1 − gain)^t."""
        states = (1 - gain) ** np.arange(cls.horizon + 1)
        return np.array([-np.square(states[1:]).sum(), -np.square(gain * states[:-1]).sum()])

    @staticmethod
    def optimal_gain(weights):
        """Gain of the discrete Riccati equation for the preferred cost, long horizon."""
        value = 0.0
        for _ in range(10_000):
            # min_u w0 (x+u)² + w1 u² + value (x+u)²: the state is charged after the move.
            total = weights[0] + value
            gain = total / (total + weights[1])
            value = total * (1 - gain) ** 2 + weights[1] * gain**2
        return gain


class TwoGoals(Environment):
    """A point in the plane moved by the action; objective k is 3 − ‖x − g_k‖² after the move.

    The best place for a preference w is w₀g₀ + w₁g₁, reachable in one step and kept from then on.
    """

    name = "two-goals"
    observation_size = action_size = 2
    objectives = ("left", "right")
    horizon = 20
    goals = np.array([[-0.5, 0.3], [0.5, 0.3]])

    def __init__(self, copies):
        self.copies = copies
        self._x = np.zeros((copies, 2))

    def _begin(self, copy):
        self._x[copy] = 0.0
        return self._x[copy].copy()

    def _advance(self, actions):
        self._x = self._x + actions
        distance = np.square(self._x[:, None] - self.goals).sum(-1)
        return self._x.copy(), 3 - distance, np.zeros(self.copies, dtype=bool)

    def snapshot(self):
        return {"elapsed": self.elapsed.copy(), "x": self._x.copy()}

    def restore(self, snapshot):
        self.elapsed = snapshot["elapsed"].copy()
        self._x = snapshot["x"].copy()
        return self._x.copy()

    @classmethod
    def best_returns(cls, weights):
        place = np.asarray(weights) @ cls.goals
        return cls.horizon * (3 - np.square(place - cls.goals).sum(-1))

    @classmethod
    def worst_share(cls, ibcrl):
        """Least share of the best preferred return, over preferences spread evenly."""
        preferences = even_preferences(9)
        best = np.array([cls.best_returns(weights) @ weights for weights in preferences])
        return float(((ibcrl.front(preferences) * preferences).sum(1) / best).min())
