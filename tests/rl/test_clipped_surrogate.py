"""The clipped surrogate, its gradients against finite differences, and the advantages."""

import numpy as np
import pytest
import torch
from known_fronts import LinearQuadratic

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.clipped_surrogate import ClippedSurrogate, generalised_advantages, surrogate
from ibcl.rl.policies import Perceptron, Policy
from ibcl.rl.rollout import Sampler
from ibcl.rl.twin_delayed import TwinDelayed
from ibcl.rl.variational import Objective, Variational


def finite_differences(function, point, step=1e-6):
    gradient = np.empty_like(point)
    for index in np.ndindex(point.shape):
        up, down = point.copy(), point.copy()
        up[index] += step
        down[index] -= step
        gradient[index] = (function(up) - function(down)) / (2 * step)
    return gradient


@pytest.mark.parametrize("hidden", [(), (4,)])
def test_the_surrogates_gradient_in_mean_and_log_std(hidden):
    rng = np.random.default_rng(0)
    network = Perceptron((3, *hidden, 2))
    mean = rng.normal(size=network.dimension)
    log_std = rng.normal(-2, 0.3, network.dimension)
    noise = rng.normal(size=(4, network.dimension))
    features = rng.normal(size=(4, 7, 3))
    # Old policies a little off, so that some ratios are clipped and some means saturate.
    old = network.forward(mean + 1.3 * np.exp(log_std) * noise, features)[-1]
    actions = old + 0.5 * rng.normal(size=old.shape)
    advantages = rng.normal(size=(4, 7))

    def loss(mean, log_std):
        theta = mean + np.exp(log_std) * noise
        return surrogate(network, theta, features, actions, old, advantages, 0.5, 0.2, 0.1)

    part = loss(mean, log_std)
    by_mean = part.gradient.sum(0)
    by_log_std = (part.gradient * noise * np.exp(log_std)).sum(0)
    np.testing.assert_allclose(
        by_mean, finite_differences(lambda m: loss(m, log_std).loss, mean), atol=1e-6
    )
    np.testing.assert_allclose(
        by_log_std, finite_differences(lambda s: loss(mean, s).loss, log_std), atol=1e-6
    )
    ratios = np.exp(
        -2
        * (
            np.square(actions - network.forward(mean + np.exp(log_std) * noise, features)[-1])
            - np.square(actions - old)
        ).sum(-1)
    )
    assert (np.abs(ratios - 1) > 0.2).any(), "the case must exercise the clipping"


def test_kl_gradient_against_finite_differences():
    rng = np.random.default_rng(1)
    prior = Variational(rng.normal(size=5), rng.normal(size=5))
    q = Variational(rng.normal(size=5), rng.normal(size=5))

    def kl(mean, log_std):
        theirs = DiagonalGaussian(prior.mean, np.exp(prior.log_std))
        return DiagonalGaussian(mean, np.exp(log_std)).kl(theirs) / 5

    by_mean, by_log_std = q.kl_gradient(prior)
    np.testing.assert_allclose(
        by_mean, finite_differences(lambda m: kl(m, q.log_std), q.mean), rtol=1e-5, atol=1e-8
    )
    np.testing.assert_allclose(
        by_log_std, finite_differences(lambda s: kl(q.mean, s), q.log_std), rtol=1e-5, atol=1e-8
    )


def test_advantages_are_discounted_returns_minus_values_when_the_trace_is_one():
    rng = np.random.default_rng(2)
    rewards, values = rng.normal(size=(2, 6, 3)), rng.normal(size=(2, 6, 3))
    following = np.concatenate([values[:, 1:], rng.normal(size=(2, 1, 3))], axis=1)
    terminated = np.zeros((2, 6), dtype=bool)
    truncated = np.zeros((2, 6), dtype=bool)
    terminated[0, 3] = True
    truncated[1, 2] = True
    following[1, 2] = rng.normal(size=3)
    ours = generalised_advantages(rewards, values, following, terminated, truncated, 0.9, 1.0)
    for copy in range(2):
        for start in range(6):
            total, factor = np.zeros(3), 1.0
            for step in range(start, 6):
                total += factor * rewards[copy, step]
                factor *= 0.9
                if terminated[copy, step]:
                    break
                if truncated[copy, step] or step == 5:
                    total += factor * following[copy, step]
                    break
            np.testing.assert_allclose(ours[copy, start], total - values[copy, start], atol=1e-12)


def test_a_strong_trajectory_kl_holds_the_policy_near_its_prior():
    departures = {}
    for weight in (0.0, 50.0):
        policy = Policy(1, 1, hidden=())
        prior = Variational(np.zeros(2, np.float32), np.full(2, np.log(0.05), np.float32))
        q = prior.copy()
        search = ClippedSurrogate(segment=20, mean_rate=0.01).search(policy, 2, seed=0)
        sampler = Sampler(LinearQuadratic(16), policy)
        objective = Objective(
            np.array([1.0, 0.0], np.float32), prior, action_std=0.2, trajectory_kl=weight
        )
        for iteration in range(40):
            search.update(q, objective, sampler, np.random.default_rng([3, iteration]))
        departures[weight] = float(np.square(q.mean).sum())
    assert departures[0.0] > 0.3
    assert departures[50.0] < 0.1 * departures[0.0]


def test_rewards_beyond_a_cap_are_not_paid_for():
    # Charged after the move, a state within ±0.5 is as good as home under a cap of −0.25: from ±1
    # the cheapest gain that gets there is a half, and more of it only costs effort.
    gains = {}
    for cap in (None, (-0.25, 1.0)):
        inference = BayesianPolicyGradient(
            iterations=150,
            estimator=ClippedSurrogate(segment=20, mean_rate=0.01),
            action_std=(0.2, 0.05),
            cap=cap,
        )
        policy = Policy(1, 1, hidden=())
        prior = DiagonalGaussian(torch.zeros(2), torch.full((2,), 0.05))
        sampler = Sampler(LinearQuadratic(16), policy)
        found = inference.infer(policy, (0.9, 0.1), prior, sampler, LinearQuadratic(1))
        gains[cap] = -float(found.posterior.mean[0])
    assert gains[None] > 0.75
    assert 0.3 < gains[-0.25, 1.0] < 0.6


def test_a_cap_or_pause_that_could_not_be_kept_is_refused():
    with pytest.raises(ValueError, match="ClippedSurrogate"):
        BayesianPolicyGradient(estimator=TwinDelayed(), cap=(1.0, 1.0))
    policy, sampler = Policy(1, 1, hidden=()), Sampler(LinearQuadratic(2), Policy(1, 1, hidden=()))
    prior = DiagonalGaussian(torch.zeros(2), torch.ones(2))

    def infer(inference, **options):
        inference.infer(policy, (0.9, 0.1), prior, sampler, LinearQuadratic(1), **options)

    with pytest.raises(ValueError, match="cap has 1 values"):
        infer(BayesianPolicyGradient(cap=(1.0,)))
    for until in (0, 4, 300):
        with pytest.raises(ValueError, match="5 to 299"):
            infer(BayesianPolicyGradient(), until=until)
