r"""The highest density region of q_w (Algorithm 2, second half).

The region is the level set Θ^α = {θ : q(θ) ≥ q^α} of the largest q^α whose mass is at least 1 − α,
jointly over all parameters. For a Gaussian it is the ellipsoid (θ−μ)ᵀP(θ−μ) ≤ χ²_D(1−α), exactly;
for a mixture, log q^α is the α-quantile of log q(θ) under q itself, by seeded Monte Carlo.

A box of per-coordinate intervals is something else: at D = 100, a box of 95 % intervals holds 0.6 %
of the mass.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.special import gammaincinv, gammaln
from torch import Tensor

from ibcl.gaussians import LOG_TWO_PI, Distribution, Gaussian

# Numbers drawn for a mixture's threshold, at most and at least so many parameter vectors of them.
_NUMBERS_DRAWN = 2**30
_MOST_DRAWS, _FEWEST_DRAWS = 2**17, 2**14
_BLOCK_NUMBERS = 2**24


class HighestDensityRegion:
    """The smallest set of parameters that holds mass 1 − α of q.

    Parameters
    ----------
    q
        A Gaussian or a mixture.
    alpha
        Significance level, between 0 and 1.
    seed
        Of the Monte Carlo threshold of a mixture, and of `sample` where it is given none.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> region = HighestDensityRegion(DiagonalGaussian([0.0], [1.0]), alpha=0.05)
    >>> region.contains([[1.95], [1.97]])
    tensor([ True, False])
    """

    def __init__(self, q: Distribution, alpha: float = 0.01, seed: int = 0) -> None:
        if not isinstance(alpha, int | float | np.number) or not 0 < alpha < 1:
            raise ValueError(f"alpha must lie between 0 and 1, not {alpha!r}.")
        self.q = q
        self.alpha = float(alpha)
        self.seed = seed

    def __repr__(self) -> str:
        return f"HighestDensityRegion({self.q!r}, alpha={self.alpha:g})"

    @cached_property
    def radius_squared(self) -> float:
        """Squared Mahalanobis radius of a Gaussian's ellipsoid: the χ²_D quantile at 1 − α."""
        return float(_chi_squared_quantile(1 - self.alpha, self._gaussian().dimension))

    @cached_property
    def threshold(self) -> float:
        """Log q^α: the log density on the region's boundary."""
        if isinstance(self.q, Gaussian):
            constant = self.q.log_determinant + self.q.dimension * LOG_TWO_PI
            return -0.5 * (self.radius_squared + constant)
        generator = torch.Generator().manual_seed(self.seed)
        block = max(1, _BLOCK_NUMBERS // self.q.dimension)
        levels: list[Tensor] = []
        for begin in range(0, self.draws, block):
            size = min(block, self.draws - begin)
            levels.append(self.q.log_prob(self.q.sample(size, generator)))
        return float(np.quantile(torch.cat(levels).cpu().numpy(), self.alpha, method="lower"))

    @property
    def draws(self) -> int:
        """Monte Carlo draws behind the threshold; 0 where it is exact."""
        if isinstance(self.q, Gaussian):
            return 0
        return min(_MOST_DRAWS, max(_FEWEST_DRAWS, _NUMBERS_DRAWN // self.q.dimension))

    @property
    def mass_error(self) -> float:
        """Standard error of the region's mass around 1 − α; 0 where it is exact."""
        return math.sqrt(self.alpha * (1 - self.alpha) / self.draws) if self.draws else 0.0

    def contains(self, theta: Tensor | ArrayLike) -> Tensor:
        """Tell which θ, of shape (..., D), lie in the region."""
        if isinstance(self.q, Gaussian):
            return self.q.mahalanobis_squared(theta) <= self.radius_squared
        return self.q.log_prob(theta) >= self.threshold

    def sample(
        self, n: int, generator: torch.Generator | None = None, *, uniform: bool = False
    ) -> Tensor:
        """Draw n parameter vectors from q truncated to the region, exactly; shape (n, D).

        Parameters
        ----------
        uniform
            Draw uniformly from the region instead; for Gaussians only.
        """
        if not isinstance(n, int | np.integer) or n < 0:
            raise ValueError(f"n must be a whole number that is not negative, not {n!r}.")
        generator = generator or torch.Generator().manual_seed(self.seed)
        kept: list[Tensor] = []
        missing = n
        while missing > 0:
            draws = self._propose(missing, generator, uniform)
            inside = draws[self.contains(draws)]
            kept.append(inside)
            missing -= len(inside)
        return torch.cat(kept) if kept else self.q.sample(0)

    def _propose(self, n: int, generator: torch.Generator, uniform: bool) -> Tensor:
        """Draws that follow the truncated distribution once those outside are dropped.

        For Gaussians the radius is drawn inside, and only rounding can put a draw outside.
        """
        if not isinstance(self.q, Gaussian):
            if uniform:
                self._gaussian()
            return self.q.sample(math.ceil(n / (1 - self.alpha)), generator)[:n]
        dimension = self.q.dimension
        directions = torch.randn(
            n, dimension, generator=generator, dtype=torch.float64, device="cpu"
        )
        directions /= directions.norm(dim=1, keepdim=True)
        levels = torch.rand(n, generator=generator, dtype=torch.float64, device="cpu")
        if uniform:
            radii = math.sqrt(self.radius_squared) * levels.pow(1 / dimension)
        else:
            shares = levels.numpy() * (1 - self.alpha)
            radii = torch.as_tensor(_chi_squared_quantile(shares, dimension)).sqrt()
        return self.q.unwhiten((directions * radii[:, None]).to(self.q.mean.device))

    @cached_property
    def log_volume(self) -> float:
        """Log volume of a Gaussian's ellipsoid: log V_D + D log r + ½ log|Σ|."""
        q = self._gaussian()
        half = q.dimension / 2
        unit_ball = half * math.log(math.pi) - float(gammaln(half + 1))
        return unit_ball + half * math.log(self.radius_squared) + 0.5 * q.log_determinant

    def _gaussian(self) -> Gaussian:
        if not isinstance(self.q, Gaussian):
            raise ValueError(
                "A mixture's region is no ellipsoid: its radius, volume and uniform samples have "
                "no closed form."
            )
        return self.q


def _chi_squared_quantile(share: float | np.ndarray, dimension: int) -> np.ndarray:
    # As scipy.stats has it, which takes most of a second to import.
    return np.asarray(2 * gammaincinv(dimension / 2, share))
