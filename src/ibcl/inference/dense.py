r"""Full-covariance variational inference for heads that are linear in their parameters.

With features φ_s of sample s, outputs z_s = θᵀφ_s and prior N(μ₀, P₀⁻¹), the Gaussian
q = N(μ, P⁻¹) that maximises the ELBO has the form

    P = P₀ + Σ_s λ_s φ_s φ_sᵀ,     Pμ = P₀μ₀ + Σ_s ν_s φ_s,
    λ_s = E_q[∂² −log p(y_s | z_s)],     ν_s = E_q[∂ log p(y_s | z_s)] + λ_s E_q[z_s]:

each sample's likelihood is replaced by a Gaussian *site* (λ_s, ν_s), and the expectations over
z_s are low-dimensional integrals (see `quadrature`). Recomputing all sites under the q they define
is one natural-gradient step; at zero variance it is Newton's. The steps are repeated until the
sites agree with their q, sped up by Anderson's extrapolation and damped wherever the ELBO would
fall. Nothing is sampled and there is no learning rate; for linear-Gaussian models the first step
is exact.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from ibcl.gaussians import DenseGaussian, Gaussian
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.inference.quadrature import expectations, quadrature_error
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# How many earlier steps Anderson's extrapolation looks at.
_MEMORY = 10
# Below this step length a direction that lowers the ELBO is rounding, not information.
_SMALLEST_STEP = 1e-3
# Problems above this many multiplications do their first steps in single precision.
_LARGE = 2e7


@dataclass(frozen=True)
class DenseVI:
    """The full-covariance variational posterior, by a deterministic fixed point.

    Parameters
    ----------
    tolerance
        Converged when the next step is this small: the mean's in posterior standard deviations a
        parameter, the sites' precisions relative to themselves, both as root mean squares.
    max_iterations
        A warning says so where this was not enough.

    Examples
    --------
    >>> from ibcl.likelihoods import Normal
    >>> from ibcl.networks import linear
    >>> prior = DenseGaussian(torch.zeros(2), torch.eye(2))
    >>> data = TaskData(torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    >>> result = DenseVI().infer(FlatNetwork(linear(1)), Normal(1.0), [prior], data)
    >>> [round(value, 6) for value in result.posteriors[0].mean.tolist()]
    [1.0, 1.0]
    """

    tolerance: float = 1e-3
    max_iterations: int = 300

    def __post_init__(self) -> None:
        if not self.tolerance > 0 or self.max_iterations < 1:
            raise ValueError("tolerance and max_iterations must be positive.")

    def infer(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        priors: Sequence[Gaussian],
        data: TaskData,
        *,
        validation: TaskData | None = None,
        start_from_prior: bool = False,
        seed: int = 0,
        progress: ProgressCallback | None = None,
    ) -> InferenceResult:
        """Return the full-covariance posterior of each prior; deterministic, whatever the seed."""
        head = network.linear_head()
        with torch.no_grad():
            features = head.features(data.x).reshape(data.size, -1)
        has_bias = head.layer.bias is not None
        if has_bias:
            features = torch.cat([features, features.new_ones(data.size, 1)], 1)
        order = _flat_order(head.layer.out_features, features.shape[1], has_bias)
        back = torch.argsort(order)
        posteriors, bounds, converged = [], [], True
        for index, prior in enumerate(priors):
            mean, precision = prior.mean.double(), prior.dense().precision.double()
            problem = _Problem(
                features, data.y, likelihood, mean[order], precision[order][:, order]
            )
            q = self._solve(problem)
            posteriors.append(DenseGaussian(q.mean[back], q.precision[back][:, back]))
            bounds.append(q.bound)
            converged = converged and q.settled(self.tolerance)
            if progress:
                progress(Progress(index + 1, len(priors), -q.bound / data.size))
        if not converged:
            warnings.warn(
                f"DenseVI did not reach its tolerance in {self.max_iterations} iterations; raise "
                "max_iterations or scale the features.",
                stacklevel=2,
            )
        return InferenceResult(tuple(posteriors), 0, tuple(bounds), converged)

    def _solve(self, problem: _Problem) -> _Approximation:
        # Single precision is twice as fast and comes so close that few double steps are left.
        rough = problem.single() if problem.multiplications > _LARGE else problem
        current = rough.start()
        if rough is not problem:
            current = self._iterate(rough, current, self.tolerance)
            current = problem.approximate(current.sites.double()) or problem.start()
        return self._iterate(problem, current, self.tolerance)

    def _iterate(
        self, problem: _Problem, current: _Approximation, tolerance: float
    ) -> _Approximation:
        history = [current]
        for _ in range(self.max_iterations):
            if current.settled(tolerance):
                break
            proposal = None
            if len(history) > 1:
                proposal = problem.approximate(_extrapolate(history))
                if proposal is None or not proposal.improves_on(current):
                    proposal, history = None, [current]
            step = 1.0
            while proposal is None:
                proposal = problem.approximate(current.sites + step * current.change)
                if step > _SMALLEST_STEP and (
                    proposal is None or not proposal.improves_on(current)
                ):
                    proposal, step = None, step / 2
                elif proposal is None:
                    return current
            current = proposal
            history = [*history, current][-_MEMORY:]
        return current


def _extrapolate(history: list[_Approximation]) -> Tensor:
    """Anderson's extrapolation: the combination of recent sites whose change would be smallest."""
    sites = torch.stack([q.sites for q in history], 1)
    changes = torch.stack([q.change for q in history], 1)
    site_steps, change_steps = sites.diff(dim=1), changes.diff(dim=1)
    weights = torch.linalg.lstsq(change_steps, changes[:, -1:], driver="gelsd").solution
    combined: Tensor = sites[:, -1:] + changes[:, -1:] - (site_steps + change_steps) @ weights
    return combined[:, 0]


def _flat_order(outputs: int, columns: int, bias: bool) -> Tensor:
    """Positions in θ = (weight, bias) of the solver's coordinates, one row of (w, b) an output."""
    if not bias:
        return torch.arange(outputs * columns)
    weight = torch.arange(outputs * (columns - 1)).reshape(outputs, columns - 1)
    offset = outputs * (columns - 1) + torch.arange(outputs)[:, None]
    return torch.cat([weight, offset], 1).flatten()


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


class _Approximation(NamedTuple):
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
        return self.mean_step <= tolerance and self.precision_step <= tolerance

    def improves_on(self, other: _Approximation) -> bool:
        return self.bound >= other.bound - self.uncertainty * (1 + abs(other.bound))


class _Problem:
    """Features φ of shape (n, columns), labels, likelihood and prior, in one precision."""

    def __init__(
        self,
        features: Tensor,
        y: Tensor,
        likelihood: Likelihood,
        prior_mean: Tensor,
        prior_precision: Tensor,
    ) -> None:
        self.features = features.to(prior_mean.dtype)
        self.y, self.likelihood = y, likelihood
        self.prior_mean, self.prior_precision = prior_mean, prior_precision
        self.samples, self.columns = features.shape
        self.outputs = len(prior_mean) // self.columns
        self.multiplications = self.samples * len(prior_mean) ** 2

    def single(self) -> _Problem:
        """Return the same problem in single precision."""
        return _Problem(
            self.features,
            self.y,
            self.likelihood,
            self.prior_mean.float(),
            self.prior_precision.float(),
        )

    @cached_property
    def prior_log_determinant(self) -> float:
        factor = torch.linalg.cholesky(self.prior_precision.double())
        return 2 * float(factor.diagonal().log().sum())

    def start(self) -> _Approximation:
        """The better of two first steps from the prior: with its variance, and without (Newton)."""
        prior_factor = torch.linalg.cholesky(self.prior_precision)
        mean = self._outputs(self.prior_mean)
        spread = self._output_covariance(prior_factor)
        starts = [
            self.approximate(self._sites(mean, covariance)[0])
            for covariance in (spread, torch.zeros_like(spread))
        ]
        return max((q for q in starts if q is not None), key=lambda q: q.bound)

    def approximate(self, sites: Tensor) -> _Approximation | None:
        """Return the Gaussian these sites define, or None where they define none."""
        n, outputs = self.samples, self.outputs
        curvature = sites[: n * outputs**2].reshape(n, outputs, outputs)
        linear = sites[n * outputs**2 :].reshape(n, outputs)
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
        # KL(q ‖ p) with tr(P₀P⁻¹) = D − Σ_s tr(λ_s S_s), which P's form gives for free.
        shift = (mean - self.prior_mean).double()
        log_determinants = 2 * float(factor.diagonal().double().log().sum())
        log_determinants -= self.prior_log_determinant
        spread = float((curvature * covariance).sum(dtype=torch.float64))
        divergence = 0.5 * (
            float(shift @ self.prior_precision.double() @ shift) + log_determinants - spread
        )
        bound = -float(loss.sum(dtype=torch.float64)) - divergence
        if not torch.isfinite(change).all():
            return None
        curvature_change = change[: n * outputs**2].reshape(n, outputs, outputs)
        linear_change = change[n * outputs**2 :].reshape(n, outputs)
        gradient = self._pull_back(
            linear_change - (curvature_change @ output_mean[:, :, None])[:, :, 0]
        )
        step = torch.linalg.solve_triangular(factor, gradient[:, None], upper=False)
        size = float(target[: n * outputs**2].norm())
        return _Approximation(
            sites=sites,
            change=change,
            mean=mean,
            precision=precision,
            bound=bound,
            mean_step=float(step.norm()) / len(mean) ** 0.5,
            precision_step=float(curvature_change.norm()) / max(size, 1e-300),
            uncertainty=max(
                quadrature_error(self.likelihood), 1e-9 if sites.dtype == torch.float64 else 1e-6
            ),
        )

    def _sites(self, mean: Tensor, covariance: Tensor) -> tuple[Tensor, Tensor]:
        """Sites (λ, ν) as one flat vector, and the expected losses, under these outputs."""
        expected = expectations(self.likelihood, mean.double(), covariance.double(), self.y)
        linear = expected.residual + (expected.curvature @ mean.double()[:, :, None])[:, :, 0]
        sites = torch.cat([expected.curvature.flatten(), linear.flatten()])
        return sites.to(mean.dtype), expected.loss

    def _outputs(self, theta: Tensor) -> Tensor:
        return self.features @ theta.reshape(self.outputs, self.columns).T

    def _pull_back(self, values: Tensor) -> Tensor:
        """Σ_s values_s ⊗ φ_s, in the solver's coordinates."""
        return (values.T @ self.features).flatten()

    def _information(self, curvature: Tensor) -> Tensor:
        """Σ_s λ_s ⊗ φ_s φ_sᵀ."""
        blocks = self.features.new_zeros(self.outputs, self.columns, self.outputs, self.columns)
        for row in range(self.outputs):
            for column in range(row, self.outputs):
                weights = curvature[:, row, column]
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
