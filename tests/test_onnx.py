"""An ONNX file answers as the model it was made from, for any number of rows."""

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import ibcl
from kinds import probes, taught

onnx = pytest.importorskip("onnx", reason="ONNX files are read by the package 'onnx'")
pytest.importorskip("onnxscript", reason="torch exports to ONNX with onnxscript")
runtime = pytest.importorskip("onnxruntime", reason="nothing here runs ONNX")

X = probes(24)
INNER, VERTEX = [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]


def session(path):
    return runtime.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata(path):
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def assert_same(path, rows, expected):
    """The file answers many rows, one row, and none."""
    opened = session(path)
    for count in (len(rows), 1, 0):
        _, found = opened.run(None, {"x": rows[:count]})
        wanted = np.asarray(expected[:count], dtype=np.float64).reshape(count, found.shape[1])
        np.testing.assert_allclose(found, wanted, rtol=5e-4, atol=5e-4)


@pytest.mark.parametrize(
    ("kind", "rule", "weights"),
    [
        ("random features", "routed", INNER),
        ("different classes", "routed", VERTEX),
        ("different classes", "routed by preference", INNER),
        ("mlp", "mixture", INNER),
        ("shared classes", "evidence", INNER),
        ("two outputs", "routed by evidence", INNER),
        ("counts", "routed1", INNER),
    ],
)
def test_every_kind_answers_the_same(kind, rule, weights, tmp_path):
    model = taught(kind, rule).model(weights)
    path = tmp_path / "model.onnx"
    model.export(path)
    classes = model.likelihood.classification
    assert session(path).get_outputs()[1].name == ("probabilities" if classes else "values")
    assert_same(path, X.numpy(), model.predict_proba(X) if classes else model.predict(X))
    assert json.loads(metadata(path)["preference"]) == dict(model.preference)


def table(seed=0, rows=120):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 3)) * [1.0, 100.0, 1e5] + [0.0, 5.0, 1.7e9]
    x[::7, 1] = np.nan
    return x


def test_a_table_of_numbers_goes_in_as_it_is(tmp_path):
    x = table()
    signal = x[:, 0] + np.nan_to_num(x[:, 1] - 5) / 100
    regressor = ibcl.IBCLRegressor(width=16)
    regressor.partial_fit(x, 2020 + signal, task="a").partial_fit(x, 1990 - signal, task="b")
    path = tmp_path / "model.onnx"
    regressor.learner_.model([0.4, 0.6]).export(path)
    fresh = table(seed=1)
    expected = regressor.predict(fresh, preference=[0.4, 0.6])
    _, found = session(path).run(None, {"x": fresh})
    # In the target's units, of which single precision would have kept four decimals.
    np.testing.assert_allclose(found[:, 0], expected, rtol=0, atol=1e-3)
    assert "NaN where missing" in metadata(path)["input"]


def test_a_table_of_words_goes_in_encoded_and_the_file_says_as_what(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=80), "town": rng.choice(["Rome", "Oslo"], 80)})
    y = np.where(frame["age"] + (frame["town"] == "Rome") > 0.5, "yes", "no")
    classifier = ibcl.IBCLClassifier("linear").fit(frame, y)
    model = classifier.learner_.model([1.0])
    path = tmp_path / "model.onnx"
    model.export(path)
    known = metadata(path)
    assert "model.encoder.inputs(frame)" in known["input"]
    assert json.loads(known["inputs"]) == ["age", "town=Oslo", "town=Rome"]
    assert json.loads(known["classes"]) == ["no", "yes"]
    assert_same(path, model.encoder.inputs(frame).numpy(), classifier.predict_proba(frame))


@pytest.mark.parametrize("told", ["by the backbone", "by an example"])
def test_a_frozen_backbone_goes_along_when_something_says_what_it_takes(told, tmp_path):
    images = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    convolutions = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3))
    known = {"example": images} if told == "by the backbone" else {"features": 7}
    network = ibcl.networks.with_backbone(convolutions, layers=["1", "2"], **known)
    learner = ibcl.IBCL(network)
    learner.learn(images, images.mean((1, 2, 3)) > 0, task="a")
    learner.learn(images + 1, images[:, 0, 0, 0] > 0, task="b")
    model = learner.model([0.5, 0.5])
    if told == "by the backbone":
        model.export(tmp_path / "model.onnx")
    else:
        with pytest.raises(ValueError, match="give a few rows as example="):
            model.export(tmp_path / "model.onnx")
        model.export(tmp_path / "model.onnx", example=images[:1])
    assert_same(tmp_path / "model.onnx", images.numpy(), model.predict_proba(images))


def test_a_network_that_is_told_the_task_answers_for_one(tmp_path):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    learner = ibcl.IBCL(ibcl.networks.linear(4), [1.0], task_incremental=2, pooling="evidence")
    learner.learn(x, x[:, 0] > 0, task="a")
    learner.learn(x, x[:, 1] > 0, task="b")
    model = learner.model([0.5, 0.5])
    with pytest.raises(ValueError, match="say which task"):
        model.export(tmp_path / "model.onnx")
    model.export(tmp_path / "model.onnx", task="b")
    assert_same(tmp_path / "model.onnx", x.numpy(), model.predict_proba(x, task="b"))


class FixedRows(nn.Module):
    """Somebody's module that asks for the number of rows as a Python number."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(torch.cat([x, torch.zeros(len(x), 1)], 1))


def test_a_module_for_one_number_of_rows_is_refused(tmp_path):
    quick = ibcl.MeanFieldVI(epochs=1)
    learner = ibcl.IBCL(FixedRows(), [1.0], quick, "wasserstein")
    learner.learn(X, X[:, 0] > 0, task="a")
    with pytest.raises(ValueError, match=r"any number of rows.*x\.shape\[0\]"):
        learner.model([1.0]).export(tmp_path / "model.onnx", example=X)
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_there_is_kept_where_asked(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"mine")
    with pytest.raises(ibcl.StoreError, match="exists already"):
        taught("binary", "evidence").model(VERTEX).export(path, overwrite=False)
    assert path.read_bytes() == b"mine"


def test_trees_are_refused_in_one_sentence(tmp_path):
    pytest.importorskip("skops", reason="experts are stored with skops")
    from sklearn.tree import DecisionTreeClassifier

    x = table()[:, :1]
    classifier = ibcl.IBCLClassifier(expert=DecisionTreeClassifier()).fit(x, x[:, 0] > 0)
    with pytest.raises(ValueError, match="without an expert"):
        classifier.learner_.model([1.0]).export(tmp_path / "model.onnx")


def test_the_missing_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "ibcl.onnx.find_spec", lambda name: None if name == "onnxscript" else find_spec(name)
    )
    with pytest.raises(ImportError, match=r"pip install 'ibcl\[onnx\]'"):
        taught("binary", "evidence").model(VERTEX).export(tmp_path / "model.onnx")


def test_the_command_line_writes_one(tmp_path):
    from typer.testing import CliRunner

    from ibcl.cli import app

    learner = taught("binary", "evidence")
    learner.save(tmp_path / "base")
    path = tmp_path / "model.onnx"
    words = ["generate", str(tmp_path / "base"), "--preference", "a=0.2,b=0.3,c=0.5"]
    assert CliRunner().invoke(app, [*words, "--output", str(path)]).exit_code == 0
    assert_same(path, X.numpy(), learner.model(INNER).predict_proba(X))


def test_a_file_of_another_kind_is_not_written_under_its_name(tmp_path):
    with pytest.raises(ValueError, match=r"ONNX files are made by export\(\)"):
        taught("binary", "evidence").model(VERTEX).save(tmp_path / "model.ONNX")
    assert not list(tmp_path.iterdir())
