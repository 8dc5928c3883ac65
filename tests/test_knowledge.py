import copy
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import IBCL, DiagonalGaussian, KnowledgeBase, load, merge, networks
from ibcl.knowledge import DISTANCES
from ibcl.routing import Moments
from theorems import assert_dedup_within_d, random_gaussian, random_knowledge

PRIOR = DiagonalGaussian([0.0, 0.0], [1.0, 1.0])


def at(*mean: float, std: float = 0.5) -> DiagonalGaussian:
    return DiagonalGaussian(list(mean), [std] * len(mean))


@given(
    st.lists(st.lists(st.floats(-1, 1), min_size=2, max_size=2), min_size=1, max_size=6),
    st.floats(0, 0.6),
    st.sampled_from([1, 2]),
)
def test_every_posterior_is_stored_or_within_d_of_a_stored_one(means, d, priors):
    knowledge = KnowledgeBase([PRIOR] * priors, d=d)
    learnt = {}
    for number, mean in enumerate(means):
        learnt[f"t{number}"] = [at(mean[0] + 0.1 * j, mean[1]) for j in range(priors)]
        knowledge.add(f"t{number}", learnt[f"t{number}"])
    assert_dedup_within_d(knowledge, learnt)
    stored = knowledge.stored
    assert len(stored) == sum(not p for r in knowledge.records for p in r.pointers)


def test_the_first_task_is_always_stored_and_zero_d_stores_all():
    knowledge = KnowledgeBase([PRIOR], d=100.0)
    assert knowledge.add("a", [PRIOR]).pointers == (False,)
    knowledge = KnowledgeBase([PRIOR], d=0)
    for name in "abc":
        knowledge.add(name, [at(1.0, 1.0)])
    assert len(knowledge.stored) == 3


def test_distances_are_wasserstein_per_parameter():
    knowledge = KnowledgeBase([PRIOR], d=0.5)
    knowledge.add("a", [at(0.0, 0.0)])
    record = knowledge.add("b", [at(3.0, 4.0)])
    assert record.distances == (pytest.approx(5 / math.sqrt(2)),)
    assert knowledge.report()[1].undivided == (pytest.approx(5.0),)


def test_the_authors_scale_divides_norms_by_the_number_of_parameters():
    near = DiagonalGaussian([3.0, 4.0], [1.0, 2.5])
    knowledge = KnowledgeBase([PRIOR], d=0.5, distance="norms")
    knowledge.add("a", [DiagonalGaussian([0.0, 0.0], [1.0, 0.5])])
    assert knowledge.add("b", [near]).distances == (pytest.approx((5 + 2) / 2),)
    assert knowledge.add("c", [near]).pointers == (True,)


@pytest.mark.parametrize("distance", DISTANCES)
@given(seed=st.integers(0, 999), precise=st.booleans())
def test_distances_are_never_below_that_of_the_means(distance, seed, precise):
    generator = torch.Generator().manual_seed(seed)
    pair = []
    for _ in range(2):
        mean, spread = torch.randn(2, 3, generator=generator).double()
        gaussian = DiagonalGaussian(mean, spread.exp())
        pair.append(gaussian.dense() if precise else gaussian)
    apart = float((pair[0].mean - pair[1].mean).norm())
    assert DISTANCES[distance].of(*pair) >= apart - 1e-5
    assert DISTANCES[distance](pair[0], pair[0]) == pytest.approx(0, abs=1e-5)


def test_the_nearest_of_several_stands_in_and_is_the_next_prior():
    knowledge = KnowledgeBase([PRIOR], d=0.5)
    knowledge.add("a", [at(0.0, 0.0)])
    knowledge.add("b", [at(5.0, 0.0)])
    record = knowledge.add("c", [at(0.2, 0.0)])
    assert record.posteriors == (0,)
    assert record.pointers == (True,)
    assert knowledge.next_priors() == (knowledge.stored[0],)
    assert knowledge.extremes("c") == (knowledge.stored[0],)
    assert knowledge.record("d" if "d" in knowledge.tasks else "c").priors == (1,)


@given(st.integers(0, 300))
def test_pruned_search_finds_the_true_nearest(seed):
    knowledge = KnowledgeBase([random_gaussian("dense", 3, 0)], d=1e-9)
    for number in range(5):
        knowledge.add(f"t{number}", [random_gaussian("dense", 3, seed + number)])
    probe = random_gaussian("dense", 3, seed + 99)
    distances = [probe.wasserstein(q) / math.sqrt(3) for q in knowledge.stored]
    index, distance = knowledge.nearest(probe)
    assert index == distances.index(min(distances))
    assert distance == pytest.approx(min(distances))


@pytest.mark.parametrize("independent", [True, False])
def test_evidence_is_the_quotient_of_posterior_and_prior(independent):
    knowledge = random_knowledge("dense", tasks=3, priors=2, independent=independent)
    theta = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).double()
    for task in knowledge.tasks:
        for index in range(2):
            factor = knowledge.evidence(task, index)
            log_factor = theta @ factor.linear - 0.5 * ((theta @ factor.precision) * theta).sum(-1)
            quotient = knowledge.extremes(task)[index].log_prob(theta)
            quotient = quotient - knowledge.prior_of(task, index).log_prob(theta)
            gap = log_factor - quotient
            torch.testing.assert_close(gap, gap[:1].expand_as(gap), rtol=1e-6, atol=1e-6)


def test_independent_learning_starts_from_the_initial_priors():
    chained, independent = (random_knowledge("diagonal", independent=i) for i in (False, True))
    assert chained.record("task1").priors == (0,)
    assert independent.record("task1").priors == (None,)
    assert independent.next_priors() == independent.priors


def test_the_report_grows_with_what_is_stored():
    knowledge = KnowledgeBase([PRIOR], d=0.5)
    knowledge.add("a", [at(0.0, 0.0)])
    knowledge.add("b", [at(0.1, 0.0)])
    knowledge.add("c", [at(9.0, 0.0)])
    report = knowledge.report()
    assert [row.stored for row in report] == [1, 1, 2]
    assert [row.learnt for row in report] == [1, 2, 3]
    assert [row.nbytes for row in report] == [16, 16, 32]
    assert knowledge.nbytes == 32


def test_without_a_threshold_the_report_still_knows_the_distances():
    knowledge = KnowledgeBase([PRIOR], d=0)
    knowledge.add("a", [at(0.0, 0.0)])
    knowledge.add("b", [at(3.0, 4.0)])
    assert [row.undivided for row in knowledge.report()] == [(None,), (pytest.approx(5.0),)]


def test_a_posterior_at_the_threshold_is_stored_and_one_within_it_is_not():
    knowledge = KnowledgeBase([PRIOR], d=2.0)
    knowledge.add("a", [at(0.0, 0.0)])
    # W2 = √8 of two parameters: W2/√D = 2, exactly the threshold.
    assert knowledge.add("b", [at(2.0, 2.0)]).pointers == (False,)
    assert knowledge.add("c", [at(1.99, -1.99)]).pointers == (True,)


def test_copies_go_their_own_way():
    knowledge = random_knowledge("dense", tasks=2)
    other = copy.copy(knowledge)
    before = knowledge.evidence("task0", 0)
    other.add("more", [random_gaussian("dense", 4, 5)])
    assert knowledge.tasks == ("task0", "task1")
    assert other.tasks == ("task0", "task1", "more")
    assert len(knowledge.moments) == 2
    assert len(other.moments) == 3
    assert torch.equal(other.evidence("task0", 0).linear, before.linear)


def test_a_tasks_evidence_is_the_mean_over_its_extremes():
    knowledge = random_knowledge("dense", tasks=2, priors=3)
    whole = knowledge.task_evidence("task1")
    parts = [knowledge.evidence("task1", index) for index in range(3)]
    torch.testing.assert_close(whole.linear, sum(part.linear for part in parts) / 3)
    torch.testing.assert_close(whole.precision, sum(part.precision for part in parts) / 3)


def test_only_posteriors_that_know_correlations_are_correlated():
    assert random_knowledge("dense").correlated
    assert not random_knowledge("diagonal").correlated


def test_moments_count_among_the_bytes():
    knowledge = KnowledgeBase([PRIOR], d=0)
    moments = Moments.of(torch.randn(5, 2))
    knowledge.add("a", [at(0.0, 0.0)], samples=7, updates=3, moments=moments)
    knowledge.add("b", [at(1.0, 0.0)])
    assert knowledge.moments == (moments, None)
    assert knowledge.nbytes == 32 + moments.nbytes
    assert (knowledge.record("a").samples, knowledge.record("a").updates) == (7, 3)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda k: k.add("a", [at(1.0, 1.0)]), "learnt already"),
        (lambda k: k.add("b", []), "one per prior"),
        (lambda k: k.add("b", [at(1.0)]), "dimensions"),
        (lambda k: k.add("", [at(1.0, 1.0)]), "name must not be empty"),
        (lambda k: k.add("x,y", [at(1.0, 1.0)]), "name must be text"),
        (lambda k: k.add(3, [at(1.0, 1.0)]), "name must be text"),
        (lambda k: k.extremes("z"), "Unknown task 'z'; known tasks are a"),
        (lambda _: KnowledgeBase([], 0.1), "at least one prior"),
        (lambda _: KnowledgeBase([PRIOR], -1), "not negative"),
        (lambda _: KnowledgeBase([PRIOR], math.nan), "not negative"),
    ],
)
def test_bad_input_changes_nothing(act, message):
    knowledge = KnowledgeBase([PRIOR])
    knowledge.add("a", [at(0.0, 0.0)])
    with pytest.raises(ValueError, match=message):
        act(knowledge)
    assert knowledge.tasks == ("a",)
    assert len(knowledge.stored) == 1


def test_the_scale_of_d_is_kept_on_disk_and_checked_when_merging(tmp_path):
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    sites = []
    for name, distance in (("north", "norms"), ("south", "rms")):
        site = IBCL(
            networks.linear(2), priors=[1.0], pooling="wasserstein", d=0.1, distance=distance
        )
        site.learn(x, x[:, 0] > 0, task=name)
        site.save(tmp_path / name)
        sites.append(load(tmp_path / name))
    assert [site.knowledge.distance for site in sites] == ["norms", "rms"]
    with pytest.raises(ValueError, match="distance differs"):
        merge(*sites)
