import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch.distributions import MultivariateNormal, kl_divergence

from ibcl import DenseGaussian, DiagonalGaussian, Mixture
from theorems import random_gaussian

KINDS = ["diagonal", "dense"]
seeds = st.integers(0, 10_000)
dimensions = st.integers(1, 6)


def reference(q):
    return MultivariateNormal(q.mean.double(), precision_matrix=q.dense().precision.double())


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds, dimension=dimensions)
def test_log_density_matches_torch_and_scipy(kind, seed, dimension):
    q = random_gaussian(kind, dimension, seed)
    theta = q.sample(5, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(q.log_prob(theta), reference(q).log_prob(theta))
    scipy = multivariate_normal(q.mean.numpy(), q.dense().covariance.numpy()).logpdf(theta.numpy())
    np.testing.assert_allclose(q.log_prob(theta).numpy(), np.atleast_1d(scipy), rtol=1e-8)


@pytest.mark.parametrize("left", KINDS)
@pytest.mark.parametrize("right", KINDS)
@given(seed=seeds, dimension=dimensions)
def test_kl_and_wasserstein_match_torch_and_pot(left, right, seed, dimension):
    q, p = random_gaussian(left, dimension, seed), random_gaussian(right, dimension, seed + 1)
    assert q.kl(p) == pytest.approx(float(kl_divergence(reference(q), reference(p))), abs=1e-8)
    pot = ot.gaussian.bures_wasserstein_distance(
        q.mean.numpy(), p.mean.numpy(), q.dense().covariance.numpy(), p.dense().covariance.numpy()
    )
    assert q.wasserstein(p) == pytest.approx(float(pot), abs=1e-5)
    assert q.wasserstein(p) == pytest.approx(p.wasserstein(q), abs=1e-8)
    assert q.wasserstein(q) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_samples_have_the_right_moments_and_follow_the_seed(kind):
    q = random_gaussian(kind, 3, seed=1)
    draws = q.sample(200_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), q.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(draws.T.cov(), q.dense().covariance, atol=0.03, rtol=0.03)
    assert torch.equal(
        q.sample(4, torch.Generator().manual_seed(7)), q.sample(4, torch.Generator().manual_seed(7))
    )


@pytest.mark.parametrize("kind", KINDS)
@given(seed=seeds)
def test_natural_parameters_of_a_product_add(kind, seed):
    q, p = random_gaussian(kind, 3, seed), random_gaussian(kind, 3, seed + 1)
    linear = q.natural_parameters().linear + p.natural_parameters().linear
    precision = q.dense().precision + p.dense().precision
    product = DenseGaussian(torch.linalg.solve(precision, linear), precision)
    theta = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).double()
    gap = q.log_prob(theta) + p.log_prob(theta) - product.log_prob(theta)
    torch.testing.assert_close(gap, gap[:1].expand_as(gap))


def test_mixture_density_sampling_and_kl():
    components = [random_gaussian("diagonal", 2, 1), random_gaussian("dense", 2, 2)]
    q = Mixture([0.3, 0.7], components)
    theta = torch.randn(6, 2).double()
    expected = 0.3 * components[0].log_prob(theta).exp() + 0.7 * components[1].log_prob(theta).exp()
    torch.testing.assert_close(q.log_prob(theta).exp(), expected)
    draws = q.sample(100_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), q.mean, atol=0.02, rtol=0)
    single = Mixture([1.0], components[:1])
    exact = components[0].kl(components[1])
    assert single.kl(components[1], draws=50_000) == pytest.approx(exact, rel=0.05)


@given(seed=seeds)
def test_mixture_wasserstein_is_optimal_transport_between_components(seed):
    ours = [random_gaussian("dense", 2, seed + i) for i in range(3)]
    theirs = [random_gaussian("diagonal", 2, seed + 10 + i) for i in range(2)]
    cost = np.array([[q.wasserstein(p) ** 2 for p in theirs] for q in ours])
    left, right = np.array([0.2, 0.5, 0.3]), np.array([0.6, 0.4])
    expected = math.sqrt(ot.emd2(left, right, cost))
    measured = Mixture(left, ours).wasserstein(Mixture(right, theirs))
    assert measured == pytest.approx(expected, abs=1e-6)


def test_float32_storage_keeps_double_precision_densities():
    dimension = 30_000
    q = DiagonalGaussian(torch.ones(dimension), torch.full((dimension,), 1e-3))
    assert q.mean.dtype == torch.float32
    theta = q.mean.double() + q.std.double()
    assert float(q.mahalanobis_squared(theta)) == pytest.approx(dimension, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalGaussian([0.0], [0.0]), "positive"),
        (lambda: DiagonalGaussian([0.0], [-1.0]), "positive"),
        (lambda: DiagonalGaussian([0.0, 1.0], [1.0]), "same length"),
        (lambda: DiagonalGaussian([math.nan], [1.0]), "not finite"),
        (lambda: DiagonalGaussian([], []), "non-empty"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0, 0.0], [0.5, 1.0]]), "symmetric"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0]]), "shape"),
        (lambda: Mixture([0.5, 0.6], [random_gaussian("dense", 2, 0)] * 2), "sum to 1"),
        (lambda: Mixture([1.0], []), "one weight a component"),
        (lambda: random_gaussian("dense", 2, 0).kl(random_gaussian("dense", 3, 0)), "dimensions"),
        (lambda: random_gaussian("dense", 2, 0).log_prob([0.0]), "2 parameters"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@given(seed=seeds, dimension=dimensions)
def test_a_mixture_of_diagonal_gaussians_agrees_with_torchs(seed, dimension):
    components = [random_gaussian("diagonal", dimension, seed + i) for i in range(3)]
    q = Mixture([0.2, 0.3, 0.5], components)
    theta = q.sample(6, torch.Generator().manual_seed(seed))
    reference_mixture = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(torch.tensor([0.2, 0.3, 0.5]).double()),
        torch.distributions.Independent(
            torch.distributions.Normal(
                torch.stack([c.mean for c in components]), torch.stack([c.std for c in components])
            ),
            1,
        ),
    )
    torch.testing.assert_close(q.log_prob(theta), reference_mixture.log_prob(theta))
