"""Reflections and rotations of the ant in simulation, of networks and of Gaussians."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("mujoco")

import mujoco

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl import IBCRL, BayesianPolicyGradient, make
from ibcl.rl.policies import Normaliser, Policy

ANT = make("mo-ant", copies=1).reflection
TURNS = make("mo-ant", copies=1).rotation


def ant_policy(hidden=(6, 4)):
    return Policy(27, 8, hidden=hidden)


def test_a_mirrored_ant_makes_mirrored_steps():
    ant = make("mo-ant", copies=2)
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


def test_mirrored_parameters_act_as_the_mirrored_policy():
    policy = ant_policy()
    rng = np.random.default_rng(1)
    theta = rng.normal(size=(1, policy.dimension))
    image = ANT.parameters(policy)
    observation = rng.normal(size=(1, 27))
    expected = ANT.action(policy.act(theta, observation))
    ours = policy.act(image(theta), ANT.observation(observation))
    np.testing.assert_allclose(ours, expected, atol=1e-12)
    np.testing.assert_array_equal(image(image(theta)), theta)


def test_the_normaliser_mirrors_features_as_observations():
    rng = np.random.default_rng(3)
    normaliser = ANT.normaliser(Normaliser(rng.normal(size=27), rng.uniform(0.5, 2, 27)))
    observation = rng.normal(size=27)
    np.testing.assert_allclose(
        normaliser(ANT.observation(observation)),
        ANT.observation(normaliser(observation)),
        atol=1e-6,
    )


def ant_learner():
    return IBCRL(
        "mo-ant",
        training_environment="mo-ant-training",
        hidden=(8,),
        copies=2,
        inference=BayesianPolicyGradient(iterations=1),
        initial_std=0.01,
    )


def test_a_reflected_task_costs_nothing_and_swaps_what_it_does():
    ibcrl = ant_learner()
    ibcrl.learn("x-speed")
    result = ibcrl.image("x-speed", "y-speed")
    assert (result.steps, result.updates) == (0, 0)
    assert ibcrl.preferences["y-speed"] == (0.0, 1.0)
    means = [ibcrl.knowledge.extremes(task)[0].mean.numpy() for task in ("x-speed", "y-speed")]
    ant = make("mo-ant", copies=2)
    observation = ant.reset()
    for _ in range(40):
        outcome = ant.step(ibcrl.policy_class.act(np.stack(means), observation))
        observation = outcome.observation
        np.testing.assert_allclose(outcome.reward[0, ::-1], outcome.reward[1], atol=1e-4)


def test_what_cannot_be_reflected_is_one_sentence():
    with pytest.raises(ValueError, match="even number of hidden units, not 5"):
        ANT.parameters(ant_policy(hidden=(5,)))
    cheetah = IBCRL("mo-halfcheetah", hidden=(), copies=2, inference=BayesianPolicyGradient(1))
    with pytest.raises(ValueError, match="mo-halfcheetah declares no reflection"):
        cheetah.image("speed", "other")
    with pytest.raises(ValueError, match="mo-halfcheetah declares no rotation"):
        cheetah.image("speed", "other", degrees=10)


def test_the_image_of_a_gaussian_permutes_its_spread():
    policy = ant_policy()
    std = torch.rand(policy.dimension) + 0.1
    image = ANT.gaussian(policy, DiagonalGaussian(torch.zeros(policy.dimension), std))
    assert (image.std > 0).all()
    torch.testing.assert_close(image.std.sort().values, std.sort().values)


def turned_ants(degrees, steps, *, round_cone):
    """How far a turned ant is from the turn of one that does the same, step by step."""
    ant = make("mo-ant", copies=2)
    cone = ant.model.opt.cone
    ant.model.opt.cone = int(mujoco.mjtCone.mjCONE_ELLIPTIC) if round_cone else cone
    ant.reset()
    turn = TURNS.by(degrees)
    matrix, half = turn.matrix(27), turn.angle / 2
    ant._data[1].qpos[3:7] = np.cos(half), 0, 0, np.sin(half)
    plane = turn.matrix(27)[np.ix_((13, 14), (13, 14))]
    rng = np.random.default_rng(0)
    distances = []
    for _ in range(steps):
        action = rng.uniform(-1, 1, 8)
        first, second = (outcome := ant.step(np.stack([action, action]))).final
        cost = 1 - 0.5 * np.square(action).sum()
        by_reward = plane @ (outcome.reward[0] - cost) - (outcome.reward[1] - cost)
        distances.append(max(np.abs(matrix @ first - second).max(), np.abs(by_reward).max()))
        assert np.abs(first - second).max() > 0.1
    ant.model.opt.cone = cone
    return np.array(distances)


@pytest.mark.parametrize("degrees", [-45.0, 30.0, 90.0])
def test_a_turned_ant_makes_turned_steps_where_friction_has_no_direction(degrees):
    assert turned_ants(degrees, 60, round_cone=True).max() < 1e-6


def test_a_quarter_turn_is_exact_and_others_until_a_foot_slides():
    # MuJoCo's four-sided friction pyramid looks the same only after quarter turns.
    assert turned_ants(90.0, 60, round_cone=False).max() < 1e-6
    distances = turned_ants(30.0, 60, round_cone=False)
    assert distances[:30].max() < 1e-6
    assert distances[-1] > 1e-3


@pytest.mark.parametrize("degrees", [-22.5, 45.0])
def test_turned_parameters_act_as_the_turned_policy(degrees):
    scales = make("mo-ant", copies=1).normaliser
    policy = replace(ant_policy(), normaliser=scales)
    rng = np.random.default_rng(1)
    mean = torch.tensor(rng.normal(size=policy.dimension), dtype=torch.float64)
    turn = TURNS.by(degrees)
    image = turn.gaussian(policy, DiagonalGaussian(mean, torch.ones_like(mean)))
    observation = rng.normal(size=(5, 27))
    theta, turned = (np.repeat(m.numpy()[None], 5, axis=0) for m in (mean, image.mean))
    np.testing.assert_allclose(
        policy.act(turned, observation @ turn.matrix(27).T),
        policy.act(theta, observation),
        atol=1e-5,
    )
    back = TURNS.by(-degrees).gaussian(policy, image)
    torch.testing.assert_close(back.mean, mean)


def test_the_turned_gaussian_is_exact_where_the_spread_is_tied():
    policy = ant_policy(hidden=(4,))
    rng = np.random.default_rng(5)
    log_std = rng.normal(-1, 0.5, policy.dimension)
    TURNS.tie(policy, log_std)
    tied = log_std.copy()
    TURNS.tie(policy, log_std)
    np.testing.assert_allclose(tied, log_std, atol=1e-12)
    turn = TURNS.by(37)
    q = DiagonalGaussian(torch.zeros(policy.dimension), torch.tensor(np.exp(log_std)).float())
    image = turn.gaussian(policy, q)
    matrix = torch.tensor(turn.matrix(27), dtype=torch.float64)
    for unit in range(4):
        variance = torch.tensor(np.exp(2 * log_std[: 27 * 4].reshape(27, 4)[:, unit]))
        covariance = matrix @ torch.diag(variance) @ matrix.T
        torch.testing.assert_close(covariance, torch.diag(covariance.diagonal()))
        ours = image.std[: 27 * 4].view(27, 4)[:, unit].double().square()
        torch.testing.assert_close(ours, covariance.diagonal(), rtol=1e-5, atol=1e-7)


def test_a_turned_task_costs_nothing_and_runs_the_other_way():
    ibcrl = ant_learner()
    ibcrl.learn((0.5, 0.5), "diagonal")
    for name, degrees in [("x-speed", -45), ("y-speed", 45), ("between", 22.5)]:
        assert ibcrl.image("diagonal", name, degrees=degrees).steps == 0
    assert ibcrl.preferences["x-speed"] == (1.0, 0.0)
    assert ibcrl.preferences["y-speed"] == (0.0, 1.0)
    assert 0 < ibcrl.preferences["between"][0] < 0.5
    with pytest.raises(ValueError, match="points away from an objective"):
        ibcrl.image("diagonal", "backwards", degrees=60)
    # Learning keeps the spread equal within pairs, so that the images are exact.
    log_std = ibcrl.knowledge.extremes("diagonal")[0].std.log().numpy().copy()
    before = log_std.copy()
    TURNS.tie(ibcrl.policy_class, log_std)
    np.testing.assert_allclose(log_std, before, atol=1e-5)


def test_scales_that_differ_within_a_pair_are_refused():
    scales = Normaliser(np.zeros(27), np.arange(1.0, 28.0))
    policy = replace(ant_policy(), normaliser=scales)
    q = DiagonalGaussian(torch.zeros(policy.dimension), torch.ones(policy.dimension))
    with pytest.raises(ValueError, match="turn into each other"):
        TURNS.by(10).gaussian(policy, q)
