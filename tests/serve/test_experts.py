"""A served base whose tasks have experts: everything but files of one model."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient
from served_bases import TASKS, films, rows
from sklearn.tree import DecisionTreeClassifier

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.tabular import Schema

WEIGHTS = {"sci-fi": 0.2, "horror": 0.5, "romance": 0.3}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    pytest.importorskip("skops")
    schema = Schema.fit(*films(TASKS[0], 100))
    learner = ibcl.IBCL(
        ibcl.networks.linear(schema.width),
        expert=DecisionTreeClassifier(max_depth=3),
        encoder=schema,
        calibration=0.2,
    )
    for task in TASKS:
        learner.learn(*films(task, 100), task=task)
    folder = tmp_path_factory.mktemp("base") / "kb"
    learner.save(folder)
    return folder


@pytest.fixture(scope="module")
def client(base, tmp_path_factory):
    settings = Settings(base, data=tmp_path_factory.mktemp("data"))
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


def test_predictions_sets_and_inferred_preferences_are_the_librarys(base, client):
    learner, new = ibcl.load(base), rows("horror", 12)
    frame = films("horror", 12, seed=1)[0]
    body = {"rows": new, "preference": WEIGHTS, "bounds": True, "uncertainty": True, "set": 0.9}
    answer = client.post("/v1/predict", json=body)
    assert answer.status_code == 200, answer.text
    said, model = answer.json(), learner.model(WEIGHTS)
    assert said["predictions"] == model.predict(frame).tolist()
    assert np.allclose(said["probabilities"], model.predict_proba(frame), atol=1e-6)
    inferred = client.post("/v1/infer", json={"rows": new}).json()["preference"]
    assert inferred == pytest.approx(dict(learner.infer_preference(frame)), abs=1e-9)
    assert client.get("/v1/explorer").status_code == 200


def test_one_models_file_is_refused_in_a_sentence(client):
    answer = client.post("/v1/model", json={"preference": WEIGHTS})
    assert answer.status_code == 409, answer.text
    assert "Experts answer for some of these tasks" in answer.json()["error"]
