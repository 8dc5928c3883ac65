r"""Expectations of a linear head's likelihood under a Gaussian, without sampling noise.

Under θ ~ N(μ, Σ) the outputs of a linear head are Gaussian, so the expectations in the ELBO are
low-dimensional integrals. `Expectations` holds, for every sample,

* the expected loss E[−log p(y | z)],
* its negative gradient with respect to the outputs' mean, E[∂ log p / ∂z], and
* its curvature E[∂² −log p / ∂z²], an outputs × outputs matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Expectations(NamedTuple):
    """E[loss] of shape (n,), residual (n, outputs), curvature (n, outputs, outputs)."""

    loss: Tensor
    residual: Tensor
    curvature: Tensor


class LogisticMoments(NamedTuple):
    """E[log(1 + e^z)], E[s(z)] and E[s'(z)] for the logistic function s."""

    softplus: Tensor
    sigmoid: Tensor
    slope: Tensor


# Gauss–Hermite nodes enough for logistic functions of Gaussians up to these standard deviations:
# fewer leave more than 1e-11, at the last 2e-10.
_HERMITE_OF = {
    std: np.polynomial.hermite_e.hermegauss(nodes)
    for std, nodes in ((0.3, 8), (0.8, 24), (1.6, 48))
}
_HERMITE = _HERMITE_OF[1.6]
_LEGENDRE = np.polynomial.legendre.leggauss(96)
# Beyond this |z| the logistic function equals a step to double precision.
_TAIL = 40.0
# Below this std Gauss–Hermite nodes resolve the logistic function, above it Gauss–Legendre nodes
# resolve the Gaussian; both are accurate to about 1e-9 where they meet.
_SWITCH = max(_HERMITE_OF)
# Quasi-random points where a sample has several outputs.
_POINTS = 128


def logistic_moments(mean: Tensor, std: Tensor) -> LogisticMoments:
    r"""Moments of the logistic function under z ~ N(mean, std²), accurate for any std.

    A wide Gaussian makes the logistic function look like a step, on which Gauss–Hermite quadrature
    fails. There the step's part is taken in closed form, and only the rest, which vanishes away
    from zero, is integrated numerically: E[s(z)] = Φ(m/σ) − ∫₀^∞ s(−t) (N(t) − N(−t)) dt.

    Examples
    --------
    >>> moments = logistic_moments(torch.zeros(1).double(), torch.tensor([100.0]).double())
    >>> round(float(moments.sigmoid), 9)
    0.5
    """
    result = LogisticMoments(*(torch.empty_like(mean) for _ in range(3)))
    narrower = torch.zeros_like(std, dtype=torch.bool)
    for widest in (*_HERMITE_OF, math.inf):
        # Written so that what is not a number is left to the last.
        rows = ~narrower & ((std <= widest) | (widest == math.inf))
        narrower |= rows
        if bool(rows.any()):
            values = _logistic_moments(mean[rows], std[rows], widest)
            for kept, found in zip(result, values, strict=True):
                kept[rows] = found
    return result


def _logistic_moments(mean: Tensor, std: Tensor, widest: float) -> LogisticMoments:
    if widest == math.inf:
        return _by_legendre(mean, std)
    return _by_hermite(mean, std, _HERMITE_OF[widest])


def _like(values: np.ndarray, mean: Tensor) -> Tensor:
    return torch.as_tensor(values, dtype=mean.dtype, device=mean.device)


def _by_hermite(mean: Tensor, std: Tensor, rule: tuple[np.ndarray, np.ndarray]) -> LogisticMoments:
    nodes, weights = (_like(values, mean) for values in rule)
    weights = weights / math.sqrt(2 * math.pi)
    z = mean[:, None] + std[:, None] * nodes
    sigmoid = torch.sigmoid(z)
    return LogisticMoments(
        torch.nn.functional.softplus(z) @ weights,
        sigmoid @ weights,
        (sigmoid * (1 - sigmoid)) @ weights,
    )


def _by_legendre(mean: Tensor, std: Tensor) -> LogisticMoments:
    nodes, weights = (_like(values, mean) for values in _LEGENDRE)
    t = (nodes + 1) * (_TAIL / 2)
    weights = weights * (_TAIL / 2)
    m, s = mean[:, None], std[:, None]
    scale = weights / (s * math.sqrt(2 * math.pi))
    right = torch.exp(-0.5 * ((t - m) / s).square()) * scale
    left = torch.exp(-0.5 * ((t + m) / s).square()) * scale
    ratio = mean / std
    step = torch.special.ndtr(ratio)
    ramp = mean * step + std * torch.exp(-0.5 * ratio.square()) / math.sqrt(2 * math.pi)
    tail = torch.sigmoid(-t)
    return LogisticMoments(
        ramp + (right + left) @ torch.log1p(torch.exp(-t)),
        step - (right - left) @ tail,
        (right + left) @ (tail * (1 - tail)),
    )


@cache
def _standard_points(outputs: int) -> np.ndarray:
    """Fixed quasi-random standard normal points, mirrored so that odd moments vanish."""
    # It takes most of a second to import, which not everybody needs.
    from scipy.stats import qmc

    sobol = qmc.MultivariateNormalQMC(np.zeros(outputs), rng=np.random.default_rng(0))
    points = sobol.random(_POINTS // 2)
    return np.concatenate([points, -points])


def spread_points(mean: Tensor, covariance: Tensor) -> Tensor:
    """Quasi-random points of N(mean, covariance), of shape (n, points, outputs)."""
    # The symmetric root exists where an output is known exactly and where rounding left a
    # covariance a little short of positive, and it moves smoothly with the covariance.
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp(min=0).sqrt()[:, None]) @ vectors.transpose(1, 2)
    points: Tensor = mean[:, None] + _like(_standard_points(mean.shape[1]), mean) @ root
    return points


def expectations_by_quadrature(
    negative_log: Callable[[Tensor, Tensor], Tensor], mean: Tensor, covariance: Tensor, y: Tensor
) -> Expectations:
    r"""Expectations of any twice differentiable loss −log p(y | z) under z ~ N(mean, covariance).

    By Bonnet's and Price's theorems the derivatives of E[loss] with respect to the mean are the
    expectations of the loss's own, which automatic differentiation gives at every point: 48
    Gauss–Hermite nodes for one output, fixed quasi-random points for several.

    Examples
    --------
    >>> square = lambda z, y: 0.5 * (z[..., 0] - y).square()
    >>> result = expectations_by_quadrature(
    ...     square, torch.ones(1, 1).double(), 4 * torch.ones(1, 1, 1).double(), torch.zeros(1))
    >>> [round(float(value), 9) for value in result]
    [2.5, -1.0, 1.0]
    """
    outputs = mean.shape[1]
    if outputs == 1:
        nodes, weights = (_like(values, mean) for values in _HERMITE)
        weights = weights / math.sqrt(2 * math.pi)
        z = (mean + covariance[:, 0].clamp(min=0).sqrt() * nodes).T[:, :, None]
    else:
        z = spread_points(mean, covariance).transpose(0, 1)
        weights = mean.new_full((len(z),), 1 / len(z))
    with torch.enable_grad():
        z = z.detach().requires_grad_()
        loss = negative_log(z, y)
        (slope,) = torch.autograd.grad(loss.sum(), z, create_graph=True)
        rows = [
            torch.autograd.grad(slope[..., c].sum(), z, retain_graph=True)[0]
            if slope.requires_grad
            else torch.zeros_like(z)
            for c in range(outputs)
        ]

    def average(values: Tensor) -> Tensor:
        averaged: Tensor = torch.tensordot(weights, values.detach(), 1)
        return averaged

    curvature = torch.stack([average(row) for row in rows], 1)
    return Expectations(average(loss), -average(slope), (curvature + curvature.transpose(1, 2)) / 2)
