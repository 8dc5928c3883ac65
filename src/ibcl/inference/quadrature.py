r"""Expectations of a linear head's likelihood under a Gaussian, without sampling noise.

Under θ ~ N(μ, Σ) the outputs of a linear head are Gaussian, so the expectations in the ELBO are
low-dimensional integrals. For each likelihood, `Expectations` holds, for every sample,

* the expected loss E[−log p(y | z)],
* its negative gradient with respect to the outputs' mean, E[y − p(z)] for classification, and
* its curvature E[∂² −log p / ∂z²], an outputs × outputs matrix.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import qmc
from torch import Tensor

from ibcl.likelihoods import Bernoulli, Categorical, Likelihood, Normal


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


_HERMITE_NODES, _HERMITE_WEIGHTS = (
    torch.as_tensor(values) for values in np.polynomial.hermite_e.hermegauss(48)
)
_LEGENDRE_NODES, _LEGENDRE_WEIGHTS = (
    torch.as_tensor(values) for values in np.polynomial.legendre.leggauss(96)
)
# Beyond this |z| the logistic function equals a step to double precision.
_TAIL = 40.0
# Below this std Gauss–Hermite nodes resolve the logistic function, above it Gauss–Legendre nodes
# resolve the Gaussian; both are accurate to about 1e-9 where they meet.
_SWITCH = 1.6
_SOFTMAX_POINTS = 128


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
    narrow = std <= _SWITCH
    result = LogisticMoments(*(torch.empty_like(mean) for _ in range(3)))
    for rows, rule in ((narrow, _by_hermite), (~narrow, _by_legendre)):
        if bool(rows.any()):
            for kept, values in zip(result, rule(mean[rows], std[rows]), strict=True):
                kept[rows] = values
    return result


def _by_hermite(mean: Tensor, std: Tensor) -> LogisticMoments:
    weights = _HERMITE_WEIGHTS / math.sqrt(2 * math.pi)
    z = mean[:, None] + std[:, None] * _HERMITE_NODES
    sigmoid = torch.sigmoid(z)
    return LogisticMoments(
        torch.nn.functional.softplus(z) @ weights,
        sigmoid @ weights,
        (sigmoid * (1 - sigmoid)) @ weights,
    )


def _by_legendre(mean: Tensor, std: Tensor) -> LogisticMoments:
    t = (_LEGENDRE_NODES + 1) * (_TAIL / 2)
    weights = _LEGENDRE_WEIGHTS * (_TAIL / 2)
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


def _bernoulli(mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
    logit = mean[:, 0]
    std = covariance[:, 0, 0].clamp(min=0).sqrt()
    moments = logistic_moments(logit, std)
    return Expectations(
        moments.softplus - y * logit,
        (y - moments.sigmoid)[:, None],
        moments.slope[:, None, None],
    )


def _softmax_points(outputs: int) -> Tensor:
    """Fixed quasi-random standard normal points, mirrored so that odd moments vanish."""
    sobol = qmc.MultivariateNormalQMC(np.zeros(outputs), rng=np.random.default_rng(0))
    points = torch.as_tensor(sobol.random(_SOFTMAX_POINTS // 2))
    return torch.cat([points, -points])


def _categorical(mean: Tensor, covariance: Tensor, y: Tensor) -> Expectations:
    outputs = mean.shape[1]
    points = _softmax_points(outputs)
    # The symmetric root exists where a logit is known exactly and where rounding left a covariance
    # a little short of positive, and it moves smoothly with the covariance.
    values, vectors = torch.linalg.eigh(covariance)
    root = (vectors * values.clamp(min=0).sqrt()[:, None]) @ vectors.transpose(1, 2)
    logits = mean[:, None] + points @ root
    probabilities = torch.softmax(logits, -1)
    expected = probabilities.mean(1)
    second = probabilities.transpose(1, 2) @ probabilities / len(points)
    chosen = torch.nn.functional.one_hot(y, outputs).to(mean.dtype)
    return Expectations(
        torch.logsumexp(logits, -1).mean(1) - (chosen * mean).sum(1),
        chosen - expected,
        torch.diag_embed(expected) - second,
    )


def _gaussian(mean: Tensor, covariance: Tensor, y: Tensor, noise: float) -> Expectations:
    n, outputs = mean.shape
    precision = 1 / noise**2
    spread = covariance.diagonal(dim1=1, dim2=2).sum(1)
    square = (y - mean).square().sum(1) + spread
    return Expectations(
        0.5 * precision * square + outputs * (math.log(noise) + 0.5 * math.log(2 * math.pi)),
        precision * (y - mean),
        (precision * torch.eye(outputs, dtype=mean.dtype)).expand(n, outputs, outputs),
    )


def expectations(
    likelihood: Likelihood, mean: Tensor, covariance: Tensor, y: Tensor
) -> Expectations:
    """Expectations under outputs z ~ N(mean, covariance), one Gaussian a sample.

    Parameters
    ----------
    mean
        Shape (n, outputs).
    covariance
        Shape (n, outputs, outputs); zeros give the plain loss and its derivatives.
    """
    if isinstance(likelihood, Bernoulli):
        return _bernoulli(mean, covariance, y.double())
    if type(likelihood) is Categorical:
        return _categorical(mean, covariance, y)
    if isinstance(likelihood, Normal):
        return _gaussian(mean, covariance, y.double(), likelihood.noise)
    raise ValueError(f"DenseVI does not know the likelihood {likelihood!r}; use MeanFieldVI.")


def quadrature_error(likelihood: Likelihood) -> float:
    """Relative error the quadrature leaves in an expected loss, roughly."""
    return 1e-3 if isinstance(likelihood, Categorical) else 0.0
