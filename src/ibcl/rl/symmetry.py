r"""Reflections under which a problem looks the same, and what they do to policies.

A reflection g maps observations, actions and objectives by signed permutations such that mirrored
actions from a mirrored state lead to the mirrored next state and to the mirrored rewards. The
mirror image of a policy, (gπ)(s) = g π(g⁻¹ s), then earns the mirrored returns. For a network whose
hidden units come in pairs that change places, gπ has the parameters gθ with g a signed permutation
of θ, so the mirror image of a Gaussian over parameters is a Gaussian again.

Two uses follow. A task that is its own mirror image may be learnt by policies that are their own
mirror image, which halves what there is to learn; and a task learnt once is learnt for its mirror
image as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.policies import Floats, Normaliser, Policy
from ibcl.rl.variational import Variational


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

    @classmethod
    def identity(cls, size: int) -> SignedPermutation:
        """Leave everything in its place."""
        return cls(tuple(range(size)), (1.0,) * size)

    def then_identity(self, size: int) -> SignedPermutation:
        """Extend by entries that stay as they are, to ``size`` in all."""
        more = size - len(self.source)
        return SignedPermutation(
            (*self.source, *range(len(self.source), size)), (*self.sign, *(1.0,) * more)
        )


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
            self.observation.then_identity(sizes[0]),
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


class Projection:
    """Keeps q equal to its own mirror image, by averaging the two."""

    def __init__(self, reflection: Reflection, policy: Policy, weights: Sequence[float]) -> None:
        if not np.allclose(reflection.preference(weights), weights):
            raise ValueError(
                f"The preference {list(weights)} is not its own mirror image, so its policies "
                "cannot be; learn it without reflection."
            )
        self._image = reflection.parameters(policy)

    def __call__(self, q: Variational) -> None:
        """Project in place."""
        q.mean += self._image(q.mean)
        q.mean /= 2
        q.log_std += q.log_std[list(self._image.source)]
        q.log_std /= 2
