"""Columns and tasks called by long or odd names, as questionnaires call them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from served_bases import JSON

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.tabular import Schema

QUESTION = f"How satisfied are you with {'very ' * 100}long questions?"
TASKS = ["x" * 300, "é" * 100, "../../etc/passwd", "constructor", "__proto__", "a\"b'<i>&"]


def answers(count: int, seed: int = 0) -> tuple[pd.DataFrame, list[str]]:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {QUESTION: generator.normal(size=count), "b": generator.normal(size=count)}
    )
    return frame, ["yes" if value > 0 else "no" for value in frame[QUESTION]]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    frame, labels = answers(60)
    schema = Schema.fit(frame, labels)
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    for shift, task in enumerate(TASKS):
        learner.learn(frame + shift, labels, task=task)
    folder = tmp_path_factory.mktemp("names") / "survey.ibcl"
    learner.save(folder)
    return folder


@pytest.mark.parametrize("task", TASKS, ids=range(len(TASKS)))
def test_every_task_is_answered_stored_and_measured(base, tmp_path, task):
    frame, labels = answers(20, seed=1)
    table = tmp_path / "rows.csv"
    frame.assign(verdict=labels).to_csv(table, index=False)
    settings = Settings(base, data=tmp_path / "data", validation={task: table}, label="verdict")
    with TestClient(create_app(settings), headers=JSON) as client:
        whole = dict.fromkeys(TASKS, 0.0) | {task: 1.0}
        asked = {"rows": frame.to_dict("records"), "preference": {task: 1.0}}
        found = client.post("/v1/predict", json=asked).json()["probabilities"]
        expected = ibcl.load(base).model(whole).predict_proba(frame)
        assert np.allclose(found, expected, atol=1e-6)
        assert client.put("/v1/users/ann/preference", json={task: 1.0}).status_code == 200
        measured = client.post("/v1/explorer/measure", json={"preference": {task: 1.0}}).json()
        assert list(measured["scores"]) == [task]


def test_what_is_wrong_is_said_also_of_a_long_name(base, tmp_path):
    asked = {"rows": [{QUESTION: [], "b": 1.0}], "preference": {TASKS[0]: 1.0}}
    with TestClient(create_app(Settings(base, data=tmp_path)), headers=JSON) as client:
        answer = client.post("/v1/predict", json=asked)
    assert answer.status_code == 422
    assert "should be a number" in answer.json()["error"]
