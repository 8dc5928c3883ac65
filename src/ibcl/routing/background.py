r"""How much an input is one of a task's own, judged by that task alone.

Where nothing may be known of other tasks, a task's density p is compared with a *background* b, a
wider Gaussian around the same classes, and the input's share is p/(p + b). With φ̂ of
`ibcl.routing.densities`, the class means μ_c, the covariance S within them and
C = (1 − b) S + b v I, v the mean of S's diagonal,

    D²(φ) = min_c (φ̂ − μ_c)ᵀC⁻¹(φ̂ − μ_c),     log p/b = a − (D² − E D²)/Std D²,

in units of the task's own spread: E D² = tr C⁻¹S and Var D² = 2 tr (C⁻¹S)² for Gaussian features.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ibcl.routing.densities import polar
from ibcl.routing.records import ClassDensities, typical_length

# How many spreads away an input has an even share, and the ridge, large since few rows make a
# covariance that is too narrow for other rows. Compared on one development seed of the digits and
# of CIFAR-100, by the size of sets on test rows: sizes there are a little optimistic.
EVEN = 2.0
RIDGE = 0.3
# Variances below this are rounding: φ̂ is of size 1.
_SMALLEST_VARIANCE = 1e-9


def log_background_share(record: ClassDensities, features: Tensor) -> Tensor:
    """Return log p/(p + b) of features φ, shape (n,).

    Parameters
    ----------
    record
        What a gate keeps of the task.
    features
        Shape (n, d).

    Examples
    --------
    >>> from ibcl.routing.records import Ranks
    >>> rows = torch.randn(200, 4, generator=torch.Generator().manual_seed(0)) + 3
    >>> record = ClassDensities.of(rows, None, None, Ranks(96, 128, 32))
    >>> asked = torch.stack([torch.full((4,), 3.0), torch.full((4,), -3.0)])
    >>> log_background_share(record, asked).exp().round(decimals=2).tolist()
    [0.97, 0.0]
    """
    means = record.means.double()
    covariance = record.scatters.dense().sum(0) / record.counts.sum()
    size = covariance.diagonal().mean().clamp(min=_SMALLEST_VARIANCE)
    identity = torch.eye(len(covariance), dtype=torch.float64)
    factor = torch.linalg.cholesky((1 - RIDGE) * covariance + RIDGE * size * identity)
    spread = torch.cholesky_solve(covariance, factor)
    expected, variance = spread.trace(), 2 * (spread * spread.T).sum()
    directions = polar(features.double().cpu(), typical_length([record]))
    whitened = torch.linalg.solve_triangular(factor, directions.T, upper=False)
    centres = torch.linalg.solve_triangular(factor, means.T, upper=False)
    nearest = torch.cdist(whitened.T, centres.T).square().amin(1)
    deviation = variance.sqrt().clamp(min=_SMALLEST_VARIANCE)
    return torch.nn.functional.logsigmoid(EVEN - (nearest - expected) / deviation)
