r"""Policies π_θ: a linear map or a small tanh network from observations to actions.

Many parameter vectors act at once, each on its own copy of the environment, and the gradient with
respect to each is written out by hand: for networks this small that is twice as fast as automatic
differentiation, and the simulator, not the arithmetic, becomes the bottleneck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ibcl.rl import kernels
from ibcl.rl.environments import Environment
from ibcl.rl.kernels import Single

Floats = NDArray[np.floating]


def _tanh_slope(value: Floats) -> Floats:
    """Derivative of tanh where it has this value, 1 − tanh²."""
    slope = np.square(value)
    return np.subtract(1, slope, out=slope)


@dataclass(frozen=True)
class Perceptron:
    """A stack of affine layers with tanh between them, its parameters one flat vector.

    With ``squashed`` the output passes through tanh too.

    Examples
    --------
    >>> network = Perceptron((17, 64, 6))
    >>> network.dimension
    1542
    >>> theta = np.zeros((2, network.dimension))
    >>> network.forward(theta, np.zeros((2, 5, 17)))[-1].shape
    (2, 5, 6)
    """

    sizes: tuple[int, ...]
    squashed: bool = False

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return sum((i + 1) * o for i, o in pairwise(self.sizes))

    def layers(self, theta: Floats) -> list[tuple[Floats, Floats]]:
        """View θ of shape (B, D) as weights (B, in, out) and biases (B, 1, out)."""
        views, start = [], 0
        for i, o in pairwise(self.sizes):
            weight = theta[:, start : start + i * o].reshape(-1, i, o)
            bias = theta[:, start + i * o : start + (i + 1) * o].reshape(-1, 1, o)
            views.append((weight, bias))
            start += (i + 1) * o
        return views

    def forward(self, theta: Floats, inputs: Floats) -> list[Floats]:
        """Activations of every layer for inputs of shape (B, N, in); the last is the output."""
        activations = [inputs]
        layers = self.layers(theta)
        for index, (weight, bias) in enumerate(layers):
            output = activations[-1] @ weight
            output += bias
            if self.squashed or index < len(layers) - 1:
                np.tanh(output, out=output)
            activations.append(output)
        return activations

    def backward(self, theta: Floats, activations: Sequence[Floats], gradient: Floats) -> Floats:
        """∂L/∂θ of shape (B, D) from ∂L/∂output of shape (B, N, out)."""
        result = np.empty_like(theta)
        views = self.layers(result)
        layers = self.layers(theta)
        if self.squashed:
            gradient = gradient * _tanh_slope(activations[-1])
        for index in range(len(layers) - 1, -1, -1):
            weight, bias = views[index]
            np.matmul(activations[index].swapaxes(1, 2), gradient, out=weight)
            np.sum(gradient, axis=1, keepdims=True, out=bias)
            if index:
                gradient = gradient @ layers[index][0].swapaxes(1, 2)
                gradient *= _tanh_slope(activations[index])
        return result

    def act(self, theta: Single, inputs: Single) -> tuple[Single, Single]:
        """Outputs (N, out) of one parameter vector for many inputs, and what `gradient` needs.

        The compiled counterpart of `forward`, which is for many parameter vectors.
        """
        work = kernels.perceptron(np.array(self.sizes), self.squashed, theta, inputs)
        return work[-len(inputs) * self.sizes[-1] :].reshape(len(inputs), -1), work

    def gradient(self, theta: Single, inputs: Single, work: Single, upstream: Single) -> Single:
        """∂L/∂θ of one parameter vector from ∂L/∂output (N, out)."""
        sizes = np.array(self.sizes)
        return kernels.perceptron_gradient(sizes, self.squashed, theta, inputs, work, upstream)

    def initial(self, rng: np.random.Generator, last: float = 0.01) -> Floats:
        """Draw starting parameters: N(0, 1/in) weights, the last layer's times ``last``."""
        theta = np.zeros((1, self.dimension))
        layers = self.layers(theta)
        for index, (weight, _) in enumerate(layers):
            scale = last if index == len(layers) - 1 else 1.0
            weight[...] = rng.normal(0, scale / np.sqrt(weight.shape[1]), weight.shape)
        return np.asarray(theta[0], dtype=np.float32)


@dataclass(frozen=True)
class Normaliser:
    """Fixed shift and scale of the observations, shared by every policy that is to be combined."""

    mean: Floats
    std: Floats
    limit: float = 10.0

    def __call__(self, observation: Floats) -> Floats:
        """(o − mean) / std, kept within ± ``limit``."""
        scaled = (observation - self.mean) / self.std
        return np.clip(scaled, -self.limit, self.limit).astype(np.float32)

    @classmethod
    def fit(cls, environment: Environment, steps: int, rng: np.random.Generator) -> Normaliser:
        """Observe an environment under uniformly random actions."""
        seen = [environment.reset()]
        for _ in range(steps):
            actions = rng.uniform(-1, 1, (environment.copies, environment.action_size))
            seen.append(environment.step(actions).observation)
        observations = np.concatenate(seen)
        return cls(observations.mean(0), np.maximum(observations.std(0), 1e-3))


@dataclass(frozen=True)
class Policy:
    """The architecture of π_θ; the parameters θ come from outside, one row per copy.

    ``squashed`` actions pass through tanh and stay within ±1, as a deterministic policy gradient
    needs them; others are clipped by the environment.

    Examples
    --------
    >>> policy = Policy(observation_size=3, action_size=1, hidden=())
    >>> policy.dimension
    4
    >>> float(policy.act(np.array([[1.0, 0.0, 0.0, 0.5]]), np.array([[2.0, 9.0, 9.0]]))[0, 0])
    2.5
    """

    observation_size: int
    action_size: int
    hidden: tuple[int, ...] = (64,)
    squashed: bool = False
    normaliser: Normaliser | None = field(default=None, compare=False)

    @property
    def network(self) -> Perceptron:
        """The map from features to actions."""
        sizes = (self.observation_size, *self.hidden, self.action_size)
        return Perceptron(sizes, self.squashed)

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return self.network.dimension

    def features(self, observation: Floats) -> Floats:
        """Normalised observation."""
        return self.normaliser(observation) if self.normaliser else observation

    def act(self, theta: Floats, observation: Floats) -> Floats:
        """Mean actions of parameters (n, D) at observations (n, o)."""
        return self.network.forward(theta, self.features(observation)[:, None])[-1][:, 0]
