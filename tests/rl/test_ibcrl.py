"""IBCRL on problems whose optimal front is known."""

import numpy as np
import pytest

pytest.importorskip("moocore")

from known_fronts import LinearQuadratic, TwoGoals
from resuming import assert_resumes_exactly

from ibcl.rl.bayesian_policy_gradient import BayesianPolicyGradient
from ibcl.rl.bayesian_quadrature import BayesianQuadrature
from ibcl.rl.clipped_surrogate import ClippedSurrogate
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.ibcrl import IBCRL

GRADIENT = BayesianPolicyGradient(
    iterations=150,
    estimator=ClippedSurrogate(
        segment=20, epochs=4, discount=0.8, mean_rate=0.01, std_rate=0.01, value_rate=5e-3
    ),
    action_std=(0.3, 0.1),
    rate=(1.0, 0.1),
    kl_weight=1e-6,
)
QUADRATURE = BayesianPolicyGradient(
    iterations=300,
    estimator=BayesianQuadrature(mean_rate=0.02, std_rate=0.01),
    action_std=(0.3, 0.1),
    rate=(1.0, 0.05),
    kl_weight=1e-6,
)
METHODS = {"gradient": (GRADIENT, 0.05), "quadrature": (QUADRATURE, 0.05)}


def learnt(environment, method, seed=0, **options):
    inference, initial_std = METHODS[method]
    ibcrl = IBCRL(
        environment,
        hidden=(),
        normalise=False,
        inference=inference,
        initial_std=initial_std,
        seed=seed,
        **options,
    )
    ibcrl.learn((0.0, 1.0), "second")
    ibcrl.learn((1.0, 0.0), "first")
    return ibcrl


def test_the_riccati_gains_lie_between_the_extremes_and_are_pareto_optimal():
    gains = [LinearQuadratic.optimal_gain((w, 1 - w)) for w in np.linspace(0.05, 0.95, 10)]
    assert gains == sorted(gains)
    assert 0 < gains[0] < gains[-1] < 1


@pytest.mark.parametrize("method", METHODS)
def test_linear_quadratic_front_within_two_percent(method):
    ibcrl = learnt(LinearQuadratic, method)
    reference = (-LinearQuadratic.horizon - 1.0, -1.1)
    known = hypervolume(
        [LinearQuadratic.returns(gain) for gain in np.linspace(0, 1, 4001)], reference
    )
    reached = hypervolume(ibcrl.front(even_preferences(200)), reference)
    assert reached > 0.98 * known
    assert reached < 1.001 * known


@pytest.mark.parametrize("method", METHODS)
def test_two_goals_front_within_two_percent(method):
    ibcrl = learnt(TwoGoals, method)
    known = hypervolume([TwoGoals.best_returns(w) for w in even_preferences(2001)])
    reached = hypervolume(ibcrl.front(even_preferences(200)))
    assert reached > 0.98 * known
    assert reached < 1.001 * known


def test_a_seed_fixes_everything_and_another_changes_it():
    short = BayesianPolicyGradient(iterations=5, estimator=GRADIENT.estimator)
    means = []
    for seed in (3, 3, 4):
        ibcrl = IBCRL(TwoGoals, hidden=(4,), inference=short, seed=seed)
        ibcrl.learn("left")
        ibcrl.learn("right")
        means.append(ibcrl.policy((0.3, 0.7)).q.mean.numpy())
    np.testing.assert_array_equal(means[0], means[1])
    assert not np.array_equal(means[0], means[2])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("stop", [1, 7, 20])
def test_an_interrupted_run_resumes_exactly(tmp_path, method, stop):
    inference, initial_std = METHODS[method]
    inference = BayesianPolicyGradient(
        iterations=12, estimator=inference.estimator, score_every=3, action_std=(0.2,)
    )

    def run(folder, progress):
        ibcrl = IBCRL(TwoGoals, hidden=(3,), inference=inference, initial_std=initial_std, seed=1)
        for task in ("left", "right"):
            ibcrl.learn(task, checkpoint=folder / f"{task}.safetensors", progress=progress)
        return ibcrl

    assert_resumes_exactly(run, tmp_path, stop)


@pytest.mark.parametrize("method", METHODS)
def test_a_paused_task_is_not_known_and_goes_on_as_if_it_had_not_paused(tmp_path, method):
    inference, initial_std = METHODS[method]
    inference = BayesianPolicyGradient(
        iterations=9, estimator=inference.estimator, score_every=2, action_std=(0.2,)
    )

    def fresh():
        return IBCRL(TwoGoals, hidden=(3,), inference=inference, initial_std=initial_std, seed=2)

    paused, straight = fresh(), fresh()
    with pytest.raises(ValueError, match="needs a checkpoint"):
        paused.learn("left", until=4)
    file = tmp_path / "left.safetensors"
    shown = [paused.learn("left", until=until, checkpoint=file) for until in (4, 6)]
    assert not paused.knowledge.tasks
    assert shown[0].updates < shown[1].updates
    for ibcrl, checkpoint in [(paused, file), (straight, None)]:
        ibcrl.learn("left", checkpoint=checkpoint)
        ibcrl.learn("right")
    for task in ("left", "right"):
        (ours,), (theirs,) = paused.knowledge.extremes(task), straight.knowledge.extremes(task)
        np.testing.assert_array_equal(ours.mean, theirs.mean)
        np.testing.assert_array_equal(ours.std, theirs.std)
        assert paused.results[task].steps == straight.results[task].steps


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    file = tmp_path / "task.safetensors"
    for iterations, outcome in [(2, None), (3, "other settings")]:
        inference = BayesianPolicyGradient(iterations=iterations, estimator=GRADIENT.estimator)
        ibcrl = IBCRL(TwoGoals, hidden=(), inference=inference)
        if outcome is None:
            ibcrl.learn("left", checkpoint=file)
        else:
            with pytest.raises(ValueError, match=outcome):
                ibcrl.learn("left", checkpoint=file)
    inference = BayesianPolicyGradient(iterations=2, estimator=GRADIENT.estimator)
    with pytest.raises(ValueError, match="belongs to another policy"):
        IBCRL(TwoGoals, hidden=(3,), inference=inference).learn("left", checkpoint=file)
    file.write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="damaged"):
        IBCRL(TwoGoals, hidden=(), inference=GRADIENT).learn("left", checkpoint=file)


def test_vertices_give_back_the_tasks_and_regions_hold_their_mass():
    short = BayesianPolicyGradient(iterations=3, estimator=GRADIENT.estimator)
    ibcrl = IBCRL(TwoGoals, hidden=(), inference=short, alpha=0.1)
    ibcrl.learn("left")
    ibcrl.learn("right")
    left = ibcrl.policy((1.0, 0.0))
    stored = ibcrl.knowledge.extremes("left")[0]
    np.testing.assert_array_equal(left.q.mean, stored.mean)
    between = ibcrl.policy((0.25, 0.75))
    inside = between.region.contains(between.q.sample(4000)).double().mean()
    assert float(inside) == pytest.approx(0.9, abs=0.025)
    assert between.act(np.zeros(2)).shape == (2,)


def test_neighbours_are_combined_and_the_latest_of_equal_tasks():
    short = BayesianPolicyGradient(iterations=1, estimator=GRADIENT.estimator)
    ibcrl = IBCRL(TwoGoals, hidden=(), inference=short)
    ibcrl.learn("left", "a")
    ibcrl.learn((0.4, 0.6), "b")
    ibcrl.learn("right", "c", prior="a")
    ibcrl.learn("left", "d", prior="b")
    assert dict(ibcrl.policy((0.7, 0.3)).tasks) == pytest.approx({"d": 0.5, "b": 0.5, "c": 0.0})
    assert dict(ibcrl.policy((0.1, 0.9)).tasks) == pytest.approx({"d": 0, "b": 0.25, "c": 0.75})
    assert dict(ibcrl.policy((0.7, 0.3), ["a", "c"]).tasks) == pytest.approx({"a": 0.7, "c": 0.3})
    with pytest.raises(ValueError, match="lies outside the tasks"):
        ibcrl.policy((0.7, 0.3), ["b", "c"])
    with pytest.raises(ValueError, match="Unknown task 'e'"):
        ibcrl.policy((0.7, 0.3), ["e", "c"])
    with pytest.raises(ValueError, match="learnt already"):
        ibcrl.learn("left", "a")
    with pytest.raises(ValueError, match="Unknown task 'nobody'"):
        ibcrl.learn("left", "f", prior="nobody")


def test_of_several_priors_the_one_that_earns_most_in_the_task_is_taken():
    ibcrl = learnt(TwoGoals, "gradient")
    still = BayesianPolicyGradient(iterations=1, estimator=GRADIENT.estimator, rate=(1e-9,))
    for wanted, best in [((0.1, 0.9), "second"), ((0.9, 0.1), "first")]:
        for order in (["first", "second"], ["second", "first"]):
            name = f"{best} with {order[0]} named first"
            chosen = ibcrl.learn(wanted, name, prior=order, inference=still)
            alone = ibcrl.learn(wanted, f"{name} and alone", prior=best, inference=still)
            means = [result.posterior.mean for result in (chosen, alone)]
            np.testing.assert_allclose(*means, atol=1e-6)
            assert chosen.steps == alone.steps + 2 * ibcrl.scoring.horizon
    with pytest.raises(ValueError, match="No task is named"):
        ibcrl.learn("left", "none", prior=[])
    with pytest.raises(ValueError, match="Unknown task 'nobody'"):
        ibcrl.learn("left", "none", prior=["first", "nobody"])
    capped = BayesianPolicyGradient(iterations=1, cap=(1.0, 1.0, 1.0))
    with pytest.raises(ValueError, match="The cap has 3 values"):
        ibcrl.learn("left", "none", prior=["first", "second"], inference=capped)


def test_tasks_may_be_learnt_by_different_estimators():
    ibcrl = learnt(TwoGoals, "gradient")
    before = ibcrl.policy((0.5, 0.5)).q.mean.clone()
    ibcrl.learn((0.5, 0.5), "middle", inference=QUADRATURE)
    ibcrl.learn("left", "again", inference=GRADIENT)
    known = TwoGoals.best_returns((0.5, 0.5)).sum()
    assert ibcrl.returns(ibcrl.policy((0.5, 0.5)).q.mean[None].numpy()).sum() > 0.98 * known
    assert not np.array_equal(before, ibcrl.policy((0.5, 0.5)).q.mean)
    assert ibcrl.returns(ibcrl.policy("left").q.mean[None].numpy())[0, 0] > 0.98 * 60


def test_bad_input_gives_one_sentence():
    with pytest.raises(ValueError, match="must be even, not 3"):
        IBCRL(TwoGoals, hidden=(), copies=3).learn("left")
    with pytest.raises(ValueError, match="2 tasks"):
        IBCRL(TwoGoals, hidden=()).learn((0.2, 0.3, 0.5))
    with pytest.raises(ValueError, match="sum to 1"):
        IBCRL(TwoGoals, hidden=()).learn((0.2, 0.3))
    with pytest.raises(ValueError, match="trajectory KL"):
        IBCRL(
            TwoGoals,
            hidden=(),
            inference=BayesianPolicyGradient(estimator=BayesianQuadrature(), trajectory_kl=(1.0,)),
        ).learn("left")
