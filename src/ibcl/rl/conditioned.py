r"""A baseline: one network that sees the preference, as PD-MORL's does, learnt off-policy.

The preference w is appended to the observation, and policy and critics are trained at preferences
drawn from the whole simplex, with the same twin critics, replay, exploration and updates as
`TwinDelayed`. What it learns is a single network and no posterior per task.

A network that sees w in its first layer has, for a fixed w, the parameters of a plain policy whose
first bias is b + Σ_k w_k B_k. So its policies can be stored, pooled and scored like ours: the
extremes are tasks that differ in one bias, and pooling them at w gives the network at w exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.family import Anchor, Family
from ibcl.rl.policies import Floats, Perceptron, Policy
from ibcl.rl.twin_delayed import TwinDelayed


class ConditionedFamily(Family):
    """Tasks that share one network and see the preference as further inputs."""

    def __init__(self, network: Perceptron, anchors: Sequence[Anchor]) -> None:
        if any(anchor.kept for anchor in anchors):
            raise ValueError("Tasks that share one network cannot be kept apart from it.")
        inputs, *rest = network.sizes
        self._width = rest[0]
        self._first = inputs * self._width
        self._more = len(anchors) * self._width
        super().__init__(Perceptron((inputs + len(anchors), *rest), network.squashed), anchors)

    def _dimension(self) -> int:
        return self.network.dimension

    def join(self, priors: Sequence[DiagonalGaussian]) -> DiagonalGaussian:
        """Begin at the first prior, blind to the preference."""
        prior = priors[0]
        blind = torch.zeros(self._more)
        spread = prior.std[: self._first].mean().expand(self._more)
        return DiagonalGaussian(self._insert(prior.mean, blind), self._insert(prior.std, spread))

    def _insert(self, values: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
        return torch.cat([values[: self._first], more, values[self._first :]])

    def split(self, q: DiagonalGaussian) -> list[DiagonalGaussian]:
        """Return the plain policy's Gaussian at every extreme: biases and variances add."""
        one_hot = np.eye(self.tasks, dtype=np.float32)
        means, variances = (
            self.acting(np.repeat(part.numpy()[None], self.tasks, axis=0), one_hot)
            for part in (q.mean, q.std.square())
        )
        return [
            DiagonalGaussian(torch.tensor(mean), torch.tensor(variance).sqrt())
            for mean, variance in zip(means, variances, strict=True)
        ]

    def acting(self, theta: Floats, mixing: Floats) -> Floats:
        """Fold the preference into the first bias."""
        end = self._first + self._more
        biases = theta[:, self._first : end].reshape(len(theta), self.tasks, self._width)
        bias = theta[:, end : end + self._width] + np.einsum("rk,rkw->rw", mixing, biases)
        return np.concatenate(
            [theta[:, : self._first], bias, theta[:, end + self._width :]], axis=1
        )

    def policies(self, theta: Floats, mixing: Floats) -> Floats:
        """Return the network's parameters, the same at every preference."""
        del mixing
        return theta

    def actor_features(self, features: Floats, mixing: Floats) -> Floats:
        """Append the preference to what the network sees."""
        return np.concatenate([features, mixing], axis=-1)

    def gradient(self, gradient: Floats, mixing: Floats) -> Floats:
        """∂/∂θ is the same at every preference."""
        del mixing
        return gradient

    def vertices(self, theta: Floats) -> Floats:
        """Parameters of the plain policy at every extreme."""
        one_hot = np.eye(self.tasks, dtype=np.float32)
        return self.acting(np.repeat(theta[None], self.tasks, axis=0), one_hot)


@dataclass(frozen=True)
class PreferenceConditioned(TwinDelayed):
    """`TwinDelayed` for one network that sees the preference; ``anchors`` are the extremes."""

    def family(self, policy: Policy) -> Family:
        """Share everything but the preference that is seen."""
        return ConditionedFamily(policy.network, self.anchors)
