"""VCL: the prior of a task is the posterior of the one before."""

import numpy as np
import pytest
import torch
from torch import nn

from ibcl import networks
from ibcl.experiments.methods.vcl import VCL
from ibcl.likelihoods import Normal
from ibcl.tasks import as_task

NOISE = 0.5


def regression(slope, n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 1))
    return as_task(x, (x[:, 0] * slope + NOISE * rng.normal(size=n)).astype(np.float32))


def conjugate(mean, precision, task, copies):
    """Posterior of y = θ x + noise, with every sample counted so many times."""
    x, y = task.x[:, 0].double().numpy(), task.y.double().numpy()
    updated = precision + copies * (x @ x) / NOISE**2
    return (precision * mean + copies * (x @ y) / NOISE**2) / updated, updated


def learner(kind=VCL, **settings):
    return kind(
        networks.redrawn(nn.Linear(1, 1, bias=False)),
        prior_std=1.5,
        likelihood=Normal(NOISE),
        **{"batch_size": 1000, "memory": 5, **settings},
    )


class Untrained(VCL):
    """Stays where each task starts, and shows the rule by which it would have moved."""

    def descend(self, thetas, samples, gradient, generator):
        self.rule, self.samples = gradient, samples


@pytest.mark.parametrize("tasks", [1, 2])
def test_gradient_is_that_of_the_conjugate_posterior_with_the_last_posterior_as_prior(tasks):
    # With posterior N(m, 1/P), the free energy of q = N(μ, σ²) is ½ P ((μ−m)² + σ²) − log σ + c.
    data = [regression(1.0, 12, seed=0), regression(-0.5, 15, seed=1)][:tasks]
    method = learner(Untrained)
    for k, task in enumerate(data):
        prior = method.prior
        method.learn(f"task {k}", task, None, np.eye(tasks)[-1:, tasks - k - 1 :])
    # All weight is on the last task: its samples stand for all samples at hand, memory included.
    copies = method.samples / data[-1].size
    m, P = conjugate(float(prior.mean), float(prior.std) ** -2, data[-1], copies)
    rows = torch.arange(method.samples)
    for mean, std in ((m, P**-0.5), (m + 0.3, P**-0.5), (m - 0.2, 2 * P**-0.5)):
        posterior = torch.tensor([[mean, np.log(std)]], dtype=torch.float32)
        draws = torch.cat([method.rule(posterior, rows, 0) for _ in range(500)]).double().numpy()
        expected = np.array([P * (mean - m), P * std**2 - 1]) / method.samples
        error = draws.std(0) / np.sqrt(len(draws))
        assert (np.abs(draws.mean(0) - expected) < 4.5 * error + 1e-6).all()
    if tasks == 2:
        # The initial prior instead of the last posterior would have shown.
        assert abs(conjugate(0.0, 1.5**-2, data[-1], copies)[0] - m) > P**-0.5


def test_training_finds_the_conjugate_posterior():
    task = regression(1.0, 12, seed=0)
    method = learner(epochs=800, learning_rate=5e-3, initial_std=0.2)
    method.learn("first", task, None, [[1.0]])
    mean, precision = conjugate(0.0, 1.5**-2, task, copies=1)
    assert float(method.thetas[0, 0]) == pytest.approx(mean, abs=0.3 * precision**-0.5)
    assert float(method.stds[0, 0]) == pytest.approx(precision**-0.5, rel=0.15)


def test_prior_passed_on_is_the_average_posterior(three_tasks):
    method = VCL(networks.linear(3), epochs=2, prior_std=2.0)
    assert method.prior.mean.tolist() == [0.0] * 4
    assert method.prior.std.tolist() == [2.0] * 4
    method.learn("first", three_tasks[0], None, [[1.0]])
    assert torch.equal(method.prior.mean, method.thetas[0])
    assert torch.equal(method.prior.std, method.stds[0])
    method.learn("second", three_tasks[1], None, [[0.9, 0.1], [0.2, 0.8]])
    torch.testing.assert_close(method.prior.mean, method.thetas.mean(0))
    torch.testing.assert_close(method.prior.std, method.stds.mean(0))


def test_without_evidence_the_next_task_keeps_the_prior():
    method = learner(epochs=500)
    method.learn("first", regression(1.0, 12, seed=0), None, [[1.0]])
    mean, std = method.prior.mean.clone(), method.prior.std.clone()
    # Inputs of zero say nothing about θ, so the posterior must be the prior.
    method.learn("second", as_task(np.zeros((10, 1)), np.full(10, 0.3)), None, [[0.0, 1.0]])
    torch.testing.assert_close(method.prior.mean, mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(method.prior.std, std, rtol=1e-3, atol=1e-3)
