"""Bayesian quadrature on integrals that are known, against dense formulas and Monte Carlo."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import LinearQuadratic

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.bayesian_quadrature import BayesianQuadrature, gradient_posterior
from ibcl.rl.policies import Policy
from ibcl.rl.rollout import Sampler
from ibcl.rl.variational import Objective, Variational


def gaussian_paths(rng, mean, std, count):
    """Draws of N(mean, std²), their scores in the mean, and the exact Fisher information."""
    drawn = mean + std * rng.standard_normal((count, len(mean)))
    return drawn, (drawn - mean) / std**2, np.diag(1 / std**2)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_a_return_that_is_linear_in_the_score_has_its_exact_gradient(size, more, seed):
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=size), rng.uniform(0.5, 2, size)
    slope = rng.normal(size=size)
    drawn, scores, fisher = gaussian_paths(rng, mean, std, size + more)
    # E[aᵀθ] has the gradient a, whatever was drawn; Monte Carlo knows it up to its variance only.
    found = gradient_posterior(scores, (drawn - mean) @ slope, fisher, noise=1e-10)
    np.testing.assert_allclose(found.mean, slope, atol=1e-3)
    np.testing.assert_allclose(found.covariance, 0, atol=1e-3)


def test_the_quadratic_bandit_is_nearer_than_monte_carlo_on_average():
    rng = np.random.default_rng(0)
    mean, std = np.array([0.7, -0.2, 0.4]), np.array([0.5, 0.4, 0.6])
    known = -2 * mean + 3.0  # of E[Σ 3θ − θ²] in the mean
    errors = []
    for _ in range(200):
        drawn, scores, fisher = gaussian_paths(rng, mean, std, 12)
        returns = (3 * drawn - np.square(drawn)).sum(1)
        returns = returns - returns.mean()
        quadrature = gradient_posterior(scores, returns, fisher, noise=0.5).mean
        sampled = (scores * returns[:, None]).mean(0)
        errors.append([np.linalg.norm(each - known) for each in (quadrature, sampled)])
    ours, monte_carlo = np.mean(errors, axis=0)
    assert ours < 0.6 * monte_carlo


def test_it_is_conditioning_of_a_joint_gaussian():
    """R = wᵀG⁻¹u + noise with ∇η ~ N(0, G): the textbook conditional, by precisions."""
    rng = np.random.default_rng(1)
    root = rng.normal(size=(5, 5))
    fisher, scores = root @ root.T + np.eye(5), rng.normal(size=(8, 5))
    returns, noise = rng.normal(size=8), 0.3
    features = scores @ np.linalg.inv(fisher)
    precision = np.linalg.inv(fisher) + features.T @ features / noise
    covariance = np.linalg.inv(precision)
    found = gradient_posterior(scores, returns, fisher, noise)
    np.testing.assert_allclose(found.covariance, covariance, atol=1e-10)
    np.testing.assert_allclose(found.mean, covariance @ features.T @ returns / noise, atol=1e-10)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_more_paths_never_make_the_gradient_less_known(size, count, seed):
    rng = np.random.default_rng(seed)
    scores, returns = rng.normal(size=(count + 1, size)), rng.normal(size=count + 1)
    fisher = np.eye(size)
    fewer = gradient_posterior(scores[:-1], returns[:-1], fisher, 0.5).covariance
    more = gradient_posterior(scores, returns, fisher, 0.5).covariance
    for smaller, larger in [(more, fewer), (fewer, fisher)]:
        assert np.linalg.eigvalsh(larger - smaller).min() > -1e-9
    assert np.linalg.eigvalsh(more).min() > -1e-9


def test_scores_of_paths_are_the_slopes_of_their_log_probability():
    policy = Policy(1, 1, hidden=(3,))
    rng = np.random.default_rng(2)
    sampler = Sampler(LinearQuadratic(4), policy)
    theta = rng.normal(size=(4, policy.dimension)) / 2
    sampler.restart()
    segment = sampler.segment(theta, LinearQuadratic.horizon, 0.3, rng)
    objective = Objective(
        np.array([1.0, 0.5]),
        Variational.of(DiagonalGaussian([0.0], [1.0])),
        action_std=0.3,
    )
    search = BayesianQuadrature().search(policy, 2, 0)
    scores, returns = search._paths(theta, segment, objective)
    np.testing.assert_allclose(returns, (segment.rewards @ [1.0, 0.5]).sum(1))

    def log_probability(at):
        means = policy.network.forward(at, segment.features)[-1]
        return -0.5 * np.square((segment.actions - means) / 0.3).sum((1, 2))

    for column in range(policy.dimension):
        step = np.zeros(policy.dimension)
        step[column] = 1e-5
        slope = (log_probability(theta + step) - log_probability(theta - step)) / 2e-5
        np.testing.assert_allclose(scores[:, column], slope, rtol=1e-4, atol=1e-4)


def test_what_happens_after_an_episodes_end_belongs_to_none():
    class Ending(LinearQuadratic):
        """Ends after three steps in the first copy."""

        def _advance(self, actions):
            observation, reward, _ = super()._advance(actions)
            ends = np.zeros(self.copies, dtype=bool)
            ends[0] = self.elapsed[0] == 2
            return observation, reward, ends

    policy = Policy(1, 1, hidden=())
    rng = np.random.default_rng(3)
    sampler = Sampler(Ending(2), policy)
    theta = np.array([[-0.3, 0.1], [-0.3, 0.1]])
    sampler.restart()
    segment = sampler.segment(theta, Ending.horizon, 0.3, rng)
    objective = Objective(
        np.array([1.0, 1.0]), Variational.of(DiagonalGaussian([0.0], [1.0])), action_std=0.3
    )
    scores, returns = BayesianQuadrature().search(policy, 2, 0)._paths(theta, segment, objective)
    earned = segment.rewards.sum(-1)
    np.testing.assert_allclose(returns, [earned[0, :3].sum(), earned[1].sum()])
    error = (segment.actions - segment.means)[..., 0] / 0.09
    np.testing.assert_allclose(scores[:, 1], [error[0, :3].sum(), error[1].sum()], rtol=1e-5)


def test_bad_settings_are_one_sentence():
    for wrong in ({"noise": 0.0}, {"ridge": -1.0}, {"fisher_share": 1.5}):
        with pytest.raises(ValueError, match="must be positive and fisher_share in"):
            BayesianQuadrature(**wrong)
