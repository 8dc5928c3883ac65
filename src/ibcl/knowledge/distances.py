r"""Distances between posteriors that the threshold d of Algorithm 1 may be compared with, by name.

* ``"rms"``, W2/√D: the root-mean-square move of a parameter, the same for small and large networks;
* ``"norms"``, (‖μ − μ′‖ + ‖σ − σ′‖)/D: norms divided by the *number* of parameters, as the public
  code of the paper's authors has it. It shrinks with the network: by up to √2/√D of the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from ibcl.gaussians import Gaussian


class Distance(NamedTuple):
    """A distance of Gaussians as a number per parameter."""

    of: Callable[[Gaussian, Gaussian], float]
    """Of two Gaussians, at least the distance of their means."""
    unit: Callable[[int], float]
    """What it is divided by, for D parameters."""
    symbol: str

    def __call__(self, a: Gaussian, b: Gaussian) -> float:
        """Return the distance of two Gaussians, per parameter."""
        return self.of(a, b) / self.unit(a.dimension)


def _wasserstein(a: Gaussian, b: Gaussian) -> float:
    return a.wasserstein(b)


def _norms(a: Gaussian, b: Gaussian) -> float:
    means = (a.mean.double() - b.mean.double()).norm()
    return float(means + (_deviations(a) - _deviations(b)).norm())


def _deviations(gaussian: Gaussian) -> Tensor:
    """Marginal standard deviations σ."""
    diagonal = gaussian.as_diagonal()
    if diagonal is not None:
        return diagonal.std.double()
    found: Tensor = gaussian.dense().covariance.diagonal().double().sqrt()
    return found


RMS, NORMS = "rms", "norms"
DISTANCES = {
    RMS: Distance(_wasserstein, math.sqrt, "W2/√D"),
    NORMS: Distance(_norms, float, "(‖Δμ‖ + ‖Δσ‖)/D"),
}
"""All distances by name."""


def distance_named(name: str) -> Distance:
    """Return a distance by its name.

    Examples
    --------
    >>> from ibcl import DiagonalGaussian
    >>> a, b = DiagonalGaussian([0.0] * 4, [1.0] * 4), DiagonalGaussian([3.0] * 4, [1.0] * 4)
    >>> distance_named("rms")(a, b), distance_named("norms")(a, b)
    (3.0, 1.5)
    """
    if name not in DISTANCES:
        raise ValueError(f"distance must be one of {', '.join(DISTANCES)}, not {name!r}.")
    return DISTANCES[name]
