import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import chi2, kstest, norm

import ibcl
from ibcl import DiagonalGaussian, HighestDensityRegion, Mixture
from ibcl import region as region_module
from theorems import assert_region_coverage, random_gaussian

COUNT = 150
ALPHAS = [0.01, 0.1, 0.25, 0.5]


def mixture(dimension: int = 3) -> Mixture:
    components = [
        random_gaussian("diagonal", dimension, 1),
        random_gaussian("dense", dimension, 2),
        DiagonalGaussian(torch.full((dimension,), 8.0), torch.full((dimension,), 0.3)),
    ]
    return Mixture([0.5, 0.3, 0.2], components)


FAMILIES = {
    "diagonal": random_gaussian("diagonal", 5, 0),
    "dense": random_gaussian("dense", 5, 0),
    "low rank": random_gaussian("low_rank", 5, 1),
    "block diagonal": random_gaussian("block_diagonal", 6, 0),
    "independent": random_gaussian("independent", 5, 0),
    "mixture": mixture(),
    "one parameter": DiagonalGaussian([1.0], [2.0]),
    "many parameters": DiagonalGaussian(torch.ones(400), torch.full((400,), 0.01)),
}


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("family", FAMILIES)
def test_coverage(family, alpha):
    assert_region_coverage(FAMILIES[family], alpha)


@pytest.mark.parametrize("family", FAMILIES)
def test_samples_lie_inside_and_follow_the_truncated_distribution(family):
    q = FAMILIES[family]
    region = HighestDensityRegion(q, alpha=0.3)
    draws = region.sample(500)
    assert draws.shape == (500, q.dimension)
    assert bool(region.contains(draws).all())
    # Draws of q that happen to lie inside follow the truncated distribution by definition.
    own = q.sample(3000, torch.Generator().manual_seed(9))
    levels = q.log_prob(own[region.contains(own)])
    assert kstest(q.log_prob(draws).numpy(), levels.numpy()).pvalue > 1e-3


def test_the_threshold_is_the_density_on_the_boundary():
    region = HighestDensityRegion(DiagonalGaussian([0.0], [1.0]), alpha=0.05)
    edge = norm.ppf(0.975)
    assert region.threshold == pytest.approx(norm.logpdf(edge))
    assert region.contains([[edge - 1e-6], [edge + 1e-6]]).tolist() == [True, False]
    assert region.log_volume == pytest.approx(np.log(2 * edge))


def test_a_mixture_threshold_matches_numerical_integration():
    q = Mixture([0.4, 0.6], [DiagonalGaussian([-2.0], [0.5]), DiagonalGaussian([1.5], [1.0])])
    grid = torch.linspace(-8, 8, 200_001, dtype=torch.float64)
    density = q.log_prob(grid[:, None]).exp()
    width = float(grid[1] - grid[0])
    level = brentq(lambda c: float(density[density >= c].sum()) * width - 0.75, 1e-4, 0.3)
    region = HighestDensityRegion(q, alpha=0.25)
    assert region.threshold == pytest.approx(np.log(level), abs=0.02)
    assert 0 < region.mass_error < 0.003


def test_uniform_samples_fill_the_ellipsoid_evenly():
    q = random_gaussian("dense", 3, 4)
    region = HighestDensityRegion(q, alpha=0.1)
    draws = region.sample(4000, uniform=True)
    shells = (q.mahalanobis_squared(draws) / region.radius_squared).pow(1.5)
    assert kstest(shells.numpy(), "uniform").pvalue > 1e-3


def test_volume_matches_monte_carlo():
    q = random_gaussian("diagonal", 2, 3)
    region = HighestDensityRegion(q, alpha=0.2)
    reach = float(q.std.max()) * region.radius_squared**0.5
    box = (torch.rand(200_000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1) * reach
    share = float(region.contains(box + q.mean).double().mean())
    assert np.exp(region.log_volume) == pytest.approx(share * (2 * reach) ** 2, rel=0.02)


def test_regions_are_nested():
    q = mixture()
    draws = q.sample(2000, torch.Generator().manual_seed(1))
    wide, narrow = (HighestDensityRegion(q, a).contains(draws) for a in (0.1, 0.5))
    assert bool((narrow <= wide).all())


def test_a_mixture_threshold_is_the_quantile_of_every_draw(monkeypatch):
    """Draws come in blocks to save memory; the last one is shorter, and counts like the others."""
    monkeypatch.setattr(region_module, "_BLOCK_NUMBERS", 3 * 50_000)

    class Recorded(Mixture):
        def sample(self, n, generator=None):
            sizes.append(n)
            return super().sample(n, generator)

        def log_prob(self, theta):
            levels.append(super().log_prob(theta))
            return levels[-1]

    sizes, levels = [], []
    q = mixture()
    region = HighestDensityRegion(Recorded(q.weights, q.components), alpha=0.25, seed=3)
    threshold = region.threshold
    assert sizes == [50_000, 50_000, 2**17 - 100_000]
    assert region.draws == sum(sizes)
    ordered = torch.cat(levels).sort().values
    # One of the levels, with three quarters of all draws on or above it, or one more.
    inside = int((ordered >= threshold).sum())
    assert 0 <= inside - 0.75 * len(ordered) <= 1
    assert threshold == float(ordered[-inside])


@pytest.mark.parametrize(("dimension", "draws"), [(3, 2**17), (2**14, 2**16), (2**20, 2**14)])
def test_large_networks_get_fewer_draws(dimension, draws):
    q = DiagonalGaussian(torch.zeros(dimension), torch.ones(dimension))
    assert HighestDensityRegion(Mixture([0.5, 0.5], [q, q]), 0.1).draws == draws
    assert HighestDensityRegion(q, 0.1).draws == 0


@pytest.mark.parametrize("alpha", [0, 1, -0.1, float("nan")])
def test_alpha_must_lie_between_0_and_1(alpha):
    with pytest.raises(ValueError, match="alpha"):
        HighestDensityRegion(FAMILIES["diagonal"], alpha)


def test_a_mixture_has_no_ellipsoid():
    with pytest.raises(ValueError, match="no ellipsoid"):
        HighestDensityRegion(mixture(), 0.1).sample(3, uniform=True)


@pytest.mark.parametrize("tasks", [1, 2])
def test_of_simulated_linear_gaussian_tasks_the_region_holds_the_truth_as_often_as_it_says(tasks):
    """Frequentist coverage, averaged over the prior: exact where the posterior is.

    How often logistic tasks do, which are approximated, timings/frequentist_coverage.py says.
    """
    rng = np.random.default_rng(0)
    prior = ibcl.DiagonalGaussian(torch.zeros(3).double(), torch.ones(3).double())
    levels = []
    for _ in range(COUNT):
        theta = rng.normal(size=3)
        learner = ibcl.IBCL(
            ibcl.networks.linear(2),
            [prior],
            ibcl.DenseVI(),
            "evidence",
            independent=True,
            d=0,
            likelihood=ibcl.Normal(0.5),
        )
        for _ in range(tasks):
            x = rng.normal(size=(8, 2))
            learner.learn(x, x @ theta[:2] + theta[2] + 0.5 * rng.normal(size=8))
        q = learner.model(np.full(tasks, 1 / tasks)).distribution
        levels.append(float(q.mahalanobis_squared(torch.tensor(theta))))
    # All regions at once: the squared distance of the truth follows χ² with D degrees of freedom.
    assert kstest(chi2.cdf(levels, 3), "uniform").pvalue > 0.01
    for alpha in (0.1, 0.5):
        held = np.mean(np.array(levels) <= chi2.ppf(1 - alpha, 3))
        assert abs(held - (1 - alpha)) < 3 * np.sqrt(alpha * (1 - alpha) / COUNT)
