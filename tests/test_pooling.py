import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import DiagonalGaussian, EvidenceWarning, KnowledgeBase, Mixture, pool, sample_preferences
from ibcl.pooling import RULES, pooling_rule, split_weights
from theorems import (
    assert_linear_in_preference,
    assert_same_gaussian,
    assert_uniform_evidence_is_sequential_bayes,
    assert_vertex_identity,
    random_gaussian,
    random_knowledge,
)

KINDS = ["diagonal", "dense"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["wasserstein", "mixture"])
def test_a_vertex_gives_back_the_posterior(kind, rule):
    assert_vertex_identity(random_knowledge(kind), rule)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", ["wasserstein", "mixture"])
def test_means_are_linear_in_the_preference(kind, rule):
    assert_linear_in_preference(random_knowledge(kind, priors=2), rule)


@pytest.mark.parametrize("kind", KINDS)
def test_uniform_evidence_is_sequential_bayes(kind):
    assert_uniform_evidence_is_sequential_bayes(random_knowledge(kind, tasks=4, continual=True))


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_of_isolated_tasks_is_bayes_with_powers_of_their_likelihoods(kind):
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


@pytest.mark.parametrize("kind", KINDS)
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
    assert math.isclose(sum(sample_preferences(3, 1)[0]), 1)
