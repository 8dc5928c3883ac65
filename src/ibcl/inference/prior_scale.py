r"""The prior's standard deviation that a task's own evidence prefers, cheaply.

The ELBO of a Gaussian q is a lower bound on log ∫ p(y | θ) N(θ | 0, σ²I) dθ, so the σ with the
largest one is type II maximum likelihood. A few σ apart by half a power of ten are compared, which
needs neither all samples nor an exact solution: some samples are drawn, the search climbs from the
σ in the middle, and each σ begins at the evidence that its neighbour found, to which only its own
prior is added.

Rows that are repeated, as where every user's row stands once for each of his answers, say less than
their number: rows with the same features and label are put together and weighted so that the
weights sum to Kish's effective size (Σ_g c_g)² / Σ_g c_g² of the groups' counts c_g.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibcl.inference.dense import DenseVI
from ibcl.inference.head import head_features, parameter_positions
from ibcl.inference.samples import HeldSamples, drawn
from ibcl.inference.sites import LARGE, Natural, SiteProblem, solve
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Samples that are drawn: so many a parameter of one output, and at least so many.
_A_PARAMETER, _SMALLEST = 16, 4096
# Where a pass over those would take more multiplications than this, fewer, but at least so many.
_MOST_WORK, _FEWEST_IN_SPAN = 2**36, 2048
# How closely each standard deviation's posterior is found, of few samples and of many. The ELBO is
# short of its maximum by about half the square of it per parameter.
_TOLERANCE, _LARGE_TOLERANCE = 0.01, 0.03


class PriorChoice(NamedTuple):
    """A prior's standard deviation, and what is known of the posterior under it."""

    std: float
    evidence: tuple[Natural, ...] | None
    """About what all samples add to the prior, one for each problem that outputs make, in the order
    of `parameter_positions`; None where the search had other coordinates."""


def choose_prior(
    network: FlatNetwork,
    likelihood: Likelihood,
    inference: DenseVI,
    stds: Sequence[float],
    data: TaskData,
    *,
    group: bool = False,
) -> PriorChoice:
    """Choose the one of these standard deviations of the prior with the largest ELBO.

    Parameters
    ----------
    stds
        Ascending.
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
    >>> choose_prior(FlatNetwork(linear(3)), Bernoulli(), DenseVI(), [0.1, 10.0], data).std
    10.0
    """
    samples = HeldSamples(head_features(network, data.x), data.y, data.weights)
    layer = network.linear_head().layer
    bias = layer.bias is not None
    columns = layer.in_features + bias
    part = drawn(samples, _count(columns))
    if group:
        part = grouped(part)
    order = parameter_positions(layer, samples.device)
    centre = network.centre.to(samples.device, torch.float64)[order]
    in_span = part.size < columns and not bool(centre.any())
    if in_span:
        part, columns, bias = _in_their_span(part, bias), part.size, False
        centre = centre.new_zeros(len(centre), columns)
    separated = likelihood.separate(part.y, layer.out_features)
    problems = (
        [_Problem(likelihood, part, centre.flatten(), bias)]
        if separated is None
        else [
            _Problem(alone.likelihood, part._replace(y=alone.y), mean, bias)
            for alone, mean in zip(separated, centre, strict=True)
        ]
    )
    best = len(stds) // 2
    known = {best: [each.fit(stds[best], inference.max_iterations) for each in problems]}
    while True:
        near = [place for place in (best - 1, best, best + 1) if 0 <= place < len(stds)]
        for place in near:
            if place not in known:
                known[place] = [
                    # The sum over several problems decides, whatever any one of them says.
                    each.fit(
                        stds[place],
                        inference.max_iterations,
                        begun.evidence,
                        begun.bound if len(problems) == 1 else -math.inf,
                    )
                    for each, begun in zip(problems, known[best], strict=True)
                ]
        better = max(near, key=lambda place: sum(fit.bound for fit in known[place]))
        if better == best:
            share = 1.0 if in_span else _total_weight(samples) / _total_weight(part)
            evidence = tuple(fit.evidence.scaled(share) for fit in known[best])
            return PriorChoice(float(stds[best]), None if in_span else evidence)
        best = better


class _Fit(NamedTuple):
    """ELBO under one prior, and what the samples add to that prior."""

    bound: float
    evidence: Natural


class _Problem(NamedTuple):
    """Samples whose parameters have a prior around a centre."""

    likelihood: Likelihood
    samples: HeldSamples
    centre: Tensor
    bias: bool

    def fit(
        self,
        std: float,
        max_iterations: int,
        begun: Natural | None = None,
        rival: float = -math.inf,
    ) -> _Fit:
        """Find the posterior of a prior, beginning at the evidence under another one.

        Parameters
        ----------
        rival
            The bound of that one: what cannot reach it any more is not followed further, where
            that takes long. How far a bound reaches is a guess while steps are long, as they are
            where few samples leave most to the prior.
        """
        dimension = len(self.centre)
        precision = torch.eye(dimension, dtype=torch.float64, device=self.centre.device) / std**2
        prior = Natural(precision @ self.centre, precision)
        large = self.samples.size * dimension**2 > LARGE
        problem = SiteProblem(
            self.samples,
            self.likelihood,
            self.centre,
            precision,
            bias=self.bias,
            # Scales are compared by far more than single precision leaves open.
            dtype=torch.float32 if large else torch.float64,
        )
        tolerance = _LARGE_TOLERANCE if large else _TOLERANCE
        q = solve(
            problem,
            tolerance,
            max_iterations,
            begun and prior.plus(begun),
            rival if large else -math.inf,
        )
        natural = Natural(q.precision @ q.mean, q.precision)
        return _Fit(q.bound, natural.plus(prior, -1))


def _count(columns: int) -> int:
    """How many samples are drawn for so many columns.

    Examples
    --------
    >>> _count(50), _count(500), _count(1600), _count(5000)
    (4096, 8000, 25600, 2748)
    """
    wanted = max(_SMALLEST, _A_PARAMETER * columns)
    return max(min(wanted, _MOST_WORK // columns**2), min(wanted, _FEWEST_IN_SPAN))


def _total_weight(samples: HeldSamples) -> float:
    return samples.size if samples.weights is None else float(samples.weights.sum())


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
