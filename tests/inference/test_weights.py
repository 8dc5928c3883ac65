"""A sample of weight 2 is two samples, to every inference and in every bound."""

import numpy as np
import pytest
import torch

from ibcl import DenseVI, DiagonalGaussian, MeanFieldVI, OneVsRestVI
from ibcl.inference.reparametrisation import LocalReparametrisation, PlainReparametrisation
from ibcl.likelihoods import Bernoulli, Categorical, Normal, OneVsRest, Poisson
from ibcl.networks import FlatNetwork, linear, mlp
from ibcl.tasks import TaskData
from theorems import assert_same_gaussian

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(24, 3, generator=GENERATOR)
CLASSES = X.argmax(1)
WEIGHTS = torch.randint(1, 4, (24,), generator=GENERATOR).double()
REPEATED = torch.repeat_interleave(torch.arange(24), WEIGHTS.long())
CASES = {
    "bernoulli": (DenseVI(), Bernoulli(), 1, (X[:, 0] > X[:, 1]).float()),
    "categorical": (DenseVI(), Categorical(), 3, CLASSES),
    "gaussian": (DenseVI(), Normal(0.5), 2, X[:, :2] * 2 + 1),
    "poisson": (DenseVI(), Poisson(), 1, torch.poisson(X[:, :1].exp(), generator=GENERATOR)),
    "one class against the rest": (OneVsRestVI(), OneVsRest(), 3, CLASSES),
}


def prior(network: FlatNetwork, std: float = 2.0) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros(network.dimension), torch.full((network.dimension,), std))


@pytest.mark.parametrize(("method", "likelihood", "outputs", "y"), CASES.values(), ids=CASES)
def test_whole_weights_are_repeated_samples(method, likelihood, outputs, y):
    network = FlatNetwork(linear(3, outputs))
    weighted, repeated, plain = (
        method.infer(network, likelihood, [prior(network)], data)
        for data in (TaskData(X, y, WEIGHTS), TaskData(X[REPEATED], y[REPEATED]), TaskData(X, y))
    )
    assert_same_gaussian(weighted.posteriors[0], repeated.posteriors[0], tolerance=1e-6)
    assert weighted.objectives[0] == pytest.approx(repeated.objectives[0], rel=1e-8)
    assert weighted.posteriors[0].wasserstein(plain.posteriors[0]) > 0.01


def test_few_weighted_samples_take_the_way_that_many_repeated_ones_take():
    """Fewer samples than columns are solved in their span, where a step must mean the same."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(20, 30, generator=generator)
    y = (x[:, 0] + torch.randn(20, generator=generator) > 0).float()
    weights = torch.randint(1, 4, (20,), generator=generator).double()
    repeated = torch.repeat_interleave(torch.arange(20), weights.long())
    assert len(repeated) > 31
    network = FlatNetwork(linear(30))
    for std in (0.5, 5.0, 50.0):
        few, many = (
            DenseVI().infer(network, Bernoulli(), [prior(network, std)], data).posteriors[0]
            for data in (TaskData(x, y, weights), TaskData(x[repeated], y[repeated]))
        )
        assert_same_gaussian(few, many, tolerance=1e-6)


@pytest.mark.parametrize(("method", "likelihood", "outputs", "y"), CASES.values(), ids=CASES)
def test_equal_weights_of_one_change_nothing(method, likelihood, outputs, y):
    network = FlatNetwork(linear(3, outputs))
    weighted, plain = (
        method.infer(network, likelihood, [prior(network)], TaskData(X, y, w))
        for w in (torch.ones(24).double(), None)
    )
    assert torch.equal(weighted.posteriors[0].mean, plain.posteriors[0].mean)
    assert weighted.objectives == plain.objectives


def test_single_precision_starts_keep_the_weights(monkeypatch):
    monkeypatch.setattr("ibcl.inference.sites.LARGE", 0)
    test_whole_weights_are_repeated_samples(*CASES["bernoulli"])


def test_mean_field_inference_finds_the_exact_weighted_posterior():
    """With orthogonal columns the exact posterior is diagonal: P = 1/σ₀² + Σ w x² / noise²."""
    generator = torch.Generator().manual_seed(1)
    w = torch.tensor([1.0, 4.0]).repeat(32).double()
    q, _ = torch.linalg.qr(torch.randn(64, 2, generator=generator).double())
    x = (3 * q / w.sqrt()[:, None]).float()
    y = x @ torch.tensor([[1.0], [-2.0]]) + 0.3 * torch.randn(64, 1, generator=generator)
    network = FlatNetwork(torch.nn.Linear(2, 1, bias=False))
    (posterior,) = (
        MeanFieldVI(epochs=1000, learning_rate=0.03, batch_size=64)
        .infer(network, Normal(0.3), [prior(network)], TaskData(x, y, w), seed=1)
        .posteriors
    )
    precision = 1 / 4 + 9 / 0.09
    mean = (x.double() * w[:, None]).T @ y.double() / 0.09 / precision
    torch.testing.assert_close(posterior.mean.double(), mean[:, 0], atol=0.03, rtol=0)
    torch.testing.assert_close(
        posterior.std.double(), torch.full((2,), precision**-0.5).double(), atol=0, rtol=0.1
    )


@pytest.mark.parametrize("estimate", [LocalReparametrisation, PlainReparametrisation])
def test_gradient_estimates_weigh_every_sample(estimate):
    """With next to no variance they are the weighted loss's gradient."""
    network = FlatNetwork(mlp(3, hidden=4))
    mean = torch.randn(1, network.dimension, generator=torch.Generator().manual_seed(3))
    buffers = torch.zeros_like(mean), torch.zeros_like(mean)
    y = (X[:, 0] > 0).float()
    loss = estimate(network, Bernoulli(), mean, torch.full_like(mean, 1e-14), *buffers).accumulate(
        X, y, torch.Generator().manual_seed(0), WEIGHTS.float()
    )
    theta = mean[0].clone().requires_grad_()
    exact = (Bernoulli().negative_log(network(theta, X), y) * WEIGHTS.float()).mean()
    exact.backward()
    assert float(loss) == pytest.approx(float(exact.detach()), rel=1e-4)
    torch.testing.assert_close(buffers[0][0], theta.grad, atol=1e-4, rtol=1e-3)


def still(network: FlatNetwork, data: TaskData, **more: object):
    """Mean-field inference that does not move, so that only its bound depends on the data."""
    method = MeanFieldVI(epochs=1, learning_rate=1e-12)
    return method.infer(
        network, Bernoulli(), [prior(network, 0.1)], data, start_from_prior=True, **more
    )


def test_the_mean_field_bound_counts_weights_as_samples():
    network, y = FlatNetwork(linear(3)), (X[:, 0] > 0).float()
    weighted = still(network, TaskData(X, y, WEIGHTS)).objectives[0]
    repeated = still(network, TaskData(X[REPEATED], y[REPEATED])).objectives[0]
    assert weighted == pytest.approx(repeated, rel=1e-5)
    assert weighted == pytest.approx(-float(WEIGHTS.sum()) * np.log(2), rel=0.05)


def test_mean_field_weights_only_count_relative_to_the_prior():
    """Doubling every weight is doubling the data: the KL's share halves, the loss's does not."""
    network, y = FlatNetwork(linear(3)), (X[:, 0] > 0).float()
    seen = []
    for weights in (None, torch.full((24,), 2.0)):
        still(network, TaskData(X, y, weights), progress=seen.append)
    assert seen[0].objective == pytest.approx(seen[1].objective, rel=1e-6)


def test_validation_weights_decide_which_parameters_are_kept():
    network = FlatNetwork(mlp(3, hidden=8))
    y = (X[:, 0] > 0).float()
    # The second half of the validation data contradicts the first, which teaches the same.
    both = TaskData(torch.cat([X, X]), torch.cat([y, 1 - y]))
    method = MeanFieldVI(epochs=15, learning_rate=0.02)

    def kept(validation: TaskData):
        arguments = (network, Bernoulli(), [prior(network)], TaskData(X, y))
        return method.infer(*arguments, validation=validation).posteriors[0]

    weights = torch.cat([torch.ones(24), torch.full((24,), 3.0)])
    repeated = torch.repeat_interleave(torch.arange(48), weights.long())
    found = kept(both._replace(weights=weights))
    expected = kept(TaskData(both.x[repeated], both.y[repeated]))
    assert torch.equal(found.mean, expected.mean)
    assert not torch.equal(found.mean, kept(both._replace(weights=weights.flip(0))).mean)
