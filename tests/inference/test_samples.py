"""Blocks, parts and spans of the samples all lead to the posterior of the samples."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import torch
from torch import nn

import ibcl
from ibcl.inference import sites
from ibcl.inference.head import head_features
from ibcl.inference.prior_scale import choose_prior, grouped
from ibcl.inference.samples import Block, HeldSamples, drawn
from ibcl.likelihoods import Bernoulli, OneVsRest, Poisson
from ibcl.networks import FlatNetwork, linear
from ibcl.tasks import TaskData
from theorems import assert_same_gaussian, random_gaussian


def task(n: int, columns: int, seed: int = 0) -> TaskData:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=generator)
    logits = 2 * x[:, 0] - x[:, 1] + 0.5
    return TaskData(x, (torch.rand(n, generator=generator) < torch.sigmoid(logits)).float())


def isotropic(dimension: int, std: float) -> ibcl.DiagonalGaussian:
    return ibcl.DiagonalGaussian(torch.zeros(dimension).double(), torch.full((dimension,), std))


class Blocks(NamedTuple):
    """Samples of somebody's own, which come in blocks of so many rows."""

    data: TaskData
    rows: int
    device: torch.device = torch.device("cpu")

    @property
    def size(self) -> int:
        return self.data.size

    @property
    def columns(self) -> int:
        return self.data.x.shape[1]

    def blocks(self) -> Iterator[Block]:
        for own in torch.split(torch.arange(self.size), self.rows):
            yield Block(self.data.x[own], self.data.y[own], self.data.weights[own])


@pytest.mark.parametrize("rows", [7, 50, 1000])
@pytest.mark.parametrize("classes", [2, 3])
def test_any_blocks_give_the_posterior_of_all_samples(rows, classes):
    data = task(300, 4)
    data = data._replace(weights=torch.rand(300, generator=torch.Generator().manual_seed(1)) + 0.5)
    method, likelihood = ibcl.DenseVI(), Bernoulli()
    if classes == 3:
        method, likelihood = ibcl.OneVsRestVI(), OneVsRest()
        data = data._replace(y=data.x[:, :3].argmax(1))
    network = FlatNetwork(linear(4, 1 if classes == 2 else 3))
    prior = isotropic(network.dimension, 2.0)
    whole = method.infer(network, likelihood, [prior], data)
    parts = method.infer_samples(network, likelihood, [prior], Blocks(data, rows))
    assert_same_gaussian(whole.posteriors[0], parts.posteriors[0], tolerance=1e-7)
    assert whole.objectives[0] == pytest.approx(parts.objectives[0], rel=1e-9)


@pytest.mark.parametrize("family", ["diagonal", "dense"])
@pytest.mark.parametrize("likelihood", [Bernoulli(), Poisson()])
def test_fewer_samples_than_columns_have_the_posterior_of_the_whole_space(
    family, likelihood, monkeypatch
):
    """The span of the samples is a shortcut: without it the answer is the same."""
    data = task(15, 40, seed=2)
    if isinstance(likelihood, Poisson):
        data = data._replace(y=data.y[:, None] * 3)
    prior = random_gaussian(family, 41, seed=3)
    network = FlatNetwork(linear(40))
    method = ibcl.DenseVI(tolerance=1e-7)
    short = method.infer(network, likelihood, [prior], data)
    monkeypatch.setattr(sites._Span, "of", lambda _: None)
    long = method.infer(network, likelihood, [prior], data)
    assert_same_gaussian(short.posteriors[0], long.posteriors[0], tolerance=1e-5)
    assert short.objectives[0] == pytest.approx(long.objectives[0], rel=1e-8)


def test_what_is_begun_on_a_part_ends_at_the_posterior_of_all(monkeypatch):
    data = task(12_000, 20)
    network, prior = FlatNetwork(linear(20)), isotropic(21, 3.0)
    monkeypatch.setattr(sites, "LARGE", float("inf"))
    plain = ibcl.DenseVI(tolerance=1e-6).infer(network, Bernoulli(), [prior], data)
    monkeypatch.setattr(sites, "LARGE", 0)
    parts = []
    monkeypatch.setattr(
        sites, "drawn", lambda samples, count: parts.append(count) or drawn(samples, count)
    )
    staged = ibcl.DenseVI().infer(network, Bernoulli(), [prior], data)
    assert parts
    # In units of the posterior's own deviations, as the tolerance is meant.
    exact, found = plain.posteriors[0], staged.posteriors[0]
    shift = exact.precision_cholesky.T @ (found.mean - exact.mean)
    assert float(shift.norm()) / 21**0.5 < 1e-3
    change = exact.covariance_factor.T @ found.precision @ exact.covariance_factor
    assert float((change - torch.eye(21)).norm()) / 21**0.5 < 1e-3
    assert staged.objectives[0] == pytest.approx(plain.objectives[0], rel=1e-6)


def test_parts_are_drawn_from_every_block_and_keep_weights():
    y = torch.arange(10_000).float()
    part = drawn(HeldSamples(y[:, None], y, y.double()), 500)
    assert part.size == 500
    assert torch.equal(part.features[:, 0], part.y)
    assert torch.equal(part.weights, part.y.double())
    # Sorted samples are drawn from all over, not from their beginning.
    assert abs(float(part.y.mean()) - 5000) < 600
    assert float(part.y.max()) > 9000
    assert len(part.y.unique()) == 500


def test_a_backbone_never_sees_all_rows_at_once():
    seen = []

    class Backbone(nn.Module):
        def forward(self, x):
            seen.append(len(x))
            return 2 * x

    network = FlatNetwork(ibcl.networks.with_backbone(Backbone(), features=2))
    x = torch.randn(10_000, 2, generator=torch.Generator().manual_seed(0))
    assert torch.equal(head_features(network, x), 2 * x)
    assert sum(seen) == 10_000
    assert max(seen) < 10_000


def test_the_cheap_search_prefers_the_prior_of_the_largest_bound():
    data = task(400, 6)
    network, stds = FlatNetwork(linear(6)), (0.1, 0.3, 1.0, 3.0, 10.0)
    priors = [isotropic(7, std) for std in stds]
    bounds = ibcl.DenseVI().infer(network, Bernoulli(), priors, data).objectives
    found = choose_prior(network, Bernoulli(), ibcl.DenseVI(), stds, data).std
    assert found == stds[max(range(5), key=bounds.__getitem__)]
    few, wide = task(25, 60), FlatNetwork(linear(60))
    bounds = ibcl.DenseVI().infer(wide, Bernoulli(), [isotropic(61, s) for s in stds], few)
    found = choose_prior(wide, Bernoulli(), ibcl.DenseVI(), stds, few).std
    assert found == stds[max(range(5), key=bounds.objectives.__getitem__)]
    classes = data._replace(y=data.x[:, :3].argmax(1))
    three = FlatNetwork(linear(6, 3))
    priors = [isotropic(21, std) for std in stds]
    bounds = ibcl.OneVsRestVI().infer(three, OneVsRest(), priors, classes).objectives
    found = choose_prior(three, OneVsRest(), ibcl.OneVsRestVI(), stds, classes).std
    assert found == stds[max(range(5), key=bounds.__getitem__)]


@pytest.mark.parametrize("slope", [0.05, 0.5, 5.0])
def test_a_search_that_gives_up_early_finds_what_one_that_goes_on_finds(slope, monkeypatch):
    network, stds = FlatNetwork(linear(6)), (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(300, 6, generator=generator)
    noisy = slope * x.sum(1) + torch.randn(300, generator=generator)
    data = TaskData(x, (noisy > 0).float())
    early = choose_prior(network, Bernoulli(), ibcl.DenseVI(), stds, data).std
    monkeypatch.setattr(sites.Approximation, "reach", property(lambda _: torch.inf))
    assert early == choose_prior(network, Bernoulli(), ibcl.DenseVI(), stds, data).std


def test_grouping_counts_repeated_rows_by_their_effective_size():
    data = task(30, 2)
    distinct = grouped(HeldSamples(data.x, data.y))
    assert distinct.size == 30
    assert float(distinct.weights.sum()) == pytest.approx(30)
    counts = torch.arange(30) % 3 + 1
    repeated = torch.repeat_interleave(torch.arange(30), counts)
    groups = grouped(HeldSamples(data.x[repeated], data.y[repeated]))
    assert groups.size == 30
    kish = float(counts.sum() ** 2 / counts.square().sum())
    assert float(groups.weights.sum()) == pytest.approx(kish)
    same = grouped(HeldSamples(torch.zeros(4, 1), torch.tensor([0, 0, 1, 1])))
    assert sorted(same.y.tolist()) == [0, 1]
