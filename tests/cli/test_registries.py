"""One of each kind, registered from outside by a plugin, and used from the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import Result
from weather_tables import weather

import ibcl as library
from ibcl.experiments import benchmarks, methods
from ibcl.gaussians import FAMILIES
from ibcl.inference import METHODS
from ibcl.likelihoods import LIKELIHOODS
from ibcl.networks import BUILDERS
from ibcl.pooling import RULES, TITLES

PLUGIN = '''
"""One of each kind, each as short as it can be."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import nn

import ibcl
from ibcl import gaussians, likelihoods
from ibcl.experiments import benchmarks, methods
from ibcl.experiments.benchmarks.digits import load as load_digits
from ibcl.inference import METHODS, InferenceResult
from ibcl.networks import BUILDERS, SpecifiedNetwork
from ibcl.pooling import EvidencePooling, register_rule


class Slim(ibcl.DiagonalGaussian):
    family = "slim"


gaussians.register(Slim)


@dataclass(frozen=True)
class SlimVI(ibcl.DenseVI):
    def infer(self, *arguments, **options):
        found = super().infer(*arguments, **options)
        slim = [Slim(q.mean, q.dense().covariance.diagonal().sqrt()) for q in found.posteriors]
        return InferenceResult(tuple(slim), found.updates, found.objectives, found.converged)


METHODS["slim"] = SlimVI


@likelihoods.register
@dataclass(frozen=True)
class Probit(likelihoods.Likelihood):
    name: ClassVar[str] = "probit"
    classification: ClassVar[bool] = True

    def check(self, y, outputs):
        return y.reshape(-1).float()

    def negative_log(self, outputs, y):
        signs = 2 * y.to(outputs.dtype) - 1
        return -torch.special.log_ndtr(signs * outputs.squeeze(-1))

    def mean(self, outputs):
        return torch.special.ndtr(torch.cat([-outputs, outputs], -1))


class Loudest:
    """All weight to the task that is preferred most."""

    def pool(self, knowledge, weights):
        return knowledge.extremes(knowledge.tasks[int(weights.sum(-1).argmax())])[0]

    def means(self, knowledge, weights):
        return torch.stack([self.pool(knowledge, row).mean for row in weights])


register_rule("loudest", Loudest(), title="the loudest task")


def tanh_features(inputs, outputs=1):
    specification = {"kind": "tanh_features", "inputs": inputs, "outputs": outputs}
    return SpecifiedNetwork(specification, nn.Tanh(), nn.Linear(inputs, outputs))


BUILDERS["tanh_features"] = tanh_features


class Coin:
    """Knows nothing, and answers so."""

    name: ClassVar[str] = "coin"
    updates = 0
    stored_bytes = 1

    def __init__(self, network, *, seed=0):
        self.rows = 0

    def learn(self, task, train, validation, preferences):
        self.rows = len(np.asarray(preferences))

    def predict_logits(self, x):
        return torch.zeros(self.rows, len(x), 1)


methods.register(
    methods.Registration("coin", "a coin", Coin, methods.registration.ONE_MODEL, "linear")
)


def load_few(settings):
    return load_digits(settings)


benchmarks.register(benchmarks.BenchmarkRegistration("few", "few digits", load_few))
'''
MINE = {
    "network": "tanh_features",
    "inference": "slim",
    "pooling": "loudest",
    "likelihood": "probit",
}


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A plugin in the folder the command is given in, whose traces go with the test."""
    (tmp_path / "one_of_each.py").write_text(PLUGIN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    registries: list[dict[str, Any]] = [
        FAMILIES,
        METHODS,
        LIKELIHOODS,
        RULES,
        TITLES,
        BUILDERS,
        methods.METHODS,
        benchmarks.BENCHMARKS,
    ]
    kept = [dict(registry) for registry in registries]
    yield
    sys.modules.pop("one_of_each", None)
    for registry, before in zip(registries, kept, strict=True):
        registry.clear()
        registry.update(before)


def mine(*arguments: object) -> tuple[object, ...]:
    return ("--plugin", "one_of_each", *arguments)


def settings() -> list[str]:
    return [part for name, value in MINE.items() for part in (f"--{name}", value)]


def test_each_is_refused_without_its_plugin(refuse: Callable[..., str], sun: Path) -> None:
    for name, value in MINE.items():
        sentence = refuse("learn", "kb", sun, "--label", "verdict", f"--{name}", value)
        assert f"--{name} must be one of" in sentence


def test_they_learn_forget_merge_and_answer_together(
    ibcl: Callable[..., Result], succeed: Callable[..., dict[str, Any]], sun: Path, rain: Path
) -> None:
    succeed(*mine("learn", "kb", sun, "--label", "verdict", "--independent", *settings()))
    succeed(*mine("learn", "kb", rain, "--label", "verdict"))
    shown = succeed(*mine("show", "kb"))
    assert [task["task"] for task in shown["tasks"]] == ["sun", "rain"]
    learner = library.load("kb")
    assert learner.pooling == "loudest"
    assert learner.network.specification["kind"] == "tanh_features"
    assert type(learner.inference).__name__ == "SlimVI"
    assert learner.likelihood.name == "probit"
    assert {q.family for q in learner.knowledge.stored} == {"slim"}
    for task, table in (("sun", weather("sun")), ("rain", weather("rain"))):
        other = "rain" if task == "sun" else "sun"
        table.drop(columns="verdict").to_csv("rows.csv", index=False)
        preference = f"{task}=0.6,{other}=0.4"
        predicted = ibcl(*mine("predict", "kb", "rows.csv", "--preference", preference))
        assert predicted.exit_code == 0, predicted.stderr
        weights = {task: 0.6, other: 0.4}
        answers = learner.model(weights).predict(table.drop(columns="verdict"))
        assert np.mean(answers == table["verdict"]) > 0.85
        # The loudest task alone: the same as its vertex.
        vertex = learner.model({task: 1.0, other: 0.0}).predict(table.drop(columns="verdict"))
        assert np.array_equal(answers, vertex)
    succeed(*mine("learn", "other", rain, "--label", "verdict", "--like", "kb", "--task", "wet"))
    succeed(*mine("merge", "kb", "other", "both"))
    assert library.load("both").tasks == ("sun", "rain", "wet")
    succeed(*mine("forget", "both", "rain"))
    assert library.load("both").tasks == ("sun", "wet")
    made = ibcl(
        *mine("generate", "both", "--preference", "sun=0.5,wet=0.5", "--output", "m.safetensors")
    )
    assert made.exit_code == 0, made.stderr
    rows = weather("sun").drop(columns="verdict")
    expected = library.load("both").model([0.5, 0.5]).predict(rows)
    assert np.array_equal(library.load_model("m.safetensors").predict(rows), expected)


def test_a_method_and_a_benchmark_take_part_in_comparisons(ibcl: Callable[..., Result]) -> None:
    run = ibcl(
        *mine("bench", "few", "--methods", "coin", "--samples", 0, "--processes", 1, "-o", "runs")
    )
    assert run.exit_code == 0, run.stderr
    assert "coin" in run.stdout


def test_counts_are_learnt_and_predicted_alike_here_and_from_the_command_line(
    succeed: Callable[..., dict[str, Any]], ibcl: Callable[..., Result]
) -> None:
    """Poisson, from the same table, at every front door."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(150, 2))
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "visits": rng.poisson(np.exp(x[:, 0] + 0.5))})
    table.to_csv("visits.csv", index=False)
    arguments = ("--label", "visits", "--likelihood", "poisson", "--network", "linear")
    succeed("learn", "kb", "visits.csv", *arguments)
    rows = table.drop(columns="visits")
    rows.to_csv("rows.csv", index=False)
    answers = library.load("kb").model([1.0]).predict(rows)
    assert np.corrcoef(answers, np.exp(x[:, 0] + 0.5))[0, 1] > 0.95
    assert abs(answers.mean() - table["visits"].mean()) < 0.3
    done = ibcl("predict", "kb", "rows.csv", "--preference", "1", "--output", "answers.csv")
    assert done.exit_code == 0, done.stderr
    np.testing.assert_allclose(pd.read_csv("answers.csv")["prediction"], answers, rtol=1e-6)
    lower, upper = library.load("kb").model([1.0]).credal_bounds(rows)
    assert (lower.ravel() <= answers + 1e-6).all()
    assert (answers <= upper.ravel() + 1e-6).all()
