r"""By how much ratios of densities are too large, known without a row that was not learnt.

Where rows are few and columns many, a density fits the rows it was made of better than others. What
it would say of a row x of class a that it had not learnt is known in closed form, as for linear
discriminants. With C = (1 − b) S̄ + b v I on either map, N rows in all, n_a of them of class a, and
Δ = μ_a − μ_c, ½(D²_c − D²_a)(x) is Gaussian with

    mean  ½ ΔᵀC⁻¹Δ − q/n_a,        variance  ΔᵀC⁻¹ S̄ C⁻¹Δ / (1 − γ)²,
    q = tr C⁻¹S̄ / (1 − γ),         γ = (1 − b) tr(C⁻¹F Fᵀ)/N²,

γ/N being a row's share in C (its leverage, by the formula of Sherman and Morrison), F Fᵀ the
part of the scatter in which C follows the rows. q/n_a is what the mean of class a, found from these
rows, is nearer to them. The two maps are averaged as in `ibcl.routing.densities`, as if they
erred alike.

Log ratios are then multiplied by the s between 0 and 1 under which rows that were not learnt make
their own task most probable,

    min_s Σ_k (1/K) Σ_{a ∈ k} π_a E log(1 + Σ_{j ≠ k} exp(−s z_aj)),

z_aj the log ratio to the nearest class of task j. It is convex in s; 1 where rows are many, and 0
where nothing tells the tasks apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

# At whose roots the expectation over z is taken.
_POINTS = 21


class LogRatios(NamedTuple):
    """Of every class a to every other, over rows of a that were not learnt: (classes, classes)."""

    mean: Tensor
    std: Tensor

    def averaged_with(self, other: LogRatios) -> LogRatios:
        """Return those of the average of both densities, if both err alike."""
        return LogRatios(0.5 * (self.mean + other.mean), 0.5 * (self.std + other.std))


def log_ratios(
    factor: Tensor,
    roots: Iterable[Tensor],
    share: float,
    means: Tensor,
    counts: Tensor,
    sums: Tensor,
) -> LogRatios:
    """Return the log ratios of Gaussians with these means and one covariance.

    Parameters
    ----------
    factor
        Cholesky factor of C.
    roots
        F, in parts of shape (number, columns, rank).
    share
        1 − b, of S̄ in C.
    means, counts
        Of the classes.
    sums
        Rows Y with E YᵀY = N S̄ (`ibcl.routing.sketches`).

    Examples
    --------
    >>> identity, means = torch.eye(2).double(), torch.tensor([[0.0, 0.0], [2.0, 0.0]]).double()
    >>> many = torch.full((2,), 1e6).double()
    >>> found = log_ratios(identity, [], 1.0, means, many, 2e6**0.5 * identity)
    >>> found.mean.round(decimals=3).tolist(), found.std.round(decimals=3).tolist()
    ([[-0.0, 2.0], [2.0, -0.0]], [[0.0, 2.0], [2.0, 0.0]])
    """
    total = counts.sum()

    def whitened(rows: Tensor) -> Tensor:
        found: Tensor = torch.linalg.solve_triangular(factor, rows.T, upper=False)
        return found.T

    followed = sum(float(whitened(each.mT.flatten(0, 1)).square().sum()) for each in roots)
    rest = 1 - share * followed / float(total) ** 2
    places, rows = whitened(means - means.mean(0)), whitened(sums)
    spread = float(rows.square().sum() / total) / rest
    products, along = places @ places.T, rows @ places.T
    squares = along.T @ along / total
    mean = 0.5 * _between(products) - spread / counts[:, None]
    return LogRatios(mean, _between(squares).clamp(min=0).sqrt() / rest)


def _between(products: Tensor) -> Tensor:
    """Squared distances of points with these products."""
    lengths = products.diagonal()
    return lengths[:, None] + lengths[None, :] - 2 * products


def sharpness(ratios: LogRatios, task: Tensor, shares: Tensor) -> float:
    """Return s, what log ratios are to be multiplied by.

    Parameters
    ----------
    task
        Which task each class belongs to.
    shares
        π of each class.

    Examples
    --------
    >>> apart = LogRatios(torch.tensor([[0.0, 8.0], [8.0, 0.0]]), torch.full((2, 2), 4.0))
    >>> sharpness(apart, torch.arange(2), torch.ones(2)) > 0.99
    True
    >>> wider = apart._replace(std=torch.full((2, 2), 8.0))
    >>> round(sharpness(wider, torch.arange(2), torch.ones(2)), 2)
    0.25
    """
    points, weights = np.polynomial.hermite_e.hermegauss(_POINTS)
    weights = weights / weights.sum()
    mean, std, number = ratios.mean.numpy(), ratios.std.numpy(), task.numpy()
    tasks = int(number.max()) + 1
    drawn = np.empty((len(number), tasks - 1, _POINTS))
    for a, own in enumerate(number):
        others = [np.flatnonzero(number == j) for j in range(tasks) if j != own]
        nearest = [classes[mean[a, classes].argmin()] for classes in others]
        drawn[a] = mean[a, nearest, None] + std[a, nearest, None] * points
    counted = shares.numpy()[:, None] * weights / tasks
    rows = np.concatenate([np.zeros_like(drawn[:, :1]), -drawn], 1)

    def loss(s: float) -> float:
        return float((counted * np.logaddexp.reduce(s * rows, axis=1)).sum())

    return float(minimize_scalar(loss, bounds=(0, 1), method="bounded").x)
