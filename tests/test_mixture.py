"""Mixtures of Gaussians of any families."""

import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import DiagonalGaussian, Mixture
from theorems import FAMILIES, random_gaussian

seeds = st.integers(0, 10_000)


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


@given(seed=seeds, dimension=st.integers(1, 6))
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


@pytest.mark.parametrize("kind", FAMILIES)
@given(seed=seeds)
def test_components_of_one_family_have_their_own_densities(kind, seed):
    components = [random_gaussian(kind, 4, seed + i) for i in range(3)]
    theta = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed)).double()
    expected = sum(
        w * q.log_prob(theta).exp() for w, q in zip((0.2, 0.3, 0.5), components, strict=True)
    )
    found = Mixture([0.2, 0.3, 0.5], components).log_prob(theta)
    torch.testing.assert_close(found.exp(), expected)
    together = type(components[0]).log_probs(components, theta)
    torch.testing.assert_close(together[..., 1], components[1].log_prob(theta))


def test_components_without_weight_are_not_there():
    far = DiagonalGaussian([1e6], [1.0])
    near, other = DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([1.0], [2.0])
    q = Mixture([0.0, 0.5, 0.0, 0.5], [far, near, far, other])
    assert q.components == (near, other)
    assert q.weights.tolist() == [0.5, 0.5]
    assert q.mean.tolist() == [0.5]
    assert bool((q.sample(500, torch.Generator().manual_seed(0)) < 100).all())
    theta = torch.linspace(-3, 3, 7)[:, None].double()
    expected = Mixture([0.5, 0.5], [near, other]).log_prob(theta)
    assert torch.equal(q.log_prob(theta), expected)


def test_far_means_do_not_cost_digits():
    """The products of a batched density cancel; around the means' centre they stay small."""
    components = [DiagonalGaussian([1e6 + s], [1e-2]) for s in (0.0, 0.5)]
    theta = torch.tensor([[1e6], [1e6 + 0.25]], dtype=torch.float64)
    found = Mixture([0.5, 0.5], components).log_prob(theta)
    each = torch.stack([q.log_prob(theta) for q in components], -1)
    torch.testing.assert_close(found, torch.logsumexp(each + math.log(0.5), -1), rtol=1e-9, atol=0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda q: Mixture([0.5, 0.6], [q, q]), "sum to 1"),
        (lambda q: Mixture([1.5, -0.5], [q, q]), "non-negative"),
        (lambda _: Mixture([1.0], []), "one weight per component"),
        (lambda q: Mixture([0.5, 0.5], [q, random_gaussian("dense", 3, 0)]), "dimensions"),
        (lambda _: Mixture([1.0], [5]), "components are Gaussians, not int"),
    ],
)
def test_bad_mixtures_are_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make(random_gaussian("dense", 2, 0))


def test_weights_may_be_off_by_rounding():
    q = random_gaussian("dense", 2, 0)
    assert len(Mixture([0.5, 0.5 + 9e-7], [q, q]).components) == 2
    with pytest.raises(ValueError, match="sum to 1"):
        Mixture([0.5, 0.5 + 1.5e-6], [q, q])


def test_a_mixture_keeps_single_precision_where_all_components_do():
    single = DiagonalGaussian(torch.zeros(2), torch.ones(2))
    double = DiagonalGaussian(torch.zeros(2).double(), torch.ones(2).double())
    assert Mixture([0.5, 0.5], [single, single]).mean.dtype == torch.float32
    assert Mixture([0.5, 0.5], [single, double]).mean.dtype == torch.float64
    assert Mixture([0.5, 0.5], [single, single]).sample(3).dtype == torch.float32
    assert Mixture([0.5, 0.5], [single, double]).nbytes == 16 + 16 + 32
    assert repr(Mixture([0.5, 0.5], [single, single])) == "Mixture(components=2, dimension=2)"


def test_the_distance_to_a_single_gaussian_is_the_average_transport():
    ours = [DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([4.0], [1.0])]
    mixture = Mixture([0.25, 0.75], ours)
    target = DiagonalGaussian([0.0], [1.0])
    assert mixture.wasserstein(target) == pytest.approx(math.sqrt(0.75 * 16))
    assert target.wasserstein(mixture) == pytest.approx(math.sqrt(0.75 * 16))
    assert mixture.wasserstein(mixture) == pytest.approx(0, abs=1e-6)
