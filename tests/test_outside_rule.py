"""A rule from outside can do all that the library's own can.

`Nearest` below is written with public names only. It has a setting, keeps moments of every task,
answers by one head or expert per task with shares of its own, has routing, novelty and densities to
infer preferences from, and its prediction sets are calibrated.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import ibcl
from ibcl import pooling
from ibcl.experts import task_experts
from ibcl.pooling import PoolingRule, split_weights
from ibcl.predictive import AnswersByPreference, CredalSet, Predictives, SingleNetwork
from ibcl.routing import Moments
from kinds import INPUTS, KINDS, inputs, preferences, probes, task, teach

X = probes(24)


@dataclass(frozen=True)
class Nearest(PoolingRule):
    """Tasks share in an answer by how near their mean features are: r_k ∝ w_k exp(−s ‖φ − μ_k‖²).

    Parameters
    ----------
    sharpness
        s.
    """

    sharpness: float = 1.0

    name: ClassVar[str] = "nearest"
    independent: ClassVar[bool] = True
    takes_experts: ClassVar[bool] = True

    def pool(self, knowledge, weights):
        return pooling.RULES["wasserstein"].pool(knowledge, weights)

    def means(self, knowledge, weights):
        return pooling.RULES["wasserstein"].means(knowledge, weights)

    def moments(self, features, labels, weights, posteriors, network, before=None):
        found = Moments.of(features.flatten(1), labels, weights)
        return found if before is None else before + found

    def predictives(self, knowledge, network, likelihood):
        return NearestPredictives(self, knowledge, network, likelihood)


class NearestPredictives(Predictives):
    shares_parameters = True

    def __init__(self, rule, knowledge, network, likelihood):
        super().__init__(network, likelihood)
        self.rule, self.knowledge = rule, knowledge

    def split(self, preferences):
        return split_weights(self.knowledge, preferences)

    def of(self, weights):
        return NearestHeads(self, weights)

    def answers(self, features):
        return AnswersByPreference(self, features, self.columns(features))

    def parameters(self, preferences):
        return self.rule.means(self.knowledge, self.split(preferences))

    def task_answers(self, features):
        return OfTasks(self, features)

    @property
    def centres(self) -> Tensor:
        kept = self.knowledge.moments
        return torch.stack([(m.counts[:, None] * m.means).sum(0) / m.counts.sum() for m in kept])


class OfTasks:
    """−s ‖φ − μ_k‖², and what every task answers alone."""

    def __init__(self, known: NearestPredictives, features: Tensor) -> None:
        alone = known.of(known.split(torch.full((len(known.knowledge.tasks),), 1.0)))
        self.densities = -known.rule.sharpness * alone.distances(features)
        self.of_tasks = alone.of_tasks(features)


class NearestHeads(SingleNetwork):
    """One head per task, that of its posterior, or the task's expert."""

    def __init__(self, known: NearestPredictives, weights: Tensor) -> None:
        knowledge = known.knowledge
        vertices = torch.eye(len(knowledge.tasks), dtype=torch.float64)
        self.heads = known.rule.means(knowledge, known.split(vertices))
        self.weights, self.centres = weights.sum(-1), known.centres
        self.sharpness = known.rule.sharpness
        self.experts = task_experts(knowledge, known.network)
        self.has_experts = bool(self.experts)
        credal = CredalSet(
            lambda: known.rule.pool(knowledge, weights),
            lambda: list(enumerate(knowledge.extremes())),
        )
        theta = known.rule.means(knowledge, weights[None])[0]
        super().__init__(known.network, known.likelihood, theta, credal)

    def distances(self, features: Tensor) -> Tensor:
        return torch.cdist(features.flatten(1).double(), self.centres.double()).square()

    def routing(self, features):
        return torch.softmax(self.weights.log() - self.sharpness * self.distances(features), 1)

    def novelty(self, features):
        return self.distances(features).amin(1) / features.flatten(1).shape[1]

    def means(self, features, thetas=None):
        if thetas is not None:
            return super().means(features, thetas)
        shares = self.routing(features).T[:, :, None]
        return (shares * self.of_tasks(features)).sum(0, keepdim=True)

    def of_tasks(self, features):
        own = super().means(features, self.heads).double()
        for number, expert in self.experts.items():
            own[number] = expert.answers(features).double()
        return own


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    pooling.register_rule("nearest", Nearest(), title="nearest task")
    yield
    del pooling.RULES["nearest"], pooling.TITLES["nearest"]


def learner(kind: str, rule: object = "nearest") -> ibcl.IBCL:
    settings = dict(KINDS[kind])
    settings["network"] = ibcl.networks.linear(INPUTS, settings.pop("outputs"))
    return ibcl.IBCL(pooling=rule, priors=[3.0], seed=3, **settings)


def by_hand(learnt: ibcl.IBCL, w: np.ndarray, sharpness: float, x: Tensor) -> Tensor:
    """Plain sums over the tasks' raw data and own models."""
    centres = torch.stack([inputs(k).double().mean(0) for k in range(3)])
    distances = (x.double()[:, None] - centres).square().sum(2)
    shares = torch.softmax(torch.as_tensor(w).log() - sharpness * distances, 1)
    own = [learnt.predict_many(x, np.eye(3)[k][None])[0].double() for k in range(3)]
    return sum(shares[:, k : k + 1] * own[k] for k in range(3))


@pytest.mark.parametrize("kind", ["binary", "shared classes", "regression", "counts"])
@pytest.mark.parametrize("sharpness", [1.0, 0.2])
def test_it_learns_answers_and_comes_back_from_disk(kind, sharpness, tmp_path):
    learnt = teach(learner(kind, Nearest(sharpness)), kind)
    assert learnt.pooling == "nearest"
    assert learnt.knowledge.independent is True
    assert all(kept is not None for kept in learnt.knowledge.moments)
    assert "nearest" not in learnt.choices.get("pooling", "")
    learnt.save(tmp_path / "kb")
    loaded = ibcl.load(tmp_path / "kb")
    assert loaded.state.rule == Nearest(sharpness)
    matrix = preferences()[:-3]
    many = learnt.predict_many(X, matrix)
    assert torch.equal(loaded.predict_many(X, matrix), many)
    for w, answers in zip(matrix, many, strict=True):
        expected = by_hand(learnt, w, sharpness, X)
        torch.testing.assert_close(answers.double(), expected, rtol=1e-4, atol=1e-5)
        model = loaded.model(w)
        shares, novelty = model.routing(X), model.novelty(X)
        torch.testing.assert_close(shares.sum(1), torch.ones(len(X), dtype=shares.dtype))
        assert bool((shares[:, w == 0] == 0).all())
        assert bool((novelty >= 0).all())
        lower, upper = model.credal_bounds(X)
        assert bool((lower <= upper).all())


def test_its_settings_are_compared_where_learners_are_merged():
    one = learner("binary", Nearest(0.2))
    one.learn(*task("binary", 0), task="a")
    for sharpness, same in ((0.2, True), (1.0, False)):
        other = learner("binary", Nearest(sharpness))
        other.learn(*task("binary", 1), task="b")
        if same:
            assert ibcl.merge(one, other).state.rule == Nearest(0.2)
        else:
            with pytest.raises(ValueError, match="pooling"):
                ibcl.merge(one, other)


def test_it_follows_further_batches_and_forgets():
    learnt = teach(learner("binary"), "binary")
    learnt.extend(*task("binary", 0, seed=4), task="a")
    both = torch.cat([inputs(0), inputs(0, seed=4)]).double().mean(0)
    torch.testing.assert_close(
        learnt.state.predictives.centres[0].double(), both, rtol=1e-5, atol=1e-5
    )
    learnt.forget("b")
    assert learnt.model([0.5, 0.5]).routing(X).shape == (len(X), 2)


def test_it_infers_preferences():
    learnt = teach(learner("binary"), "binary")
    assert max(learnt.infer_preference(inputs(1, seed=9)).items(), key=lambda p: p[1])[0] == "b"


def test_preferences_are_inferred_from_its_own_densities():
    """With a sharpness of almost zero its densities tell nothing, whatever the moments would."""
    blind = teach(learner("binary", Nearest(1e-9)), "binary")
    inferred = blind.infer_preference(inputs(1, seed=9))
    assert list(inferred.values()) == pytest.approx([1 / 3] * 3, abs=1e-3)


def test_experts_answer_behind_it_and_come_back_from_disk(tmp_path):
    pytest.importorskip("skops", reason="experts are an extra")
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(max_depth=3, random_state=0)
    rule = Nearest(0.3)
    learnt = ibcl.IBCL(ibcl.networks.linear(INPUTS), [3.0], pooling=rule, expert=tree)
    trees = []
    for number, name in enumerate("abc"):
        x, y = task("binary", number)
        learnt.learn(x, y, task=name)
        trees.append(DecisionTreeClassifier(max_depth=3, random_state=0).fit(x, y))
    learnt.save(tmp_path / "kb")
    weights = np.array([0.2, 0.3, 0.5])
    model = ibcl.load(tmp_path / "kb").model(weights)
    shares = np.asarray(model.routing(X), float)
    own = np.stack([each.predict_proba(X.numpy()) for each in trees])
    expected = np.einsum("nk,knc->nc", shares, own)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-5)


def test_a_rule_without_a_gate_says_that_it_takes_no_experts():
    learner = ibcl.IBCL(ibcl.networks.linear(INPUTS), pooling="wasserstein", expert="auto")
    with pytest.raises(ValueError, match="wasserstein"):
        learner.learn(*task("binary", 0))


def test_its_prediction_sets_are_calibrated():
    """Scores are its own: a set holds a class where its probability reaches the right rank."""
    learnt = ibcl.IBCL(ibcl.networks.linear(INPUTS), [3.0], pooling=Nearest(0.3), calibration=40)
    for number, name in enumerate("abc"):
        learnt.learn(*task("binary", number, size=160), task=name)
    weights = {"a": 0.2, "b": 0.3, "c": 0.5}
    model = learnt.model(weights)
    held = 0.0
    for number, weight in enumerate(weights.values()):
        x, y = task("binary", number, size=400, seed=7)
        sets = model.predict_set(x, alpha=0.2)
        held += weight * float(sets[np.arange(len(y)), y.numpy()].mean())
    assert 0.72 < held < 0.95


def test_the_service_answers_with_it(tmp_path):
    testclient = pytest.importorskip("fastapi.testclient", reason="the service is an extra")
    from ibcl.serve import Settings, create_app

    learnt = teach(learner("binary", Nearest(0.3)), "binary")
    learnt.save(tmp_path / "kb")
    rows = [dict(zip("012", row, strict=True)) for row in X.double().tolist()]
    weights = {"a": 0.2, "b": 0.3, "c": 0.5}
    model = learnt.model(weights)
    with testclient.TestClient(create_app(Settings(tmp_path / "kb"))) as client:
        body = {"rows": rows, "preference": weights, "routing": True, "bounds": True}
        said = client.post("/v1/predict", json=body).json()
        inferred = client.post("/v1/infer", json={"rows": rows[:6]}).json()
    np.testing.assert_allclose(said["probabilities"], model.predict_proba(X.double()), atol=1e-6)
    shares = [[row[name] for name in "abc"] for row in said["routing"]["shares"]]
    np.testing.assert_allclose(shares, model.routing(X.double()), atol=1e-6)
    np.testing.assert_allclose(said["routing"]["novelty"], model.novelty(X.double()), rtol=1e-5)
    expected = learnt.infer_preference(X.double()[:6])
    assert inferred["preference"] == pytest.approx(dict(expected), abs=1e-6)


def test_the_command_line_knows_it(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from ibcl.cli import app

    monkeypatch.chdir(tmp_path)
    for number, name in enumerate("ab"):
        x, y = task("binary", number)
        rows = torch.cat([x, y[:, None].float()], 1).tolist()
        text = "\n".join(["p,q,r,y", *(",".join(map(str, row)) for row in rows)])
        (tmp_path / f"{name}.csv").write_text(text + "\n")
        options = ["--label", "y", "--pooling", "nearest"]
        result = CliRunner().invoke(app, ["learn", "kb", f"{name}.csv", *options])
        assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["predict", "kb", "a.csv", "--preference", "0.5,0.5"])
    assert result.exit_code == 0, result.output
    assert ibcl.load("kb").state.rule == Nearest()


def test_a_model_file_says_that_it_cannot_hold_such_answers(tmp_path):
    """Its answers are neither one network's nor routed heads'; a file that says less would lie."""
    model = teach(learner("binary"), "binary").model([0.2, 0.3, 0.5])
    with pytest.raises(ibcl.StoreError, match="nearest"):
        model.save(tmp_path / "model.safetensors")
    assert not (tmp_path / "model.safetensors").exists()
