"""Prior and noise by the marginal likelihood, against scipy's density of the same Gaussian."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from ibcl.inference.marginal_likelihood import maximise_marginal_likelihood


def test_no_other_prior_or_noise_nearby_is_likelier():
    generator = np.random.default_rng(0)
    # More samples than features, and fewer.
    for shape in ((60, 5), (60, 80)):
        design = generator.normal(size=shape)
        y = design @ generator.normal(size=shape[1]) + 5 * generator.normal(size=shape[0])

        def loss(std, noise, design=design, y=y):
            covariance = std**2 * design @ design.T + noise**2 * np.eye(len(y))
            return -multivariate_normal(np.zeros(len(y)), covariance).logpdf(y)

        std, noise = maximise_marginal_likelihood(design, y)
        best = loss(std, noise)
        nearby = [loss(std * a, noise * b) for a in (0.8, 1, 1.25) for b in (0.8, 1, 1.25)]
        assert best <= min(nearby) + 1e-2
        fixed_std, fixed_noise = maximise_marginal_likelihood(design, y, std=2.0)
        assert fixed_std == pytest.approx(2.0)
        others = [loss(2.0, fixed_noise * b) for b in (0.8, 1.25)]
        assert loss(2.0, fixed_noise) <= min(others) + 1e-2


@pytest.mark.parametrize("std", [None, 1.5])
def test_whole_weights_are_repeated_samples(std):
    generator = np.random.default_rng(1)
    design = generator.normal(size=(40, 6))
    y = design @ generator.normal(size=6) + generator.normal(size=40)
    weights = generator.integers(1, 4, size=40)
    repeated = np.repeat(np.arange(40), weights)
    found = maximise_marginal_likelihood(design, y, std, weights.astype(float))
    assert found == pytest.approx(maximise_marginal_likelihood(design[repeated], y[repeated], std))
    assert found != pytest.approx(maximise_marginal_likelihood(design, y, std))


@pytest.mark.parametrize("std", [None, 1.5])
def test_targets_without_noise_or_without_anything_still_have_a_positive_answer(std):
    design = np.random.default_rng(2).normal(size=(50, 4))
    exact = maximise_marginal_likelihood(design, design @ np.array([1.0, -2.0, 0.5, 3.0]), std)
    assert 0 < exact[1] < 0.01
    nothing = maximise_marginal_likelihood(design, np.zeros(50), std)
    assert all(0 < value < 10 for value in nothing)
    assert nothing[1] < 0.01


def test_many_samples_take_a_shorter_way_to_the_same_answer(monkeypatch):
    """With columns that repeat each other, and with one that is nothing."""
    generator = np.random.default_rng(3)
    design = generator.normal(size=(400, 6))
    design[:, 4], design[:, 5] = design[:, 3], 0
    y = design @ generator.normal(size=6) + 0.3 * generator.normal(size=400)
    short = maximise_marginal_likelihood(design, y)
    monkeypatch.setattr("ibcl.inference.marginal_likelihood._MANY_SAMPLES", np.inf)
    assert short == pytest.approx(maximise_marginal_likelihood(design, y), rel=1e-6)
