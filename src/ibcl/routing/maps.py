r"""Feature maps of a gate, which need no data: nothing of any task is in them.

* *polar*, the direction of φ and the logarithm of its length,

      φ̂ = [φ/‖φ‖, log‖φ‖/√d],

  so that features of any size are of size 1, and size still tells tasks apart;
* *random Fourier features* of φ̂, whose products approximate a Gaussian kernel of bandwidth ℓ,

      h = √2 cos(φ̂ Ω/ℓ + b),     Ω ~ N(0, 1),  b ~ U(0, 2π),

  from a fixed seed, so that they take no bytes. ℓ = √2 is the distance of orthogonal directions.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BANDWIDTH = math.sqrt(2)
_SEED = 0
# Features shorter than this have no direction.
_SHORTEST = 1e-6


class Frequencies(NamedTuple):
    """Ω/ℓ of shape (columns, width), and b."""

    frequencies: Tensor
    phases: Tensor


def polar(features: Tensor) -> Tensor:
    """φ̂ of features of shape (n, d): shape (n, d + 1).

    Examples
    --------
    >>> polar(torch.tensor([[3.0, 4.0]])).round(decimals=3).tolist()
    [[0.6000000238418579, 0.800000011920929, 1.1380000114440918]]
    """
    length = torch.linalg.vector_norm(features, dim=1, keepdim=True).clamp(min=_SHORTEST)
    return torch.cat([features / length, length.log() / math.sqrt(features.shape[1])], 1)


def fourier_width(columns: int) -> int:
    """Return how many Fourier features so many features φ have.

    Examples
    --------
    >>> fourier_width(2), fourier_width(10), fourier_width(512)
    (64, 160, 1000)
    """
    return min(1000, max(64, 16 * columns))


@lru_cache(8)
def fourier_frequencies(columns: int) -> Frequencies:
    """Return Ω/ℓ and b for d features φ, always the same."""
    # The stream of this generator is the only one of numpy's that no later version may change.
    generator = np.random.RandomState(_SEED)
    width = fourier_width(columns)
    frequencies = generator.standard_normal((columns + 1, width)) / BANDWIDTH
    phases = generator.random_sample(width) * 2 * math.pi
    return Frequencies(torch.from_numpy(frequencies), torch.from_numpy(phases))


def fourier(directions: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """H of φ̂: shape (n, width)."""
    return torch.addmm(phases, directions, frequencies).cos_().mul_(math.sqrt(2))
