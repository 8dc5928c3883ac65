"""The service on what the defaults make: bases of ``ibcl learn`` and of the estimators."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.serve import Settings, create_app

TASKS = ("sea", "hills", "town")
CENTRES = np.array([[2.0, 0.0], [-2.0, 1.0], [0.0, -2.0]])


def table(task: int, count: int = 60, seed: int = 0) -> pd.DataFrame:
    """Rows of a task around a centre of its own, with a category."""
    generator = np.random.default_rng([seed, task])
    offset = generator.normal(size=(count, 2))
    frame = pd.DataFrame(offset + CENTRES[task], columns=["wind", "heat"])
    return frame.assign(sky=generator.choice(["clear", "grey"], count))


def signal(task: int, frame: pd.DataFrame) -> np.ndarray:
    offset = frame[["wind", "heat"]].to_numpy() - CENTRES[task]
    return offset[:, task % 2] - 0.5 * offset[:, (task + 1) % 2] + (frame["sky"] == "clear")


def verdicts(kind: str, task: int, frame: pd.DataFrame) -> np.ndarray:
    values = signal(task, frame)
    if kind == "two classes":
        return np.where(values > 0.5, "good", "bad")
    if kind == "three classes":
        return np.array(["bad", "fair", "good"])[np.digitize(values, [0.0, 1.0])]
    generator = np.random.default_rng(task)
    if kind == "values":
        return 20 + 3 * np.asarray(values) + generator.normal(size=len(frame))
    assert kind == "counts"
    return generator.poisson(np.exp(0.4 * np.asarray(values)))


KINDS = ("two classes", "three classes", "values", "counts")
OPTIONS = {
    "values": ["--regression"],
    "counts": ["--regression", "--likelihood", "poisson"],
}


def by_command_line(kind: str, folder: Path) -> Path:
    for number, name in enumerate(TASKS):
        frame = table(number)
        path = folder / f"{name}.csv"
        frame.assign(verdict=verdicts(kind, number, frame)).to_csv(path, index=False)
        options = OPTIONS.get(kind, []) if number == 0 else []
        words = ["learn", str(folder / "kb"), str(path), "--label", "verdict", *options]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, result.output
    return folder / "kb"


def by_estimator(kind: str, folder: Path) -> Path:
    if kind in ("two classes", "three classes"):
        estimator: Any = ibcl.IBCLClassifier()
    else:
        chosen = {"likelihood": "poisson"} if kind == "counts" else {}
        estimator = ibcl.IBCLRegressor(**chosen)
    for number, name in enumerate(TASKS):
        frame = table(number)
        estimator.partial_fit(frame, verdicts(kind, number, frame), task=name)
    estimator.learner_.save(folder / "kb")
    return folder / "kb"


class Case(NamedTuple):
    kind: str
    learner: ibcl.IBCL
    """Of the base, for tests that change nothing."""
    client: TestClient


@pytest.fixture(
    scope="module",
    params=[(kind, make) for kind in KINDS for make in (by_command_line, by_estimator)],
    ids=lambda pair: f"{pair[0]} {pair[1].__name__}",
)
def case(request, tmp_path_factory) -> Iterator[Case]:
    kind, make = request.param
    base = make(kind, tmp_path_factory.mktemp("base"))
    settings = Settings(base, data=tmp_path_factory.mktemp("data"), forgetting=1.0)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield Case(kind, ibcl.load(base), client)


def examples(kind: str, task: int, count: int = 12) -> tuple[pd.DataFrame, list[Any]]:
    frame = table(task, count, seed=7)
    return frame, np.asarray(verdicts(kind, task, frame)).tolist()


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("path", ["/v1/infer", "/v1/users/ann/infer"])
def test_library_and_service_infer_the_same(case: Case, path, labelled):
    learner = case.learner
    assert learner.network.specification["kind"] == "random_features"
    for number, name in enumerate(TASKS):
        frame, labels = examples(case.kind, number)
        body: dict[str, Any] = {"rows": frame.to_dict("records")}
        if labelled:
            body["labels"] = labels
        if "users" in path:
            body["restart"] = True
        answer = case.client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        said = answer.json()
        expected = learner.infer_preference(frame, labels if labelled else None)
        assert said["preference"] == pytest.approx(dict(expected), abs=1e-9)
        assert said["std"] == pytest.approx(expected.std, abs=1e-9)
        assert said["examples"] == len(frame)
        assert max(said["preference"], key=said["preference"].__getitem__) == name


def test_examples_of_two_tasks_share_the_weight(case: Case):
    both = pd.concat([table(0, 30, seed=8), table(2, 10, seed=8)])
    said = case.client.post("/v1/infer", json={"rows": both.to_dict("records")}).json()
    found = [said["preference"][name] for name in TASKS]
    assert found == pytest.approx([0.75, 0.0, 0.25], abs=0.15)


def test_predictions_with_everything_are_the_librarys(case: Case):
    frame = pd.concat([table(number, 4, seed=9) for number in range(3)], ignore_index=True)
    weights = {"sea": 0.2, "hills": 0.5, "town": 0.3}
    details = {"bounds": True, "uncertainty": True, "routing": True}
    body = {"rows": frame.to_dict("records"), "preference": weights, **details}
    answer = case.client.post("/v1/predict", json=body)
    assert answer.status_code == 200, answer.text
    said = answer.json()
    model = case.learner.model(weights)
    if said["probabilities"] is None:
        np.testing.assert_allclose(said["predictions"], model.predict(frame), rtol=1e-6)
    else:
        assert said["predictions"] == model.predict(frame).tolist()
        np.testing.assert_allclose(said["probabilities"], model.predict_proba(frame), atol=1e-6)
    lower, upper = (np.asarray(b).reshape(len(frame), -1) for b in model.credal_bounds(frame))
    np.testing.assert_allclose(said["bounds"]["lower"], lower, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(said["bounds"]["upper"], upper, rtol=1e-5, atol=1e-7)
    parts = model.uncertainty(frame)._asdict()
    for name, values in parts.items():
        np.testing.assert_allclose(said["uncertainty"][name], values, rtol=1e-5, atol=1e-7)
    shares = [[row[name] for name in TASKS] for row in said["routing"]["shares"]]
    np.testing.assert_allclose(shares, model.routing(frame), atol=1e-6)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("x" * 10_001, "String should have at most 10000 characters"),
        ([1], "Input should be a number, a text, true or false"),
        ({"a": 1}, "Input should be a number, a text, true or false"),
    ],
)
def test_what_is_wrong_with_a_value_is_said_of_its_kind(case: Case, value, words):
    row = table(0, 1).to_dict("records")[0] | {"sky": value}
    for path, more in (("predict", {"preference": {"sea": 1.0}}), ("infer", {})):
        answer = case.client.post(f"/v1/{path}", json={"rows": [row], **more})
        assert answer.json() == {"error": f"body.rows.0.sky: {words}."}
