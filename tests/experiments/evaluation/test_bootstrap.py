"""Intervals over seeds and test examples: they hold what they say, and pair what can be paired."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ibcl.experiments import benchmarks
from ibcl.experiments.evaluation import bootstrap, metrics
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import UNIFORM_BASELINE, Protocol, run


def made_up(right, method="a", seed=0, label="", metric="accuracy", labels=None):
    """Two preferences' answers to one task, in the protocol's columns."""
    truth = np.zeros(right.shape[1], np.uint8) if labels is None else labels
    return pd.DataFrame(
        {
            "benchmark": "toy",
            "preferences": "uniform",
            "method": method,
            "memory": 0,
            "label": label,
            "seed": seed,
            "selection": "mean",
            "metric": metric,
            "task_tested": 1,
            "weight": [0.25, 0.75],
            "right": [np.packbits(row).tobytes() for row in right],
            "labels": [truth.astype(np.uint8).tobytes()] * 2,
        }
    )


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.slow
def test_intervals_hold_the_truth_as_often_as_they_say(shared):
    """Five seeds with an effect of their own, on one test set or on five."""
    rng = np.random.default_rng(0)
    held, size, seeds = [], 80, 5
    for trial in range(100):
        difficulty = rng.normal(size=size)
        parts = []
        for seed in range(seeds):
            if not shared:
                difficulty = rng.normal(size=size)
            right = difficulty + 0.3 * rng.normal() + 0.5 * rng.normal(size=(2, size)) > -0.8
            drawn_for = [trial, 0 if shared else seed]
            labels = np.random.default_rng(drawn_for).integers(0, 2, size)
            parts.append(made_up(right, seed=seed, labels=labels))
        found = bootstrap.intervals(pd.concat(parts), number=200).iloc[0]
        truth = 0.7554  # P(Z √(1 + 0.09 + 0.25) > −0.8)
        held.append(found["low"] <= truth <= found["high"])
    assert 0.88 <= np.mean(held) <= 0.99


def test_seeds_alone_are_too_sure_where_they_share_a_test_set():
    rng = np.random.default_rng(1)
    once = rng.random(60) < 0.7
    table = pd.concat([made_up(np.stack([once, once]), seed=seed) for seed in range(5)])
    found = bootstrap.intervals(table).iloc[0]
    error = np.sqrt(once.mean() * (1 - once.mean()) / 60)
    assert found["high"] - found["low"] == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_the_same_answers_differ_by_nothing_whatever_is_drawn():
    rng = np.random.default_rng(2)
    tables = []
    for seed in range(3):
        right = rng.random((2, 50)) < 0.7
        tables += [made_up(right, "a", seed), made_up(right, "b", seed)]
    found = bootstrap.differences(pd.concat(tables), "a")
    np.testing.assert_array_equal(found[["value", "low", "high"]].to_numpy(), 0.0)


def test_examples_are_paired_by_their_labels_whatever_features_they_have():
    """Features computed on another machine differ in their last bits; the examples do not."""
    rng = np.random.default_rng(3)
    labels, right = rng.integers(0, 2, 60), rng.random((2, 60)) < 0.7
    here = made_up(right, "a", labels=labels).assign(test_set="features of one machine")
    there = made_up(right, "b", labels=labels).assign(test_set="features of another")
    found = bootstrap.differences(pd.concat([here, there]), "a")
    np.testing.assert_array_equal(found[["value", "low", "high"]].to_numpy(), 0.0)


def test_balanced_accuracy_is_the_mean_of_recalls():
    labels = np.array([0] * 30 + [1] * 10)
    right = np.tile(labels == 0, (2, 1))
    found = bootstrap.intervals(made_up(right, metric="balanced_accuracy", labels=labels)).iloc[0]
    assert (found["value"], found["low"], found["high"]) == (0.5, 0.5, 0.5)


def test_values_are_those_of_the_metrics():
    digits = benchmarks.load("digits")
    protocol = Protocol(samples=0, tasks=3, evaluate_after="last")
    table = run(contender("streaming_lda"), digits, protocol=protocol).assign(label="")
    wanted = metrics.at_last_task(metrics.average_per_task(table))["value"].item()
    assert bootstrap.intervals(table)["value"].item() == pytest.approx(wanted, abs=1e-12)
    assert bootstrap.intervals(table.drop(columns=["right"])).empty


def test_a_preference_is_worth_what_it_adds_to_the_uniform_one():
    digits = benchmarks.load("digits")
    protocol = Protocol(
        family="vertices", samples=0, tasks=3, evaluate_after="last", uniform_baseline=True
    )
    names = ("streaming_lda", "fine_tuning", "routed")
    tables = [run(contender(name), digits, protocol=protocol) for name in names]
    found = bootstrap.worth_of_preference(pd.concat(tables), UNIFORM_BASELINE).set_index("method")
    # One model for all is not changed by a preference.
    assert found.loc["fine_tuning", ["value", "low", "high"]].tolist() == [0.0, 0.0, 0.0]
    uniform = tables[0][tables[0]["label"] == UNIFORM_BASELINE]
    own = tables[0][tables[0]["label"] == ""]
    by_hand = (
        metrics.at_last_task(metrics.average_per_task(part))["value"].item()
        for part in (own, uniform)
    )
    assert found.loc["streaming_lda", "value"] == pytest.approx(next(by_hand) - next(by_hand))
    # The uniform preference has one model, whoever asks, and is scored with their own weights.
    assert (uniform.groupby("task_tested")["accuracy"].nunique() == 1).all()
    assert uniform["weight"].tolist() == own["weight"].tolist()


@pytest.mark.parametrize("name", ["routed", "class_gaussians", "oracle", "gem"])
def test_asking_for_the_uniform_preference_too_changes_nobodys_own_answer(name):
    digits = benchmarks.load("digits")
    protocol = Protocol(samples=0, tasks=2, evaluate_after="last")
    alone = run(contender(name, "digits"), digits, protocol=protocol)
    beside = run(
        contender(name, "digits"), digits, protocol=replace(protocol, uniform_baseline=True)
    )
    own = beside[beside["label"] == ""].reset_index(drop=True)
    assert own["right"].tolist() == alone["right"].tolist()
