"""The PG-MORL problems, step by step against gymnasium and the written definition."""

import subprocess
import sys

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")
pytest.importorskip("mujoco")

from ibcl.rl.environments import make  # noqa: E402
from ibcl.rl.locomotion import DEFINITIONS, ant_reward, gymnasium_xml  # noqa: E402

STEPS = 60


def gymnasium_half_cheetah(actions):
    """Roll gymnasium's own HalfCheetah and compute the objectives from positions and actions."""
    environment = gymnasium.make(
        "HalfCheetah-v5", reset_noise_scale=0.0, max_episode_steps=500
    ).unwrapped
    observation, _ = environment.reset(seed=0)
    observations, rewards = [observation], []
    for action in actions:
        before = environment.data.qpos[0]
        clipped = np.clip(action, -1, 1)
        observation, *_ = environment.step(clipped)
        speed = (environment.data.qpos[0] - before) / 0.05
        rewards.append([min(4.0, speed) + 1.0, 4.0 - (clipped**2).sum() + 1.0])
        observations.append(observation)
    return np.array(observations), np.array(rewards)


def gymnasium_ant(actions, tmp_path):
    model = tmp_path / "ant.xml"
    model.write_text(gymnasium_xml("ant.xml", gear=100))
    environment = gymnasium.make(
        "Ant-v5",
        xml_file=str(model),
        reset_noise_scale=0.0,
        terminate_when_unhealthy=False,
        include_cfrc_ext_in_observation=False,
        max_episode_steps=500,
    ).unwrapped
    observation, _ = environment.reset(seed=0)
    observations, rewards = [observation], []
    for action in actions:
        before = environment.data.qpos[:2].copy()
        clipped = np.clip(action, -1, 1)
        observation, *_ = environment.step(clipped)
        speed = (environment.data.qpos[:2] - before) / 0.05
        cost = 0.5 * (clipped**2).sum()
        rewards.append([speed[0] - cost + 1.0, speed[1] - cost + 1.0])
        observations.append(observation)
    return np.array(observations), np.array(rewards)


@pytest.mark.parametrize("threads", [1, 2])
def test_half_cheetah_is_gymnasiums_with_pg_morl_rewards(threads):
    rng = np.random.default_rng(0)
    actions = rng.normal(0, 0.8, (2, STEPS, 6))
    ours = make("mo-halfcheetah", copies=2, threads=threads)
    first = ours.reset()
    steps = [ours.step(actions[:, t]) for t in range(STEPS)]
    ours.close()
    for copy in range(2):
        observations, rewards = gymnasium_half_cheetah(actions[copy])
        np.testing.assert_array_equal(first[copy], observations[0])
        np.testing.assert_allclose([s.final[copy] for s in steps], observations[1:], atol=1e-9)
        np.testing.assert_allclose([s.reward[copy] for s in steps], rewards, atol=1e-9)


def test_ant_is_gymnasiums_with_gear_100_and_pg_morl_rewards(tmp_path):
    actions = np.random.default_rng(1).normal(0, 0.6, (STEPS, 8))
    ours = make("mo-ant", copies=1)
    assert ours.observation_size == 27
    assert ours.model.actuator_gear[:, 0].tolist() == [100.0] * 8
    first = ours.reset()
    steps = [ours.step(action[None]) for action in actions]
    observations, rewards = gymnasium_ant(actions, tmp_path)
    np.testing.assert_array_equal(first[0], observations[0])
    np.testing.assert_allclose([s.final[0] for s in steps], observations[1:], atol=1e-9)
    np.testing.assert_allclose([s.reward[0] for s in steps], rewards, atol=1e-9)


def test_hopper_is_gymnasiums_with_mo_gymnasiums_rewards():
    # Little torque, so that the hopper stays up for as long as the two are compared.
    actions = np.random.default_rng(1).normal(0, 0.3, (STEPS, 3))
    theirs = gymnasium.make("Hopper-v5", reset_noise_scale=0.0).unwrapped
    observation, _ = theirs.reset(seed=0)
    ours = make("mo-hopper-3obj", copies=1)
    np.testing.assert_array_equal(ours.reset()[0], observation)
    ended = False
    for action in actions:
        clipped = np.clip(action, -1, 1)
        observation, _, terminated, _, info = theirs.step(clipped)
        outcome = ours.step(action[None])
        np.testing.assert_allclose(outcome.final[0], observation, atol=1e-9)
        height = 10 * info["z_distance_from_origin"]
        expected = [info["x_velocity"], height, -np.square(clipped).sum()]
        if not terminated:
            np.testing.assert_allclose(outcome.reward[0], np.add(expected, 1), atol=1e-9)
        assert bool(outcome.terminated[0]) == terminated
        ended |= terminated
        if terminated:
            break
    assert ended, "the case must exercise the end of an episode"


def test_standing_still_scores_what_the_definition_says():
    cheetah = make("mo-halfcheetah", copies=1)
    cheetah.reset()
    total = np.zeros(2)
    for t in range(500):
        outcome = cheetah.step(np.zeros((1, 6)))
        total += outcome.reward[0]
        assert bool(outcome.truncated[0]) == (t == 499)
    assert total[1] == 2500
    assert total[0] == pytest.approx(500, abs=2)


def test_a_tipped_torso_ends_the_episode_and_a_new_one_begins():
    cheetah = make("mo-halfcheetah", copies=1)
    start = cheetah.reset()
    snapshot = cheetah.snapshot()
    cheetah._data[0].qpos[2] = np.deg2rad(60)
    outcome = cheetah.step(np.zeros((1, 6)))
    assert outcome.terminated[0]
    assert not outcome.truncated[0]
    np.testing.assert_array_equal(outcome.observation, start)
    assert cheetah.elapsed[0] == 0
    assert abs(outcome.final[0, 1]) > np.deg2rad(50)
    np.testing.assert_array_equal(cheetah.restore(snapshot), start)


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant-training"])
def test_a_restored_snapshot_continues_exactly(name):
    rng = np.random.default_rng(2)
    environment = make(name, copies=2)
    actions = rng.normal(0, 0.5, (20, 2, environment.action_size))
    environment.reset(stagger=True)
    for action in actions[:10]:
        environment.step(action)
    snapshot = environment.snapshot()
    straight = [environment.step(action).final for action in actions[10:]]
    other = make(name, copies=2)
    other.reset()
    other.restore(snapshot)
    resumed = [other.step(action).final for action in actions[10:]]
    np.testing.assert_array_equal(straight, resumed)
    np.testing.assert_array_equal(environment.elapsed, other.elapsed)


def test_the_training_ant_ends_upside_down_and_the_real_one_only_falls():
    for name, ends in [("mo-ant", False), ("mo-ant-training", True)]:
        ant = make(name, copies=1)
        ant.reset()
        assert not ant.fallen(ant.step(np.zeros((1, 8)))).any()
        ant._data[0].qpos[3:7] = [0, 1, 0, 0]
        outcome = ant.step(np.zeros((1, 8)))
        assert bool(outcome.terminated[0]) is ends
        assert ant.fallen(outcome).all()


def test_the_training_ant_is_the_scored_one_but_for_its_start():
    ours, scored = make("mo-ant-training", copies=8), make("mo-ant", copies=8)
    assert ours.model is scored.model
    starts = ours.reset()
    yaws = 2 * np.rad2deg(np.arctan2(starts[:, 4], starts[:, 1]))
    assert len(np.unique(yaws.round(6))) == 8
    assert np.abs(yaws).max() <= 50 + 1e-9
    starts[:, [1, 4]] = [1, 0]
    np.testing.assert_array_equal(starts, scored.reset())


def test_a_run_along_the_diagonal_is_rewarded_as_one_along_an_axis():
    rng = np.random.default_rng(3)
    speed, actions, anywhere = rng.uniform(0, 6, (20, 1)), rng.uniform(-1, 1, (20, 8)), None
    everywhere = DEFINITIONS["mo-ant-all-directions"].reward
    diagonal = everywhere(speed / np.sqrt([2, 2]), anywhere, actions).mean(1)
    axis = ant_reward(speed * [1, 0], anywhere, actions)[:, 0]
    np.testing.assert_allclose(np.sqrt(2) * diagonal - axis, np.sqrt(2) - 1)


def test_staggered_copies_reach_their_time_limits_at_different_steps():
    cheetah = make("mo-halfcheetah", copies=4)
    cheetah.reset(stagger=True)
    assert cheetah.elapsed.tolist() == [0, 125, 250, 375]


def test_the_simulator_leaves_no_log_in_the_working_folder(tmp_path):
    program = "from ibcl.rl.locomotion import gymnasium_model; gymnasium_model('ant.xml')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert list(tmp_path.iterdir()) == []
