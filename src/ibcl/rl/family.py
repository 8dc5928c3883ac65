r"""Tasks learnt together, so that what pooling makes of them is what was trained.

Pooling by Wasserstein barycentre averages means: the policy at weights λ over the tasks has the
parameters θ(λ) = Σ_k λ_k θ_k. Learnt apart, the policies between two tasks are never tried in
training; learnt together, every update is made at some λ, and its gradient goes to the tasks by

    ∂/∂θ_k = λ_k ∂/∂θ(λ).

A task that was learnt before may be one of them and be kept as it is: its θ_k does not move, and
the others are learnt so that averages with it are good.

The mixing coefficients λ are drawn on the line through the tasks for two objectives (between two
neighbours each), on their simplex for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.policies import Floats, Perceptron


@dataclass(frozen=True)
class Anchor:
    """One of the tasks: its reward is w · (min(r, cap) − base), one value per objective.

    A cap asks for a pace: a reward beyond it counts no more. What all policies earn alike, the
    base, would only make values large and hard to learn. A ``kept`` one was learnt before and stays
    as it is.
    """

    weights: tuple[float, ...]
    cap: tuple[float, ...] | None = None
    base: tuple[float, ...] | None = None
    kept: bool = False


def hat_weights(position: Floats, anchors: int) -> Floats:
    """Weights of the two neighbours of positions in [0, anchors − 1], one row a position.

    Examples
    --------
    >>> hat_weights(np.array([0.0, 1.25]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.75, 0.25]]
    """
    distance = np.abs(position[:, None] - np.arange(anchors))
    return np.asarray(np.maximum(0, 1 - distance), dtype=np.float32)


class Family:
    """One task, or several learnt together by parameters that average between them.

    Examples
    --------
    >>> family = Family(Perceptron((1, 1)), (Anchor((1.0, 0.0)), Anchor((0.0, 1.0))))
    >>> family.dimension, family.tasks
    (4, 2)
    >>> theta = np.array([[0.0, 2.0, 4.0, 6.0]], dtype=np.float32)
    >>> family.policies(theta, np.array([[0.25, 0.75]], dtype=np.float32)).tolist()
    [[3.0, 5.0]]
    """

    def __init__(self, network: Perceptron, anchors: Sequence[Anchor] = ()) -> None:
        self.network = network
        self.tasks = max(1, len(anchors))
        self.dimension = self._dimension()
        self._moves = np.array([not anchor.kept for anchor in anchors], dtype=np.float32)
        if anchors:
            caps = [anchor.cap or (np.inf,) * len(anchor.weights) for anchor in anchors]
            # Caps are averaged between anchors, with weights that may be zero.
            self._caps = np.minimum(np.array(caps), 1e9).astype(np.float32)
            bases = [anchor.base or (0.0,) * len(anchor.weights) for anchor in anchors]
            self._bases = np.array(bases, dtype=np.float32)
            self._weights = np.array([anchor.weights for anchor in anchors], dtype=np.float32)

    def _dimension(self) -> int:
        return self.tasks * self.network.dimension

    @property
    def context(self) -> int:
        """How many further inputs tell the critics the mixing coefficients."""
        return self.tasks if self.tasks > 1 else 0

    def draw_mixing(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw mixing coefficients of the tasks."""
        if self.tasks == 1:
            return np.ones((count, 1), dtype=np.float32)
        if self._weights.shape[1] == 2:
            return hat_weights(rng.uniform(0, self.tasks - 1, count), self.tasks)
        return rng.dirichlet(np.ones(self.tasks), count).astype(np.float32)

    def renewed(self, mixing: Floats, fresh: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """Draw those of all copies at first, and from then on those of fresh copies anew."""
        if not len(mixing):
            return self.draw_mixing(len(fresh), rng)
        if fresh.any():
            mixing[fresh] = self.draw_mixing(int(fresh.sum()), rng)
        return mixing

    def order(self, mixing: Floats, rng: np.random.Generator) -> Floats:
        """Return numbers by which neighbours come together when sorted."""
        along = np.arange(self.tasks)
        if self.tasks > 1 and self._weights.shape[1] > 2:
            along = rng.permutation(self.tasks)
        return np.asarray(mixing @ along.astype(np.float32))

    def critic_features(self, features: Floats, mixing: Floats) -> Floats:
        """Append the mixing coefficients to the features, where there is more than one task."""
        return np.concatenate([features, mixing], axis=-1) if self.context else features

    def actor_features(self, features: Floats, mixing: Floats) -> Floats:
        """Return what the network sees: mixing is done in its parameters."""
        del mixing
        return features

    def rewards(
        self, rewards: Floats, mixing: Floats, weights: Floats, earned: NDArray[np.bool_]
    ) -> Floats:
        """Preferred rewards (rows, n) of reward vectors (rows, n, objectives).

        ``weights`` are those of a single task.
        ``earned`` tells the steps (rows, n) that were taken; others are worth nothing, without a
        base taken off.
        """
        if self.tasks == 1:
            return np.asarray(rewards @ weights)
        capped = np.minimum(rewards, (mixing @ self._caps)[:, None])
        capped -= (mixing @ self._bases)[:, None]
        return np.asarray(np.einsum("rno,ro->rn", capped, mixing @ self._weights) * earned)

    def join(self, priors: Sequence[DiagonalGaussian]) -> DiagonalGaussian:
        """Return the prior of all tasks from one of each: side by side in one long vector."""
        means, stds = [q.mean for q in priors], [q.std for q in priors]
        return DiagonalGaussian(torch.cat(means), torch.cat(stds))

    def split(self, q: DiagonalGaussian) -> list[DiagonalGaussian]:
        """Return the posterior of every task."""
        pairs = zip(q.mean.chunk(self.tasks), q.std.chunk(self.tasks), strict=True)
        return [DiagonalGaussian(mean.clone(), std.clone()) for mean, std in pairs]

    def acting(self, theta: Floats, mixing: Floats) -> Floats:
        """Parameters of the plain policy at λ; rows of θ and of λ go together."""
        return self.policies(theta, mixing)

    def policies(self, theta: Floats, mixing: Floats) -> Floats:
        """θ(λ) for rows of (θ_1 … θ_K) and of λ."""
        if self.tasks == 1:
            return theta
        parts = theta.reshape(len(theta), self.tasks, -1)
        return np.asarray(np.einsum("rk,rkd->rd", mixing, parts))

    def gradient(self, gradient: Floats, mixing: Floats) -> Floats:
        """∂/∂(θ_1 … θ_K) from rows of ∂/∂θ(λ) and of λ, nothing for those that are kept."""
        if self.tasks == 1:
            return gradient
        shares = mixing * self._moves
        return np.asarray((shares[:, :, None] * gradient[:, None]).reshape(len(gradient), -1))

    def vertices(self, theta: Floats) -> Floats:
        """Parameters of every task's own policy, one row each."""
        return theta.reshape(self.tasks, -1)
