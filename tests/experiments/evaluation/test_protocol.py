"""The protocol on the digits: what is asked, what is counted, what is chosen."""

import numpy as np
import pandas as pd
import pytest
import torch

import ibcl
from ibcl.experiments import benchmarks
from ibcl.experiments.evaluation.contenders import build_network, contender
from ibcl.experiments.evaluation.metrics import average_per_task
from ibcl.experiments.evaluation.model_selections import (
    class_probabilities,
    draw,
    draw_from_mixture,
    draw_inverted,
    inverted_parameters,
)
from ibcl.experiments.evaluation.protocol import Inputs, Protocol, run, scores
from ibcl.experiments.methods import METHODS, AnswersAmongAllClasses

QUICK = {"epochs": 2, "batch_size": 32}


@pytest.fixture(scope="module")
def digits():
    return benchmarks.load("digits")


def quick(name):
    chosen = contender(name)
    return chosen.changed(**QUICK) if "epochs" in chosen.options else chosen


@pytest.mark.parametrize("name", METHODS)
def test_every_contender_runs(name, digits):
    chosen = quick(name)
    if "random" in chosen.network:
        chosen = chosen.changed(network="random:32")
    if "width" in chosen.options:
        chosen = chosen.changed(width=32)
    if "classes" in chosen.registration.options:
        chosen = chosen.changed(classes=4)
    table = run(chosen, digits, protocol=Protocol(samples=2, tasks=2, preferences=3), memory=10)
    assert set(table["method"]) == {name}
    mean = table[table["selection"] == "mean"]
    assert len(mean) == 1 + 3 * 2
    assert table["accuracy"].between(0, 1).all()
    kinds = 4 if chosen.registration.group == "IBCL" else 1
    assert table["selection"].nunique() == kinds
    assert (table["memory"] == (10 if chosen.rehearses else 0)).all()


def test_preferences_are_the_papers_seeded_and_shared():
    protocol = Protocol()
    np.testing.assert_array_equal(protocol.preferences_at(4, 1), protocol.preferences_at(4, 1))
    assert not np.array_equal(protocol.preferences_at(4, 1), protocol.preferences_at(4, 2))
    drawn = Protocol(preferences=500).preferences_at(3, 0)
    np.testing.assert_allclose(drawn.sum(1), 1)
    sparse = Protocol(preferences=500, family="sparse").preferences_at(3, 0)
    assert (sparse.max(1) > 0.9).mean() > 0.3 > (drawn.max(1) > 0.9).mean()
    grid = Protocol(family="grid", tasks=2).preferences_at(2, 0)
    assert grid.shape == (21, 2)
    assert grid[0].tolist() == [0, 1]


def test_same_seed_same_table(digits):
    protocol = Protocol(samples=2, tasks=2, preferences=2)
    first, second = (run(quick("ibcl"), digits, 3, protocol=protocol) for _ in range(2))
    times = ["seconds", "total_seconds"]
    pd.testing.assert_frame_equal(first.drop(columns=times), second.drop(columns=times))


def test_mean_model_is_the_librarys(digits):
    """The table's accuracies are those a user of the library would find on scaled features."""
    chosen = contender("ibcl_evidence")
    table = run(chosen, digits, protocol=Protocol(samples=0, tasks=2, preferences=2))
    first, second = digits.tasks[:2]
    scale = chosen.feature_norm / np.linalg.norm(first.train.x, axis=1).mean()
    learner = ibcl.IBCL(
        ibcl.networks.linear(64),
        priors=[chosen.options["prior_std"]],
        inference=ibcl.DenseVI(),
        pooling="evidence",
        independent=False,
        d=0,
    )
    learner.learn(first.train.x * scale, first.train.y)
    learner.learn(second.train.x * scale, second.train.y)
    preference = Protocol(preferences=2).preferences_at(2, 0)[1]
    predicted = learner.model(preference).predict(second.test.x * scale)
    found = table.query("task_seen == 2 and preference == 1 and task_tested == 2")
    assert found["accuracy"].item() == pytest.approx((predicted == second.test.y).mean())
    assert found["weight"].item() == pytest.approx(preference[1])


def test_counts_are_the_papers_formulas(digits):
    protocol = Protocol(samples=0, tasks=3, preferences=4)
    sizes = [len(task.train) for task in digits.tasks[:3]]
    table = run(quick("derpp"), digits, memory=10, protocol=protocol)
    counted = table.groupby("task_seen")["updates"].first().tolist()
    batches = [np.ceil((n + i * 10) / 32) for i, n in enumerate(sizes)]
    assert counted == [2 * batches[0], 4 * 2 * batches[1], 4 * 2 * batches[2]]
    table = run(quick("ibcl"), digits, protocol=protocol)
    counted = table.groupby("task_seen")["updates"].first().tolist()
    assert counted == [2 * np.ceil(n / 32) for n in sizes]


def test_choosing_on_test_data_never_looks_worse(digits):
    table = run(quick("ibcl"), digits, protocol=Protocol(samples=5, tasks=2, preferences=3))
    frame = table.assign(share=table["weight"] * table["accuracy"])
    expected = frame.groupby(["selection", "task_seen", "preference"])["share"].sum().unstack(0)
    assert (expected["test_maximum"] >= expected["validated"] - 1e-12).all()


def test_validation_part_is_scored_on_request(digits):
    chosen = contender("ibcl_evidence")
    test, validation = (
        run(chosen, digits, protocol=Protocol(samples=0, tasks=1, part=part))
        for part in ("test", "validation")
    )
    sizes = {p: len(digits.tasks[0].parts()[p]) for p in ("test", "validation")}
    assert (test["accuracy"] * sizes["test"]).round(6).item().is_integer()
    assert (validation["accuracy"] * sizes["validation"]).round(6).item().is_integer()
    assert not validation["calibration_error"].equals(test["calibration_error"])


def test_order_permutes_tasks(digits):
    given = Protocol().tasks_of(digits)
    mixed = Protocol(order=1).tasks_of(digits)
    assert [task.name for task in given] == list(digits.task_names)
    assert sorted(task.name for task in mixed) == sorted(digits.task_names)
    assert [task.name for task in mixed] != list(digits.task_names)


def test_shared_inputs_are_kept_once():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    splits = [
        benchmarks.Split(x, np.array([0, 1, 0])),
        benchmarks.Split(x + 1, np.array([0, 1, 0])),
        benchmarks.Split(x, np.array([1, 1, 0])),
    ]
    inputs = Inputs(splits, lambda x: x * np.float32(2.0))
    assert inputs.x.shape == (6, 2)
    for split, rows in zip(splits, inputs.split(inputs.x[None]), strict=True):
        np.testing.assert_array_equal(rows[0].numpy(), 2 * split.x)


def test_scores_of_a_majority_guess():
    always = torch.tensor([[0.8, 0.2]]).repeat(10, 1)
    found = scores(always, np.array([0] * 8 + [1] * 2))
    expected = {"accuracy": 0.8, "balanced_accuracy": 0.5, "calibration_error": 0.0}
    expected["brier"] = 0.8 * 2 * 0.2**2 + 0.2 * 2 * 0.8**2
    expected["log_loss"] = -0.8 * np.log(0.8) - 0.2 * np.log(0.2)
    assert found == pytest.approx(expected, abs=1e-6)


def test_diverged_models_count_as_ignorant():
    found = scores(torch.full((4, 2), torch.nan), np.array([0, 1, 0, 1]))
    expected = {"accuracy": 0.5, "balanced_accuracy": 0.5, "calibration_error": 0.0}
    assert found == pytest.approx(expected | {"brier": 0.5, "log_loss": np.log(2)})


def two_task_learner(**settings):
    x = torch.randn(100, 3, generator=torch.Generator().manual_seed(0))
    usual = {"priors": [2.5], "inference": ibcl.MeanFieldVI(), "pooling": "wasserstein"}
    learner = ibcl.IBCL(ibcl.networks.linear(3), d=0, **{**usual, **settings})
    learner.learn(x, x[:, 0] > 0)
    learner.learn(x, x[:, 1] > 0)
    return learner, x


def test_draws_of_a_mixture_lie_in_the_region():
    learner, x = two_task_learner(pooling="mixture", alpha=0.1)
    model = learner.model([0.5, 0.5])
    thetas = draw_from_mixture(model, 40)
    assert thetas.shape == (40, 4)
    # A mixture's boundary is estimated from few draws; none may lie far outside.
    assert model.distribution.log_prob(thetas).min() >= model.region.threshold - 2.0
    assert draw(model, 5, x).shape == (5, 100, 2)


@pytest.mark.parametrize("pooling", ["wasserstein", "routed"])
def test_draws_answer_with_models_of_the_region(pooling):
    rule = ibcl.Routed(gate="moments") if pooling == "routed" else pooling
    learner, x = two_task_learner(pooling=rule, alpha=0.1)
    model = learner.model([0.5, 0.5])
    found = draw(model, 6, x)
    torch.testing.assert_close(found.sum(-1), torch.ones(6, 100))
    torch.testing.assert_close(found, class_probabilities(model.outputs(x, samples=6)).float())
    # Drawn together or apart, the models are the same: validation chooses among those tested.
    torch.testing.assert_close(draw(model, 6, x[:10]), found[:, :10], rtol=1e-4, atol=1e-5)


def test_inverted_intervals_shrink_to_the_mean_as_alpha_falls():
    spreads = []
    for alpha in (0.01, 0.25):
        learner, x = two_task_learner(alpha=alpha)
        model = learner.model([1.0, 0.0])
        draws = inverted_parameters(model, 50)
        moves = (draws - model.distribution.mean) / model.distribution.std
        # One number a tensor: the three weights move together.
        assert float((moves[:, :3] - moves[:, :1]).abs().max()) < 1e-4
        spreads.append(float(moves.abs().max()))
        assert draw_inverted(model, 3, x).shape == (3, 100, 2)
    assert spreads[0] < 0.013 < spreads[1] < 0.32


def test_asking_at_the_last_task_only_learns_what_asking_always_learns(digits):
    """Methods without models of their own for preferences do not depend on who asked before."""
    always, last = (
        run(contender(name), digits, protocol=Protocol(samples=0, tasks=3, evaluate_after=after))
        for name in ["ibcl_evidence"]
        for after in ("every", "last")
    )
    assert set(last["task_seen"]) == {3}
    same = always[always["task_seen"] == 3].reset_index(drop=True)
    pd.testing.assert_series_equal(last["accuracy"], same["accuracy"])
    assert (
        last["total_updates"].iloc[0]
        == always["updates"].groupby(always["task_seen"]).first().sum()
    )


def test_answers_among_all_classes_are_scored_by_task_and_label(digits):
    chosen = contender("streaming_lda")
    table = run(chosen, digits, protocol=Protocol(samples=0, tasks=2, preferences=2))
    method = chosen.create(digits.features, 0, 0)
    assert isinstance(method, AnswersAmongAllClasses)
    both = table[table["task_seen"] == 2]
    # Knowing the class of the task means knowing the label, but not the other way round.
    assert (both["class_accuracy"] <= both["accuracy"] + 1e-12).all()
    assert both["class_accuracy"].mean() > 0.8
    plain = run(contender("ibcl_evidence"), digits, protocol=Protocol(samples=0, tasks=1))
    assert plain["class_accuracy"].isna().all()


def test_features_are_scaled_by_the_first_task_alone(digits):
    chosen = contender("ibcl_evidence")
    one = run(chosen, digits, protocol=Protocol(samples=0, tasks=1))
    two = run(chosen, digits, protocol=Protocol(samples=0, tasks=2))
    first = average_per_task(two.assign(label="")).query("task == 1")["value"].item()
    assert first == one["accuracy"].item()


def test_bad_settings_are_refused():
    with pytest.raises(ValueError, match="Unknown method 'ewc'; known are routed, "):
        contender("ewc")
    with pytest.raises(ValueError, match="A network is 'linear'"):
        build_network("mlp:many", 4)
    with pytest.raises(ValueError, match=r"Preferences are uniform or sparse or .* not 'dense'"):
        Protocol(family="dense")
    with pytest.raises(ValueError, match="at least one preference"):
        Protocol(preferences=0)
    with pytest.raises(ValueError, match="tasks=2"):
        Protocol(family="grid")
    with pytest.raises(ValueError, match="'every' task or the 'last', not 'first'"):
        Protocol(evaluate_after="first")
