r"""Reflections and rotations under which a problem looks the same, and what they do to policies.

A reflection g maps observations, actions and objectives by signed permutations such that mirrored
actions from a mirrored state lead to the mirrored next state and to the mirrored rewards. The
mirror image of a policy, (gπ)(s) = g π(g⁻¹ s), then earns the mirrored returns. For a network whose
hidden units come in pairs that change places, gπ has the parameters gθ with g a signed permutation
of θ, so the mirror image of a Gaussian over parameters is a Gaussian again.

A rotation acts on observations by an orthogonal matrix G and leaves actions as they are. The turned
policy has the same network with its first layer W (inputs × units) replaced by G W: a linear map of
θ again. The image of a diagonal Gaussian is diagonal where the spread is equal within every pair of
inputs that turn into each other, which `Rotation.tie` sees to.

Two uses follow: replayed experience may be shown in the mirror as well, and a task learnt once is
learnt for its images too (*symmetry transfer*).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import ArrayLike

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.policies import Floats, Normaliser, Policy


@dataclass(frozen=True)
class SignedPermutation:
    """Entry i of the image is ``sign[i]`` times entry ``source[i]``.

    Examples
    --------
    >>> swap = SignedPermutation((1, 0), (1.0, -1.0))
    >>> swap(np.array([2.0, 3.0])).tolist()
    [3.0, -2.0]
    """

    source: tuple[int, ...]
    sign: tuple[float, ...]

    def __call__(self, values: Floats) -> Floats:
        """Apply along the last axis."""
        return values[..., list(self.source)] * np.asarray(self.sign, dtype=values.dtype)


def _pairs_swapped(size: int) -> SignedPermutation:
    if size % 2:
        raise ValueError(f"A reflected policy needs an even number of hidden units, not {size}.")
    return SignedPermutation(tuple(i ^ 1 for i in range(size)), (1.0,) * size)


@dataclass(frozen=True)
class Reflection:
    """What a mirror does to observations and actions, and which objective becomes which.

    It must be its own inverse.

    Examples
    --------
    >>> sides = SignedPermutation((0,), (-1.0,))
    >>> left_right = Reflection(sides, sides, (1, 0))
    >>> left_right.preference([0.2, 0.8]).tolist()
    [0.8, 0.2]
    >>> left_right.parameters(Policy(1, 1, hidden=()))(np.array([2.0, 0.5])).tolist()
    [2.0, -0.5]
    """

    observation: SignedPermutation
    action: SignedPermutation
    objectives: tuple[int, ...]

    def preference(self, weights: ArrayLike) -> Floats:
        """Return the mirror image of a preference over the objectives."""
        return np.asarray(weights, dtype=np.float64)[list(self.objectives)]

    def parameters(self, policy: Policy) -> SignedPermutation:
        """Return g on θ; the hidden units 2i and 2i + 1 change places."""
        sizes = policy.network.sizes
        units = [
            self.observation,
            *(_pairs_swapped(size) for size in sizes[1:-1]),
            self.action,
        ]
        source: list[int] = []
        sign: list[float] = []
        for (inputs, outputs), (before, after) in zip(
            pairwise(sizes), pairwise(units), strict=True
        ):
            start = len(source)
            rows = np.array(before.source)[:, None] * outputs
            source += (start + rows + np.array(after.source)).ravel().tolist()
            sign += np.outer(before.sign, after.sign).ravel().tolist()
            source += [start + inputs * outputs + unit for unit in after.source]
            sign += after.sign
        return SignedPermutation(tuple(source), tuple(sign))

    def normaliser(self, normaliser: Normaliser) -> Normaliser:
        """Average with the mirror image, so that features are mirrored as observations are."""
        mean = (normaliser.mean + self.observation(normaliser.mean)) / 2
        std = (normaliser.std + np.abs(self.observation(normaliser.std))) / 2
        return Normaliser(mean, std)

    def gaussian(self, policy: Policy, q: DiagonalGaussian) -> DiagonalGaussian:
        """Return the mirror image of a distribution over parameters."""
        image = self.parameters(policy)
        source = list(image.source)
        return DiagonalGaussian(q.mean[source] * q.mean.new_tensor(image.sign), q.std[source])


@dataclass(frozen=True)
class Turn:
    """A rotation by one angle (in radians) of an environment's `Rotation`."""

    rotation: Rotation
    angle: float

    def matrix(self, size: int) -> Floats:
        """G on ``size`` observations."""
        result = np.eye(size)
        for first, second, multiple in self.rotation.pairs:
            cosine, sine = np.cos(multiple * self.angle), np.sin(multiple * self.angle)
            result[np.ix_((first, second), (first, second))] = [[cosine, -sine], [sine, cosine]]
        return result

    def preference(self, weights: ArrayLike) -> Floats:
        """Turn a preference between the two speeds, as the direction it points in."""
        turned = np.array(weights, dtype=np.float64)
        first, second = self.rotation.plane
        direction = np.arctan2(turned[second], turned[first]) + self.angle
        share = np.array([np.cos(direction), np.sin(direction)])
        if share.min() < -1e-9:
            raise ValueError(
                f"Turned by {np.rad2deg(self.angle):g}°, the preference {list(turned)} points away "
                "from an objective; turn it less."
            )
        share = np.clip(share, 0, None).round(12)
        turned[[first, second]] = (turned[first] + turned[second]) * share / share.sum()
        return turned

    def gaussian(self, policy: Policy, q: DiagonalGaussian) -> DiagonalGaussian:
        """Return the image of a distribution over parameters: mean G W, variance G² σ²."""
        self.rotation.check(policy)
        inputs, units = policy.network.sizes[:2]
        turn = torch.tensor(self.matrix(inputs), dtype=q.mean.dtype)
        mean, variance = q.mean.clone(), q.std.square()
        rows = slice(0, inputs * units)
        mean[rows] = (turn @ mean[rows].view(inputs, units)).ravel()
        variance[rows] = (turn.square() @ variance[rows].view(inputs, units)).ravel()
        return DiagonalGaussian(mean, variance.sqrt())


@dataclass(frozen=True)
class Rotation:
    """Turns in a plane: which observations turn into each other, and how fast.

    A turn is as exact as the simulator is indifferent to directions. MuJoCo's default friction is a
    four-sided pyramid along the world's axes: quarter turns of the ant are exact to rounding, other
    turns until a foot slides, and all turns with the elliptic cone.

    Parameters
    ----------
    pairs
        (i, j, multiple): turning the world by an angle turns the observations i and j, as the
        coordinates of a vector, by that multiple of it; ½ for the parts of a quaternion.
    plane
        The two objectives that are speeds along the axes of the plane.

    Examples
    --------
    >>> plane = Rotation(((0, 1, 1.0),), (0, 1))
    >>> quarter = plane.by(90)
    >>> (quarter.matrix(2) @ [1.0, 0.0]).round(9).tolist()
    [0.0, 1.0]
    >>> quarter.preference([1.0, 0.0]).tolist()
    [0.0, 1.0]
    """

    pairs: tuple[tuple[int, int, float], ...]
    plane: tuple[int, int]

    def by(self, degrees: float) -> Turn:
        """Turn by an angle, from the first objective towards the second."""
        return Turn(self, float(np.deg2rad(degrees)))

    def check(self, policy: Policy) -> None:
        """Refuse scales that differ within a pair: features would not turn as observations do."""
        scales = policy.normaliser
        if scales is None:
            return
        for first, second, _ in self.pairs:
            if scales.mean[first] or scales.mean[second] or scales.std[first] != scales.std[second]:
                raise ValueError(
                    f"The observations {first} and {second} turn into each other, so they need "
                    "the same scale and the centre 0; declare such a normaliser."
                )

    def tie(self, policy: Policy, log_std: Floats) -> None:
        """Make the spread equal within pairs, in place, by averaging the variances."""
        inputs, units = policy.network.sizes[:2]
        rows = log_std[: inputs * units].reshape(inputs, units)
        for first, second, _ in self.pairs:
            pair = [first, second]
            rows[pair] = 0.5 * np.log(np.exp(2 * rows[pair]).mean(0))
