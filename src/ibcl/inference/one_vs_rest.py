r"""`DenseVI` for many classes, one class against the rest.

Under the likelihood `OneVsRest` the C outputs of a linear head share neither a parameter nor a
label, so the posterior of all D parameters is the product of C binary ones of dimension D/C: C
small matrices to factorise in place of one that is C times as wide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ibcl.gaussians import (
    BlockDiagonalGaussian,
    BlockDiagonalNatural,
    Gaussian,
    NaturalParameters,
)
from ibcl.inference.dense import DenseVI, _first_labels
from ibcl.inference.head import check_prior, parameter_positions
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.inference.samples import RelabelledSamples, Samples
from ibcl.inference.sites import Natural, needed_bytes
from ibcl.likelihoods import Likelihood
from ibcl.likelihoods.likelihood import Separated
from ibcl.networks import FlatNetwork
from ibcl.ram import check_memory

# Correlations between classes below this are what storing a posterior compactly can leave behind.
_LARGEST_CORRELATION = 0.01
# How often the blocks of all classes exist at once.
_COPIES = 4


@dataclass(frozen=True)
class OneVsRestVI(DenseVI):
    """The full-covariance posterior of each class against the rest, with `DenseVI`'s settings.

    All but ``rank``: every class keeps its whole covariance.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> from ibcl.likelihoods import OneVsRest
    >>> from ibcl.networks import linear
    >>> from ibcl.tasks import TaskData
    >>> prior = DiagonalGaussian(torch.zeros(6), torch.ones(6))
    >>> data = TaskData(torch.tensor([[-1.0], [0.0], [1.0]]), torch.tensor([0, 1, 2]))
    >>> result = OneVsRestVI().infer(FlatNetwork(linear(1, 3)), OneVsRest(), [prior], data)
    >>> [round(weight, 2) for weight in result.posteriors[0].mean[[0, 2]].tolist()]
    [-0.73, 0.73]
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank is not None:
            raise ValueError(
                f"OneVsRestVI keeps the whole covariance of every class and has no rank, here "
                f"{self.rank}; DenseVI(rank={self.rank}) with likelihood='categorical' has."
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
        """Return the posterior of each prior from features φ in blocks."""
        layer = network.linear_head().layer
        classes = layer.out_features
        separated = _require_separable(likelihood, _first_labels(samples), classes)
        self._check_memory(network, samples.size)
        positions = parameter_positions(layer, samples.device)
        posteriors, bounds, converged = [], [], True
        for index, prior in enumerate(priors):
            check_prior(prior, network.dimension)
            own = positions.to(prior.mean.device)
            natural = prior.natural_parameters()
            means = prior.mean.double()[own]
            blocks = torch.stack([natural.precision_at(row) for row in own])
            _check_independent(natural, BlockDiagonalNatural(natural.linear, blocks, own))
            bound = 0.0
            for c, alone in enumerate(separated):
                q = self._solve(
                    RelabelledSamples(samples, _labels_of(likelihood, classes, c)),
                    alone.likelihood,
                    prior,
                    positions[c],
                    layer.bias is not None,
                    None if evidence is None else evidence[c],
                )
                means[c], blocks[c] = q.mean, q.precision
                bound += q.bound
                converged = converged and q.settled(self.tolerance)
                if progress:
                    done = index * classes + c + 1
                    objective = -bound / (total_weight or samples.size)
                    progress(Progress(done, len(priors) * classes, objective))
            mean = torch.empty_like(prior.mean, dtype=torch.float64)
            mean[own] = means
            posteriors.append(BlockDiagonalGaussian(mean, blocks, own))
            bounds.append(bound)
        self._warn_unless(converged)
        return InferenceResult(tuple(posteriors), 0, tuple(bounds), converged)

    def _check_likelihood(self, network: FlatNetwork, likelihood: Likelihood, y: Tensor) -> None:
        _require_separable(likelihood, y, network.linear_head().layer.out_features)

    def _check_memory(self, network: FlatNetwork, size: int) -> None:
        layer = network.linear_head().layer
        classes, columns = layer.out_features, layer.in_features + 1
        check_memory(
            needed_bytes(size, columns, 1) + 8 * _COPIES * classes * columns**2,
            f"The covariances of {classes} classes of {columns} parameters each",
            "use a head with fewer features or fewer classes, or regression if the labels are "
            "amounts rather than classes",
        )


def _require_separable(likelihood: Likelihood, y: Tensor, classes: int) -> Sequence[Separated]:
    """Return the likelihoods of the classes alone, or refuse one that does not separate them."""
    separated = likelihood.separate(y, classes)
    if separated is None:
        raise ValueError(
            f"OneVsRestVI needs likelihood='one_vs_rest', not {likelihood.name!r}; use DenseVI "
            "for other likelihoods."
        )
    return separated


def _labels_of(likelihood: Likelihood, classes: int, c: int) -> Callable[[Tensor], Tensor]:
    """Return what makes class c's own labels of all."""

    def relabel(y: Tensor) -> Tensor:
        return _require_separable(likelihood, y, classes)[c].y

    return relabel


def _check_independent(prior: NaturalParameters, apart: BlockDiagonalNatural) -> None:
    """Refuse a prior that ties classes together: its posterior would too."""
    if apart.embed(prior) is not None:
        return
    precision = prior.dense().precision
    scale = precision.diagonal().rsqrt()
    between = scale[:, None] * precision.abs() * scale
    for own in apart.positions:
        between[own[:, None], own] = 0
    if float(between.max()) > _LARGEST_CORRELATION:
        raise ValueError(
            "OneVsRestVI learns each class alone, but the prior correlates parameters of different "
            "classes; use DenseVI with the categorical likelihood."
        )
