"""Inferred preferences: known mixtures are recovered, and an independent optimiser agrees."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import norm

import ibcl
from ibcl.preference import infer_proportions
from kinds import TASKS, task, taught
from theorems import answer

SHARES = np.array([0.6, 0.3, 0.1])


def table(n: int, seed: int, shares: np.ndarray = SHARES, apart: float = 2.0) -> np.ndarray:
    """Log densities under three overlapping Gaussians of draws from their mixture."""
    rng = np.random.default_rng(seed)
    centres = apart * np.arange(3)
    x = centres[rng.choice(3, n, p=shares)] + rng.normal(size=n)
    return norm.logpdf(x[:, None], centres)


def objective(weights: np.ndarray, densities: np.ndarray, prior: float, counts=None) -> float:
    counts = np.ones(len(densities)) if counts is None else counts
    return float(
        counts @ logsumexp(densities + np.log(weights), axis=1) + prior * np.log(weights).sum()
    )


@given(seed=st.integers(0, 500), prior=st.floats(0.05, 3), n=st.integers(1, 60))
def test_an_independent_optimiser_finds_the_same_maximum(seed, prior, n):
    densities = table(n, seed)
    counts = np.random.default_rng(seed).random(n)
    found = infer_proportions(densities, TASKS, prior, counts)
    free = minimize(
        lambda u: -objective(np.exp(u - logsumexp(u)), densities, prior, counts),
        np.zeros(3),
        tol=1e-12,
    )
    best = np.exp(free.x - logsumexp(free.x))
    assert objective(found.vector(), densities, prior, counts) >= -free.fun - 1e-7
    np.testing.assert_allclose(found.vector(), best, atol=2e-4)


@given(st.integers(0, 500), st.floats(0.01, 0.99))
def test_the_objective_is_concave(seed, share):
    densities = table(30, seed)
    left, right = np.random.default_rng(seed).dirichlet(np.ones(3), 2)
    middle = objective(share * left + (1 - share) * right, densities, 0.3)
    ends = share * objective(left, densities, 0.3) + (1 - share) * objective(right, densities, 0.3)
    assert middle >= ends - 1e-9


def test_certain_examples_are_counted():
    """With one task each for sure, w_k = (n_k + c) / (n + Kc)."""
    densities = np.log(np.full((20, 2), 1e-300))
    densities[:15, 0] = densities[15:, 1] = 0.0
    found = infer_proportions(densities, ("a", "b"), concentration=2.0)
    assert found["a"] == pytest.approx(17 / 24, abs=1e-9)
    # Curvature Σ a/w² + c/w² in each weight: the inverse of n/w + n/(1 − w), n = 24.
    expected = np.sqrt(17 / 24 * 7 / 24 / 24)
    assert found.std["a"] == pytest.approx(expected, rel=1e-6)
    assert found.std["b"] == pytest.approx(expected, rel=1e-6)
    assert found.examples == 20
    np.testing.assert_allclose(found.responsibilities[:15, 0], 1)
    weighted = infer_proportions(densities[[0, 15]], ("a", "b"), 2.0, np.array([15.0, 5.0]))
    assert weighted["a"] == pytest.approx(found["a"])
    assert weighted.std["a"] == pytest.approx(found.std["a"])
    assert weighted.examples == 20


def test_the_deviation_is_that_of_repeated_experiments():
    draws = [infer_proportions(table(200, seed), TASKS, 0.01) for seed in range(150)]
    spread = np.std([q.vector() for q in draws], axis=0)
    said = np.mean([list(q.std.values()) for q in draws], axis=0)
    np.testing.assert_allclose(said, spread, rtol=0.2)
    np.testing.assert_allclose(np.mean([q.vector() for q in draws], axis=0), SHARES, atol=0.02)


def test_without_examples_nothing_is_preferred_and_the_prior_says_how_surely():
    found = infer_proportions(np.zeros((0, 4)), ("a", "b", "c", "d"))
    assert list(found.values()) == [0.25] * 4
    assert found.examples == 0
    strong = infer_proportions(np.zeros((0, 4)), ("a", "b", "c", "d"), 100.0)
    assert strong.std["a"] == pytest.approx(found.std["a"] / np.sqrt(400))
    assert found.responsibilities.shape == (0, 4)


def test_one_task_needs_no_examples():
    found = infer_proportions(np.zeros((3, 1)), ("a",))
    assert found["a"] == 1
    assert found.std["a"] == 0


def test_a_stronger_prior_pulls_to_the_middle():
    weights = [infer_proportions(table(50, 1), TASKS, c)["a"] for c in (0.01, 1.0, 10.0, 1000.0)]
    assert weights[0] > weights[1] > weights[2] > weights[3] > 1 / 3
    default = infer_proportions(table(50, 1), TASKS)
    assert default["a"] == infer_proportions(table(50, 1), TASKS, 1 / 3)["a"]


def test_a_term_of_an_examples_own_changes_nothing():
    densities = table(20, 0)
    shifted = densities - 1000 * np.arange(20)[:, None]
    ours, theirs = infer_proportions(densities, TASKS), infer_proportions(shifted, TASKS)
    np.testing.assert_allclose(ours.vector(), theirs.vector(), atol=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((3, 2)), TASKS), "do not fit 3 tasks"),
        ((np.zeros(3), TASKS), "do not fit 3 tasks"),
        ((np.zeros((3, 0)), ()), "do not fit 0 tasks"),
        ((np.full((3, 3), np.nan), TASKS), "finite density"),
        ((np.full((3, 3), -np.inf), TASKS), "finite density"),
        ((np.full((3, 3), np.inf), TASKS), "finite density"),
        ((np.zeros((3, 3)), TASKS, 0.0), "concentration must be positive"),
        ((np.zeros((3, 3)), TASKS, -1.0), "concentration must be positive"),
        ((np.zeros((3, 3)), TASKS, np.inf), "concentration must be positive"),
        ((np.zeros((3, 3)), TASKS, None, np.ones(2)), "3 finite numbers"),
        ((np.zeros((3, 3)), TASKS, None, np.array([1, -1, 1])), "not negative"),
        ((np.zeros((3, 3)), TASKS, None, np.array([1, np.nan, 1])), "finite"),
    ],
)
def test_what_says_nothing_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        infer_proportions(*arguments)


def mixture(kind: str, counts: tuple[int, int, int], seed: int = 3):
    parts = [task(kind, number, size=n, seed=seed) for number, n in enumerate(counts)]
    return torch.cat([p.x for p in parts]), torch.cat([p.y for p in parts])


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("kind", ["binary", "different classes", "regression", "counts", "mlp"])
def test_a_learner_recovers_the_shares_of_its_tasks(kind, labelled):
    x, y = mixture(kind, (60, 30, 10))
    found = taught(kind).infer_preference(x, y if labelled else None)
    assert isinstance(found, ibcl.Preference)
    assert 0.5 * np.abs(found.vector() - SHARES).sum() < 0.1
    # It is a preference like any other.
    assert taught(kind).model(found).preference == found


@pytest.mark.parametrize("kind", ["binary", "shared classes", "different classes", "regression"])
@pytest.mark.parametrize("rule", ["routed1", "routed by preference"])
def test_labels_count_by_what_each_tasks_head_says_of_them(kind, rule):
    """Densities are the gate's, times p_k(y | x) of the head each task is served by."""
    learnt = taught(kind, rule)
    x, y = mixture(kind, (5, 4, 3))
    uniform = taught(kind, "routed1")
    scores = learnt.state.predictives.gate(learnt.network.features(x).double()).numpy().copy()
    for k in range(3):
        # Nearly all weight on a task, on rows that are its own: its head's answer.
        heads = uniform.state.predictives.uniform_means[k]
        module = uniform.network.module(heads).double()
        outputs = module(x.double()).detach()
        if kind == "regression":
            scores[:, k] += norm.logpdf(y.numpy(), outputs[:, 0].numpy(), 0.3)
            continue
        if kind == "binary":
            p = torch.sigmoid(torch.cat([-outputs, outputs], 1))
        else:
            p = torch.sigmoid(outputs) / torch.sigmoid(outputs).sum(1, keepdim=True)
        if kind == "different classes":
            mask = torch.zeros(6).double()
            mask[task(kind, k).y.unique()] = 1
            p = p * mask / (p * mask).sum(1, keepdim=True)
        with np.errstate(divide="ignore"):
            scores[:, k] += np.log(p[torch.arange(len(y)), y].numpy())
    expected = infer_proportions(scores, TASKS, 0.5)
    found = learnt.infer_preference(x, y, concentration=0.5)
    np.testing.assert_allclose(found.vector(), expected.vector(), atol=1e-5)
    np.testing.assert_allclose(found.responsibilities, expected.responsibilities, atol=1e-4)


def test_weighted_examples_count_as_often_as_they_say():
    x, y = mixture("binary", (6, 3, 2))
    weights = np.array([3.0, 1, 1, 0, 2, 1, 1, 1, 1, 4, 0])
    repeated = np.repeat(np.arange(11), weights.astype(int))
    learnt = taught("binary")
    for labels in (None, y):
        found = learnt.infer_preference(x, labels, sample_weight=weights)
        again = learnt.infer_preference(x[repeated], None if labels is None else y[repeated])
        np.testing.assert_allclose(found.vector(), again.vector(), atol=1e-8)
        assert found.std["a"] == pytest.approx(again.std["a"], rel=1e-5)


def test_a_learner_of_any_rule_infers_preferences():
    x, y = mixture("binary", (60, 30, 10))
    found = taught("binary", "wasserstein").infer_preference(x, y)
    assert 0.5 * np.abs(found.vector() - SHARES).sum() < 0.15
    # The model of an inferred preference answers as that of the same numbers.
    learnt = taught("binary")
    ours = learnt.model(found)
    assert torch.equal(answer(ours, x), answer(learnt.model(found.vector()), x))


def test_inputs_it_cannot_take_and_labels_it_does_not_know_are_refused():
    x, y = mixture("different classes", (2, 2, 2))
    learnt = taught("different classes")
    with pytest.raises(ValueError, match=r"cannot take|shape|size"):
        learnt.infer_preference(x[:, :2])
    with pytest.raises(ValueError, match="but the labels hold"):
        learnt.infer_preference(x, y + 20)
    # Class 5 is one of the network's, but no task has ever seen it.
    with pytest.raises(ValueError, match="finite density under at least one task"):
        learnt.infer_preference(x, torch.full_like(y, 5))
    with pytest.raises(ValueError, match="no task yet"):
        ibcl.IBCL(ibcl.networks.linear(3)).infer_preference(x)


@pytest.mark.parametrize(("examples", "tasks"), [(3, 12), (12, 3), (5, 5), (40, 2), (1, 30)])
def test_deviations_are_laplaces_within_the_simplex(examples, tasks):
    """By the K×K curvature in a basis of the simplex, which few examples do not need."""
    rng = np.random.default_rng(examples)
    table, counts = rng.normal(size=(examples, tasks)) * 2, rng.uniform(0, 2, examples)
    found = infer_proportions(table, [f"task {k}" for k in range(tasks)], 0.3, counts)
    weights = np.array(list(found.values()))
    gradients = found.responsibilities / weights
    curvature = (gradients * counts[:, None]).T @ gradients + np.diag(0.3 / weights**2)
    whole = np.column_stack([np.ones(tasks), np.eye(tasks)[:, 1:]])
    basis = np.linalg.qr(whole)[0][:, 1:]
    covariance = basis @ np.linalg.solve(basis.T @ curvature @ basis, basis.T)
    expected = np.sqrt(np.clip(np.diag(covariance), 0, weights * (1 - weights)))
    np.testing.assert_allclose(list(found.std.values()), expected, rtol=1e-6, atol=1e-9)


def test_of_very_many_tasks_only_the_examples_are_solved_for(monkeypatch):
    """Nothing of tasks × tasks numbers is made."""
    made = []
    eye = np.eye
    monkeypatch.setattr(np, "eye", lambda size: made.append(size) or eye(size))
    table = np.random.default_rng(0).normal(size=(4, 3000))
    found = infer_proportions(table, [f"task {k}" for k in range(3000)])
    assert max(made, default=0) <= 4
    assert abs(sum(found.values()) - 1) < 1e-9
