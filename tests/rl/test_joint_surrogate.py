"""The on-policy estimator for tasks learnt together, on a problem whose front is known."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("moocore")

from known_fronts import TwoGoals
from resuming import assert_resumes_exactly

from ibcl.rl import IBCRL, Anchor, BayesianPolicyGradient, JointSurrogate
from ibcl.rl.family import Family
from ibcl.rl.joint_surrogate import JointSearch
from ibcl.rl.policies import Perceptron, Policy
from ibcl.rl.rollout import Sampler
from ibcl.rl.variational import Objective, Variational

LINE = (Anchor((0.0, 1.0)), Anchor((0.5, 0.5)), Anchor((1.0, 0.0)))
SMALL = JointSurrogate(
    segment=20, discount=0.8, value_hidden=(16,), mean_rate=1e-2, critic_warm_up=10, anchors=LINE
)
LEARNING = BayesianPolicyGradient(
    iterations=120,
    estimator=SMALL,
    action_std=(0.3, 0.05),
    rate=(1.0, 0.1),
    kl_weight=1e-8,
    std_bounds=(1e-3, 1e-2),
    score_every=60,
)
TASKS = {"right": (0.0, 1.0), "middle": (0.5, 0.5), "left": (1.0, 0.0)}


def learner(inference=LEARNING, seed=0, **options):
    settings = {"hidden": (), "normalise": False, "initial_std": 0.01} | options
    return IBCRL(TwoGoals, inference=inference, seed=seed, **settings)


def test_tasks_learnt_together_are_good_at_and_between_their_anchors():
    ibcrl = learner()
    result = ibcrl.learn_together(TASKS, inference=LEARNING)
    assert TwoGoals.worst_share(ibcrl) > 0.98
    # The cost is counted once, and every task has its own curve.
    assert sum(each.steps for each in ibcrl.results.values()) == result.steps
    assert {each.history.shape for each in ibcrl.results.values()} == {(2, 4)}


def test_a_kept_task_stays_as_it_is():
    ibcrl = learner()
    alone = BayesianPolicyGradient(80, std_bounds=(1e-3, 1e-2), kl_weight=1e-8)
    ibcrl.learn((1.0, 0.0), "left", inference=alone)
    (before,) = ibcrl.knowledge.extremes("left")
    line = (*LINE[:2], replace(LINE[2], kept=True))
    inference = replace(LEARNING, estimator=replace(SMALL, anchors=line))
    ibcrl.learn_together(TASKS, inference=inference)
    (after,) = ibcrl.knowledge.extremes("left")
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.std, after.std)
    assert ibcrl.knowledge.tasks == ("left", "right", "middle")
    assert TwoGoals.worst_share(ibcrl) > 0.97


@pytest.mark.parametrize("stop", [1, 3, 5, 8])
def test_an_interrupted_run_resumes_exactly(tmp_path, stop):
    estimator = replace(SMALL, critic_warm_up=2)
    inference = replace(LEARNING, iterations=5, estimator=estimator, score_every=1)

    def run(folder, progress):
        ibcrl = learner(inference, seed=1, hidden=(3,))
        for part in "ab":
            tasks = {f"{part}-{name}": weights for name, weights in TASKS.items()}
            file = folder / f"{part}.safetensors"
            ibcrl.learn_together(tasks, inference=inference, checkpoint=file, progress=progress)
        return ibcrl

    assert_resumes_exactly(run, tmp_path, stop)


def test_the_critic_learns_alone_until_it_is_warm():
    policy = Policy(2, 2, hidden=())
    search = JointSearch(replace(SMALL, critic_warm_up=2), policy, 2, seed=0)
    sampler = Sampler(TwoGoals(4), policy)
    prior = Variational(np.zeros(18, dtype=np.float32), np.full(18, -5.0, dtype=np.float32))
    q = prior.copy()
    objective = Objective(np.ones(2, dtype=np.float32), prior, action_std=0.1)
    moved, learnt = [], []
    for update in range(3):
        before, value = q.mean.copy(), search.value.copy()
        search.update(q, objective, sampler, np.random.default_rng(update))
        moved.append(not np.array_equal(before, q.mean))
        learnt.append(not np.array_equal(value, search.value))
    assert moved == [False, False, True]
    assert learnt == [True, True, True]


def test_the_gradient_of_every_copy_goes_to_the_tasks_that_move():
    rng = np.random.default_rng(0)
    family = Family(Perceptron((2, 1)), (*LINE[:2], replace(LINE[2], kept=True)))
    theta, mixing = rng.normal(size=(4, 9)), family.draw_mixing(4, rng)
    upstream = rng.normal(size=(4, 3))

    def value(at):
        return float((family.policies(at, mixing) * upstream).sum())

    steps = 1e-6 * np.eye(36).reshape(36, 4, 9)
    numeric = [(value(theta + step) - value(theta - step)) / 2e-6 for step in steps]
    expected = np.reshape(numeric, (4, 9))
    expected[:, 6:] = 0  # the kept one
    np.testing.assert_allclose(family.gradient(upstream, mixing), expected, atol=1e-6)


def test_no_cap_beside_a_cap_is_none_where_its_task_has_no_weight():
    anchors = (Anchor((1.0, 0.0), cap=(2.0, np.inf)), Anchor((1.0, 0.0)))
    family = Family(Perceptron((1, 1)), anchors)
    mixing = np.array([[1.0, 0.0], [0.5, 0.5]], dtype=np.float32)
    rewards = np.full((2, 1, 2), 7.0, dtype=np.float32)
    earned = family.rewards(rewards, mixing, np.ones(2), np.ones((2, 1), dtype=bool))
    assert earned.ravel().tolist() == [2.0, 7.0]


def test_bad_settings_are_one_sentence():
    with pytest.raises(ValueError, match="at least two anchors, not 1; for one task"):
        JointSurrogate(anchors=LINE[:1])
    with pytest.raises(ValueError, match="anchors have caps of their own"):
        replace(LEARNING, cap=(1.0, 1.0))
    ibcrl = learner()
    with pytest.raises(ValueError, match="is for tasks learnt with learn_together"):
        ibcrl.learn("left")
    with pytest.raises(ValueError, match="with as many anchors"):
        ibcrl.learn_together({"a": (0.0, 1.0), "b": (1.0, 0.0)}, inference=LEARNING)
    with pytest.raises(ValueError, match="know no trajectory KL"):
        ibcrl.learn_together(TASKS, inference=replace(LEARNING, trajectory_kl=(1.0,)))
