"""DenseVI against closed forms, numerical integration and direct optimisation."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import norm
from torch import nn

from ibcl import DenseGaussian, DenseVI, DiagonalGaussian
from ibcl.likelihoods.quadrature import logistic_moments
from ibcl.likelihoods import Bernoulli, Categorical, Normal
from ibcl.networks import FlatNetwork, linear, mlp, random_features
from ibcl.tasks import TaskData
from theorems import assert_same_gaussian, random_gaussian


def isotropic(dimension: int, std: float) -> DiagonalGaussian:
    return DiagonalGaussian(torch.zeros(dimension).double(), torch.full((dimension,), std).double())


def infer(network, likelihood, prior, x, y, **settings):
    data = TaskData(x.float(), y)
    return DenseVI(**settings).infer(FlatNetwork(network), likelihood, [prior], data)


def logistic_data(n: int, columns: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, columns, generator=generator)
    logits = 2 * x[:, 0] - 1
    return x, (torch.rand(n, generator=generator) < torch.sigmoid(logits)).float()


@given(seed=st.integers(0, 500), outputs=st.integers(1, 3), noise=st.floats(0.1, 3))
def test_exact_for_linear_gaussian_models(seed, outputs, noise):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(7, 2, generator=generator)
    y = torch.randn(7, outputs, generator=generator)
    prior = random_gaussian("dense", 3 * outputs, seed)
    (posterior,) = infer(linear(2, outputs), Normal(noise), prior, x, y).posteriors
    # Row (s, c) of the design maps θ = (weight, bias) to output c of sample s.
    design = torch.zeros(7, outputs, 3 * outputs).double()
    for c in range(outputs):
        design[:, c, 2 * c : 2 * c + 2] = x.double()
        design[:, c, 2 * outputs + c] = 1
    design = design.reshape(-1, 3 * outputs)
    precision = prior.precision + design.T @ design / noise**2
    shift = prior.natural_parameters().linear + design.T @ y.double().flatten() / noise**2
    exact = DenseGaussian(torch.linalg.solve(precision, shift), precision)
    assert_same_gaussian(posterior, exact, tolerance=1e-6)


def test_learning_in_two_parts_equals_learning_at_once_for_linear_gaussian_models():
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(20, 3, generator=generator), torch.randn(20, 1, generator=generator)
    prior = isotropic(4, 2.0)
    (whole,) = infer(linear(3), Normal(0.5), prior, x, y).posteriors
    (first,) = infer(linear(3), Normal(0.5), prior, x[:8], y[:8]).posteriors
    (second,) = infer(linear(3), Normal(0.5), first, x[8:], y[8:]).posteriors
    assert_same_gaussian(whole, second, tolerance=1e-7)


@given(mean=st.floats(-80, 80), log_std=st.floats(-7, 6))
def test_logistic_moments_match_numerical_integration(mean, log_std):
    std = float(np.exp(log_std))
    measured = logistic_moments(torch.tensor([mean]).double(), torch.tensor([std]).double())
    low, high = mean - 12 * std, mean + 12 * std
    kinks = sorted({p for p in (-40.0, -5.0, 0.0, 5.0, 40.0, mean) if low < p < high})
    functions = (
        lambda z: np.logaddexp(0, z),
        lambda z: 0.5 * (1 + np.tanh(z / 2)),
        lambda z: 0.25 * (1 - np.tanh(z / 2) ** 2),
    )
    for value, function in zip(measured, functions, strict=True):
        expected, _ = quad(
            lambda z, f=function: f(z) * norm.pdf(z, mean, std),
            low,
            high,
            points=kinks,
            limit=400,
            epsabs=1e-11,
            epsrel=1e-11,
        )
        assert float(value) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_softmax_expectations_match_monte_carlo_and_the_binary_case():
    mean = torch.tensor([[0.5, -1.0, 0.2]]).double()
    root = torch.tensor([[1.0, 0.0, 0.0], [0.4, 0.8, 0.0], [-0.3, 0.2, 0.5]]).double()
    covariance = (root @ root.T)[None]
    ours = Categorical().expectations(mean, covariance, torch.tensor([1]))
    noise = torch.randn(400_000, 3, generator=torch.Generator().manual_seed(0)).double()
    p = torch.softmax(mean + noise @ root.T, -1)
    torch.testing.assert_close(
        ours.residual[0] + p.mean(0), torch.tensor([0.0, 1, 0]).double(), atol=0.01, rtol=0
    )
    curvature = torch.diag(p.mean(0)) - p.T @ p / len(p)
    torch.testing.assert_close(ours.curvature[0], curvature, atol=0.01, rtol=0)


def bernoulli_bound(parameters, x, y, prior_std):
    """The ELBO of a two-parameter logistic head, written out with one-dimensional integrals."""
    mean, root = parameters[:2], np.array([[parameters[2], 0], [parameters[3], parameters[4]]])
    design = np.column_stack([x, np.ones(len(x))])
    m, s = design @ mean, np.linalg.norm(design @ root, axis=1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    z = m[:, None] + s[:, None] * nodes
    loss = (np.logaddexp(0, z) @ weights / np.sqrt(2 * np.pi) - y * m).sum()
    kl = 0.5 * ((root**2).sum() + mean @ mean) / prior_std**2 - 1 + 2 * np.log(prior_std)
    return loss + kl - np.log(abs(parameters[2] * parameters[4]))


@pytest.mark.parametrize("prior_std", [0.5, 3.0])
def test_logistic_posterior_maximises_the_elbo(prior_std):
    x, y = logistic_data(40, 1)
    result = infer(linear(1), Bernoulli(), isotropic(2, prior_std), x, y, tolerance=1e-6)
    best = minimize(
        bernoulli_bound,
        [0, 0, 0.5, 0, 0.5],
        args=(x[:, 0].numpy(), y.numpy(), prior_std),
        method="BFGS",
        options={"gtol": 1e-8},
    )
    root = np.array([[best.x[2], 0], [best.x[3], best.x[4]]])
    (posterior,) = result.posteriors
    np.testing.assert_allclose(posterior.mean.numpy(), best.x[:2], atol=1e-4)
    np.testing.assert_allclose(posterior.covariance.numpy(), root @ root.T, atol=1e-4)
    assert result.objectives[0] == pytest.approx(-best.fun, abs=1e-5)


def test_two_class_softmax_agrees_with_the_logistic_head():
    x, y = logistic_data(60, 2)
    (binary,) = infer(linear(2), Bernoulli(), isotropic(3, 2.0), x, y).posteriors
    # The difference of two independent weights of std s is one weight of std s·√2.
    prior = isotropic(6, 2.0 / np.sqrt(2))
    (softmax,) = infer(linear(2, 2), Categorical(), prior, x, y.long()).posteriors
    weight, bias = softmax.mean[:4].reshape(2, 2), softmax.mean[4:]
    difference = torch.cat([weight[1] - weight[0], bias[1:] - bias[:1]])
    torch.testing.assert_close(difference, binary.mean, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("prior_std", [1.0, 30.0, 1e4])
@pytest.mark.parametrize("columns", [1, 30])
def test_stable_on_separable_data_and_wide_priors(prior_std, columns):
    x = torch.randn(25, columns, generator=torch.Generator().manual_seed(3))
    y = (x[:, 0] > 0).float()
    result = infer(linear(columns), Bernoulli(), isotropic(columns + 1, prior_std), x, y)
    (posterior,) = result.posteriors
    assert result.converged
    assert bool(torch.isfinite(posterior.mean).all())
    logits = x.double() @ posterior.mean[:-1] + posterior.mean[-1]
    assert float(((logits > 0) == (y > 0)).double().mean()) > 0.9
    # Data can only sharpen a Gaussian that maximises a log-concave likelihood's ELBO.
    added = posterior.precision - torch.eye(columns + 1).double() / prior_std**2
    assert float(torch.linalg.eigvalsh(added).min()) > -1e-6 * float(added.abs().max())


def test_deterministic_and_blind_to_the_order_of_samples():
    x, y = logistic_data(50, 4)
    prior = isotropic(5, 2.5)
    (one,), (two,) = (infer(linear(4), Bernoulli(), prior, x, y).posteriors for _ in range(2))
    assert torch.equal(one.mean, two.mean)
    assert torch.equal(one.precision, two.precision)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    (shuffled,) = infer(linear(4), Bernoulli(), prior, x[order], y[order]).posteriors
    assert_same_gaussian(one, shuffled, tolerance=1e-3)


def test_random_features_and_a_head_without_bias():
    x, y = logistic_data(60, 3)
    result = infer(random_features(3, width=20), Bernoulli(), isotropic(21, 5.0), x, y)
    assert result.converged
    head = nn.Sequential(nn.Linear(3, 1, bias=False))
    (posterior,) = infer(head, Normal(1.0), isotropic(3, 1.0), x, y[:, None]).posteriors
    exact = torch.linalg.solve(torch.eye(3) + x.T @ x, x.T @ y)
    torch.testing.assert_close(posterior.mean.float(), exact, rtol=1e-4, atol=1e-5)


def test_large_problems_start_in_single_precision_and_end_at_the_same_posterior(monkeypatch):
    x, y = logistic_data(300, 60)
    prior = isotropic(61, 1.0)
    (double,) = infer(linear(60), Bernoulli(), prior, x, y, tolerance=1e-5).posteriors
    monkeypatch.setattr("ibcl.inference.sites._LARGE", 0)
    (mixed,) = infer(linear(60), Bernoulli(), prior, x, y, tolerance=1e-5).posteriors
    assert_same_gaussian(double, mixed, tolerance=1e-4)


def test_networks_that_are_not_linear_in_their_parameters_are_refused():
    x, y = logistic_data(10, 2)
    with pytest.raises(ValueError, match="linear in its parameters"):
        infer(mlp(2, hidden=3), Bernoulli(), isotropic(13, 1.0), x, y)


def test_running_out_of_iterations_is_said():
    x, y = logistic_data(50, 20)
    with pytest.warns(UserWarning, match="did not reach its tolerance"):
        infer(linear(20), Bernoulli(), isotropic(21, 50.0), x, y, max_iterations=1)
