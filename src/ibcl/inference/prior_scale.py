r"""The prior's standard deviation that a task's own evidence prefers, cheaply.

The ELBO of a Gaussian q is a lower bound on log ∫ p(y | θ) N(θ | 0, σ²I) dθ, so the σ with the
largest one is type II maximum likelihood. A few σ apart by half a power of ten are compared, which
needs neither all samples nor an exact solution: some samples are drawn, and each σ begins at the
evidence that the one before it found, to which only its own prior is added.

Rows that are repeated, as where every user's row stands once for each of his answers, say less than
their number: rows with the same features and label are put together and weighted so that the
weights sum to Kish's effective size (Σ_g c_g)² / Σ_g c_g² of the groups' counts c_g.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ibcl.inference.dense import DenseVI
from ibcl.inference.head import head_features
from ibcl.inference.samples import HeldSamples, drawn
from ibcl.inference.sites import Natural, SiteProblem, solve
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Samples that are drawn: so many a parameter of one output, and at least so many.
_A_PARAMETER, _SMALLEST = 8, 2048
# How closely each standard deviation's posterior is found.
_TOLERANCE = 0.1


def best_prior_std(
    network: FlatNetwork,
    likelihood: Likelihood,
    inference: DenseVI,
    stds: Sequence[float],
    data: TaskData,
    *,
    group: bool = False,
) -> float:
    """Return the one of these standard deviations of a zero-mean prior with the largest ELBO.

    Parameters
    ----------
    data
        The task, with labels as the likelihood's `check` returns them.
    inference
        Whose number of iterations bounds the search.
    group
        Put repeated rows together, weighted to Kish's effective size.

    Examples
    --------
    >>> from ibcl.likelihoods import Bernoulli
    >>> from ibcl.networks import linear
    >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
    >>> data = TaskData(x, (x[:, 0] > 0).float())
    >>> best_prior_std(FlatNetwork(linear(3)), Bernoulli(), DenseVI(), [0.1, 10.0], data)
    10.0
    """
    samples = HeldSamples(head_features(network, data.x), data.y, data.weights)
    layer = network.linear_head().layer
    bias = layer.bias is not None
    columns = layer.in_features + bias
    part = drawn(samples, max(_SMALLEST, _A_PARAMETER * columns))
    if group:
        part = grouped(part)
    if part.size < columns:
        part, columns, bias = _in_their_span(part, bias), part.size, False
    separated = likelihood.separate(part.y, layer.out_features)
    outputs = layer.out_features if separated is None else 1
    problems = (
        [(likelihood, part)]
        if separated is None
        else [(alone.likelihood, part._replace(y=alone.y)) for alone in separated]
    )
    bounds = np.zeros(len(stds))
    for own, alone in problems:
        bounds += _bounds(own, alone, stds, columns * outputs, bias, inference.max_iterations)
    return float(stds[int(np.argmax(bounds))])


def _bounds(
    likelihood: Likelihood,
    samples: HeldSamples,
    stds: Sequence[float],
    dimension: int,
    bias: bool,
    max_iterations: int,
) -> np.ndarray:
    """ELBO of each standard deviation, each begun at the evidence of the one before."""
    zero = torch.zeros(dimension, dtype=torch.float64, device=samples.device)
    identity = torch.eye(dimension, dtype=torch.float64, device=samples.device)
    found: list[float] = []
    evidence: Natural | None = None
    for std in stds:
        prior = Natural(zero, identity / std**2)
        problem = SiteProblem(samples, likelihood, zero, prior.precision, bias=bias)
        start = None if evidence is None else prior.plus(evidence)
        q = solve(problem, _TOLERANCE, max_iterations, start)
        evidence = Natural(q.precision @ q.mean, q.precision).plus(prior, -1)
        found.append(q.bound)
    return np.array(found)


def _in_their_span(samples: HeldSamples, bias: bool) -> HeldSamples:
    """Return the same samples in coordinates of as many columns as there are samples.

    A prior that is the same in all directions is so in these too, whatever its standard deviation.
    """
    features = samples.features.double()
    if bias:
        features = torch.cat([features, features.new_ones(len(features), 1)], 1)
    triangle = torch.linalg.qr(features.T, mode="r").R
    return samples._replace(features=triangle.T.contiguous())


def grouped(samples: HeldSamples) -> HeldSamples:
    """Put samples of equal features and labels together, weighted to Kish's effective size.

    Examples
    --------
    >>> same = HeldSamples(torch.zeros(4, 1), torch.tensor([1.0, 1.0, 1.0, 0.0]))
    >>> group = grouped(same)
    >>> group.size, float(group.weights.sum())
    (2, 1.6)
    """
    rows = torch.cat(
        [samples.features, samples.y.reshape(samples.size, -1).to(samples.features)], 1
    )
    _, group = np.unique(_hashes(rows), return_inverse=True)
    member = torch.as_tensor(group, device=samples.device)
    first = torch.full((int(member.max()) + 1,), samples.size, device=samples.device)
    order = torch.arange(samples.size, device=samples.device)
    first = first.scatter_reduce(0, member, order, "amin")
    weights = torch.ones(samples.size, dtype=torch.float64, device=samples.device)
    if samples.weights is not None:
        weights = samples.weights.to(weights)
    counts = torch.zeros(len(first), dtype=torch.float64, device=samples.device)
    counts = counts.index_add(0, member, weights)
    return HeldSamples(
        samples.features[first],
        samples.y[first],
        counts * (counts.sum() / counts.square().sum()),
    )


def _hashes(rows: Tensor) -> np.ndarray:
    """One value per row that is equal for equal rows: their bytes as one item."""
    # Zero is added so that −0 and 0, which are equal, have the same bytes.
    array = np.ascontiguousarray((rows + 0.0).cpu().numpy())
    return array.view(np.dtype((np.void, array.dtype.itemsize * array.shape[1])))[:, 0]
