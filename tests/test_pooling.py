import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import (
    DenseGaussian,
    DiagonalGaussian,
    EvidenceWarning,
    KnowledgeBase,
    Mixture,
    pool,
    sample_preferences,
)
from ibcl.pooling import (
    RULES,
    TITLES,
    EvidencePooling,
    pooling_rule,
    register_rule,
    registry,
    split_weights,
)
from theorems import (
    FAMILIES,
    assert_linear_in_preference,
    assert_same_gaussian,
    assert_uniform_evidence_is_sequential_bayes,
    assert_vertex_identity,
    random_gaussian,
    random_knowledge,
)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("rule", ["wasserstein", "mixture"])
def test_a_vertex_gives_back_the_posterior(kind, rule):
    assert_vertex_identity(random_knowledge(kind), rule)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("rule", ["wasserstein", "mixture"])
def test_means_are_linear_in_the_preference(kind, rule):
    assert_linear_in_preference(random_knowledge(kind, priors=2), rule)


@pytest.mark.parametrize("kind", FAMILIES)
def test_uniform_evidence_is_sequential_bayes(kind):
    assert_uniform_evidence_is_sequential_bayes(random_knowledge(kind, tasks=4, independent=False))


@pytest.mark.parametrize("kind", FAMILIES)
def test_evidence_of_independent_tasks_is_bayes_with_powers_of_their_likelihoods(kind):
    knowledge = random_knowledge(kind, tasks=3)
    weights = np.array([0.5, 0.2, 0.3])
    q = pool(knowledge, weights, "evidence")
    theta = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    prior = knowledge.priors[0].log_prob(theta)
    log_likelihoods = [knowledge.extremes(t)[0].log_prob(theta) - prior for t in knowledge.tasks]
    unnormalised = prior + sum(
        3 * w * value for w, value in zip(weights, log_likelihoods, strict=True)
    )
    gap = unnormalised - q.log_prob(theta)
    torch.testing.assert_close(gap, gap[:1].expand_as(gap), rtol=1e-4, atol=1e-4)


@given(seed=st.integers(0, 1000), share=st.floats(0.05, 0.95))
def test_the_dense_barycentre_matches_pot(seed, share):
    knowledge = KnowledgeBase([random_gaussian("diagonal", 3, 0)], d=0)
    members = [random_gaussian("dense", 3, seed), random_gaussian("dense", 3, seed + 1)]
    for name, q in zip("ab", members, strict=True):
        knowledge.add(name, [q])
    pooled = pool(knowledge, [share, 1 - share], "wasserstein")
    _, expected = ot.gaussian.bures_wasserstein_barycenter(
        np.stack([q.mean.numpy() for q in members]),
        np.stack([q.covariance.numpy() for q in members]),
        weights=np.array([share, 1 - share]),
        num_iter=2000,
        eps=1e-12,
    )
    np.testing.assert_allclose(pooled.covariance.numpy(), expected, rtol=1e-4, atol=1e-6)


def test_the_diagonal_barycentre_minimises_the_weighted_squared_distances():
    knowledge = random_knowledge("diagonal")
    weights = np.array([0.2, 0.5, 0.3])
    q = pool(knowledge, weights, "wasserstein")

    def cost(candidate):
        return sum(
            w * candidate.wasserstein(knowledge.extremes(t)[0]) ** 2
            for w, t in zip(weights, knowledge.tasks, strict=True)
        )

    best = cost(q)
    for seed in range(20):
        nudge = 1 + 0.05 * torch.randn(4, generator=torch.Generator().manual_seed(seed)).double()
        assert cost(DiagonalGaussian(q.mean * nudge, q.std * nudge.abs())) >= best - 1e-12


def test_the_mixture_is_the_convex_combination_of_densities():
    knowledge = random_knowledge("dense", tasks=2, priors=2)
    q = pool(knowledge, [0.8, 0.2], "mixture")
    assert isinstance(q, Mixture)
    np.testing.assert_allclose(sorted(q.weights.tolist()), [0.1, 0.1, 0.4, 0.4])
    theta = torch.zeros(1, 4).double()
    first, second = (knowledge.extremes(t) for t in knowledge.tasks)
    expected = sum(0.4 * p.log_prob(theta).exp() for p in first)
    expected = expected + sum(0.1 * p.log_prob(theta).exp() for p in second)
    torch.testing.assert_close(q.log_prob(theta).exp(), expected)


def test_explicit_splits_replace_the_equal_one():
    knowledge = random_knowledge("diagonal", tasks=2, priors=2)
    q = pool(knowledge, [1.0, 0.0], "wasserstein", split={"task0": [1.0, 0.0]})
    assert_same_gaussian(q, knowledge.extremes("task0")[0], tolerance=1e-12)
    for bad in ([0.5, 0.6], [1.0], [-1.0, 2.0]):
        with pytest.raises(ValueError, match="split of task"):
            pool(knowledge, [0.5, 0.5], split={"task0": bad})


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("priors", [1, 3])
def test_batched_means_equal_single_ones(kind, rule, priors):
    knowledge = random_knowledge(kind, priors=priors)
    preferences = sample_preferences(3, 7)
    weights = split_weights(knowledge, torch.as_tensor(preferences))
    means = pooling_rule(rule).means(knowledge, weights)
    for row, preference in zip(means, preferences, strict=True):
        torch.testing.assert_close(row, pool(knowledge, preference, rule).mean.to(row.dtype))


def test_negative_evidence_is_left_out_with_a_warning():
    knowledge = KnowledgeBase([DiagonalGaussian([0.0, 0.0], [1.0, 1.0])], d=0)
    knowledge.add("a", [DiagonalGaussian([1.0, 2.0], [0.5, 2.0])])
    with pytest.warns(EvidenceWarning, match="50.0%"):
        q = pool(knowledge, [1.0], "evidence")
    assert q.mean.tolist() == [1.0, 0.0]
    assert q.std.tolist() == [0.5, 1.0]


def test_the_warning_names_the_worst_task_and_where_to_look():
    knowledge = KnowledgeBase(
        [DiagonalGaussian(torch.zeros(4), torch.ones(4))], 0, independent=True
    )
    knowledge.add("a", [DiagonalGaussian(torch.zeros(4), [2.0, 2.0, 2.0, 0.5])])
    knowledge.add("b", [DiagonalGaussian(torch.zeros(4), [2.0, 0.5, 0.5, 0.5])])
    with pytest.warns(EvidenceWarning, match=r"75\.0%.*DenseVI") as caught:
        pool(knowledge, [0.5, 0.5], "evidence")
    assert len(caught) == 1
    # What has no weight is not used, and so not complained about.
    with pytest.warns(EvidenceWarning, match=r"25\.0%"):
        pool(knowledge, [0.0, 1.0], "evidence")


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("rule", ["wasserstein", "mixture", "evidence"])
def test_a_task_without_weight_has_no_influence(kind, rule):
    """Whatever it holds, be it as far away as numbers go; also within a batch."""
    knowledge = random_knowledge(kind, tasks=3)
    far = DiagonalGaussian(torch.full((4,), 1e30).double(), torch.full((4,), 1e-9).double())
    other = KnowledgeBase(knowledge.priors, d=0, independent=True)
    for task in knowledge.tasks:
        other.add(task, [far if task == "task1" else knowledge.extremes(task)[0]])
    preferences = np.array([[0.25, 0.0, 0.75], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
    batches = []
    for base in (knowledge, other):
        weights = split_weights(base, torch.as_tensor(preferences))
        batches.append(pooling_rule(rule).means(base, weights))
    assert torch.equal(*batches)
    for preference in preferences:
        ours, theirs = (pool(base, preference, rule) for base in (knowledge, other))
        assert torch.equal(ours.mean, theirs.mean)
        theta = torch.ones(4).double()
        assert torch.equal(ours.log_prob(theta), theirs.log_prob(theta))


def test_a_prior_without_weight_has_no_influence():
    """With several priors and an explicit split, only those with a share are pooled."""
    first, second = DiagonalGaussian([0.0], [1.0]), DiagonalGaussian([5.0], [2.0])
    knowledge = KnowledgeBase([first, second], d=0)
    knowledge.add("a", [DiagonalGaussian([1.0], [0.5]), DiagonalGaussian([4.0], [0.25])])
    q = pool(knowledge, [1.0], "evidence", split={"a": [0.0, 1.0]})
    assert_same_gaussian(q, knowledge.extremes("a")[1])
    # Nor does its family: what is pooled would otherwise become dense.
    mixed = KnowledgeBase([first.dense(), second], d=0)
    mixed.add("a", list(knowledge.extremes("a")))
    assert isinstance(pool(mixed, [1.0], "evidence", split={"a": [0.0, 1.0]}), DiagonalGaussian)


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_evidence_of_one_task_on_its_prior_is_its_posterior(kind):
    """A vertex of evidence pooling, with one task: the same up to rounding, in the same family."""
    knowledge = random_knowledge(kind, tasks=1)
    q = pool(knowledge, [1.0], "evidence")
    (posterior,) = knowledge.extremes("task0")
    assert type(q) is type(posterior)
    assert_same_gaussian(q, posterior, tolerance=1e-10)


@pytest.mark.parametrize("kind", FAMILIES)
def test_pooled_natural_parameters_are_the_equation(kind):
    knowledge = random_knowledge(kind, tasks=3, priors=2)
    weights = torch.tensor([[0.1, 0.2], [0.3, 0.0], [0.15, 0.25]], dtype=torch.float64)
    found = EvidencePooling().natural(knowledge, weights)
    linear, precision = torch.zeros(4).double(), torch.zeros(4, 4).double()
    for j, prior in enumerate(knowledge.priors):
        share = float(weights[:, j].sum())
        p0 = prior.dense().precision
        linear += share * p0 @ prior.mean
        precision += share * p0
        for k, task in enumerate(knowledge.tasks):
            q = knowledge.extremes(task)[j].dense()
            power = 3 * float(weights[k, j])
            linear += power * (q.precision @ q.mean - p0 @ prior.mean)
            precision += power * (q.precision - p0)
    torch.testing.assert_close(found.linear, linear)
    torch.testing.assert_close(found.dense().precision, precision)
    q = EvidencePooling().pool(knowledge, weights)
    torch.testing.assert_close(q.mean, torch.linalg.solve(precision, linear))


def test_pooled_posteriors_keep_the_precision_of_what_they_are_pooled_from():
    for dtype in (torch.float32, torch.float64):
        knowledge = KnowledgeBase([DiagonalGaussian(torch.zeros(2), torch.ones(2))], d=0)
        knowledge.add("a", [DiagonalGaussian(torch.ones(2).to(dtype), [0.5, 0.5])])
        for rule in RULES:
            weights = split_weights(knowledge, torch.ones(1, 1))
            assert pool(knowledge, [1.0], rule).mean.dtype == dtype
            assert pooling_rule(rule).means(knowledge, weights).dtype == dtype


def test_evidence_that_cancels_is_refused_with_advice():
    def gaussian(mean, precision):
        return DenseGaussian(torch.full((2,), mean), precision * torch.eye(2))

    knowledge = KnowledgeBase([gaussian(0.0, 1.0)], d=0)
    knowledge.add("a", [gaussian(1.0, 9.0)])
    knowledge.add("b", [gaussian(2.0, 3.0)])
    with pytest.raises(ValueError, match="Learn with d=0"):
        pool(knowledge, [0.0, 1.0], "evidence")
    with pytest.raises(ValueError, match="Learn with d=0"):
        pooling_rule("evidence").means(knowledge, torch.tensor([[[0.0], [1.0]]]))


def test_rules_from_outside_are_known_by_name_and_title(monkeypatch):
    class Latest:
        """All weight on the last task, whatever is preferred."""

        def pool(self, knowledge, weights):
            return knowledge.extremes(knowledge.tasks[-1])[0]

        def means(self, knowledge, weights):
            return self.pool(knowledge, weights).mean.expand(len(weights), -1)

    known = [*RULES]
    monkeypatch.setattr(registry, "RULES", dict(RULES))
    monkeypatch.setattr(registry, "TITLES", dict(TITLES))
    register_rule("latest", Latest(), title="the latest task")
    assert list(registry.RULES) == [*known, "latest"]
    assert registry.TITLES["latest"] == "the latest task"
    knowledge = random_knowledge("diagonal")
    assert pool(knowledge, [1.0, 0.0, 0.0], "latest") is knowledge.extremes("task2")[0]
    with pytest.raises(ValueError, match="another rule 'latest'"):
        register_rule("latest", Latest(), title="again")
    with pytest.raises(ValueError, match="one plain word"):
        register_rule("the latest", Latest(), title="again")
    assert TITLES.keys() == RULES.keys()


def test_tasks_that_point_to_one_posterior_share_it():
    knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0.5)
    knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
    knowledge.add("b", [DiagonalGaussian([1.1], [0.5])])
    q = pool(knowledge, [0.5, 0.5], "mixture")
    assert q is knowledge.stored[0]


def test_unknown_rules_and_preferences_are_refused():
    knowledge = random_knowledge("diagonal")
    with pytest.raises(ValueError, match="pooling must be one of"):
        pool(knowledge, [1 / 3] * 3, "average")
    with pytest.raises(ValueError, match="sum to 1"):
        pool(knowledge, [0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match="3 tasks"):
        pool(knowledge, [0.5, 0.5])
    with pytest.raises(ValueError, match="KnowledgeBase is pooled, not int"):
        pool(5, [0.5, 0.5])
    assert math.isclose(sum(sample_preferences(3, 1)[0]), 1)
