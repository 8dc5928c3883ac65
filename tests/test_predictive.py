"""Models as plain modules: they answer the same here, traced, exported and from a file."""

import io
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

import ibcl
from ibcl.tabular import Schema
from kinds import CASES, IDS, KINDS, probes, taught
from theorems import answer

X = probes(24)
WEIGHTS = [0.5, 0.0, 0.5]
every_case = pytest.mark.parametrize(("kind", "rule"), CASES, ids=IDS)
# Every shape a module can have: linear and quadratic gates, several classes, any network, one.
SHAPES = [
    ("binary", "routed"),
    ("different classes", "routed"),
    ("two outputs", "routed by evidence"),
    ("counts", "routed"),
    ("mlp", "routed"),
    ("module", "routed"),
    ("shared classes", "evidence"),
]
every_shape = pytest.mark.parametrize(("kind", "rule"), SHAPES)


def said_by(model: ibcl.Model, outputs: torch.Tensor) -> torch.Tensor:
    return model.likelihood.mean(outputs)


def assert_answers(model: ibcl.Model, outputs: torch.Tensor, x: torch.Tensor = X) -> None:
    found, expected = said_by(model, outputs.detach()), answer(model, x)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@every_case
def test_the_plain_module_answers_the_same(kind, rule):
    for weights in (WEIGHTS, [1.0, 0.0, 0.0]):
        model = taught(kind, rule).model(weights)
        module = model.module()
        assert type(module.forward(X)) is torch.Tensor
        assert_answers(model, module(X))
        assert module(X).dtype == torch.float32


def test_the_module_is_a_copy_that_nothing_else_uses():
    model = taught("binary").model(WEIGHTS)
    before = answer(model, X)
    module = model.module()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        for buffer in module.buffers():
            buffer.zero_()
    assert torch.equal(answer(model, X), before)
    assert_answers(model, model.module()(X))


@every_shape
def test_it_can_be_traced(kind, rule):
    model = taught(kind, rule).model(WEIGHTS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(model.module(), X)
        buffer = io.BytesIO()
        torch.jit.save(traced, buffer)
        buffer.seek(0)
        loaded = torch.jit.load(buffer)
    other = probes(12)
    assert_answers(model, loaded(other), other)


@every_shape
def test_it_can_be_exported(kind, rule):
    model = taught(kind, rule).model(WEIGHTS)
    rows = torch.export.Dim("rows", min=2, max=1000)
    program = torch.export.export(model.module(), (X,), dynamic_shapes=((rows, None),))
    other = probes(12)
    assert_answers(model, program.module()(other), other)


@every_case
def test_a_model_from_a_file_answers_the_same_to_the_last_bit(kind, rule, tmp_path):
    network = KINDS[kind]["network"] if kind == "module" else None
    for weights in (WEIGHTS, [0.0, 0.0, 1.0]):
        model = taught(kind, rule).model(weights)
        model.save(tmp_path / "model.safetensors")
        loaded = ibcl.load_model(tmp_path / "model.safetensors", network=network)
        assert torch.equal(answer(loaded, X), answer(model, X))
        assert torch.equal(loaded.outputs(X), model.outputs(X))
        if rule.startswith("routed"):
            assert torch.equal(loaded.routing(X), model.routing(X))
            assert torch.equal(loaded.novelty(X), model.novelty(X))


def frame(seed: int, number: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(50, 2)) + 3 * number
    kind = np.where(rng.random(50) < 0.5, "old", "new")
    return pd.DataFrame({"length": x[:, 0], "weight": x[:, 1], "kind": kind})


@pytest.mark.parametrize("target", ["classes", "values"])
def test_a_file_reads_tables_as_its_learner_did(target, tmp_path):
    tables = [frame(number, number) for number in range(2)]
    signals = [table["length"] - 3 * k + (table["kind"] == "new") for k, table in enumerate(tables)]
    ys = [np.where(s > 0, "yes", "no") if target == "classes" else 40 + 7 * s for s in signals]
    likelihood = "bernoulli" if target == "classes" else ibcl.Normal(0.3)
    schema = Schema.fit(tables[0], ys[0], regression=target == "values")
    learner = ibcl.IBCL(
        ibcl.networks.linear(schema.width), [1.0], likelihood=likelihood, encoder=schema
    )
    for number, (table, y) in enumerate(zip(tables, ys, strict=True)):
        learner.learn(table, y, task=f"t{number}")
    model = learner.model([0.4, 0.6])
    model.save(tmp_path / "model.safetensors")
    learner.save(tmp_path / "learner")
    fresh = frame(9, 1)
    expected = model.predict(fresh)
    for again in (
        ibcl.load_model(tmp_path / "model.safetensors"),
        ibcl.load(tmp_path / "learner").model([0.4, 0.6]),
    ):
        assert np.array_equal(again.predict(fresh), expected)
        # Columns are found by their names.
        assert np.array_equal(again.predict(fresh[["kind", "weight", "length"]]), expected)
        with pytest.raises(ValueError, match="weight"):
            again.predict(fresh.drop(columns="weight"))
    if target == "classes":
        assert set(expected) <= {"yes", "no"}
    else:
        assert 20 < float(np.mean(expected)) < 60
