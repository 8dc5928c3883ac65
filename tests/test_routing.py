"""Routed evidence, first version: p(y | x, w) = Σ_k r_k p_k(y | x), for every kind of task."""

import numpy as np
import pytest
import torch
from scipy.stats import chi2
from torch.distributions import MultivariateNormal

import ibcl
import kinds
from ibcl.gaussians import IndependentGaussian
from ibcl.routing import Gate
from kinds import (
    CASES,
    IDS,
    ROUTED_CASES,
    ROUTED_IDS,
    TASKS,
    inputs,
    preferences,
    probes,
    task,
    teach,
)
from theorems import (
    answer,
    assert_credal_bounds_contain_predictions,
    assert_region_coverage,
    assert_same_gaussian,
    assert_same_predictions,
    assert_vertex_is_the_tasks_own_posterior,
)

X = probes()
ROUTED_CASES = [case for case in ROUTED_CASES if case[1] != "routed"]
ROUTED_IDS = [name for name in ROUTED_IDS if not name.endswith("-routed")]


def learner(kind, rule="routed1", **changes):
    return kinds.learner(kind, rule, **changes)


def taught(kind, rule="routed1"):
    return kinds.taught(kind, rule)


every_case = pytest.mark.parametrize(("kind", "rule"), CASES, ids=IDS)
routed_cases = pytest.mark.parametrize(("kind", "rule"), ROUTED_CASES, ids=ROUTED_IDS)
LINEAR = [case for case in ROUTED_CASES if case[0] not in ("mlp", "module")]
linear_cases = pytest.mark.parametrize(
    ("kind", "rule"), LINEAR, ids=[f"{kind}-{rule}" for kind, rule in LINEAR]
)


def design(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, torch.ones(len(x), 1)], 1).double()


def routing_from_raw_data(gate: str, w: np.ndarray) -> torch.Tensor:
    """r_k(x, w) of regression tasks, whose density is one Gaussian each, from their inputs."""
    means = [inputs(number).double().mean(0) for number in range(3)]
    pooled = sum(np.cov(inputs(number).double().numpy().T, bias=True) for number in range(3)) / 3
    ridged = torch.tensor(0.9 * pooled + 0.1 * np.trace(pooled) / 3 * np.eye(3))
    temperature = {"evidence": 1.5, "moments": 2.0}[gate]
    scores = [MultivariateNormal(m, ridged).log_prob(X.double()) / temperature for m in means]
    return torch.softmax(torch.stack(scores, 1) + torch.tensor(w).log(), 1)


@pytest.mark.parametrize("heads", ["uniform", "preference"])
@pytest.mark.parametrize("gate", ["evidence", "moments"])
def test_regression_is_bayes_rule_between_weighted_regressions(gate, heads):
    """All of it from the raw data: gate, heads pooled at (1 − ρ) u + ρ e_k, and their mixture."""
    learnt = teach(learner("regression", pooling=ibcl.Routed(gate=gate, heads=heads)), "regression")
    for w in preferences():
        if w.max() == 1:
            continue
        support = w if heads == "preference" else np.full(3, 1 / 3)
        expected = torch.zeros(len(X)).double()
        shares = routing_from_raw_data(gate, w)
        for k in np.flatnonzero(w):
            precision, linear = torch.eye(4).double() / 9, torch.zeros(4).double()
            for j in range(3):
                weight = 3 * (0.3 * support[j] + 0.7 * (j == k))
                x, y = task("regression", j)
                precision += weight * design(x).T @ design(x) / 0.09
                linear += weight * design(x).T @ y.double() / 0.09
            head = torch.linalg.solve(precision, linear)
            expected += shares[:, k] * (design(X) @ head)
        found = learnt.model(w).predict(X.double())
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(
            learnt.model(w).routing(X.double()), shares, rtol=1e-4, atol=1e-6
        )


def features_by_hand(learnt: ibcl.IBCL, x: torch.Tensor) -> torch.Tensor:
    """[x, √(2/width) relu(xW + b)]."""
    w, b = (learnt.network.frozen_state[f"0.{name}"] for name in ("weight", "bias"))
    return torch.cat([x, (2 / len(b)) ** 0.5 * torch.relu(x @ w + b)], 1).double()


@linear_cases
def test_predictions_mix_the_heads_by_their_routes(kind, rule):
    """Heads by the pooling of evidence, plain matrix products, and the model's own routes."""
    learnt = taught(kind, rule)
    for w in preferences()[:-3]:
        model = learnt.model(w)
        shares = model.routing(X.double())
        torch.testing.assert_close(shares.sum(1), torch.ones(len(X)).double())
        assert bool((shares[:, w == 0] == 0).all())
        support = w if rule == "routed by preference" else np.full(3, 1 / 3)
        outputs = learnt.network.linear_head().layer.out_features
        phi = features_by_hand(learnt, X) if kind == "random features" else X.double()
        columns = phi.shape[1]
        expected = 0.0
        for k in np.flatnonzero(w):
            theta = ibcl.pool(learnt.knowledge, 0.3 * support + 0.7 * np.eye(3)[k], "evidence").mean
            weight, bias = torch.split(theta, [columns * outputs, outputs])
            f = phi @ weight.double().reshape(outputs, columns).T + bias.double()
            if kind in ("binary", "random features"):
                p = torch.sigmoid(torch.cat([-f, f], 1))
            elif kind in ("shared classes", "different classes"):
                p = torch.sigmoid(f) / torch.sigmoid(f).sum(1, keepdim=True)
                if kind == "different classes" and rule != "routed by evidence":
                    mask = torch.zeros(6).double()
                    mask[task(kind, int(k)).y.unique()] = 1
                    p = p * mask / (p * mask).sum(1, keepdim=True)
            else:
                p = f.exp() if kind == "counts" else f
            expected = expected + shares[:, k : k + 1] * p
        torch.testing.assert_close(answer(model, X.double()), expected, rtol=1e-6, atol=1e-6)


@routed_cases
def test_a_vertex_is_the_tasks_own_posterior(kind, rule):
    assert_vertex_is_the_tasks_own_posterior(taught(kind, rule), X)
    unrouted = taught(kind, "wasserstein")
    for vertex in np.eye(3):
        ours = taught(kind, rule).model(vertex)
        if kind == "different classes" and ours.predictive.gate.seen is not None:
            continue
        assert torch.equal(answer(ours, X), answer(unrouted.model(vertex), X))


@every_case
@pytest.mark.parametrize("samples", [0, 5])
def test_bounds_contain_every_prediction(kind, rule, samples):
    assert_credal_bounds_contain_predictions(taught(kind, rule), X, samples)


def test_bounds_of_routed_models_contain_other_preferences_too():
    """Every prediction is a convex combination of the same heads."""
    learnt = taught("binary")
    lower, upper = learnt.model([0.2, 0.3, 0.5]).credal_bounds(X.double())
    for w in ibcl.sample_preferences(3, 5, seed=8):
        found = learnt.model(w).predict_proba(X.double())
        assert bool((lower <= found + 1e-12).all())
        assert bool((found <= upper + 1e-12).all())
    assert float((upper - lower).max()) > 0.3


@routed_cases
def test_the_region_is_that_of_the_heads_jointly(kind, rule):
    model = taught(kind, rule).model([0.5, 0.0, 0.5])
    q = model.distribution
    assert isinstance(q, IndependentGaussian)
    assert len(q.components) == 2
    torch.testing.assert_close(model.theta.double(), q.mean.double())
    assert_region_coverage(q, 0.1)
    draws = q.sample(300, torch.Generator().manual_seed(1))
    radii = sum(
        component.mahalanobis_squared(part)
        for component, part in zip(q.components, draws.chunk(2, 1), strict=True)
    )
    inside = radii <= chi2.ppf(0.99, q.dimension)
    assert torch.equal(model.region.contains(draws), inside)
    assert bool(model.region.contains(model.region.sample(50)).all())


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_sampled_predictions_average_models_of_the_region(kind):
    model = taught(kind).model([0.2, 0.3, 0.5])
    shares = model.routing(X.double())
    expected = 0.0
    for theta in model.region.sample(7).double():
        for k, head in enumerate(theta.reshape(3, 4)):
            f = design(X) @ head
            p = torch.sigmoid(torch.stack([-f, f], 1)) if kind == "binary" else f[:, None]
            expected = expected + shares[:, k : k + 1] * p / 7
    torch.testing.assert_close(answer(model, X.double(), 7), expected, rtol=1e-5, atol=1e-6)


@linear_cases
def test_forgetting_leaves_what_would_be_known_without_the_task(kind, rule):
    forgetful = teach(learner(kind, rule), kind)
    forgetful.forget("b")
    assert_same_predictions(forgetful, teach(learner(kind, rule), kind, "ac"), X)


@linear_cases
def test_merging_gives_what_one_learner_of_all_tasks_knows(kind, rule):
    sites = (teach(learner(kind, rule), kind, tasks) for tasks in ("a", "bc"))
    merged = ibcl.merge(*sites)
    assert_same_predictions(merged, taught(kind, rule), X)


@routed_cases
def test_batches_of_a_task_give_the_moments_of_one_pass(kind, rule):
    streamed = learner(kind, rule)
    for number, name in enumerate(TASKS):
        x, y = task(kind, number)
        streamed.learn(x[:20], y[:20], task=name)
        for part in (slice(20, 45), slice(45, None)):
            streamed.extend(x[part], y[part], task=name)
    whole = taught(kind, rule)
    assert [record.samples for record in streamed.knowledge.records] == [60, 60, 60]
    for ours, theirs in zip(streamed.knowledge.moments, whole.knowledge.moments, strict=True):
        if rule == "routed by evidence":
            assert ours is theirs is None
            continue
        assert ours is not None
        for name, tensor in ours.tensors().items():
            torch.testing.assert_close(tensor, theirs.tensors()[name], rtol=1e-4, atol=1e-4)
    if kind in ("regression", "two outputs"):
        for ours, theirs in zip(streamed.knowledge.stored, whole.knowledge.stored, strict=True):
            assert_same_gaussian(ours, theirs, tolerance=1e-6)
        found, expected = (k.model([0.2, 0.3, 0.5]).predict(X) for k in (streamed, whole))
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


def test_a_batch_of_fewer_classes_does_not_cost_a_task_its_moments():
    """Whether moments are worth their bytes is asked of all batches together."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(90, 40, generator=generator)
    y = torch.arange(90) % 3
    slim = ibcl.IBCL(ibcl.networks.linear(40, 3), [1.0], ibcl.DenseVI(rank=1), "routed1")
    slim.learn(x[:60], y[:60], task="a")
    assert slim.knowledge.moments[0] is not None
    few = y[60:] < 2
    slim.extend(x[60:][few], y[60:][few], task="a")
    kept = slim.knowledge.moments[0]
    assert kept is not None
    assert float(kept.counts.sum()) == 60 + int(few.sum())


def test_the_answer_is_among_the_classes_seen():
    learnt = taught("different classes")
    assert learnt.state.predictives.seen.tolist() == [
        [True, True, False, False, False],
        [False, True, True, False, False],
        [False, False, False, True, True],
    ]
    for w in preferences():
        probabilities = learnt.model(w).predict_proba(X)
        assert probabilities.shape == (len(X), 6)
        torch.testing.assert_close(probabilities.sum(1), torch.ones(len(X)))
        asked = torch.cat([task("different classes", int(k)).y for k in np.flatnonzero(w)])
        others = [label for label in range(6) if not bool((asked == label).any())]
        assert bool((probabilities[:, others] == 0).all())
    model = learnt.model([1 / 3, 1 / 3, 1 / 3])
    for number in range(3):
        x, y = task("different classes", number, size=60, seed=9)
        assert float((model.predict(x) == y).float().mean()) > 0.65


@pytest.mark.parametrize("kind", ["shared classes", "binary", "regression", "counts"])
def test_tasks_that_share_their_classes_need_no_mask(kind):
    assert taught(kind).state.predictives.seen is None


def test_three_classes_of_which_tasks_know_two_are_masked():
    learnt = ibcl.IBCL(ibcl.networks.linear(3, 3), [3.0], pooling="routed1")
    for name, shift in (("a", 0), ("b", 1)):
        x, y = task("binary", shift)
        learnt.learn(x, y + shift, task=name)
    assert learnt.state.predictives.seen.tolist() == [[True, True, False], [False, True, True]]
    assert float(learnt.model([1.0, 0.0]).predict_proba(X)[:, 2].max()) == 0


def test_moments_are_bounded_by_columns_whatever_the_rows():
    made = ibcl.IBCL(ibcl.networks.linear(1), [1.0], ibcl.DenseVI(tolerance=0.1), "routed1")
    x = torch.linspace(-1, 1, 4100)[:, None]
    made.learn(x, x[:, 0] > 0)
    assert float(made.knowledge.moments[0].counts.sum()) == 4100


@pytest.mark.parametrize(("room", "linear"), [(0, False), (-1, True)])
def test_covariances_of_their_own_are_small_up_to_a_bound(room, linear, monkeypatch):
    """Three tasks of two classes, each with a covariance of three features squared."""
    monkeypatch.setattr("ibcl.pooling.routed._SMALL_COVARIANCES", 3 * 2 * 9 + room)
    learnt = taught("binary")
    gate = ibcl.Routed().make_gate(learnt.knowledge, learnt.network)
    assert gate.is_linear is linear


def test_a_binary_task_with_one_class_may_still_answer_both():
    learnt = learner("binary")
    x, y = task("binary", 0)
    learnt.learn(x[y == 1], y[y == 1], task="a")
    learnt.learn(*task("binary", 1), task="b")
    assert learnt.state.predictives.seen is None
    assert float(learnt.model([0.5, 0.5]).predict_proba(x).min()) > 0


@pytest.mark.parametrize("kind", ["mlp", "module"])
def test_mean_field_networks_are_routed_through_moments_of_their_inputs(kind):
    learnt = teach(learner(kind, independent=False), kind)
    moments = learnt.knowledge.moments[0]
    assert moments.columns == 3
    x, y = task(kind, 0)
    np.testing.assert_allclose(moments.means[1], x[y == 1].double().mean(0))
    model = learnt.model([0.2, 0.3, 0.5])
    heads = [
        ibcl.pool(learnt.knowledge, 0.2 * np.full(3, 1 / 3) + 0.8 * np.eye(3)[k]).mean
        for k in range(3)
    ]
    torch.testing.assert_close(model.theta, torch.cat(heads))
    shares = model.routing(X)
    expected = sum(
        shares[:, k] * torch.sigmoid(learnt.network.module(head)(X)[:, 0])
        for k, head in enumerate(heads)
    )
    torch.testing.assert_close(model.predict_proba(X)[:, 1], expected, rtol=1e-5, atol=1e-6)


def test_novelty_and_entropy_say_what_the_gate_does_not_know():
    model = taught("binary").model([1 / 3, 1 / 3, 1 / 3])
    learnt = torch.cat([task("binary", number).x for number in range(3)])
    assert 0.5 < float(model.novelty(learnt).mean()) < 2
    assert float(model.novelty(50 + learnt).min()) > 100
    assert bool((model.novelty(50 + learnt) < model.novelty(100 + learnt)).all())

    def entropy(x: torch.Tensor) -> float:
        shares = model.routing(x)
        return float(-(shares * shares.clamp(min=1e-12).log()).sum(1).mean())

    centres = torch.stack([task("binary", number).x.mean(0) for number in range(3)])
    assert entropy(centres.mean(0, keepdim=True)) > 2 * entropy(centres)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 5.0])
def test_the_temperature_divides_the_log_densities(temperature):
    one = teach(learner("binary", pooling=ibcl.Routed(temperature=temperature)), "binary")
    gate = one.state.predictives.gate
    assert gate.temperature == temperature
    reference = taught("binary").state.predictives.gate
    features = X.double()
    logits = (reference.joint(features) - reference.log_share) * reference.temperature
    torch.testing.assert_close(gate.joint(features), logits / temperature + reference.log_share)


@pytest.mark.parametrize(("support", "kind"), [(0.0, "binary"), (1.0, "binary"), (0.25, "mlp")])
def test_support_weighs_a_heads_own_task(support, kind):
    learnt = teach(learner(kind, pooling=ibcl.Routed(support=support)), kind)
    rule = "evidence" if kind == "binary" else "wasserstein"
    heads = learnt.model([0.2, 0.3, 0.5]).theta.reshape(3, -1)
    for k, head in enumerate(heads):
        weights = (1 - support) / 3 + support * np.eye(3)[k]
        expected = ibcl.pool(learnt.knowledge, weights, rule).mean
        torch.testing.assert_close(head.double(), expected.double())


@pytest.mark.parametrize("kind", ["binary", "mlp"])
def test_heads_may_be_pooled_by_the_barycentre(kind):
    """Of networks learnt from each other; those of independent tasks cannot be averaged."""
    rule = ibcl.Routed(pool_by="wasserstein")
    chained, independent = (
        teach(learner(kind, pooling=rule, independent=i), kind) for i in (False, True)
    )
    heads = chained.model([0.2, 0.3, 0.5]).theta.reshape(3, -1)
    weights = 0.2 / 3 + 0.8 * np.eye(3)[1]
    torch.testing.assert_close(heads[1], ibcl.pool(chained.knowledge, weights).mean)
    own = independent.model([0.2, 0.3, 0.5]).theta.reshape(3, -1)
    torch.testing.assert_close(own[1], independent.knowledge.extremes("b")[0].mean)


def gate_of_two_tasks(features: int, *, shared: bool = True, **settings) -> Gate:
    network = ibcl.networks.linear(features, 1 if shared else 4)
    made = ibcl.IBCL(network, pooling=ibcl.Routed(**settings))
    for number in range(2):
        generator = torch.Generator().manual_seed(number)
        labels = torch.arange(30) % 2 + (0 if shared else 2 * number)
        made.learn(torch.randn(30, features, generator=generator), labels)
    return made.state.predictives.gate


def test_classes_have_covariances_of_their_own_where_these_are_small_or_tasks_differ_or_if_asked():
    assert taught("different classes").state.predictives.gate.is_linear is False
    assert gate_of_two_tasks(4).is_linear is False
    assert gate_of_two_tasks(400).is_linear is True
    assert gate_of_two_tasks(400, shared=False).is_linear is False
    assert gate_of_two_tasks(400, gate="classes").is_linear is False
    for kind in ("shared classes", "different classes"):
        asked = teach(learner(kind, pooling=ibcl.Routed(gate="moments")), kind)
        assert asked.state.predictives.gate.is_linear is True
        assert_credal_bounds_contain_predictions(asked, X)


def test_moments_are_kept_where_they_are_worth_their_bytes():
    def kept(inputs: int, classes: int, inference=None, **settings) -> bool:
        x = torch.randn(30, inputs, generator=torch.Generator().manual_seed(0))
        outputs = 1 if classes == 2 else classes
        settings = {"pooling": "routed1"} | settings
        made = ibcl.IBCL(ibcl.networks.linear(inputs, outputs), [1.0], inference, **settings)
        made.learn(x, torch.arange(30) % classes)
        return made.knowledge.moments[0] is not None

    assert kept(40, 2)
    # Two scatters of 40² numbers beside 41 and 41 of rank one.
    assert not kept(40, 2, ibcl.DenseVI(rank=1))
    assert kept(40, 2, ibcl.DenseVI(rank=1), pooling=ibcl.Routed(gate="moments"))
    assert kept(40, 3, ibcl.DenseVI(rank=1), likelihood="categorical")
    assert not kept(40, 3, pooling=ibcl.Routed(gate="evidence"))
    assert not kept(40, 2, pooling="evidence")
    assert kept(40, 2, ibcl.MeanFieldVI(epochs=1))


def test_what_cannot_be_routed_says_why():
    unbiased = torch.nn.Linear(3, 1, bias=False)
    made = ibcl.IBCL(unbiased, [1.0], ibcl.DenseVI(), ibcl.Routed(gate="evidence"))
    for name in "ab":
        made.learn(*task("binary", 0), task=name)
    with pytest.raises(ValueError, match="cannot be routed: the gate needs moments"):
        made.model([0.5, 0.5])
    kept = taught("binary", "routed by evidence").knowledge
    with pytest.raises(ValueError, match="needs the moments of every task"):
        ibcl.Routed(gate="moments").make_gate(kept, taught("binary").network)
    with pytest.raises(ValueError, match="use predict_many"):
        next(taught("binary").models([[0.2, 0.3, 0.5]]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"support": 1.1}, "support must lie between 0 and 1"),
        ({"support": -0.1}, "support must lie between 0 and 1"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"temperature": float("inf")}, "temperature must be positive"),
        ({"gate": "magic"}, "gate must be one of auto, moments, classes, evidence"),
        ({"heads": "none"}, "heads must be one of uniform, preference"),
        ({"pool_by": "mixture"}, "pool_by must be"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ibcl.Routed(**settings)


def test_settings_are_said_where_they_differ_from_the_defaults():
    assert ibcl.Routed().settings() == {}
    rule = ibcl.Routed(support=0.0, temperature=2.0, gate="evidence", heads="preference")
    assert rule.settings() == {
        "support": 0.0,
        "temperature": 2.0,
        "gate": "evidence",
        "heads": "preference",
    }
    assert ibcl.Routed(**rule.settings()) == rule


def test_the_joint_means_are_those_of_every_tasks_head():
    """As a rule among others: rows of weights, one after another the heads of all tasks."""
    learnt = taught("binary", "routed by preference")
    rule = ibcl.Routed(heads="preference")
    weights = torch.tensor([[0.2, 0.3, 0.5], [0.5, 0.5, 0.0]]).double()
    rows = rule.means(learnt.knowledge, weights[:, :, None])
    assert rows.shape == (2, 12)
    torch.testing.assert_close(rows[0], learnt.model([0.2, 0.3, 0.5]).theta)
    torch.testing.assert_close(rows[1, :8], learnt.model([0.5, 0.5, 0.0]).theta)
