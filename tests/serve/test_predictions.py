"""The service answers what the library would, for whoever asks, however many ask at once."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from served_bases import TASKS, films, grown, rows

import ibcl
from ibcl.serve import Settings, create_app


def frame_of(given):
    return pd.DataFrame(given)


@pytest.mark.parametrize("weights", [(0.5, 0.5), (1.0, 0.0), (0.013, 0.987), (0.2999, 0.7)])
def test_answers_are_the_librarys(reader, learnt, weights):
    given = rows("sci-fi", 5) + rows("horror", 5)
    preference = dict(zip(TASKS, weights, strict=False))
    answer = reader.post("/v1/predict", json={"rows": given, "preference": preference}).json()
    model = ibcl.load(learnt).model(preference)
    assert np.allclose(answer["probabilities"], model.predict_proba(frame_of(given)), atol=1e-12)
    assert answer["predictions"] == model.predict(frame_of(given)).tolist()
    assert answer["classes"] == ["liked", "not"]
    assert answer["preference"] == dict(model.preference)


@pytest.mark.parametrize("pooling", ["evidence", "wasserstein"])
def test_other_pooling_rules_are_served_as_well(tmp_path, pooling):
    base = grown(tmp_path / "movies.ibcl", 2, pooling)
    given = rows("sci-fi", 4)
    with TestClient(create_app(Settings(base))) as client:
        for weights in ((0.3, 0.7), (1.0, 0.0)):
            preference = dict(zip(TASKS, weights, strict=False))
            body = {"rows": given, "preference": preference}
            answer = client.post("/v1/predict", json=body).json()
            expected = ibcl.load(base).model(preference).predict_proba(frame_of(given))
            assert np.allclose(answer["probabilities"], expected, atol=1e-12)
        refused = client.post("/v1/predict", json={**body, "routing": True})
    assert refused.status_code == 409
    assert "routed" in refused.json()["error"]


def test_regression_comes_in_the_targets_units(tmp_path):
    frame, _ = films("sci-fi", 100)
    target = 100 + 20 * frame["year"]
    schema = ibcl.tabular.Schema.fit(frame, target, regression=True)
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    learner.learn(frame, target, task="sci-fi")
    learner.save(tmp_path / "kb")
    body = {"rows": rows("sci-fi", 3), "preference": {"sci-fi": 1.0}, "bounds": True}
    with TestClient(create_app(Settings(tmp_path / "kb"))) as client:
        answer = client.post("/v1/predict", json={**body, "uncertainty": True}).json()
    model = learner.model({"sci-fi": 1.0})
    assert answer["probabilities"] is None
    assert np.allclose(answer["predictions"], model.predict(frame_of(body["rows"])))
    assert np.allclose(answer["bounds"]["lower"], model.credal_bounds(frame_of(body["rows"])).lower)


def test_details_on_request(reader, learnt):
    given = rows("sci-fi", 3) + rows("horror", 3)
    preference = {"sci-fi": 0.6, "horror": 0.4}
    body = {"rows": given, "preference": preference}
    plain = reader.post("/v1/predict", json=body).json()
    wanted = {"bounds": True, "uncertainty": True, "routing": True}
    answer = reader.post("/v1/predict", json={**body, **wanted}).json()
    assert not {"bounds", "uncertainty", "routing"} & plain.keys()
    lower, upper = (np.array(answer["bounds"][name]) for name in ("lower", "upper"))
    probabilities = np.array(answer["probabilities"])
    assert (lower <= probabilities + 1e-9).all()
    assert (probabilities <= upper + 1e-9).all()
    model = ibcl.load(learnt).model(preference)
    expected = model.routing(frame_of(given))
    shares = [[row[task] for task in TASKS[:2]] for row in answer["routing"]["shares"]]
    assert np.allclose(shares, expected)
    assert np.allclose(answer["routing"]["novelty"], model.novelty(frame_of(given)))
    parts = answer["uncertainty"]
    assert np.allclose(parts["total"], np.add(parts["aleatoric"], parts["epistemic"]))


def test_callers_at_the_same_moment_get_their_own_answers(reader, learnt):
    learner = ibcl.load(learnt)
    generator = np.random.default_rng(0)

    def ask(number: int) -> bool:
        weight = float(generator.random())
        preference = {"sci-fi": weight, "horror": 1 - weight}
        given = rows(TASKS[number % 2], 1 + number % 3, seed=number)
        if number % 5 == 0:
            given = [{"year": 1.0}]
        answer = reader.post("/v1/predict", json={"rows": given, "preference": preference})
        if number % 5 == 0:
            return answer.status_code == 422 and "minutes" in answer.json()["error"]
        expected = learner.model(preference).predict_proba(frame_of(given))
        return np.allclose(answer.json()["probabilities"], expected, atol=1e-12)

    with ThreadPoolExecutor(16) as executor:
        assert all(executor.map(ask, range(80)))


def test_missing_and_unknown_values_are_read_as_the_schema_reads_them(reader, learnt):
    given = [{"year": None, "minutes": 1, "mood": "never seen", "more": "ignored"}]
    body = {"rows": given, "preference": {"sci-fi": 1.0}}
    answer = reader.post("/v1/predict", json=body)
    expected = (
        ibcl.load(learnt)
        .model([1.0, 0.0])
        .predict_proba(pd.DataFrame({"year": [np.nan], "minutes": [1.0], "mood": ["never seen"]}))
    )
    assert np.allclose(answer.json()["probabilities"], expected)
    assert answer.json()["unknown"] == {"mood": 1}
    known = [{"year": 1990, "minutes": 1, "mood": "grim"}, {"year": 1, "minutes": 1, "mood": None}]
    body = {"rows": known, "preference": {"sci-fi": 1.0}}
    assert reader.post("/v1/predict", json=body).json()["unknown"] == {}


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"preference": {"war": 1.0}}, 409, "no task"),
        ({"preference": {"sci-fi": 0.7, "horror": 0.7}}, 422, "sum to 1"),
        ({"preference": {"sci-fi": -0.5, "horror": 1.5}}, 422, "preference"),
        ({"preference": {}}, 422, "preference"),
        ({"rows": []}, 422, "rows"),
        ({"rows": [{"year": "long ago", "minutes": 1, "mood": "grim"}]}, 409, "year"),
        ({"rows": [{"year": 1e300, "minutes": 1, "mood": "grim"}]}, 409, "year"),
        ({"user": "ann"}, 422, "user"),
        ({"version": "00000000"}, 404, "version"),
        ({"colour": "red"}, 422, "colour"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(reader, change, status, said):
    body = {"rows": rows("sci-fi", 1), "preference": {"sci-fi": 1.0}, **change}
    answer = reader.post("/v1/predict", json=body)
    assert answer.status_code == status
    assert set(answer.json()) == {"error"}
    assert said in answer.json()["error"]


def test_an_unknown_user_is_not_found(reader):
    answer = reader.post("/v1/predict", json={"rows": rows("sci-fi", 1), "user": "nobody"})
    assert answer.status_code == 404


def test_a_model_can_be_taken_to_another_runtime(reader, learnt):
    pytest.importorskip("onnxscript", reason="models are exported by the package 'onnxscript'")
    runtime = pytest.importorskip("onnxruntime", reason="nothing here runs ONNX")
    preference = {"sci-fi": 0.25, "horror": 0.75}
    body = {"preference": preference, "format": "onnx"}
    session = runtime.InferenceSession(reader.post("/v1/model", json=body).content)
    frame, _ = films("horror", 6, seed=3)
    learner = ibcl.load(learnt)
    (found,) = session.run(["probabilities"], {"x": learner.encoder.inputs(frame).numpy()})
    expected = learner.model(preference).predict_proba(frame)
    assert np.allclose(found, expected, atol=1e-5)


def test_a_downloaded_model_predicts_the_same(reader, learnt, tmp_path):
    preference = {"sci-fi": 0.25, "horror": 0.75}
    contents = reader.post("/v1/model", json={"preference": preference}).content
    (tmp_path / "model.safetensors").write_bytes(contents)
    frame, _ = films("horror", 6, seed=3)
    expected = ibcl.load(learnt).model(preference).predict_proba(frame)
    loaded = ibcl.load_model(tmp_path / "model.safetensors")
    assert np.array_equal(loaded.predict_proba(frame), expected)


def test_head_is_get_without_the_body(reader):
    """What load balancers and ``curl --head`` ask with."""
    for path in ("/health", "/ready", "/", "/v1/tasks", "/nowhere"):
        whole, head = reader.get(path), reader.head(path)
        assert (head.status_code, head.content) == (whole.status_code, b"")
        assert head.headers["content-length"] == str(len(whole.content))
    assert reader.head("/v1/predict").status_code == 405


def test_an_encoded_body_is_refused_in_a_sentence(reader):
    content = gzip.compress(
        json.dumps({"rows": rows("horror", 1), "preference": {"horror": 1}}).encode()
    )
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = reader.post("/v1/predict", content=content, headers=headers)
    assert answer.status_code == 422
    assert "without encoding" in answer.json()["error"]
