"""The summary of runs, and who wins where."""

import pandas as pd
import pytest

from ibcl.evaluation.summary import comparison, markdown, summarise


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
    assert found["20news"].to_dict() == {
        "IBCL (paper: Wasserstein)": "**90.0**",
        "oracle (all data)": "95.0",
        "GEM, 50 a task": "80.0",
        "GEM, 500 a task": "85.0",
    }
    # Balanced accuracy, which these tables set to half the accuracy.
    assert found.loc["IBCL (paper: Wasserstein)", "faces, balanced accuracy"] == "**45.0**"
    assert found.loc["GEM, 50 a task", "faces, balanced accuracy"] == "–"


def test_summary_holds_metrics_and_costs(table):
    rows = summarise(table).query("benchmark == '20news' and method == 'gem' and memory == 50")
    row = rows.iloc[0]
    assert row["average_accuracy"] == pytest.approx(0.8)
    assert row["regret"] == pytest.approx(0.15)
    assert row["backward_transfer"] == pytest.approx(0)
    assert (row["updates"], row["kilobytes"], row["seconds"]) == (200, 1.0, 1.0)


def test_markdown_has_a_line_a_row(table):
    text = markdown(comparison(summarise(table)))
    assert len(text.splitlines()) == 2 + 4
