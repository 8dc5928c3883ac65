"""Metrics on cases computed by hand."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ibcl.experiments.evaluation import metrics

# Two tasks; at the second the three preferences of the paper's worked example.
WEIGHTS = [[[1.0]], [[0.5, 0.5], [0.1, 0.9], [0.8, 0.2]]]
ACCURACIES = [[[0.9]], [[0.8, 0.7], [0.6, 0.9], [0.95, 0.5]]]
ACC_21 = (0.5 * 0.8 + 0.1 * 0.6 + 0.8 * 0.95) / (0.5 + 0.1 + 0.8)
ACC_22 = (0.5 * 0.7 + 0.9 * 0.9 + 0.2 * 0.5) / (0.5 + 0.9 + 0.2)


@pytest.fixture
def two_tasks(table_of):
    return table_of(ACCURACIES, WEIGHTS)


def value(frame, **where):
    for column, wanted in where.items():
        frame = frame[frame[column] == wanted]
    return frame["value"].item()


def test_papers_worked_example(two_tasks):
    accuracies = metrics.weighted_accuracy(two_tasks)
    assert value(accuracies, task_seen=2, task_tested=1) == pytest.approx(ACC_21)
    assert value(accuracies, task_seen=2, task_tested=2) == pytest.approx(ACC_22)
    assert value(accuracies, task_seen=1) == pytest.approx(0.9)


def test_average_peak_and_backward_transfer_as_printed(two_tasks):
    average = metrics.average_per_task(two_tasks)
    assert value(average, task=1) == pytest.approx(0.9)
    assert value(average, task=2) == pytest.approx((ACC_21 + ACC_22) / 2)
    peak = metrics.peak_per_task(two_tasks)
    assert value(peak, task=1) == pytest.approx(max(0.9, ACC_21))
    assert value(peak, task=2) == pytest.approx(ACC_22)
    transfer = metrics.backward_transfer(two_tasks)
    assert transfer["task"].tolist() == [2]
    assert value(transfer, task=2) == pytest.approx(ACC_21 - 0.9)


def test_backward_transfer_of_three_tasks_is_against_the_task_before(table_of):
    table = table_of(
        [[[0.9]], [[0.8, 0.7]], [[0.6, 0.75, 1.0]]], [[[1.0]], [[0.5, 0.5]], [[0.2, 0.3, 0.5]]]
    )
    transfer = metrics.backward_transfer(table)
    assert value(transfer, task=2) == pytest.approx(-0.1)
    assert value(transfer, task=3) == pytest.approx(((0.6 - 0.8) + (0.75 - 0.7)) / 2)


def test_other_columns(two_tasks):
    halved = metrics.average_per_task(two_tasks, "balanced_accuracy")
    assert value(halved, task=2) == pytest.approx((ACC_21 + ACC_22) / 4)
    assert value(metrics.calibration(two_tasks), task=1) == pytest.approx(0.1)
    with pytest.raises(ValueError, match="no column precision"):
        metrics.average_per_task(two_tasks, "precision")


def test_task_without_weight_counts_equally(table_of):
    table = table_of([[[0.9]], [[0.8, 0.7], [0.6, 0.9]]], [[[1.0]], [[0.0, 1.0], [0.0, 1.0]]])
    accuracies = metrics.weighted_accuracy(table)
    assert value(accuracies, task_seen=2, task_tested=1) == pytest.approx(0.7)


def test_regret_is_the_oracles_lead_for_each_preference(two_tasks, table_of):
    best = table_of([[[1.0]], [[0.9, 0.9], [0.7, 1.0], [1.0, 0.8]]], WEIGHTS, method="oracle")
    regret = metrics.regret(pd.concat([two_tasks, best]))
    leads = [0.5 * 0.1 + 0.5 * 0.2, 0.1 * 0.1 + 0.9 * 0.1, 0.8 * 0.05 + 0.2 * 0.3]
    assert value(regret, method="ibcl", task=2) == pytest.approx(np.mean(leads))
    assert value(regret, method="oracle", task=2) == 0
    with pytest.raises(ValueError, match="Regret needs runs of 'oracle'"):
        metrics.regret(two_tasks)


def test_runs_are_kept_apart(two_tasks, table_of):
    other = table_of([[[0.5]], [[0.5, 0.5]] * 3], WEIGHTS, selection="averaged")
    average = metrics.average_per_task(pd.concat([two_tasks, other]))
    assert value(average, selection="averaged", task=2) == pytest.approx(0.5)
    assert value(average, selection="mean", task=2) == pytest.approx((ACC_21 + ACC_22) / 2)


def seeds_of(table_of, values, **run):
    tables = [table_of([[[v]]], [[[1.0]]], seed=seed, **run) for seed, v in enumerate(values)]
    return metrics.average_per_task(pd.concat(tables))


def test_interval_is_students(table_of):
    found = metrics.over_seeds(seeds_of(table_of, [0.8, 0.9, 1.0]))
    assert found["mean"].item() == pytest.approx(0.9)
    assert found["half_width"].item() == pytest.approx(4.302653 * 0.1 / np.sqrt(3), rel=1e-6)
    assert found["seeds"].item() == 3
    alone = metrics.over_seeds(seeds_of(table_of, [0.8]))
    assert np.isnan(alone["half_width"].item())


def test_paired_difference_of_a_constant_lead_has_no_spread(table_of):
    ours = seeds_of(table_of, [0.6, 0.9, 0.7])
    theirs = seeds_of(table_of, [0.5, 0.8, 0.6], method="gem", memory=50)
    found = metrics.paired_differences(pd.concat([ours, theirs]), "ibcl")
    row = found[found["method"] == "gem"]
    assert row["mean"].item() == pytest.approx(-0.1)
    assert row["half_width"].item() == pytest.approx(0, abs=1e-12)
    with pytest.raises(ValueError, match="no run of 'derpp'"):
        metrics.paired_differences(ours, "derpp")


def test_along_tasks_and_at_the_last(two_tasks):
    average = metrics.average_per_task(two_tasks)
    both = (ACC_21 + ACC_22) / 2
    assert metrics.along_all_tasks(average)["value"].item() == pytest.approx((0.9 + both) / 2)
    assert metrics.at_last_task(average)["value"].item() == pytest.approx(both)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.tuples(st.floats(0, 1), st.floats(0.01, 1)), min_size=n, max_size=n)
    )
)
def test_weighted_accuracy_is_the_weighted_mean(table_of, models):
    accuracies = [[a] for a, _ in models]
    table = table_of([accuracies], [[[w] for _, w in models]])
    found = metrics.weighted_accuracy(table)["value"].item()
    values = [a for a, _ in models]
    assert found == pytest.approx(np.average(values, weights=[w for _, w in models]))
