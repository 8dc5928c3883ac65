"""The off-policy estimator on problems whose optimal front is known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("moocore")

from known_fronts import LinearQuadratic, TwoGoals
from resuming import assert_resumes_exactly

from ibcl.gaussians import DiagonalGaussian
from ibcl.rl import IBCRL, BayesianPolicyGradient, PreferenceConditioned
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.family import Anchor, Family
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.policies import Perceptron, Policy
from ibcl.rl.replay import Transitions
from ibcl.rl.symmetry import Reflection, SignedPermutation
from ibcl.rl.twin_delayed import TwinDelayed, _Mirror
from ibcl.rl.variational import Objective, Variational

SMALL = TwinDelayed(
    rounds=40,
    updates=8,
    batch=32,
    hidden=(32, 32),
    discount=0.8,
    reward_scale=1.0,
    critic_rate=3e-3,
    actor_rate=1e-2,
    average_share=0.03,
    critic_warm_up=30,
    capacity=20_000,
)
LEARNING = BayesianPolicyGradient(
    iterations=8,
    estimator=SMALL,
    action_std=(0.3, 0.1),
    rate=(1.0, 0.1),
    kl_weight=1e-8,
    std_bounds=(1e-3, 1e-2),
    score_every=4,
)
LINE = (Anchor((0.0, 1.0)), Anchor((0.5, 0.5)), Anchor((1.0, 0.0)))


def learner(environment, inference=LEARNING, seed=0, **options):
    settings = {"hidden": (), "normalise": False, "initial_std": 0.01} | options
    return IBCRL(environment, inference=inference, seed=seed, **settings)


def test_linear_quadratic_front_within_two_percent():
    ibcrl = learner(LinearQuadratic)
    ibcrl.learn((0.0, 1.0), "second")
    ibcrl.learn((1.0, 0.0), "first")
    reference = (-LinearQuadratic.horizon - 1.0, -1.1)
    known = hypervolume(
        [LinearQuadratic.returns(gain) for gain in np.linspace(0, 1, 4001)], reference
    )
    reached = hypervolume(ibcrl.front(even_preferences(200)), reference)
    assert 0.98 * known < reached < 1.001 * known


def test_tasks_learnt_together_are_good_at_and_between_their_anchors():
    inference = replace(LEARNING, estimator=replace(SMALL, anchors=LINE))
    ibcrl = learner(TwoGoals)
    tasks = {"right": (0.0, 1.0), "middle": (0.5, 0.5), "left": (1.0, 0.0)}
    result = ibcrl.learn_together(tasks, inference=inference)
    assert TwoGoals.worst_share(ibcrl) > 0.98
    # The cost is counted once, and every task has its own curve.
    assert sum(each.steps for each in ibcrl.results.values()) == result.steps
    assert {each.history.shape for each in ibcrl.results.values()} == {(2, 4)}


def test_a_task_learnt_beside_a_kept_one_is_good_between_them_and_moves_nothing_else():
    ibcrl = learner(TwoGoals)
    ibcrl.learn((1.0, 0.0), "left")
    (before,) = ibcrl.knowledge.extremes("left")
    steps = ibcrl.results["left"].steps
    line = (Anchor((1.0, 0.0), kept=True), Anchor((0.0, 1.0)))
    inference = replace(LEARNING, estimator=replace(SMALL, anchors=line))
    tasks = {"left": (1.0, 0.0), "right": (0.0, 1.0)}
    result = ibcrl.learn_together(tasks, inference=inference)
    (after,) = ibcrl.knowledge.extremes("left")
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.std, after.std)
    assert ibcrl.knowledge.tasks == ("left", "right")
    assert [each.steps for each in ibcrl.results.values()] == [steps, result.steps]
    assert TwoGoals.worst_share(ibcrl) > 0.97
    with pytest.raises(ValueError, match="Unknown task 'elsewhere'"):
        ibcrl.learn_together({"elsewhere": (1.0, 0.0), "new": (0.0, 1.0)}, inference=inference)
    with pytest.raises(ValueError, match=r"'left' was learnt for \(1.0, 0.0\)"):
        ibcrl.learn_together({"left": (0.5, 0.5), "new": (0.0, 1.0)}, inference=inference)
    sharing = PreferenceConditioned(**vars(inference.estimator))
    with pytest.raises(ValueError, match="share one network"):
        ibcrl.learn_together(
            {"left": (1.0, 0.0), "new": (0.0, 1.0)},
            inference=replace(inference, estimator=sharing),
        )
    both = replace(SMALL, anchors=(line[0], replace(line[1], kept=True)))
    with pytest.raises(ValueError, match="Every task is kept"):
        ibcrl.learn_together(tasks, inference=replace(inference, estimator=both))


@pytest.mark.parametrize("stop", [1, 3, 5])
@pytest.mark.parametrize("together", [False, True])
def test_an_interrupted_run_resumes_exactly(tmp_path, stop, together):
    estimator = replace(SMALL, rounds=12, critic_warm_up=5, anchors=LINE if together else ())
    inference = replace(
        LEARNING, iterations=3, estimator=estimator, score_every=1, checkpoint_every=2
    )

    def run(folder, progress):
        ibcrl = learner(TwoGoals, inference, seed=1, hidden=(3,), squashed=not together)
        for part in "ab":
            file = folder / f"{part}.safetensors"
            if together:
                tasks = {f"{part}{k}": (k / 2, 1 - k / 2) for k in range(3)}
                ibcrl.learn_together(tasks, inference=inference, checkpoint=file, progress=progress)
            else:
                ibcrl.learn("left", part, checkpoint=file, progress=progress)
        return ibcrl

    assert_resumes_exactly(run, tmp_path, stop)


def test_experience_is_gone_when_the_task_is_done(tmp_path):
    file = tmp_path / "left.safetensors"
    inference = replace(LEARNING, iterations=2, checkpoint_every=1)
    sizes = []
    ibcrl = learner(TwoGoals, inference)
    ibcrl.learn("left", checkpoint=file, progress=lambda _: sizes.append(file.stat().st_size))
    assert sizes[1] < sizes[0]
    search = ibcrl._searches[inference.estimator]
    assert len(search.replay) == 0


def test_a_strong_kl_holds_the_parameters_near_the_prior():
    moved = {}
    for weight in (1e-8, 10.0):
        ibcrl = learner(LinearQuadratic, replace(LEARNING, iterations=4, kl_weight=weight))
        prior = ibcrl.knowledge.next_priors()[0].mean.clone()
        q = ibcrl.learn((1.0, 0.0)).posterior
        moved[weight] = float((q.mean - prior).norm())
    assert moved[10.0] < 0.2 * moved[1e-8]


class Sided(LinearQuadratic):
    """u(−x) = −u(x), and the two objectives change places."""

    reflection = Reflection(
        SignedPermutation((0,), (-1.0,)), SignedPermutation((0,), (-1.0,)), (1, 0)
    )


def test_replayed_rows_are_mirrored_only_where_the_task_is_its_own_image():
    mirrored = replace(LEARNING, iterations=2, estimator=replace(SMALL, mirrored=True))
    learner(Sided, mirrored).learn((0.5, 0.5))
    with pytest.raises(ValueError, match="not its own mirror image"):
        learner(Sided, mirrored).learn((1.0, 0.0))
    with pytest.raises(ValueError, match="declares no reflection"):
        learner(TwoGoals, mirrored).learn((0.5, 0.5))


def test_tasks_learnt_together_are_mirrored_with_their_mixing_coefficients_and_rewards():
    rng = np.random.default_rng(0)
    rows = Transitions(
        *(rng.normal(size=(4, 1)) for _ in range(2)),
        rng.normal(size=(4, 3, 2)),
        *(rng.normal(size=(4, 1)) for _ in range(3)),
        rng.dirichlet(np.ones(3), 4),
    )
    mirrored = _Mirror(Sided(1), LINE, np.array([0.5, 0.5])).every_second(rows)
    for ours, theirs in zip(mirrored, rows, strict=True):
        np.testing.assert_array_equal(ours[::2], theirs[::2])
    np.testing.assert_array_equal(mirrored.features[1::2], -rows.features[1::2])
    np.testing.assert_array_equal(mirrored.mixing[1::2], rows.mixing[1::2, ::-1])
    np.testing.assert_array_equal(mirrored.rewards[1::2], rows.rewards[1::2][..., ::-1])
    # What a row earns is the same on both sides of the mirror.
    family, taken = Family(Perceptron((1, 1)), LINE), np.ones((4, 3), dtype=bool)
    earned, seen = (
        family.rewards(each.rewards, each.mixing, np.zeros(2), taken) for each in (rows, mirrored)
    )
    np.testing.assert_allclose(earned, seen)
    for odd in (LINE[:2], (LINE[0], replace(LINE[2], cap=(2.0, 3.0)))):
        with pytest.raises(ValueError, match="not its own mirror image"):
            _Mirror(Sided(1), odd, np.array([0.5, 0.5]))
    kept = (LINE[0], replace(LINE[2], kept=True))
    assert (
        _Mirror(Sided(1), kept, np.array([0.5, 0.5]))
        .every_second(rows._replace(mixing=rows.mixing[:, :2]))
        .mixing[1]
        .tolist()
        == rows.mixing[1, 1::-1].tolist()
    )


def test_averaged_parameters_are_the_policy_at_the_mixing_and_gradients_share_it():
    rng = np.random.default_rng(0)
    network = Perceptron((2, 3, 1))
    family = Family(network, LINE)
    theta = rng.normal(size=family.dimension)
    features = rng.normal(size=(1, 4, 2))
    mixing = np.array([[0.0, 0.3, 0.7]])

    def value(theta):
        averaged = family.policies(theta[None], mixing)
        return float(network.forward(averaged, features)[-1].sum())

    averaged = family.policies(theta[None], mixing)
    activations = network.forward(averaged, features)
    gradient = network.backward(averaged, activations, np.ones((1, 4, 1)))
    (ours,) = family.gradient(gradient, mixing)
    step = 1e-6
    for index in range(family.dimension):
        change = np.zeros_like(theta)
        change[index] = step
        slope = (value(theta + change) - value(theta - change)) / (2 * step)
        assert ours[index] == pytest.approx(slope, abs=1e-6)
    keeping = Family(network, (LINE[0], replace(LINE[1], kept=True), LINE[2]))
    others = keeping.gradient(gradient, mixing).reshape(3, -1)
    assert not others[1].any()
    np.testing.assert_array_equal(others[::2], ours.reshape(3, -1)[::2])


def test_the_baselines_extremes_pool_to_the_network_that_sees_the_preference():
    rng = np.random.default_rng(0)
    policy = Policy(2, 1, hidden=(3,), squashed=True)
    family = PreferenceConditioned(anchors=LINE[::2]).family(policy)
    assert family.network.sizes == (4, 3, 1)
    theta = rng.normal(size=family.dimension).astype(np.float32)
    q = DiagonalGaussian(torch.tensor(theta), torch.ones(family.dimension))
    first, second = family.split(q)
    assert first.std[2 * 3].item() == pytest.approx(np.sqrt(2)), "two biases were added"
    preference = np.array([0.3, 0.7], dtype=np.float32)
    pooled = 0.3 * first.mean.numpy() + 0.7 * second.mean.numpy()
    features = rng.normal(size=(1, 2)).astype(np.float32)
    seen = np.concatenate([features, preference[None]], axis=1)
    np.testing.assert_allclose(
        policy.act(pooled[None], features),
        family.network.forward(theta[None], seen[None])[-1][0],
        atol=1e-6,
    )
    blind = family.join([DiagonalGaussian(first.mean, first.std)] * 2)
    for each in family.split(blind):
        torch.testing.assert_close(each.mean, first.mean)


def test_the_baseline_learns_every_preference_with_one_network():
    estimator = PreferenceConditioned(**vars(replace(SMALL, anchors=LINE[::2])))
    ibcrl = learner(TwoGoals)
    tasks = {"right": (0.0, 1.0), "left": (1.0, 0.0)}
    ibcrl.learn_together(tasks, inference=replace(LEARNING, estimator=estimator))
    for weights in even_preferences(5):
        (returns,) = ibcrl.front([weights])
        assert returns @ weights > 0.98 * TwoGoals.best_returns(weights) @ weights


def test_a_cap_and_a_base_shape_the_reward_of_each_task():
    anchors = (Anchor((1.0, 0.0), cap=(2.0, 9.0), base=(1.0, 0.0)), Anchor((0.0, 2.0)))
    family = Family(Perceptron((1, 1)), anchors)
    rewards = np.array([[[5.0, 3.0]], [[5.0, 3.0]]])
    shaped = family.rewards(rewards, np.eye(2), np.zeros(2), np.ones((2, 1), dtype=bool))
    assert shaped.tolist() == [[1.0], [6.0]]


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_steps_after_the_end_of_an_episode_cost_no_base(taken):
    anchors = (Anchor((1.0, 0.0), base=(5.0, 0.0)), Anchor((1.0, 0.0), base=(5.0, 0.0)))
    settings = replace(SMALL, anchors=anchors, steps=3, updates=2, batch=2, reuse=2)
    search = settings.search(Policy(1, 1, hidden=()), objectives=2, seed=0)
    one, mixing = np.ones((1, 1), dtype=np.float32), np.array([[0.5, 0.5]], dtype=np.float32)
    earned = np.array([[7.0, 0.0]], dtype=np.float32)
    for step in range(taken):
        ends = np.array([step == taken - 1])
        rows = search.multi_step.push(one, one, earned, one, ends, ends & False, mixing)
    # The first step's transition is the longest, n steps or what there was of the episode.
    search.replay.add(rows[np.argmin(rows[:, -4])][None])
    objective = Objective(np.array([0.5, 0.5], np.float32), Variational(one[0], one[0]))
    _, rewards = search._sample(objective, None, np.random.default_rng(0))
    assert rewards == pytest.approx(2 * sum(0.8**step for step in range(taken)))


def test_bad_input_gives_one_sentence():
    with pytest.raises(ValueError, match="reuse must divide updates"):
        TwinDelayed(updates=8, reuse=3)
    with pytest.raises(ValueError, match="discount must lie between 0 and 1"):
        TwinDelayed(discount=1.0)
    ibcrl = learner(TwoGoals)
    tasks = {"a": (0.0, 1.0), "b": (1.0, 0.0)}
    with pytest.raises(ValueError, match="needs JointSurrogate or TwinDelayed with as many"):
        ibcrl.learn_together(tasks, inference=LEARNING)
    with pytest.raises(ValueError, match="TwinDelayed knows no trajectory KL"):
        ibcrl.learn("left", inference=replace(LEARNING, trajectory_kl=(1.0,)))
    together = replace(LEARNING, estimator=replace(SMALL, anchors=LINE[:2]))
    with pytest.raises(ValueError, match="is for tasks learnt with learn_together"):
        ibcrl.learn("left", inference=together)
    with pytest.raises(ValueError, match="2 tasks need as many priors, not 1"):
        ibcrl.learn_together(tasks, inference=together, priors=["a"])
    with pytest.raises(ValueError, match="know no trajectory KL"):
        ibcrl.learn_together(tasks, inference=replace(together, trajectory_kl=(1.0,)))
    assert (
        Policy(2, 2, squashed=True)
        .act(np.full((1, Policy(2, 2).dimension), 9.0), np.ones((1, 2)))
        .max()
        <= 1
    )
