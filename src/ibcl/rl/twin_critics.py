r"""Twin critics Q₁, Q₂ of state and action, their gradients written out by hand.

Both are perceptrons with layer normalisation (without gain or offset) and ReLU, in one flat
parameter vector with one flat gradient and one optimiser step; `ibcl.rl.kernels` does the
arithmetic.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ibcl.rl import kernels
from ibcl.rl.adam import FlatAdam
from ibcl.rl.checkpoint import Carried
from ibcl.rl.kernels import Single
from ibcl.rl.policies import Floats

TWINS = 2
BLOCK = 128
"""Rows whose hidden layers fit into a processor's own cache."""


class TwinCritics(Carried):
    """Two critics (inputs → hidden … → 1) and their slowly following targets.

    Examples
    --------
    >>> critics = TwinCritics(3, (8, 8), np.random.default_rng(0))
    >>> critics.values(np.zeros((5, 3), dtype=np.float32)).shape
    (2, 5)
    """

    carried = ("parameters", "target", "adam")

    def __init__(self, inputs: int, hidden: tuple[int, ...], rng: np.random.Generator) -> None:
        self.sizes = np.array([inputs, *hidden, 1], dtype=np.int64)
        layers = []
        for i, o in pairwise(self.sizes.tolist()):
            layers += [rng.normal(0, 1 / np.sqrt(i), TWINS * i * o), np.zeros(TWINS * o)]
        self.parameters = np.concatenate(layers).astype(np.float32)
        self.gradient = np.zeros_like(self.parameters)
        self.target = self.parameters.copy()
        self.adam = FlatAdam(self.parameters.size)

    def values(self, inputs: Single) -> Single:
        """Q₁ and Q₂ of inputs (N, in), shape (2, N)."""
        return kernels.critic_values(self.sizes, TWINS, self.parameters, inputs, BLOCK)

    def target_values(self, inputs: Single) -> Single:
        """Return the smaller of the two targets' values, shape (N,)."""
        values = kernels.critic_values(self.sizes, TWINS, self.target, inputs, BLOCK)
        return np.asarray(values.min(0))

    def follow(self, share: float) -> None:
        """Move the targets by a share of the way to the critics."""
        self.target += np.float32(share) * (self.parameters - self.target)

    def differentiate(self, inputs: Single, targets: Single) -> Single:
        """Put ∂/∂parameters of ½ Σ_i mean (Q_i − target)² into ``gradient``; returns the values."""
        return kernels.critics_gradient(
            self.sizes, TWINS, self.parameters, inputs, targets, self.gradient
        )

    def fit(self, inputs: Single, targets: Single, rate: float) -> None:
        """Take one step towards the targets."""
        self.differentiate(inputs, targets)
        self.adam.step(self.parameters, self.gradient, rate)

    def slope(self, inputs: Single, actions: int) -> Floats:
        """∂Q₁/∂a of shape (N, actions), the last inputs, along which a policy climbs."""
        return kernels.critic_slope(self.sizes, TWINS, self.parameters, inputs, actions)
