r"""The Gaussian that maximises the ELBO of a head that is linear in its parameters.

With features φ_s of sample s, outputs z_s = θᵀφ_s and prior N(μ₀, P₀⁻¹), the Gaussian
q = N(μ, P⁻¹) that maximises the ELBO has the form

    P = P₀ + Σ_s w_s λ_s φ_s φ_sᵀ,     Pμ = P₀μ₀ + Σ_s w_s ν_s φ_s,
    λ_s = E_q[∂² −log p(y_s | z_s)],     ν_s = E_q[∂ log p(y_s | z_s)] + λ_s E_q[z_s],

with the weights w_s of the samples, 1 unless given: each sample's likelihood is replaced by a
Gaussian *site* (λ_s, ν_s), and the expectations over z_s are low-dimensional integrals, which the
likelihood knows. Recomputing all sites under the q they define is one natural-gradient step; at
zero variance it is Newton's. The steps are repeated until the sites agree with their q, sped up by
Anderson's extrapolation and damped wherever the ELBO would fall. Nothing is sampled and there is no
learning rate; for linear-Gaussian models the first step is exact.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ibcl.likelihoods import Likelihood

# How many earlier steps Anderson's extrapolation looks at.
_MEMORY = 10
# Below this step length a direction that lowers the ELBO is rounding, not information.
_SMALLEST_STEP = 1e-3
# Problems above this many multiplications do their first steps in single precision.
_LARGE = 2e7
# How many matrices of the posterior's size, of the features' and of the sites' exist at once.
_POSTERIORS, _FEATURES, _SITES = 7, 4, 2 * _MEMORY + 8


def needed_bytes(samples: int, columns: int, outputs: int) -> int:
    """Bytes that `solve` takes, roughly: a few D×D matrices, the features and the sites.

    Examples
    --------
    >>> needed_bytes(samples=200, columns=257, outputs=140) / 2**30 > 50
    True
    """
    dimension = columns * outputs
    numbers = _POSTERIORS * dimension**2 + _FEATURES * samples * columns
    return 8 * (numbers + _SITES * samples * outputs * (outputs + 1))


def solve(problem: SiteProblem, tolerance: float, max_iterations: int) -> Approximation:
    """Return the Gaussian whose sites agree with it, or the best after so many iterations."""
    # Single precision is twice as fast and comes so close that few double steps are left.
    if problem.multiplications > _LARGE:
        rough = problem.single()
        start = rough.start()
        if start is not None:
            close = _iterate(rough, start, tolerance, max_iterations)
            current = problem.approximate(close.sites.double())
            if current is not None:
                return _iterate(problem, current, tolerance, max_iterations)
    current = problem.start()
    if current is None:
        raise ValueError(problem.why_none())
    return _iterate(problem, current, tolerance, max_iterations)


def _iterate(
    problem: SiteProblem, current: Approximation, tolerance: float, max_iterations: int
) -> Approximation:
    history = [current]
    for _ in range(max_iterations):
        if current.settled(tolerance):
            break
        proposal = None
        if len(history) > 1:
            proposal = problem.approximate(_extrapolate(history, problem.site_scale))
            if proposal is None or not proposal.improves_on(current):
                proposal, history = None, [current]
        step = 1.0
        while proposal is None:
            proposal = problem.approximate(current.sites + step * current.change)
            if step > _SMALLEST_STEP and (proposal is None or not proposal.improves_on(current)):
                proposal, step = None, step / 2
            elif proposal is None:
                return current
        current = proposal
        history = [*history, current][-_MEMORY:]
    return current


def _extrapolate(history: list[Approximation], scale: Tensor) -> Tensor:
    """Anderson's extrapolation: the combination of recent sites whose change would be smallest.

    Sites are scaled by the roots of their samples' weights, so that a sample of weight 2 counts
    for as much as two samples.
    """
    sites = torch.stack([q.sites for q in history], 1)
    changes = torch.stack([q.change for q in history], 1)
    site_steps, change_steps = sites.diff(dim=1), changes.diff(dim=1)
    # The driver that copes with directions that repeat is only there on the CPU.
    weights = torch.linalg.lstsq(
        (scale[:, None] * change_steps).cpu(),
        (scale * changes[:, -1])[:, None].cpu(),
        driver="gelsd",
    ).solution.to(sites.device)
    combined: Tensor = sites[:, -1:] + changes[:, -1:] - (site_steps + change_steps) @ weights
    return combined[:, 0]


def _weighted_gram(features: Tensor, weights: Tensor) -> Tensor:
    """Σ_s w_s φ_s φ_sᵀ, one triangle of panels computed and the other copied."""
    columns = features.shape[1]
    panel = max(64, -(-columns // 4))
    weighted = weights[:, None] * features
    gram = features.new_empty(columns, columns)
    for begin in range(0, columns, panel):
        end = min(begin + panel, columns)
        rows = features[:, begin:end].T @ weighted[:, begin:]
        gram[begin:end, begin:] = rows
        gram[end:, begin:end] = rows[:, end - begin :].T
    return gram


class Approximation(NamedTuple):
    """A Gaussian q, the sites that define it, and how they would change under it."""

    sites: Tensor
    change: Tensor
    mean: Tensor
    precision: Tensor
    bound: float
    mean_step: float
    """The next step of the mean, in posterior standard deviations a parameter."""
    precision_step: float
    """The next change of the sites' precisions, relative to them."""
    uncertainty: float
    """Relative error that rounding and quadrature leave in the bound."""

    def settled(self, tolerance: float) -> bool:
        """Whether the next step is no larger than the tolerance."""
        return self.mean_step <= tolerance and self.precision_step <= tolerance

    def improves_on(self, other: Approximation) -> bool:
        """Whether the bound is as high as the other's, but for rounding and quadrature."""
        return self.bound >= other.bound - self.uncertainty * (1 + abs(other.bound))


class SiteProblem:
    """Features φ of shape (n, columns), labels, likelihood and prior, in one precision."""

    def __init__(
        self,
        features: Tensor,
        y: Tensor,
        weights: Tensor | None,
        likelihood: Likelihood,
        prior_mean: Tensor,
        prior_precision: Tensor,
    ) -> None:
        self.features = features.to(prior_mean.dtype)
        self.y, self.likelihood = y, likelihood
        self.weights = features.new_ones(len(features)) if weights is None else weights
        self.weights = self.weights.to(prior_mean)
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.samples, self.columns = features.shape
        self.outputs = len(prior_mean) // self.columns
        self.multiplications = self.samples * len(prior_mean) ** 2

    def single(self) -> SiteProblem:
        """Return the same problem in single precision."""
        return SiteProblem(
            self.features,
            self.y,
            self.weights,
            self.likelihood,
            self.prior_mean.float(),
            self.prior_precision.float(),
        )

    @cached_property
    def prior_log_determinant(self) -> float:
        """Log |P₀|."""
        factor = torch.linalg.cholesky(self.prior_precision.double())
        return 2 * float(factor.diagonal().log().sum())

    @cached_property
    def site_scale(self) -> Tensor:
        """√w of the sample each number of the flat vector of sites belongs to."""
        roots = self.weights.sqrt()
        return torch.cat(
            [roots.repeat_interleave(self.outputs**2), roots.repeat_interleave(self.outputs)]
        )

    def start(self) -> Approximation | None:
        """The best of a few first steps; None where none of them defines a Gaussian.

        From the prior's mean with its variance, and without (Newton), and from outputs under which
        the likelihood says the labels are likely.
        """
        mean = self._outputs(self.prior_mean)
        prior_factor, failure = torch.linalg.cholesky_ex(self.prior_precision)
        none = mean.new_zeros(self.samples, self.outputs, self.outputs)
        points = [(mean, none)]
        if not int(failure):
            points.insert(0, (mean, self._output_covariance(prior_factor)))
        likely = self.likelihood.likely_outputs(self.y, self.outputs)
        if likely is not None:
            points.append((likely.to(mean), none))
        starts = [self.approximate(self._sites(*point)[0]) for point in points]
        return max((q for q in starts if q is not None), key=lambda q: q.bound, default=None)

    def why_none(self) -> str:
        """Say what stands in the way of a first step."""
        deviations = self.prior_precision.diagonal().rsqrt()
        return (
            "The posterior cannot be computed in double precision: features reach "
            f"{float(self.features.abs().max()):.3g} and the prior's standard deviations "
            f"{float(deviations.max()):.3g}; scale the inputs, for example to unit variance, "
            "remove outliers, or use a narrower prior."
        )

    def approximate(self, sites: Tensor) -> Approximation | None:
        """Return the Gaussian these sites define, or None where they define none."""
        curvature, linear = self._split(sites)
        precision = self.prior_precision + self._information(curvature)
        factor, failure = torch.linalg.cholesky_ex(precision)
        if int(failure):
            return None
        shift_from = self.prior_precision @ self.prior_mean + self._pull_back(linear)
        mean = torch.cholesky_solve(shift_from[:, None], factor)[:, 0]
        output_mean = self._outputs(mean)
        covariance = self._output_covariance(factor)
        target, loss = self._sites(output_mean, covariance)
        change = target - sites
        if not bool(torch.isfinite(change).all()):
            return None
        # KL(q ‖ p) with tr(P₀P⁻¹) = D − Σ_s w_s tr(λ_s S_s), which P's form gives for free.
        shift = (mean - self.prior_mean).double()
        log_determinants = 2 * float(factor.diagonal().double().log().sum())
        log_determinants -= self.prior_log_determinant
        weights = self.weights.double()
        spread = float(weights @ (curvature * covariance).sum((1, 2), dtype=torch.float64))
        divergence = 0.5 * (
            float(shift @ self.prior_precision.double() @ shift) + log_determinants - spread
        )
        bound = -float(weights @ loss.double()) - divergence
        if not math.isfinite(bound):
            return None
        curvature_change, linear_change = self._split(change)
        gradient = self._pull_back(
            linear_change - (curvature_change @ output_mean[:, :, None])[:, :, 0]
        )
        step = torch.linalg.solve_triangular(factor, gradient[:, None], upper=False)
        scale = self.weights.sqrt()[:, None, None]
        size = float((scale * self._split(target)[0]).norm())
        return Approximation(
            sites=sites,
            change=change,
            mean=mean,
            precision=precision,
            bound=bound,
            mean_step=float(step.norm()) / len(mean) ** 0.5,
            precision_step=float((scale * curvature_change).norm()) / max(size, 1e-300),
            uncertainty=max(
                self.likelihood.quadrature_error, 1e-9 if sites.dtype == torch.float64 else 1e-6
            ),
        )

    def _sites(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Sites (λ, ν) as one flat vector, and the expected losses, under these outputs."""
        expected = self.likelihood.expectations(mean.double(), covariance.double(), self.y)
        linear = expected.residual + (expected.curvature @ mean.double()[:, :, None])[:, :, 0]
        sites = torch.cat([expected.curvature.flatten(), linear.flatten()])
        return sites.to(mean.dtype), expected.loss

    def _split(self, sites: Tensor) -> tuple[Tensor, Tensor]:
        """λ of shape (n, outputs, outputs) and ν of shape (n, outputs)."""
        n, outputs = self.samples, self.outputs
        curvature, linear = torch.split(sites, [n * outputs**2, n * outputs])
        return curvature.reshape(n, outputs, outputs), linear.reshape(n, outputs)

    def _outputs(self, theta: Tensor) -> Tensor:
        return self.features @ theta.reshape(self.outputs, self.columns).T

    def _pull_back(self, values: Tensor) -> Tensor:
        """Σ_s w_s values_s ⊗ φ_s, in the solver's coordinates."""
        return ((self.weights[:, None] * values).T @ self.features).flatten()

    def _information(self, curvature: Tensor) -> Tensor:
        """Σ_s w_s λ_s ⊗ φ_s φ_sᵀ."""
        blocks = self.features.new_zeros(self.outputs, self.columns, self.outputs, self.columns)
        for row in range(self.outputs):
            for column in range(row, self.outputs):
                weights = self.weights * curvature[:, row, column]
                if bool(weights.any()):
                    block = _weighted_gram(self.features, weights)
                    blocks[row, :, column] = block
                    blocks[column, :, row] = block
        dimension = self.outputs * self.columns
        return blocks.reshape(dimension, dimension)

    def _output_covariance(self, factor: Tensor) -> Tensor:
        """S_s = (I ⊗ φ_sᵀ) P⁻¹ (I ⊗ φ_s) of every sample, from the Cholesky factor of P."""
        if self.outputs == 1:
            whitened = torch.linalg.solve_triangular(factor, self.features.T, upper=False)
            return torch.square(whitened).sum(0)[:, None, None]
        blocks = torch.cholesky_inverse(factor).reshape(
            self.outputs, self.columns, self.outputs, self.columns
        )
        covariance = factor.new_empty(self.samples, self.outputs, self.outputs)
        for row in range(self.outputs):
            for column in range(row, self.outputs):
                values = ((self.features @ blocks[row, :, column]) * self.features).sum(1)
                covariance[:, row, column] = values
                covariance[:, column, row] = values
        return covariance
