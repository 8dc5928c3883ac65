"""MLflow logs, loads and serves learners, and a request brings its own preference."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import ibcl
from ibcl.networks import with_backbone

pytest.importorskip("mlflow", reason="the extra 'mlflow' is not installed")
import mlflow

PREFERENCE = {"sci-fi": 0.8, "horror": 0.2}


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    town = rng.choice(["Rome", "Oslo"], 120)
    # Whole numbers, which MLflow would not take for numbers.
    return pd.DataFrame({"age": rng.integers(18, 80, 120), "rate": rng.normal(size=120), "t": town})


@pytest.fixture(scope="module")
def classifier(frame):
    made = ibcl.IBCLClassifier("linear")
    made.partial_fit(frame, np.where(frame["age"] > 40, "yes", "no"), task="sci-fi")
    return made.partial_fit(frame, np.where(frame["rate"] > 0, "yes", "no"), task="horror")


@pytest.fixture(scope="module")
def saved(classifier, tmp_path_factory):
    path = tmp_path_factory.mktemp("mlflow") / "model"
    ibcl.mlflow.save_model(classifier, path)
    return str(path)


def test_every_request_has_its_own_preference(saved, classifier, frame):
    loaded = mlflow.pyfunc.load_model(saved)
    for preference in (PREFERENCE, {"sci-fi": 0, "horror": 1}):
        found = loaded.predict(frame, params={"preference": preference})
        chances = classifier.predict_proba(frame, preference=preference)
        assert list(found["prediction"]) == list(classifier.predict(frame, preference=preference))
        assert np.array_equal(found[["probability of no", "probability of yes"]], chances)
    # All tasks alike without one.
    expected = classifier.predict_proba(frame)
    assert np.array_equal(loaded.predict(frame).iloc[:, 1:], expected)


def test_what_is_no_preference_or_no_such_table_is_refused(saved, frame):
    loaded = mlflow.pyfunc.load_model(saved)
    with pytest.raises(mlflow.MlflowException, match="Missing required properties"):
        loaded.predict(frame, params={"preference": {"sci-fi": 1.0}})
    with pytest.raises(ValueError, match="sum to"):
        loaded.predict(frame, params={"preference": {"sci-fi": 1.0, "horror": 1.0}})
    with pytest.raises(mlflow.MlflowException, match="missing inputs"):
        loaded.predict(frame.drop(columns="rate"))


def test_it_is_served_by_mlflows_own_server(saved, classifier, frame):
    testing = pytest.importorskip("fastapi.testclient", reason="MLflow's server needs fastapi")
    from mlflow.pyfunc import scoring_server

    rows = frame.head(3)
    body = {"dataframe_split": rows.to_dict(orient="split"), "params": {"preference": PREFERENCE}}
    with testing.TestClient(scoring_server.init(mlflow.pyfunc.load_model(saved))) as client:
        answer = client.post("/invocations", json=body)
        assert answer.status_code == 200
        body["params"]["preference"] = {"sci-fi": 3.0, "horror": 0.0}
        assert client.post("/invocations", json=body).status_code == 400
    expected = classifier.predict_proba(rows, preference=PREFERENCE)
    found = pd.DataFrame(answer.json()["predictions"])
    assert np.allclose(found["probability of yes"], expected[:, 1])


def test_it_is_logged_and_loaded_as_it_was(classifier, frame, tmp_path, monkeypatch):
    pytest.importorskip("sqlalchemy", reason="MLflow keeps runs in a database by sqlalchemy")
    monkeypatch.chdir(tmp_path)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    try:
        with mlflow.start_run():
            info = ibcl.mlflow.log_model(classifier, name="movies", input_example=frame.head(2))
        loaded = ibcl.mlflow.load_model(info.model_uri)
    finally:
        mlflow.set_tracking_uri(before)
    assert info.signature.inputs.input_names() == ["age", "rate", "t"]
    assert [spec.name for spec in info.signature.params] == ["preference"]
    expected = classifier.predict_proba(frame, preference=PREFERENCE)
    assert np.array_equal(loaded.model(PREFERENCE).predict_proba(frame), expected)


@pytest.mark.parametrize("rows", [np.asarray, np.ndarray.tolist, pd.DataFrame, np.float64])
def test_arrays_and_single_models_are_served_too(rows, tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
    learner = ibcl.IBCL(ibcl.networks.linear(2, 2), [1.0], likelihood=ibcl.Normal(0.5))
    learner.learn(x, 2 * x, task="a")
    model = learner.model([1.0])
    ibcl.mlflow.save_model(model, tmp_path / "model")
    found = mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(rows(x))
    assert list(found.columns) == ["prediction 1", "prediction 2"]
    assert np.allclose(found, model.predict(x))
    assert mlflow.models.get_model_info(str(tmp_path / "model")).signature.params is None


def test_nothing_is_pickled(saved):

    kinds = {path.suffix or path.name for path in Path(saved).rglob("*") if path.is_file()}
    assert kinds <= {".safetensors", ".json", ".md", ".txt", ".yaml", "MLmodel", ".lock"}


def test_what_could_not_be_loaded_again_is_not_logged(tmp_path):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    learner = ibcl.IBCL(nn.Sequential(nn.Linear(2, 1)), [1.0], ibcl.MeanFieldVI(epochs=1))
    with pytest.raises(ValueError, match="learnt no task yet"):
        ibcl.mlflow.save_model(learner, tmp_path / "model")
    learner.learn(x, x[:, 0] > 0, task="a")
    with pytest.raises(ValueError, match="could not build this network again"):
        ibcl.mlflow.save_model(learner, tmp_path / "model")
    with pytest.raises(ValueError, match="not dict"):
        ibcl.mlflow.save_model({}, tmp_path / "model")


@pytest.mark.parametrize("kind", ["heads", "adapters"])
def test_a_base_model_of_transformers_goes_with_what_was_learnt_on_it(kind, tmp_path):
    transformers = pytest.importorskip("transformers")
    testing = pytest.importorskip("fastapi.testclient", reason="MLflow's server needs fastapi")
    from mlflow.pyfunc import scoring_server

    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    expert = None
    if kind == "adapters":
        pytest.importorskip("peft")
        expert = ibcl.adapters.LoRA(2, epochs=1)
    base = transformers.BertModel(config)
    learner = ibcl.IBCL(base, expert=expert) if expert else ibcl.IBCL(with_backbone(base))
    ids = np.random.default_rng(0).integers(1, 30, (40, 6))
    tokens = ibcl.networks.token_ids({"input_ids": ids})
    for number, name in enumerate(PREFERENCE):
        learner.learn(tokens, ids[:, number] > 15, task=name)
    ibcl.mlflow.save_model(learner, tmp_path / "model")
    loaded = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    expected = learner.model(PREFERENCE).predict_proba(tokens)[:, 1]
    for rows in (tokens, {"input_ids": ids}, {"input_ids": ids, "attention_mask": ids > 0}):
        found = loaded.predict(rows, params={"preference": PREFERENCE})
        assert np.allclose(found["probability of 1"], expected, atol=1e-6)
    body = {"inputs": {"input_ids": ids.tolist()}, "params": {"preference": PREFERENCE}}
    with testing.TestClient(scoring_server.init(loaded)) as client:
        answer = client.post("/invocations", json=body)
    assert answer.status_code == 200, answer.text
    served = pd.DataFrame(answer.json()["predictions"])
    assert np.allclose(served["probability of 1"], expected, atol=1e-6)
    test_nothing_is_pickled(tmp_path / "model")
