"""Studies on the digits: inputs of no task, bounds, inferred preferences, and their tables."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import BenchmarkRegistration
from ibcl.experiments.evaluation.ablation import ablation_cells
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.runs import read_runs, read_study, run_all
from ibcl.experiments.evaluation.studies import (
    EXAMPLES,
    OWN_INPUTS,
    SINGLE_TASKS,
    bounds,
    calibration,
    detection,
    inferred,
)
from ibcl.experiments.evaluation.study_tables import study_tables


@pytest.fixture(scope="module")
def digits():
    return benchmarks.load("digits")


def test_bounds_hold_the_truth_more_often_than_the_prediction_is_right(digits):
    table = bounds(contender("routed", "digits"), digits, 0)
    assert table["task"].tolist() == [1, 2, 3, 4, 5]
    # The prediction lies between the bounds, so its class is always in their answer.
    assert (table["coverage"] >= table["accuracy"] - 1e-12).all()
    expected = table["decided"] * table["accuracy_decided"].fillna(0)
    expected += (1 - table["decided"]) * table["accuracy_undecided"].fillna(0)
    np.testing.assert_allclose(table["accuracy"], expected)


def test_more_examples_come_closer_to_the_preference(digits):
    table = inferred(contender("routed", "digits"), digits, 0)
    assert sorted(table["examples"].unique()) == list(EXAMPLES)
    for _, part in table.groupby("labelled"):
        distances = part.set_index("examples")["distance"]
        assert distances[200] < distances[20] < distances[5]
        assert abs(part.set_index("examples")["loss"][200]) < 0.01


def test_benchmarks_without_a_backbone_have_no_other_inputs(digits):
    assert detection(contender("routed", "digits"), digits, 0).empty


@pytest.mark.parametrize("learnt", ["a", "a-similar"])
def test_other_questions_about_the_same_inputs_are_no_other_inputs(digits, monkeypatch, learnt):
    def entry(name, tuned_as=None):
        return BenchmarkRegistration(name, name, lambda _: digits, True, tuned_as=tuned_as)

    known = [entry("a"), entry("a-similar", "a"), entry("b"), entry("b-similar", "b")]
    monkeypatch.setattr(
        benchmarks, "BENCHMARKS", {**benchmarks.BENCHMARKS, **{each.name: each for each in known}}
    )
    for name in set(benchmarks.BENCHMARKS) - {"a", "a-similar", "b", "b-similar", "digits"}:
        monkeypatch.delitem(benchmarks.BENCHMARKS, name)
    two = replace(digits, name=learnt, tasks=digits.tasks[:2])
    assert set(detection(contender("routed", "digits"), two, 0)["other"]) == {"b"}


def test_calibration_on_a_preference_s_inputs_is_the_error_of_all_tasks_together(digits):
    table = calibration(contender("routed", "digits"), digits, 0).set_index("of")
    assert set(table["preferences"]) == {"uniform"}
    # Gaps of either sign even out between tasks, so that together they are no larger.
    assert 0 < table["error"][OWN_INPUTS] <= table["error"][SINGLE_TASKS]
    # 72 examples a task are few: also what is right just as often as it says has an error.
    assert 0 < table["by_chance"][OWN_INPUTS] < table["by_chance"][SINGLE_TASKS] < 0.03
    assert (table["tasks_right"] > 0).all()


def test_studies_run_as_cells_beside_the_protocols(tmp_path):
    wanted = ablation_cells(["bounds"], ["digits"], [0, 1])
    names = [outcome.result for outcome in run_all(wanted, tmp_path)]
    assert names == [cell.name for cell in wanted]
    assert list(run_all(wanted, tmp_path)) == []
    with pytest.raises(FileNotFoundError, match="no results"):
        read_runs(tmp_path)
    table = read_study("bounds", tmp_path)
    assert set(table["seed"]) == {0, 1}
    assert read_study("inferred", tmp_path).empty
    (shown,) = study_tables({"bounds": table}).values()
    assert shown["benchmark"].tolist() == ["digits"]


def test_enough_examples_stay_enough():
    """A number of examples is enough only if all larger ones are too."""
    losses = {5: 0.02, 10: 0.004, 20: 0.008, 50: 0.003, 100: 0.001}
    table = pd.DataFrame(
        [
            {"benchmark": "digits", "labelled": True, "examples": n, "loss": loss, "seed": seed}
            for n, loss in losses.items()
            for seed in (0, 1)
        ]
    )
    (shown,) = study_tables({"inferred": table}).values()
    assert shown["enough for half a point"].tolist() == ["50"]
    assert shown["10"].tolist() == ["0.4 ± 0.0"]
