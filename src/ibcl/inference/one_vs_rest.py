r"""`DenseVI` for many classes, one class against the rest.

Under the likelihood `OneVsRest` the C outputs of a linear head share neither a parameter nor a
label, so the posterior of all D parameters is the product of C binary ones of dimension D/C: C
small matrices to factorise in place of one that is C times as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ibcl.gaussians import DenseGaussian, Gaussian
from ibcl.inference.dense import DenseVI
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.likelihoods import Bernoulli, Likelihood, OneVsRest
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Correlations between classes below this are what storing a posterior compactly can leave behind.
_LARGEST_CORRELATION = 0.01


@dataclass(frozen=True)
class OneVsRestVI(DenseVI):
    """The full-covariance posterior of each class against the rest, with `DenseVI`'s settings.

    Examples
    --------
    >>> from ibcl.networks import linear
    >>> prior = DenseGaussian(torch.zeros(6), torch.eye(6))
    >>> data = TaskData(torch.tensor([[-1.0], [0.0], [1.0]]), torch.tensor([0, 1, 2]))
    >>> result = OneVsRestVI().infer(FlatNetwork(linear(1, 3)), OneVsRest(), [prior], data)
    >>> [round(weight, 2) for weight in result.posteriors[0].mean[[0, 2]].tolist()]
    [-0.73, 0.73]
    """

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
        """Return the posterior of each prior: independent classes, full covariance within."""
        if not isinstance(likelihood, OneVsRest):
            raise ValueError(
                f"OneVsRestVI needs likelihood='one_vs_rest', not {likelihood.name!r}; use DenseVI "
                "for other likelihoods."
            )
        head = network.linear_head()
        with torch.no_grad():
            features = head.features(data.x).reshape(data.size, -1)
        has_bias = head.layer.bias is not None
        positions = _positions(head.layer.out_features, head.layer.in_features, has_bias)
        dense = [prior.dense() for prior in priors]
        for prior in dense:
            _check_independent(prior.precision, positions)
        binary = FlatNetwork(nn.Linear(head.layer.in_features, 1, bias=has_bias))
        means = [torch.zeros(network.dimension).double() for _ in dense]
        precisions = [torch.zeros(network.dimension, network.dimension).double() for _ in dense]
        bounds, converged = [0.0] * len(dense), True
        for c, own in enumerate(positions):
            result = super().infer(
                binary,
                Bernoulli(),
                [DenseGaussian(q.mean[own], q.precision[own][:, own]) for q in dense],
                TaskData(features, (data.y == c).float()),
            )
            for k, posterior in enumerate(result.posteriors):
                means[k][own] = posterior.mean
                precisions[k][own[:, None], own] = posterior.dense().precision
                bounds[k] += result.objectives[k]
            converged = converged and result.converged
            if progress:
                progress(Progress(c + 1, len(positions), -sum(bounds) / len(bounds) / data.size))
        posteriors = tuple(map(DenseGaussian, means, precisions))
        return InferenceResult(posteriors, 0, tuple(bounds), converged)


def _positions(classes: int, columns: int, bias: bool) -> Tensor:
    """Positions in θ = (weight, bias) of the parameters of each class, one row a class."""
    weight = torch.arange(classes * columns).reshape(classes, columns)
    offset = classes * columns + torch.arange(classes)[:, None]
    return torch.cat([weight, offset], 1) if bias else weight


def _check_independent(precision: Tensor, positions: Tensor) -> None:
    """Refuse a prior that ties classes together: its posterior would too."""
    scale = precision.diagonal().rsqrt()
    between = scale[:, None] * precision.abs() * scale
    for own in positions:
        between[own[:, None], own] = 0
    if float(between.max()) > _LARGEST_CORRELATION:
        raise ValueError(
            "OneVsRestVI learns each class alone, but the prior correlates parameters of different "
            "classes; use DenseVI with the categorical likelihood."
        )
