"""Reflections: the ant's in simulation, and what they do to networks and Gaussians."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

from known_fronts import LinearQuadratic

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl import IBCRL, BayesianPolicyGradient, make
from ibcl.rl.policies import Normaliser, Policy
from ibcl.rl.symmetry import Projection, Reflection, SignedPermutation
from ibcl.rl.variational import Variational

ANT = make("mo-ant", copies=1).reflection


def ant_policy(hidden=(6, 4), clock=None):
    return Policy(27, 8, hidden=hidden, clock=clock)


@pytest.mark.parametrize("name", ["mo-ant", "mo-ant-fast"])
def test_a_mirrored_ant_makes_mirrored_steps(name):
    ant = make(name, copies=2)
    observation = ant.reset()
    np.testing.assert_array_equal(ANT.observation(observation[0]), observation[1])
    rng = np.random.default_rng(0)
    for _ in range(60):
        action = rng.uniform(-1, 1, 8)
        outcome = ant.step(np.stack([action, ANT.action(action)]))
        np.testing.assert_allclose(
            ANT.observation(outcome.final[0]), outcome.final[1], atol=1e-8, rtol=0
        )
        np.testing.assert_allclose(outcome.reward[0, ::-1], outcome.reward[1], atol=1e-8)
    moved = np.abs(outcome.final[0] - outcome.final[1]).max()
    assert moved > 0.1, "the two ants must not be doing the same"


@pytest.mark.parametrize("clock", [None, 12.0])
def test_mirrored_parameters_act_as_the_mirrored_policy(clock):
    policy = ant_policy(clock=clock)
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(1, policy.dimension))
    image = ANT.parameters(policy)
    observation = rng.normal(size=(1, 27))
    elapsed = np.array([5])
    expected = ANT.action(policy.act(theta, observation, elapsed))
    ours = policy.act(image(theta), ANT.observation(observation), elapsed)
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    np.testing.assert_array_equal(image(image(theta)), theta)


def test_a_projected_distribution_is_its_own_mirror_image_and_stays_put():
    policy = ant_policy()
    rng = np.random.default_rng(2)
    q = Variational(rng.normal(size=policy.dimension), rng.normal(size=policy.dimension))
    project = Projection(ANT, policy, [0.5, 0.5])
    project(q)
    mirrored = ANT.gaussian(policy, q.gaussian())
    torch.testing.assert_close(mirrored.mean, q.gaussian().mean)
    torch.testing.assert_close(mirrored.std, q.gaussian().std)
    before = q.copy()
    project(q)
    np.testing.assert_allclose(q.mean, before.mean, atol=1e-12)
    np.testing.assert_allclose(q.log_std, before.log_std, atol=1e-12)


def test_the_normaliser_mirrors_features_as_observations():
    rng = np.random.default_rng(3)
    normaliser = ANT.normaliser(Normaliser(rng.normal(size=27), rng.uniform(0.5, 2, 27)))
    observation = rng.normal(size=27)
    np.testing.assert_allclose(
        normaliser(ANT.observation(observation)),
        ANT.observation(normaliser(observation)),
        atol=1e-6,
    )


def test_a_reflected_task_costs_nothing_and_swaps_what_it_does():
    ibcrl = IBCRL(
        "mo-ant",
        training_environment="mo-ant-fast",
        hidden=(8,),
        copies=2,
        inference=BayesianPolicyGradient(iterations=1),
        initial_std=0.01,
    )
    ibcrl.learn("x-speed")
    result = ibcrl.reflect("x-speed", "y-speed")
    assert (result.steps, result.updates) == (0, 0)
    assert ibcrl.preferences["y-speed"] == (0.0, 1.0)
    means = [ibcrl.knowledge.extremes(task)[0].mean.numpy() for task in ("x-speed", "y-speed")]
    ant = make("mo-ant", copies=2)
    observation = ant.reset()
    for _ in range(40):
        outcome = ant.step(ibcrl.policy_class.act(np.stack(means), observation))
        observation = outcome.observation
        np.testing.assert_allclose(outcome.reward[0, ::-1], outcome.reward[1], atol=1e-4)


def test_learning_with_reflection_keeps_q_its_own_mirror_image():
    class Mirrored(LinearQuadratic):
        """u(−x) = −u(x): both objectives are the same on either side."""

        reflection = Reflection(
            SignedPermutation((0,), (-1.0,)), SignedPermutation((0,), (-1.0,)), (0, 1)
        )

    inference = BayesianPolicyGradient(iterations=3, reflected=True)
    ibcrl = IBCRL(Mirrored, hidden=(), copies=4, inference=inference, normalise=False)
    q = ibcrl.learn([0.5, 0.5]).posteriors[0]
    # A linear policy that is its own mirror image has no offset.
    assert q.mean[1] == 0
    assert q.mean[0] != 0
    free = IBCRL(Mirrored, hidden=(), copies=4, inference=replace(inference, reflected=False))
    assert free.learn([0.5, 0.5]).posteriors[0].mean[1] != 0


def test_what_cannot_be_reflected_is_one_sentence():
    with pytest.raises(ValueError, match="not its own mirror image"):
        Projection(ANT, ant_policy(), [1.0, 0.0])
    with pytest.raises(ValueError, match="even number of hidden units, not 5"):
        ANT.parameters(ant_policy(hidden=(5,)))
    cheetah = IBCRL(
        "mo-halfcheetah", hidden=(), copies=2, inference=BayesianPolicyGradient(1, reflected=True)
    )
    with pytest.raises(ValueError, match="declares no reflection to learn with"):
        cheetah.learn("speed")
    with pytest.raises(ValueError, match="mo-halfcheetah declares no reflection"):
        cheetah.reflect("speed", "other")


def test_the_image_of_a_gaussian_permutes_its_spread():
    policy = ant_policy()
    std = torch.rand(policy.dimension) + 0.1
    image = ANT.gaussian(policy, DiagonalGaussian(torch.zeros(policy.dimension), std))
    assert (image.std > 0).all()
    torch.testing.assert_close(image.std.sort().values, std.sort().values)
