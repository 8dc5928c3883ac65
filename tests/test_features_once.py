"""φ(x) is computed once per question and in blocks, whatever is asked and of whatever network."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn

import ibcl
from ibcl import networks
from ibcl.inference import MeanFieldVI
from kinds import INPUTS, inputs, labels

ROWS, BLOCK, FEATURES = 30, 8, 5
calls: list[int] = []
"""Rows of every pass through the backbone; a copy of the backbone writes here too."""


class Backbone(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(INPUTS, FEATURES)
        with torch.no_grad():
            for value in self.parameters():
                value.copy_(torch.randn(value.shape, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        calls.append(len(x))
        return torch.tanh(self.layer(x))


def linear_head() -> nn.Module:
    return networks.with_backbone(Backbone(), FEATURES)


def network_head() -> nn.Module:
    layers = [nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 1)]
    return nn.Sequential(networks.FrozenBackbone(Backbone()), *layers)


HEADS: dict[str, dict[str, Any]] = {
    "linear head": {"network": linear_head},
    "network": {
        "network": network_head,
        "priors": [1.0],
        "inference": MeanFieldVI(epochs=3, batch_size=16),
    },
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(networks, "_FEATURE_ROWS", BLOCK)
    monkeypatch.setattr(networks.FrozenBackbone, "rows_at_once", BLOCK)
    calls.clear()
    yield
    calls.clear()


def task(number: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x = inputs(number, ROWS, seed)
    return x, labels("binary", number, x, seed)


def make(head: str, pooling: str = "routed") -> ibcl.IBCL:
    settings = dict(HEADS[head])
    return ibcl.IBCL(settings.pop("network")(), pooling=pooling, independent=True, **settings)


def taught(head: str, pooling: str = "routed") -> ibcl.IBCL:
    learner = make(head, pooling)
    for number, name in enumerate("ab"):
        learner.learn(*task(number), task=name)
    calls.clear()
    return learner


def assert_once(rows: int, times: int = 1) -> None:
    """Every row went through the backbone so many times, never more than a block at once."""
    assert sum(calls) == times * rows
    assert len(calls) == times * -(-rows // BLOCK)
    assert max(calls) <= BLOCK
    calls.clear()


QUESTIONS: dict[str, Callable[[ibcl.Model, Tensor], object]] = {
    "predict": lambda model, x: model.predict(x),
    "predict_proba": lambda model, x: model.predict_proba(x),
    "outputs": lambda model, x: model.outputs(x),
    "samples": lambda model, x: model.predict_proba(x, samples=16),
    "outputs of samples": lambda model, x: model.outputs(x, samples=16),
    "uncertainty": lambda model, x: model.uncertainty(x),
    "bounds": lambda model, x: model.credal_bounds(x),
    "bounds of samples": lambda model, x: model.credal_bounds(x, samples=4),
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("pooling", ["routed", "wasserstein", "mixture"])
@pytest.mark.parametrize("head", HEADS)
def test_a_question_runs_the_backbone_once(head, pooling, question):
    model = taught(head, pooling).model([0.3, 0.7])
    calls.clear()
    QUESTIONS[question](model, task(0)[0])
    assert_once(ROWS)


@pytest.mark.parametrize("head", HEADS)
def test_routes_need_it_once_too(head):
    model = taught(head).model([0.3, 0.7])
    for ask in (model.routing, model.novelty, model.module()):
        with torch.no_grad():
            ask(task(0)[0])
        assert sum(calls) == ROWS
        calls.clear()


@pytest.mark.parametrize("head", HEADS)
def test_several_questions_about_the_same_rows_share_them(head):
    model = taught(head).model([0.3, 0.7])
    rows = model.features(task(0)[0])
    assert_once(ROWS)
    for ask in QUESTIONS.values():
        ask(model, rows)
    assert not calls


@pytest.mark.parametrize("pooling", ["routed", "wasserstein", "mixture"])
@pytest.mark.parametrize("head", HEADS)
def test_many_preferences_and_inference_need_it_once(head, pooling):
    learner = taught(head, pooling)
    x, y = task(0)
    learner.predict_many(x, ibcl.sample_preferences(2, 20))
    assert_once(ROWS)
    if pooling == "routed":
        learner.infer_preference(x)
        assert_once(ROWS)
        learner.infer_preference(x, y)
        assert_once(ROWS)


@pytest.mark.parametrize("pooling", ["routed", "wasserstein"])
@pytest.mark.parametrize("head", HEADS)
def test_learning_runs_it_once_a_row(head, pooling):
    """The first task settles what is open, and later ones do not; both in blocks."""
    learner = make(head, pooling)
    for number, name in enumerate("abc"):
        learner.learn(*task(number), task=name)
        assert_once(ROWS)
    learner.extend(*task(0, seed=1), task="a")
    assert_once(ROWS)
    learner.replace(*task(1, seed=1), task="b")
    assert_once(ROWS)
    learner.learn(*task(0, seed=2), task="d", validation=task(0, seed=3))
    assert_once(ROWS, times=2)


def test_what_it_answers_is_what_its_layers_would():
    """The backbone by hand, then the head by hand."""
    model = taught("linear head", "wasserstein").model([1.0, 0.0])
    x = task(0)[0].double()
    layer = Backbone().layer.double()
    phi = torch.tanh(layer(x))
    theta = model.theta.double()
    expected = torch.sigmoid(phi @ theta[:FEATURES] + theta[FEATURES])
    torch.testing.assert_close(
        model.predict_proba(x.float())[:, 1].double(), expected, rtol=1e-5, atol=1e-6
    )


@pytest.fixture
def featurised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every pass through the random features that the defaults put before a head."""
    seen: list[int] = []
    forward = networks.RandomReLUFeatures.forward

    def counted(self: networks.RandomReLUFeatures, x: Tensor) -> Tensor:
        seen.append(len(x))
        return forward(self, x)

    monkeypatch.setattr(networks.RandomReLUFeatures, "forward", counted)
    monkeypatch.setattr(networks, "_FEATURE_ROWS", 4096)
    return seen


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows of every table that was encoded."""
    from ibcl.tabular import Schema

    seen: list[int] = []
    encode = Schema.inputs

    def counted(self: Schema, table: Any) -> Tensor:
        seen.append(len(table))
        return encode(self, table)

    monkeypatch.setattr(Schema, "inputs", counted)
    return seen


def frame() -> tuple[pd.DataFrame, list[str]]:
    x, y = task(0)
    table = pd.DataFrame(x.numpy(), columns=["a", "b", "c"])
    return table, np.where(y.numpy() > 0, "yes", "no").tolist()


def test_the_command_line_encodes_and_featurises_once(
    tmp_path, monkeypatch, featurised: list[int], encoded: list[int]
):
    from typer.testing import CliRunner

    from ibcl.cli import app

    table, verdict = frame()
    monkeypatch.chdir(tmp_path)
    table.assign(verdict=verdict).to_csv("sun.csv", index=False)

    def run(*arguments: str) -> None:
        featurised.clear()
        encoded.clear()
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        assert (encoded, featurised) == ([ROWS], [ROWS]), arguments

    run("learn", "kb", "sun.csv", "--label", "verdict")
    asked = ("kb", "sun.csv", "--preference", "1")
    run("predict", *asked)
    run("predict", *asked, "--bounds", "--uncertainty", "--samples", "3")
    run("score", *asked, "--label", "verdict")


def test_an_estimator_encodes_and_featurises_once(featurised: list[int], encoded: list[int]):
    table, verdict = frame()
    for estimator, y in (
        (ibcl.IBCLClassifier(), verdict),
        (ibcl.IBCLRegressor(), task(0)[0][:, 0].numpy()),
    ):
        for ask in (lambda e=estimator, y=y: e.fit(table, y), lambda e=estimator: e.predict(table)):
            featurised.clear()
            encoded.clear()
            ask()
            assert (encoded, featurised) == ([ROWS], [ROWS])
