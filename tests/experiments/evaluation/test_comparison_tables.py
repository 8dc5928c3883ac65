"""The summary of runs, and who wins where."""

import pandas as pd
import pytest

from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.comparison_tables import (
    comparison,
    difference_table,
    differences,
    markdown,
    summarise,
)
from ibcl.experiments.evaluation.findings import findings
from ibcl.intervals import interval


def constant(table_of, accuracy, **run):
    return table_of([[[accuracy]], [[accuracy, accuracy]]], [[[1.0]], [[0.4, 0.6]]], **run)


@pytest.fixture
def table(table_of):
    balanced = "balanced_accuracy"
    return pd.concat(
        [
            constant(table_of, 0.9, benchmark="20news"),
            constant(table_of, 0.8, benchmark="20news", method="gem", memory=50),
            constant(table_of, 0.85, benchmark="20news", method="gem", memory=500),
            constant(table_of, 0.95, benchmark="20news", method="oracle"),
            constant(table_of, 0.9, benchmark="faces", metric=balanced),
            constant(table_of, 0.9, benchmark="faces", metric=balanced, selection="test_maximum"),
        ]
    )


def test_winners_leave_out_the_oracle_and_the_optimistic(table):
    found = comparison(summarise(table)).set_index("method")
    assert found["20 Newsgroups"].to_dict() == {
        "IBCL (paper)": "**90.0**",
        "oracle": "95.0",
        "GEM, 50 per task": "80.0",
        "GEM, 500 per task": "85.0",
    }
    # Balanced accuracy, which these tables set to half the accuracy.
    assert found.loc["IBCL (paper)", "faces"] == "**45.0**"
    assert found.loc["GEM, 50 per task", "faces"] == "–"


def test_summary_holds_metrics_and_costs(table):
    rows = summarise(table).query("benchmark == '20news' and method == 'gem' and memory == 50")
    row = rows.iloc[0]
    assert row["average_accuracy"] == pytest.approx(0.8)
    assert row["regret"] == pytest.approx(0.15)
    assert row["backward_transfer"] == pytest.approx(0)
    assert (row["updates"], row["kilobytes"], row["seconds"]) == (100, 1.0, 0.5)


def test_markdown_has_a_line_a_row(table):
    text = markdown(comparison(summarise(table)))
    assert len(text.splitlines()) == 2 + 4


def test_differences_are_taken_seed_by_seed(table_of):
    """Both vary by ten points between seeds, their difference by one: the interval is narrow."""
    ours, theirs = (0.80, 0.90, 0.85), (0.79, 0.88, 0.84)
    runs = [
        constant(table_of, value, seed=seed, method=method)
        for method, values in (("ibcl", ours), ("oracle", theirs))
        for seed, value in enumerate(values)
    ]
    found = differences(pd.concat(runs), "oracle")
    assert found["method"].tolist() == ["ibcl"]
    expected = interval([0.01, 0.02, 0.01])
    assert found["mean"].item() == pytest.approx(expected.mean)
    assert found["half_width"].item() == pytest.approx(expected.half_width)
    shown = difference_table(found).set_index("method")
    assert shown.loc["IBCL (paper)", "toy"] == "+1.3 ± 1.4"


def test_differences_follow_the_benchmarks_metric(table_of):
    balanced = {"benchmark": "faces", "metric": "balanced_accuracy"}
    table = pd.concat(
        [constant(table_of, 0.9, **balanced), constant(table_of, 0.8, method="oracle", **balanced)]
    )
    assert differences(table, "oracle")["mean"].item() == pytest.approx(0.05)
    assert summarise(table).query("method == 'ibcl'")["regret"].item() == pytest.approx(-0.05)
    assert differences(table, "gem").empty


def test_findings_say_who_wins_by_how_much_and_how_sure(table_of):
    def seeds(method, values, **run):
        return [
            constant(table_of, value, seed=seed, method=method, **run)
            for seed, value in enumerate(values)
        ]

    table = pd.concat(
        seeds("ibcl", (0.80, 0.90, 0.85))
        + seeds("gem", (0.78, 0.88, 0.83), memory=50)
        + seeds("oracle", (0.805, 0.895, 0.85))
    )
    (sentence,) = findings(table)
    assert sentence.startswith("toy: IBCL (paper) is best with 85.0 ± ")
    assert "the best of the others, GEM, 50 per task, is 2.0 ± 0.0 points behind" in sentence
    assert "the oracle, which retrains on all data, cannot be told from it" in sentence


def test_an_oracle_of_another_label_is_not_joined(table_of):
    """An ablation's oracle with other tasks must not enter the main runs' regret."""
    best = constant(table_of, 0.95, method="oracle")
    other = constant(table_of, 0.5, method="oracle", label="order=1")
    table = pd.concat([constant(table_of, 0.9), best, other])
    regret = metrics.at_last_task(metrics.regret(table)).set_index(["method", "label"])["value"]
    assert regret["oracle", ""] == 0
    assert regret["oracle", "order=1"] == 0
    assert regret["ibcl", ""] == pytest.approx(0.05)
    values = metrics.at_last_task(metrics.average_per_task(table))
    found = metrics.paired_differences(values, "oracle").set_index(["method", "label"])
    assert found.loc[("ibcl", ""), "mean"] == pytest.approx(-0.05)
    assert found.loc[("ibcl", ""), "seeds"] == 1
