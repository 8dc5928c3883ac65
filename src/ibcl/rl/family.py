r"""Tasks learnt together, so that what pooling makes of them is what was trained.

Pooling by Wasserstein barycentre averages means: the policy at weights λ over the tasks has the
parameters θ(λ) = Σ_k λ_k θ_k. Learnt apart, the policies between two tasks are never tried in
training; learnt together, every update is made at some λ, and its gradient goes to the tasks by

    ∂/∂θ_k = λ_k ∂/∂θ(λ).

A task that was learnt before may be one of them and be kept as it is: its θ_k does not move, and
the others are learnt so that averages with it are good.

Places λ are drawn on the line through the tasks for two objectives (each place between two
neighbours), on their simplex for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.rl.policies import Floats, Perceptron


@dataclass(frozen=True)
class Anchor:
    """One of the tasks: its reward is ``scale`` · w · (min(r, cap) − base), one value an objective.

    A cap asks for a pace: a reward beyond it counts no more. What all policies earn alike, the
    base, would only make values large and hard to learn. A ``kept`` one was learnt before and stays
    as it is.
    """

    weights: tuple[float, ...]
    cap: tuple[float, ...] | None = None
    base: tuple[float, ...] | None = None
    scale: float = 1.0
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
            self._weights = np.array(
                [anchor.scale * np.array(anchor.weights) for anchor in anchors], dtype=np.float32
            )

    def _dimension(self) -> int:
        return self.tasks * self.network.dimension

    @property
    def context(self) -> int:
        """How many further inputs tell the critics the place."""
        return self.tasks if self.tasks > 1 else 0

    def places(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw weights over the tasks."""
        if self.tasks == 1:
            return np.ones((count, 1), dtype=np.float32)
        if self._weights.shape[1] == 2:
            return hat_weights(rng.uniform(0, self.tasks - 1, count), self.tasks)
        return rng.dirichlet(np.ones(self.tasks), count).astype(np.float32)

    def renewed(self, place: Floats, fresh: NDArray[np.bool_], rng: np.random.Generator) -> Floats:
        """Draw the places of all copies at first, and from then on those of fresh ones anew."""
        if not len(place):
            return self.places(len(fresh), rng)
        if fresh.any():
            place[fresh] = self.places(int(fresh.sum()), rng)
        return place

    def order(self, place: Floats, rng: np.random.Generator) -> Floats:
        """Return numbers by which neighbouring places come together when sorted."""
        along = np.arange(self.tasks)
        if self.tasks > 1 and self._weights.shape[1] > 2:
            along = rng.permutation(self.tasks)
        return np.asarray(place @ along.astype(np.float32))

    def critic_features(self, features: Floats, place: Floats) -> Floats:
        """Append the place to the features, where there is more than one task."""
        return np.concatenate([features, place], axis=-1) if self.context else features

    def actor_features(self, features: Floats, place: Floats) -> Floats:
        """Return what the network sees: the place is in its parameters."""
        del place
        return features

    def rewards(
        self, rewards: Floats, place: Floats, weights: Floats, earned: NDArray[np.bool_]
    ) -> Floats:
        """Preferred rewards (rows, n) of reward vectors (rows, n, objectives).

        ``weights`` are those of a single task and may have more columns than there are objectives.
        ``earned`` tells the steps (rows, n) that were taken; others are worth nothing, without a
        base taken off.
        """
        if self.tasks == 1:
            return np.asarray(rewards @ weights)
        rewards = rewards[..., : self._weights.shape[1]]
        capped = np.minimum(rewards, (place @ self._caps)[:, None])
        capped -= (place @ self._bases)[:, None]
        return np.asarray(np.einsum("rno,ro->rn", capped, place @ self._weights) * earned)

    def join(self, priors: Sequence[Gaussian]) -> DiagonalGaussian:
        """Return the prior of all tasks from one of each: side by side in one long vector."""
        diagonal = [q for q in priors if isinstance(q, DiagonalGaussian)]
        if len(diagonal) < len(priors):
            raise ValueError("Tasks can be learnt together from diagonal Gaussian priors only.")
        means, stds = [q.mean for q in diagonal], [q.std for q in diagonal]
        return DiagonalGaussian(torch.cat(means), torch.cat(stds))

    def split(self, q: DiagonalGaussian) -> list[DiagonalGaussian]:
        """Return the posterior of every task."""
        pairs = zip(q.mean.chunk(self.tasks), q.std.chunk(self.tasks), strict=True)
        return [DiagonalGaussian(mean.clone(), std.clone()) for mean, std in pairs]

    def acting(self, theta: Floats, place: Floats) -> Floats:
        """Parameters of the plain policy at a place; rows of θ and of places go together."""
        return self.policies(theta, place)

    def policies(self, theta: Floats, place: Floats) -> Floats:
        """θ(λ) for rows of (θ_1 … θ_K) and of places."""
        if self.tasks == 1:
            return theta
        parts = theta.reshape(len(theta), self.tasks, -1)
        return np.asarray(np.einsum("rk,rkd->rd", place, parts))

    def gradient(self, gradient: Floats, place: Floats) -> Floats:
        """∂/∂(θ_1 … θ_K) from rows of ∂/∂θ(λ) and of places, nothing for those that are kept."""
        if self.tasks == 1:
            return gradient
        shares = place * self._moves
        return np.asarray((shares[:, :, None] * gradient[:, None]).reshape(len(gradient), -1))

    def vertices(self, theta: Floats) -> Floats:
        """Parameters of every task's own policy, one row each."""
        return theta.reshape(self.tasks, -1)
