"""The learner end to end: what a user of Algorithm 3 relies on."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import ibcl
from ibcl.networks import FlatNetwork
from theorems import (
    assert_credal_bounds_contain_predictions,
    assert_region_coverage,
    assert_same_gaussian,
    assert_uniform_evidence_is_sequential_bayes,
    assert_vertex_identity,
)

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(240, 3, generator=GENERATOR)
TASKS = {"first": (X[:, 0] > 0).long(), "second": (X[:, 1] > 0).long()}


def learner(network=None, **settings) -> ibcl.IBCL:
    settings = {"priors": [2.5], "inference": ibcl.DenseVI(), "pooling": "wasserstein", **settings}
    return ibcl.IBCL(network or ibcl.networks.linear(3), **settings)


def taught(network=None, **settings) -> ibcl.IBCL:
    result = learner(network, **settings)
    for name, y in TASKS.items():
        result.learn(X, y, task=name)
    return result


def accuracy(model, task: str) -> float:
    return float((model.predict(X) == TASKS[task]).float().mean())


MEAN_FIELD = ibcl.MeanFieldVI(epochs=8, learning_rate=0.02)
SETTINGS = [
    pytest.param({"inference": inference, "pooling": rule}, id=f"{name}-{rule}")
    for name, inference in {"dense": ibcl.DenseVI(), "mean-field": MEAN_FIELD}.items()
    for rule in ("wasserstein", "mixture")
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_theorems_hold_for_learnt_knowledge(settings):
    taught_learner = taught(d=0, **settings)
    assert_vertex_identity(taught_learner.knowledge, settings["pooling"])
    assert_credal_bounds_contain_predictions(taught_learner, X)
    assert_region_coverage(taught_learner.model([0.4, 0.6]).distribution, 0.1)


def test_a_preference_trades_one_task_for_the_other():
    taught_learner = taught(pooling="evidence", independent=True, d=0)
    scores = [
        (
            accuracy(taught_learner.model([w, 1 - w]), "first"),
            accuracy(taught_learner.model([w, 1 - w]), "second"),
        )
        for w in (0.95, 0.5, 0.05)
    ]
    assert scores[0][0] > scores[1][0] > scores[2][0]
    assert scores[0][1] < scores[1][1] < scores[2][1]
    assert scores[0][0] > 0.95
    assert scores[2][1] > 0.95


def test_uniform_evidence_is_the_chains_last_posterior():
    assert_uniform_evidence_is_sequential_bayes(taught(pooling="evidence", d=0).knowledge)


def test_evidence_equals_retraining_for_linear_gaussian_models():
    """Pooled evidence is the exact posterior of the preference-weighted regression."""
    generator = torch.Generator().manual_seed(3)
    targets = [torch.randn(240, generator=generator) for _ in range(3)]
    for independent in (True, False):
        regression = learner(
            pooling="evidence", likelihood=ibcl.Normal(0.5), d=0, independent=independent
        )
        for number, y in enumerate(targets):
            regression.learn(X, y, task=f"t{number}")
        weights = np.array([0.6, 0.1, 0.3])
        q = regression.model(weights).distribution
        design = torch.cat([X, torch.ones(240, 1)], 1).double()
        precision = torch.eye(4).double() / 2.5**2
        linear = torch.zeros(4).double()
        for weight, y in zip(weights, targets, strict=True):
            precision += 3 * weight * design.T @ design / 0.25
            linear += 3 * weight * design.T @ y.double() / 0.25
        exact = ibcl.DenseGaussian(torch.linalg.solve(precision, linear), precision)
        assert_same_gaussian(q, exact, tolerance=1e-6)


@pytest.mark.parametrize("rule", ["wasserstein", "mixture", "evidence"])
def test_blocks_of_models_equal_single_models(rule):
    taught_learner = taught(pooling=rule, d=0, independent=True)
    preferences = ibcl.sample_preferences(2, 11)
    blocks = list(taught_learner.models(preferences, block=4))
    assert [len(block.thetas) for block in blocks] == [4, 4, 3]
    thetas = torch.cat([block.thetas for block in blocks])
    for theta, preference in zip(thetas, preferences, strict=True):
        torch.testing.assert_close(theta, taught_learner.model(preference).theta)


def test_several_priors_are_several_extremes():
    taught_learner = taught(priors=[0.5, 2.5, 10.0], d=0)
    assert len(taught_learner.knowledge.extremes("first")) == 3
    model = taught_learner.model([1.0, 0.0], split={"first": [0, 0, 1]})
    assert torch.equal(model.theta, taught_learner.knowledge.extremes("first")[2].mean)


def test_multi_class_and_any_module():
    y = (X[:, 0] > 0).long() + (X[:, 1] > 0).long()
    module = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3))
    conventional = learner(module, inference=ibcl.MeanFieldVI(epochs=30, learning_rate=0.02))
    conventional.learn(X, y, task="count")
    model = conventional.model([1.0])
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (240, 3)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(240))
    assert float((model.predict(X) == y).float().mean()) > 0.85
    dense = learner(ibcl.networks.linear(3, 3))
    dense.learn(X, y, task="count")
    logistic = LogisticRegression(C=2.5**2).fit(X.numpy(), y.numpy()).score(X.numpy(), y.numpy())
    assert float((dense.model([1.0]).predict(X) == y).float().mean()) > logistic - 0.02


def test_regression_predicts_with_uncertainty():
    y = 2 * X[:, 0] - X[:, 1] + 0.1 * torch.randn(240, generator=torch.Generator().manual_seed(1))
    regression = learner(likelihood=ibcl.Normal(0.1))
    regression.learn(X, y, task="plane")
    model = regression.model([1.0])
    assert float((model.predict(X) - y).square().mean()) < 0.02
    near, far = model.uncertainty(torch.zeros(1, 3)), model.uncertainty(100 * torch.ones(1, 3))
    assert float(near.aleatoric) == pytest.approx(0.01)
    assert float(far.epistemic) > 100 * float(near.epistemic)
    torch.testing.assert_close(near.total, near.aleatoric + near.epistemic)
    with pytest.raises(ValueError, match="no class probabilities"):
        model.predict_proba(X)


def test_labels_choose_the_likelihood():
    kinds = {
        "bernoulli": (X[:, 0] > 0),
        "normal": X[:, 0],
    }
    for name, y in kinds.items():
        chosen = learner()
        chosen.learn(X, y)
        assert chosen.likelihood.name == name


@pytest.mark.parametrize(
    "make",
    [
        lambda x, y: (x, y),
        lambda x, y: (x.numpy(), y.numpy()),
        lambda x, y: (x.double(), y.bool()),
        lambda x, y: (x.tolist(), y.tolist()),
        lambda x, y: (pd.DataFrame(x.numpy()), pd.Series(y.numpy())),
        lambda x, y: (TensorDataset(x, y), None),
        lambda x, y: (DataLoader(TensorDataset(x, y), batch_size=17), None),
    ],
)
def test_every_kind_of_data_gives_the_same_posterior(make):
    reference, other = learner(), learner()
    reference.learn(X, TASKS["first"])
    other.learn(*make(X, TASKS["first"]))
    assert torch.equal(reference.knowledge.stored[0].mean, other.knowledge.stored[0].mean)


def test_predictions_come_as_the_kind_of_array_that_was_given():
    model = taught().model([0.5, 0.5])
    assert isinstance(model.predict(X), torch.Tensor)
    assert isinstance(model.predict(X.numpy()), np.ndarray)
    np.testing.assert_array_equal(model.predict(X.numpy()), model.predict(X).numpy())


def test_sampled_predictions_average_models_of_the_region():
    model = taught().model([0.5, 0.5])
    thetas = model.region.sample(50)
    expected = torch.stack([torch.sigmoid(model.network(t.float(), X)[:, 0]) for t in thetas])
    torch.testing.assert_close(model.predict_proba(X, samples=50)[:, 1], expected.mean(0))
    assert not torch.allclose(model.predict_proba(X), model.predict_proba(X, samples=50))


def test_the_plain_module_predicts_the_same():
    model = taught().model([0.5, 0.5])
    module = model.module()
    assert type(module) is type(ibcl.networks.linear(3))
    torch.testing.assert_close(torch.sigmoid(module(X)[:, 0]), model.predict_proba(X)[:, 1])


def test_classification_uncertainty_splits_the_entropy():
    parts = taught().model([0.5, 0.5]).uncertainty(X, samples=40)
    torch.testing.assert_close(parts.total, parts.aleatoric + parts.epistemic)
    assert bool((parts.epistemic >= 0).all())
    assert bool((parts.total <= np.log(2) + 1e-6).all())


def test_task_ids_can_be_told_to_the_network():
    """Two tasks that contradict each other, which only a task id can tell apart."""
    y = (X[:, 0] > 0).long()
    told = learner(
        ibcl.networks.random_features(5, width=64),
        task_incremental=2,
        pooling="evidence",
        d=0,
        priors=[10.0],
        independent=True,
    )
    told.learn(X, y, task="as it is")
    told.learn(X, 1 - y, task="turned")
    model = told.model([0.5, 0.5])
    assert float((model.predict(X, task="as it is") == y).float().mean()) > 0.9
    assert float((model.predict(X, task="turned") == 1 - y).float().mean()) > 0.9
    with pytest.raises(ValueError, match="say which task"):
        model.predict(X)
    with pytest.raises(ValueError, match="Unknown task"):
        model.predict(X, task="sideways")
    with pytest.raises(ValueError, match="made for 2 tasks"):
        told.learn(X, y, task="third")


@pytest.mark.parametrize("labels", [None, (X[:, 0] > 0).long()])
def test_a_learner_told_the_tasks_cannot_infer_them(labels):
    told = learner(network=ibcl.networks.linear(X.shape[1] + 2), task_incremental=2)
    for name in "ab":
        told.learn(X, (X[:, 0] > 0).long(), task=name)
    with pytest.raises(ValueError, match="inputs carry a task id"):
        told.infer_preference(X, labels)


def test_the_same_seed_gives_the_same_bytes():
    one, two, other = (
        taught(inference=MEAN_FIELD, seed=seed).model([0.5, 0.5]).theta for seed in (1, 1, 2)
    )
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda k: k.learn(X, TASKS["first"][:5], task="b"), "240 samples, but y has 5"),
        (lambda k: k.learn(X[:, :2], TASKS["first"], task="b"), "cannot take inputs"),
        (lambda k: k.learn(X, TASKS["first"] + 5, task="b"), "classifies into 0 and 1"),
        (lambda k: k.learn(X * float("nan"), TASKS["first"], task="b"), "not finite"),
        (lambda k: k.learn(X[:0], TASKS["first"][:0], task="b"), "no samples"),
        (lambda k: k.learn(X, ["x"] * 240, task="b"), "must be numbers"),
        (lambda k: k.learn(X, None, task="b"), "y is missing"),
        (lambda k: k.learn(X[:, 0], TASKS["first"], task="b"), "one row per sample"),
        (lambda k: k.learn([["a"]], [1], task="b"), "numbers"),
        (lambda k: k.learn(X, TASKS["first"], task="a"), "learnt already"),
        (lambda k: k.model([0.5, 0.5]), "1 tasks|there are 1"),
        (lambda k: k.model({"b": 1.0}), "Unknown task b"),
        (lambda _: learner(priors=[0.0]), "must be positive"),
        (lambda _: learner(priors=["wide"]), "standard deviation or a Gaussian"),
        (lambda _: learner(priors=[]), "at least one prior"),
        (lambda _: learner(alpha=1.5), "alpha"),
        (lambda _: learner(pooling="mean"), "pooling must be one of"),
        (lambda _: learner(likelihood="zipf").learn(X, TASKS["first"]), "likelihood must be"),
        (lambda _: learner(nn.ReLU()), "no trainable"),
        (lambda _: learner(likelihood=5), "likelihood must be"),
        (lambda _: learner(encoder=5), "encoder must be one such as"),
        (lambda _: learner(independent="no"), "independent must be True, False or None"),
        (lambda _: learner(d="near"), "d must be finite and not negative"),
        (lambda _: learner(autosave=5), "named by text or by a path object"),
        (lambda _: learner(autosave="a\0b"), "NUL"),
        (lambda k: list(k.models([[1.0]], block=0)), "block must be a positive whole number"),
        (lambda k: list(k.models([[1.0]], block=-1)), "block must be a positive whole number"),
        (lambda k: k.predict_many(X[None], [[1.0]]), "needs rows of 3 numbers"),
        (lambda k: k.predict_many(X, {"a": 1.0}), "as a list or a matrix"),
        (lambda k: k.model([1.0]).region.sample(-1), "n must be a whole number"),
        (lambda k: k.model([1.0]).region.sample(1.5), "n must be a whole number"),
        (lambda k: k.infer_preference(X, sample_weight=["a"] * 240), "240 finite numbers"),
        (lambda k: k.adopt("a"), "Only learners can be united, not str"),
        (lambda k: ibcl.merge(k, "a"), "Only learners can be united, not str"),
        (lambda _: learner(priors=None).learn(X * 1e-30, X[:, 0] > 0), "too small to choose"),
    ],
)
def test_bad_input_is_one_sentence_and_changes_nothing(act, message):
    subject = learner()
    subject.learn(X, TASKS["first"], task="a")
    with pytest.raises(ValueError, match=message) as caught:
        act(subject)
    assert "\n" not in str(caught.value)
    assert subject.tasks == ("a",)


def test_no_preference_before_the_first_task():
    with pytest.raises(ValueError, match="no task yet"):
        learner().model([1.0])


def test_the_flat_dimension_is_the_papers():
    assert FlatNetwork(ibcl.networks.mlp(512, hidden=64)).dimension == 32_897


def test_tasks_without_names_are_numbered_by_the_first_number_free():
    unnamed = learner(independent=True)
    unnamed.learn(X, TASKS["first"])
    unnamed.learn(X, TASKS["second"], task="task 3")
    unnamed.learn(X, TASKS["second"])
    unnamed.forget("task 1")
    unnamed.learn(X, TASKS["first"])
    assert unnamed.tasks == ("task 3", "task 4", "task 5")


def test_a_batch_is_one_of_the_last_task_unless_it_is_told():
    streamed = taught(independent=True)
    before = streamed.knowledge.record("second")
    streamed.extend(X[:10], TASKS["second"][:10])
    assert streamed.knowledge.record("second").samples == before.samples + 10
    assert streamed.knowledge.record("first").samples == 240
    with pytest.raises(ValueError, match="Unknown task"):
        streamed.extend(X, TASKS["first"], task="third")
    with pytest.raises(ValueError, match="Say with task= which task"):
        streamed.replace(X, TASKS["first"])
    chained = taught(independent=False)
    with pytest.raises(ValueError, match="learnt from its posteriors"):
        chained.extend(X, TASKS["first"], task="first")


@pytest.mark.parametrize("seed", [-(2**63), 2**64 - 1])
def test_seeds_are_of_64_bits(seed):
    assert ibcl.IBCL(ibcl.networks.linear(3), seed=seed).seed == seed
    for beyond in (-(2**63) - 1, 2**64):
        with pytest.raises(ValueError, match="at most 64 bits"):
            ibcl.IBCL(ibcl.networks.linear(3), seed=beyond)


def test_a_sample_of_weight_two_is_two_samples():
    weights = torch.arange(240) % 3 + 1
    weighted, repeated = learner(pooling="routed"), learner(pooling="routed")
    weighted.learn(X, TASKS["first"], sample_weight=weights.double())
    repeated.learn(X.repeat_interleave(weights, 0), TASKS["first"].repeat_interleave(weights))
    ours, theirs = weighted.knowledge.stored[0], repeated.knowledge.stored[0]
    assert_same_gaussian(ours, theirs, tolerance=1e-5)
    rows = torch.randn(20, 3, generator=torch.Generator().manual_seed(5))
    found = [each.model(each.tasks[0]).novelty(rows) for each in (weighted, repeated)]
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


def test_a_number_of_tasks_is_at_least_one():
    with pytest.raises(ValueError, match="task_incremental must be at least 1"):
        learner(task_incremental=0)


def test_validation_is_a_pair_or_a_pair_with_weights():
    made = ibcl.IBCL(ibcl.networks.linear(3))
    for kept in ((X, TASKS["first"]), (X, TASKS["first"], torch.ones(len(X)))):
        made.learn(X, TASKS["first"], task=str(len(kept)), validation=kept)
    for wrong in ((X,), (X, TASKS["first"], torch.ones(len(X)), 1)):
        with pytest.raises(ValueError, match=f"not {len(wrong)} values"):
            made.learn(X, TASKS["first"], task="third", validation=wrong)
    assert list(made.tasks) == ["2", "3"]
