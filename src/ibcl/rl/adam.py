"""Adam on one flat parameter vector, moved in place: by NumPy, or compiled.

The two decay and round differently, and a gait is chaotic: each estimator keeps the one its results
were made with.
"""

from __future__ import annotations

import numpy as np

from ibcl.rl import kernels
from ibcl.rl.checkpoint import Carried
from ibcl.rl.policies import Floats


class Adam(Carried):
    """Moments decaying by 0.9 and 0.999.

    Examples
    --------
    >>> parameters = np.zeros(2, dtype=np.float32)
    >>> Adam(2).step(parameters, np.array([1.0, -3.0], dtype=np.float32), rate=0.1)
    >>> [round(value, 3) for value in parameters.tolist()]
    [-0.1, 0.1]
    """

    carried = ("first", "second", "count")

    def __init__(self, dimension: int) -> None:
        self.first = np.zeros(dimension, dtype=np.float32)
        self.second = np.zeros(dimension, dtype=np.float32)
        self.count = 0

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Descend along the gradient."""
        self.count += 1
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.001 * (np.square(gradient) - self.second)
        first = self.first / (1 - 0.9**self.count)
        second = self.second / (1 - 0.999**self.count)
        parameters -= rate * first / (np.sqrt(second) + 1e-8)


class FlatAdam(Adam):
    """Moments decaying by 0.9 and 0.99, one compiled pass over the vector."""

    def step(self, parameters: Floats, gradient: Floats, rate: float) -> None:
        """Descend along the gradient."""
        self.count += 1
        kernels.adam(parameters, gradient, self.first, self.second, self.count, rate, 0.9, 0.99)
