"""MeanFieldVI against exact Gaussian posteriors, and what its schedule promises."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from ibcl import IBCL, DiagonalGaussian, MeanFieldVI
from ibcl.inference.reparametrisation import LocalReparametrisation, PlainReparametrisation
from ibcl.likelihoods import Bernoulli, Categorical, Normal
from ibcl.networks import FlatNetwork, linear, mlp
from ibcl.tasks import TaskData


class Scale(nn.Module):
    """One parameter per input, in no linear layer: needs plain reparametrisation."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inputs, 1))

    def forward(self, x):
        return x @ self.weight


def orthogonal_regression(n: int = 64, columns: int = 3):
    """Inputs with orthogonal columns, for which the exact posterior is diagonal."""
    generator = torch.Generator().manual_seed(0)
    q, _ = torch.linalg.qr(torch.randn(n, columns, generator=generator))
    x = 3 * q
    y = x @ torch.tensor([1.0, -2.0, 0.5]) + 0.3 * torch.randn(n, generator=generator)
    return x, y[:, None]


@pytest.mark.parametrize("module", [nn.Linear(3, 1, bias=False), Scale(3)])
def test_the_exact_posterior_where_it_is_diagonal(module):
    x, y = orthogonal_regression()
    prior = DiagonalGaussian(torch.zeros(3), torch.full((3,), 2.0))
    result = MeanFieldVI(epochs=1500, learning_rate=0.03, batch_size=64).infer(
        FlatNetwork(module), Normal(0.3), [prior], TaskData(x, y), seed=1
    )
    precision = 1 / 4 + 9 / 0.09
    torch.testing.assert_close(
        result.posteriors[0].mean, (x.T @ y)[:, 0] / 0.09 / precision, atol=0.03, rtol=0
    )
    torch.testing.assert_close(
        result.posteriors[0].std, torch.full((3,), precision**-0.5), atol=0, rtol=0.1
    )


def gradients(estimate, network, likelihood, mean, variance, x, y, draws):
    """Average gradient estimate and its standard error."""
    rows = []
    for seed in range(draws):
        buffers = torch.zeros_like(mean), torch.zeros_like(variance)
        estimate(network, likelihood, mean, variance, *buffers).accumulate(
            x, y, torch.Generator().manual_seed(seed)
        )
        rows.append(torch.cat(buffers, 1))
    stacked = torch.stack(rows)
    return stacked.mean(0), stacked.std(0) / draws**0.5


@pytest.mark.parametrize("likelihood", [Bernoulli(), Categorical(), Normal(0.7)])
def test_local_and_plain_reparametrisation_estimate_the_same_gradient(likelihood):
    outputs = 3 if isinstance(likelihood, Categorical) else 1
    network = FlatNetwork(mlp(2, hidden=3, outputs=outputs, activation="tanh"))
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(2, network.dimension, generator=generator)
    variance = 0.05 + 0.1 * torch.rand(2, network.dimension, generator=generator)
    x = torch.randn(6, 2, generator=generator)
    y = torch.tensor([0, 1, 1, 0, 1, 0])
    labels = likelihood.check(y, outputs)
    local, local_error = gradients(
        LocalReparametrisation, network, likelihood, mean, variance, x, labels, 400
    )
    plain, plain_error = gradients(
        PlainReparametrisation, network, likelihood, mean, variance, x, labels, 400
    )
    error = (local_error.square() + plain_error.square()).sqrt() + 1e-6
    assert float(((local - plain).abs() / error).max()) < 5


def test_gradients_vanish_variance_matches_autograd():
    network = FlatNetwork(mlp(3, hidden=4))
    generator = torch.Generator().manual_seed(1)
    mean = torch.randn(1, network.dimension, generator=generator)
    variance = torch.full_like(mean, 1e-12)
    x, y = torch.randn(5, 3, generator=generator), torch.tensor([0.0, 1, 1, 0, 1])
    buffers = torch.zeros_like(mean), torch.zeros_like(mean)
    LocalReparametrisation(network, Bernoulli(), mean, variance, *buffers).accumulate(
        x, y, generator
    )
    theta = mean[0].clone().requires_grad_()
    outputs = functional_call(network.template, network.unflatten(theta), (x,))
    nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], y).backward()
    torch.testing.assert_close(buffers[0][0], theta.grad, atol=1e-4, rtol=1e-3)


def xor_task(n: int = 200) -> TaskData:
    x = torch.randn(n, 2, generator=torch.Generator().manual_seed(2))
    return TaskData(x, (x[:, 0] * x[:, 1] > 0).float())


def prior(network, std=2.5):
    return DiagonalGaussian(torch.zeros(network.dimension), torch.full((network.dimension,), std))


def test_it_learns_what_a_linear_model_cannot():
    network, data = FlatNetwork(mlp(2, hidden=16)), xor_task()
    result = MeanFieldVI(epochs=100, learning_rate=0.02).infer(
        network, Bernoulli(), [prior(network)], data
    )
    predicted = network(result.posteriors[0].mean, data.x)[:, 0] > 0
    assert float((predicted == data.y.bool()).float().mean()) > 0.9


def test_updates_are_counted_a_prior_and_a_batch():
    network, data = FlatNetwork(linear(2)), xor_task(100)
    result = MeanFieldVI(epochs=3, batch_size=32).infer(
        network, Bernoulli(), [prior(network, s) for s in (1.0, 2.0)], data
    )
    assert result.updates == 3 * 4 * 2


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not():
    network, data = FlatNetwork(mlp(2, hidden=4)), xor_task(50)
    method = MeanFieldVI(epochs=2)
    one, two, other = (
        method.infer(network, Bernoulli(), [prior(network)], data, seed=s).posteriors[0]
        for s in (5, 5, 6)
    )
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.std, two.std)
    assert not torch.equal(one.mean, other.mean)


def test_a_prior_that_is_certain_stays_where_it_is():
    network, data = FlatNetwork(linear(2)), xor_task(50)
    sure = DiagonalGaussian(torch.tensor([1.0, -1.0, 0.5]), torch.full((3,), 1e-4))
    (posterior,) = (
        MeanFieldVI(epochs=5)
        .infer(network, Bernoulli(), [sure], data, start_from_prior=True)
        .posteriors
    )
    assert posterior.wasserstein(sure) < 0.01


def test_early_stopping_keeps_the_best_validation_loss():
    network, data = FlatNetwork(mlp(2, hidden=8)), xor_task(40)
    # Labels that contradict the training data: the longer it learns, the worse it gets.
    validation = TaskData(data.x, 1 - data.y)
    patient = MeanFieldVI(epochs=50, learning_rate=0.02, patience=2).infer(
        network, Bernoulli(), [prior(network)], data, validation=validation
    )
    assert patient.updates < 50 * 2
    full = MeanFieldVI(epochs=50, learning_rate=0.02).infer(
        network, Bernoulli(), [prior(network)], data
    )

    def loss(posterior):
        outputs = network(posterior.mean, validation.x)
        return float(Bernoulli().negative_log(outputs, validation.y).mean())

    assert loss(patient.posteriors[0]) < loss(full.posteriors[0])


def test_patience_is_so_many_epochs_without_improvement():
    """Held-out labels that are the opposite get worse with every epoch after the first."""
    x = torch.randn(64, 2, generator=torch.Generator().manual_seed(0))
    data, opposite = (TaskData(x, y.float()) for y in (x[:, 0] > 0, x[:, 0] <= 0))
    network = FlatNetwork(linear(2))
    for patience in (1, 3):
        seen = []
        MeanFieldVI(epochs=20, learning_rate=0.05, patience=patience).infer(
            network, Bernoulli(), [prior(network)], data, validation=opposite, progress=seen.append
        )
        assert len(seen) == 1 + patience


@pytest.mark.parametrize(("updates", "rates"), [(1, 1.0), (2, 1.5), (4, 2.5)])
def test_the_rate_falls_along_half_a_cosine(updates, rates):
    """With gradients of one sign every update moves a mean by its rate; these sum to this."""
    network = FlatNetwork(nn.Linear(1, 1, bias=False))
    data = TaskData(torch.ones(8, 1), torch.full((8, 1), 100.0))
    start = DiagonalGaussian(torch.zeros(1), torch.ones(1))
    method = MeanFieldVI(epochs=updates, learning_rate=0.01, batch_size=8)
    (q,) = method.infer(network, Normal(1.0), [start], data, start_from_prior=True).posteriors
    assert float(q.mean) == pytest.approx(0.01 * rates, rel=0.03)


def test_progress_is_reported_to_the_end():
    seen = []
    network = FlatNetwork(linear(2))
    MeanFieldVI(epochs=4).infer(
        network, Bernoulli(), [prior(network)], xor_task(64), progress=seen.append
    )
    assert [step.done for step in seen] == [2, 4, 6, 8]
    assert {step.total for step in seen} == {8}


@pytest.mark.parametrize(
    "settings", [{"epochs": 0}, {"learning_rate": -1.0}, {"batch_size": 0}, {"patience": 0}]
)
def test_settings_must_make_sense(settings):
    with pytest.raises(ValueError, match="must be"):
        MeanFieldVI(**settings)


def test_inputs_of_zero_say_nothing_and_break_nothing():
    """The variance of a layer without bias is then 0, where a root has no slope."""
    network = torch.nn.Linear(2, 1, bias=False)
    learner = IBCL(network, priors=[1.0], inference=MeanFieldVI(epochs=50, learning_rate=0.05))
    learner.learn(np.zeros((8, 2)), np.array([0, 1] * 4), task="nothing")
    posterior = learner.knowledge.stored[0]
    assert torch.isfinite(torch.cat([posterior.mean, posterior.std])).all()


@pytest.mark.parametrize("module", [mlp(2, hidden=8), nn.Sequential(Scale(2))])
def test_priors_share_their_noise(module):
    """Two equal priors have one posterior, and it is the one that either has alone."""
    network, data = FlatNetwork(module), xor_task(64)
    method = MeanFieldVI(epochs=3)
    (alone,) = method.infer(network, Bernoulli(), [prior(network)], data).posteriors
    both = method.infer(network, Bernoulli(), [prior(network)] * 2, data).posteriors
    for q in both:
        torch.testing.assert_close(q.mean, alone.mean, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(q.std, alone.std, atol=1e-5, rtol=1e-4)


def test_between_the_posteriors_of_several_priors_lies_a_network_that_works():
    """Pushed by noise of their own, networks drift apart and their average is none."""
    network, data = FlatNetwork(mlp(2, hidden=16)), xor_task(300)
    priors = [prior(network, std) for std in (1.5, 2.0, 2.5)]
    result = MeanFieldVI(epochs=60, learning_rate=0.02).infer(network, Bernoulli(), priors, data)
    middle = torch.stack([q.mean for q in result.posteriors]).mean(0)
    right = [
        float(((network(theta, data.x)[:, 0] > 0) == data.y.bool()).float().mean())
        for theta in (*(q.mean for q in result.posteriors), middle)
    ]
    assert min(right) > 0.85
    assert right[-1] > min(right[:-1]) - 0.03
