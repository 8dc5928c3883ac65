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
from ibcl.inference.samples import HeldSamples, Samples
from ibcl.inference.sites import Approximation, Natural, SiteProblem, needed_bytes, solve
from ibcl.likelihoods import Likelihood
from ibcl.likelihoods.requirements import require_log_concave
from ibcl.networks import FlatNetwork
from ibcl.ram import check_memory
from ibcl.tasks import TaskData


@dataclass(frozen=True)
class DenseVI:
    """The full-covariance variational posterior, by a deterministic fixed point (`sites`).

    Parameters
    ----------
    tolerance
        Converged when the next step is this small: the mean's in posterior standard deviations a
        parameter, the precision's in units of itself, both as root mean squares.
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
        evidence: Sequence[Natural] | None = None,
    ) -> InferenceResult:
        """Return the full-covariance posterior of each prior; deterministic, whatever the seed.

        Parameters
        ----------
        evidence
            About what the task adds to a prior, where that is known: a place to begin at.
        """
        self._check_likelihood(network, likelihood, data.y)
        for prior in priors:
            check_prior(prior, network.dimension)
        self._check_memory(network, data.size)
        samples = HeldSamples(head_features(network, data.x), data.y, data.weights)
        return self.infer_samples(
            network,
            likelihood,
            priors,
            samples,
            total_weight=data.total_weight,
            progress=progress,
            evidence=evidence,
        )

    def infer_samples(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        priors: Sequence[Gaussian],
        samples: Samples,
        *,
        total_weight: float | None = None,
        progress: ProgressCallback | None = None,
        evidence: Sequence[Natural] | None = None,
    ) -> InferenceResult:
        """Return the posterior of each prior from features φ in blocks.

        Parameters
        ----------
        samples
            Features before the head's linear layer, not the network's inputs.
        total_weight
            The sum of their weights, their number without it.
        evidence
            As in `infer`.

        Examples
        --------
        >>> from ibcl.inference.samples import HeldSamples
        >>> from ibcl.likelihoods import Normal
        >>> from ibcl.networks import linear
        >>> prior = DenseGaussian(torch.zeros(2), torch.eye(2))
        >>> samples = HeldSamples(torch.ones(2, 1), torch.full((2, 1), 3.0))
        >>> found = DenseVI().infer_samples(FlatNetwork(linear(1)), Normal(1.0), [prior], samples)
        >>> [round(value, 6) for value in found.posteriors[0].mean.tolist()]
        [1.2, 1.2]
        """
        layer = network.linear_head().layer
        require_log_concave(likelihood, _first_labels(samples), layer.out_features)
        self._check_memory(network, samples.size)
        order = parameter_positions(layer, samples.device).flatten()
        back = torch.argsort(order)
        posteriors, bounds, converged = [], [], True
        for index, prior in enumerate(priors):
            check_prior(prior, network.dimension)
            begun = None if evidence is None else evidence[0]
            q = self._solve(samples, likelihood, prior, order, layer.bias is not None, begun)
            posterior = _posterior(q, back, prior.mean.device)
            posteriors.append(self._projected(posterior, prior))
            bounds.append(q.bound)
            converged = converged and q.settled(self.tolerance)
            if progress:
                objective = -q.bound / (total_weight or samples.size)
                progress(Progress(index + 1, len(priors), objective))
        self._warn_unless(converged)
        return InferenceResult(tuple(posteriors), 0, tuple(bounds), converged)

    def _check_likelihood(self, network: FlatNetwork, likelihood: Likelihood, y: Tensor) -> None:
        """Refuse, before features are computed, what can be known to be refused."""
        network.linear_head()

    def _check_memory(self, network: FlatNetwork, size: int) -> None:
        layer = network.linear_head().layer
        check_memory(
            needed_bytes(size, layer.in_features + 1, layer.out_features),
            f"A full covariance of {network.dimension} parameters",
            "use a head with fewer features, fewer classes (OneVsRestVI takes them one by one), or "
            "regression if the labels are amounts rather than classes",
        )

    def _solve(
        self,
        samples: Samples,
        likelihood: Likelihood,
        prior: Gaussian,
        positions: Tensor,
        bias: bool,
        evidence: Natural | None,
    ) -> Approximation:
        """Solve for the parameters at these positions of θ, which no others are tied to."""
        place = positions.to(prior.mean.device)
        problem = SiteProblem(
            samples,
            likelihood,
            prior.mean[place].to(samples.device, torch.float64),
            prior.natural_parameters().precision_at(place).to(samples.device, torch.float64),
            bias=bias,
        )
        start = None if evidence is None else problem.prior.plus(evidence)
        found = solve(problem, self.tolerance, self.max_iterations, start)
        # What a span of few samples leaves to a very wide prior is checked here alone.
        if int(torch.linalg.cholesky_ex(found.precision).info):
            raise ValueError(problem.why_none())
        return found

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


def _posterior(q: Approximation, back: Tensor, device: torch.device) -> DenseGaussian:
    """Return q with its parameters in θ's order."""
    mean, precision = q.mean, q.precision
    if not torch.equal(back, torch.arange(len(back), device=back.device)):
        mean, precision = mean[back], precision[back][:, back]
    return DenseGaussian(mean.to(device), precision.to(device))


def _first_labels(samples: Samples) -> Tensor:
    return next(iter(samples.blocks())).y
