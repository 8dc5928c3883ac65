"""Full-covariance variational inference for heads that are linear in their parameters."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ibcl.gaussians import DenseGaussian, Gaussian
from ibcl.inference.head import check_prior, head_features, parameter_positions
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.inference.sites import Approximation, SiteProblem, needed_bytes, solve
from ibcl.likelihoods import Likelihood
from ibcl.memory import check_memory
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData


@dataclass(frozen=True)
class DenseVI:
    """The full-covariance variational posterior, by a deterministic fixed point (`sites`).

    Parameters
    ----------
    tolerance
        Converged when the next step is this small: the mean's in posterior standard deviations a
        parameter, the sites' precisions relative to themselves, both as root mean squares.
    max_iterations
        A warning says so where this was not enough.
    rank
        Keep so many directions of the task's evidence and the rest of it on the diagonal, so that a
        posterior takes (rank + 2) D numbers in place of D². The mean stays exact.

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
    rank: int | None = None

    def __post_init__(self) -> None:
        if not self.tolerance > 0 or self.max_iterations < 1:
            raise ValueError("tolerance and max_iterations must be positive.")
        if self.rank is not None and self.rank < 1:
            raise ValueError(f"rank must be at least 1, or None for all, not {self.rank!r}.")

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
        for prior in priors:
            check_prior(prior, network.dimension)
        check_memory(
            needed_bytes(data.size, head.layer.in_features + 1, head.layer.out_features),
            f"A full covariance of {network.dimension} parameters",
            "use a head with fewer features, fewer classes (OneVsRestVI takes them one by one), or "
            "regression if the labels are amounts rather than classes",
        )
        features = head_features(head, data.x)
        order = parameter_positions(head.layer, features.device).flatten()
        back = torch.argsort(order)
        posteriors, bounds, converged = [], [], True
        for index, prior in enumerate(priors):
            q = self._solve(features, data, likelihood, prior, order)
            device = prior.mean.device
            posterior = DenseGaussian(
                q.mean[back].to(device), q.precision[back][:, back].to(device)
            )
            posteriors.append(self._projected(posterior, prior))
            bounds.append(q.bound)
            converged = converged and q.settled(self.tolerance)
            if progress:
                progress(Progress(index + 1, len(priors), -q.bound / data.total_weight))
        self._warn_unless(converged)
        return InferenceResult(tuple(posteriors), 0, tuple(bounds), converged)

    def _solve(
        self,
        features: Tensor,
        data: TaskData,
        likelihood: Likelihood,
        prior: Gaussian,
        positions: Tensor,
    ) -> Approximation:
        """Solve for the parameters at these positions of θ, which no others are tied to."""
        place = positions.to(prior.mean.device)
        problem = SiteProblem(
            features,
            data.y,
            data.weights,
            likelihood,
            prior.mean[place].to(features.device, torch.float64),
            prior.natural_parameters().precision_at(place).to(features.device, torch.float64),
        )
        return solve(problem, self.tolerance, self.max_iterations)

    def _projected(self, posterior: DenseGaussian, prior: Gaussian) -> Gaussian:
        """Return the posterior with its evidence projected onto `rank` directions, if asked to."""
        if self.rank is None:
            return posterior
        before = prior.natural_parameters()
        evidence = (posterior.natural_parameters() - before).dense()
        # In units of the posterior's own precision, so that features of any size count alike.
        projected = evidence.low_rank(self.rank, unit=posterior.precision.diagonal().sqrt())
        return (before + projected).around(posterior.mean)

    def _warn_unless(self, converged: bool) -> None:
        if not converged:
            warnings.warn(
                f"{type(self).__name__} did not reach its tolerance in {self.max_iterations} "
                "iterations; raise max_iterations or scale the features.",
                stacklevel=3,
            )
