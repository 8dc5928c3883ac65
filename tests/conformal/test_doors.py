"""Sets through the estimators, the command line, the card and exported files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.conformal import held_out


def frame_of(n: int, seed: int) -> tuple[pd.DataFrame, NDArray[Any], NDArray[Any]]:
    """A table with a number, a category, and labels that are noisy."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": rng.normal(size=n), "town": rng.choice(["Oslo", "Rome"], size=n)})
    value = frame["size"].to_numpy() + (frame["town"] == "Rome").to_numpy() + rng.normal(size=n)
    return frame, np.where(value > 0.5, "yes", "no"), value


@pytest.mark.parametrize("rows", ["kept", "scores"])
def test_estimators_scale_by_rows_that_are_learnt_from_alone(rows: str) -> None:
    """What is held out may be anything, also a category that nobody has seen."""
    frame, labels, values = frame_of(200, 0)
    held = held_out(200, 0.25, seed=0)[1]
    other = frame.copy()
    other.loc[held, "size"] = 1e6
    other.loc[held, "town"] = "Ys"
    for kind, y in ((ibcl.IBCLClassifier, labels), (ibcl.IBCLRegressor, values)):
        one, two = (
            kind(width=16, calibration=0.25, calibration_rows=rows).fit(x, y)
            for x in (frame, other)
        )
        assert one.schema_ == two.schema_
        np.testing.assert_array_equal(one.predict(frame[:20]), two.predict(frame[:20]))


@pytest.mark.parametrize("rows", ["kept", "scores"])
def test_estimators_have_sets_and_intervals_in_the_users_units(rows: str) -> None:
    frame, labels, values = frame_of(600, 0)
    fresh, fresh_labels, fresh_values = frame_of(800, 1)
    settings: dict[str, Any] = {"width": 16, "calibration": 0.3, "calibration_rows": rows}
    classifier = ibcl.IBCLClassifier(**settings).fit(frame, labels)
    members = classifier.predict_set(fresh, alpha=0.1)
    places = np.searchsorted(classifier.classes_, fresh_labels)
    assert members[np.arange(800), places].mean() > 0.85
    regressor = ibcl.IBCLRegressor(**settings).fit(frame, 1000 + 50 * values)
    ends = regressor.predict_interval(fresh, alpha=0.1)
    truth = 1000 + 50 * fresh_values
    assert ((ends[:, 0] <= truth) & (truth <= ends[:, 1])).mean() > 0.85
    assert 50 < np.nanmean(np.diff(ends)) < 400


@pytest.mark.parametrize("rows", ["kept", "scores"])
def test_the_command_line_adds_sets(rows: str, tmp_path: Path) -> None:
    runner = CliRunner()
    frame, labels, values = frame_of(300, 0)
    frame.assign(answer=labels).to_csv(tmp_path / "north.csv", index=False)
    frame.assign(answer=values).to_csv(tmp_path / "values.csv", index=False)
    frame[:30].to_csv(tmp_path / "new.csv", index=False)
    asked = ["--calibration", "100", "--calibration-rows", rows, "--width", "16", "--json"]

    def run(*arguments: Any) -> Any:
        result = runner.invoke(app, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    base = tmp_path / "base"
    run("learn", base, tmp_path / "north.csv", "--label", "answer", *asked)
    wanted = ["--preference", "north", "--sets", "0.9", "--json"]
    for row in run("predict", base, tmp_path / "new.csv", *wanted)["predictions"]:
        held = [name for name in ("no", "yes") if row[f"in_set_{name}"]]
        assert row["set"] == (" or ".join(held) or "like nothing that was learnt")
    learner = ibcl.load(base)
    assert learner.given.calibration_rows == rows
    base = tmp_path / "values"
    run("learn", base, tmp_path / "values.csv", "--label", "answer", "--regression", *asked)
    wanted[1] = "values"
    for row in run("predict", base, tmp_path / "new.csv", *wanted)["predictions"]:
        assert row["set_lower"] < row["prediction"] < row["set_upper"]


@pytest.mark.parametrize(
    ("rows", "said"), [("kept", "60 rows, half precision"), ("scores", "60 scores, no row")]
)
def test_the_card_says_what_is_kept(rows: str, said: str) -> None:
    frame, labels, _ = frame_of(200, 0)
    classifier = ibcl.IBCLClassifier(width=16, calibration=60, calibration_rows=rows)
    assert said in classifier.fit(frame, labels).learner_.card()
    assert "| – |" in ibcl.IBCLClassifier(width=16).fit(frame, labels).learner_.card()


def test_an_exported_graph_tells_the_thresholds_of_its_preference(tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    frame, labels, _ = frame_of(200, 0)
    classifier = ibcl.IBCLClassifier("linear", calibration=60).fit(frame, labels, task="north")
    model = classifier.learner_.model("north")
    model.export(tmp_path / "model.onnx")
    kept = {p.key: p.value for p in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(kept["thresholds"]) == {str(a): model.threshold(a) for a in (0.05, 0.1, 0.2)}
