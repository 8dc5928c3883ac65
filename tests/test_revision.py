"""Forgetting and merging: exact where they claim to be, refused where they would not be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ibcl
from ibcl.gaussians import Gaussian
from ibcl.knowledge import forget, rebase
from ibcl.tabular import Schema
from theorems import FAMILIES as FAMILY_NAMES
from theorems import assert_same_gaussian, random_gaussian, random_knowledge

TASKS = ("a", "b", "c", "d")


def task(name: str, regression: bool = False) -> tuple[Tensor, Tensor]:
    number = TASKS.index(name)
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(30, 3, generator=generator)
    score = x @ torch.randn(3, generator=generator) + 0.3 * torch.randn(30, generator=generator)
    return x, score if regression else score > 0


def learner(tasks: str, **changes: Any) -> ibcl.IBCL:
    regression = isinstance(changes.get("likelihood"), ibcl.Normal)
    defaults = {
        "inference": ibcl.DenseVI(),
        "pooling": "evidence",
        "d": 0,
        "priors": [2.5],
        "independent": False,
    }
    settings = {**defaults, **changes}
    made = ibcl.IBCL(ibcl.networks.linear(3), **settings)
    for name in tasks:
        made.learn(*task(name, regression), task=name)
    return made


def parameters(gaussian: Gaussian) -> tuple[Tensor, ...]:
    return tuple(gaussian.tensors().values())


def assert_knows_the_same(
    a: ibcl.IBCL, b: ibcl.IBCL, tolerance: float | None = None, distances: bool = True
) -> None:
    """The same tasks, with the same posteriors learnt from the same priors, pool to the same.

    Bit for bit without a tolerance.
    """

    def close(one: Tensor, other: Tensor) -> bool:
        if tolerance is None:
            return torch.equal(one, other)
        return torch.allclose(one, other, rtol=tolerance, atol=tolerance)

    assert a.tasks == b.tasks
    for name in a.tasks:
        ours, theirs = a.knowledge.record(name), b.knowledge.record(name)
        assert (ours.pointers, ours.samples) == (theirs.pointers, theirs.samples)
        if distances:
            assert ours.distances == theirs.distances
        for index, extremes in enumerate(
            zip(a.knowledge.extremes(name), b.knowledge.extremes(name), strict=True)
        ):
            priors = a.knowledge.prior_of(name, index), b.knowledge.prior_of(name, index)
            for pair in (extremes, priors):
                assert all(map(close, *map(parameters, pair)))
    assert len(a.knowledge.stored) == len(b.knowledge.stored)
    if a.tasks:
        for weights in ibcl.sample_preferences(len(a.tasks), 4, seed=0):
            assert close(a.model(weights).theta, b.model(weights).theta)


MEAN_FIELD = {
    "inference": ibcl.MeanFieldVI(epochs=2),
    "pooling": "wasserstein",
    "priors": [1.0, 2.5],
}
FAMILIES: dict[str, dict[str, Any]] = {
    "dense": {},
    "dense, two priors": {"priors": [1.0, 3.0]},
    "regression": {"likelihood": ibcl.Normal(0.5)},
    "mean-field": MEAN_FIELD,
    "mixture": {"pooling": "mixture"},
}
family = pytest.mark.parametrize("changes", FAMILIES.values(), ids=FAMILIES)


@family
@pytest.mark.parametrize("forgotten", ["a", "b", "c"])
def test_forgetting_an_independent_task_is_never_having_learnt_it(
    changes: dict[str, Any], forgotten: str
) -> None:
    found = learner("abc", independent=True, **changes)
    found.forget(forgotten)
    expected = learner("abc".replace(forgotten, ""), independent=True, **changes)
    assert_knows_the_same(found, expected)
    found.learn(*task("d", "likelihood" in changes), task="d")
    expected.learn(*task("d", "likelihood" in changes), task="d")
    assert_knows_the_same(found, expected)


@family
def test_forgetting_the_last_tasks_of_a_chain_is_never_having_learnt_them(
    changes: dict[str, Any],
) -> None:
    found = learner("abcd", **changes)
    found.forget("d")
    found.forget("c")
    assert_knows_the_same(found, learner("ab", **changes))


def test_everything_can_be_forgotten_and_learnt_again() -> None:
    found = learner("ab")
    for name in "ba":
        found.forget(name)
    assert found.tasks == ()
    assert found.knowledge.stored == ()
    found.learn(*task("a"), task="a")
    assert_knows_the_same(found, learner("a"))


def test_with_a_threshold_distances_are_as_if_never_learnt() -> None:
    changes = {**MEAN_FIELD, "d": 1e-4, "independent": True}
    found = learner("abcd", **changes)
    found.forget("b")
    assert_knows_the_same(found, learner("acd", **changes))


def test_a_task_in_a_chain_is_not_forgotten_silently() -> None:
    found = learner("abc")
    with pytest.raises(ValueError, match=r"'b' was learnt from its posteriors.*rebase"):
        found.forget("a")
    assert_knows_the_same(found, learner("abc"))


def test_a_task_that_others_point_to_is_not_forgotten() -> None:
    for independent in (True, False):
        found = learner("ab", d=100.0, independent=independent)
        assert found.knowledge.records[1].pointers == (True,)
        for approximation in (None, "rebase"):
            with pytest.raises(ValueError, match="also stands for task 'b'"):
                found.forget("a", approximation)
        found.forget("b")
        assert_knows_the_same(found, learner("a", d=100.0, independent=independent))


def test_forgetting_a_pointer_back_is_exact_within_a_chain() -> None:
    """b's posterior is replaced by a's, so c was learnt from a's either way."""
    first, second = (ibcl.DiagonalGaussian([m], [0.5]) for m in (1.0, 5.0))
    found, expected = (ibcl.KnowledgeBase([ibcl.DiagonalGaussian([0.0], [1.0])], 0.1) for _ in "ab")
    found.add("a", [first])
    assert found.add("b", [ibcl.DiagonalGaussian([1.01], [0.5])]).pointers == (True,)
    found.add("c", [second])
    expected.add("a", [first])
    expected.add("c", [second])
    forget(found, "b")
    assert found.records == expected.records
    assert found.stored == expected.stored


@pytest.mark.parametrize("forgotten", ["a", "b", "c"])
@pytest.mark.parametrize("priors", [[2.5], [1.0, 3.0]])
def test_rebasing_is_exact_for_linear_gaussian_models(forgotten: str, priors: list[float]) -> None:
    changes = {"likelihood": ibcl.Normal(0.5), "priors": priors}
    found = learner("abcd", **changes)
    found.forget(forgotten, approximation="rebase")
    expected = learner("abcd".replace(forgotten, ""), **changes)
    assert_knows_the_same(found, expected, tolerance=1e-8)


def test_rebasing_removes_exactly_the_evidence() -> None:
    """Whatever the likelihood, the other tasks' evidence stays as it was."""
    found, whole = learner("abcd"), learner("abcd")
    found.forget("b", approximation="rebase")
    for name in "acd":
        ours, theirs = found.knowledge.evidence(name, 0), whole.knowledge.evidence(name, 0)
        assert torch.allclose(ours.dense().precision, theirs.dense().precision, atol=1e-8)
        assert torch.allclose(ours.linear, theirs.linear, atol=1e-8)
    assert found.knowledge.record("c").priors == found.knowledge.record("a").posteriors


def test_rebasing_says_where_evidence_was_negative() -> None:
    knowledge = ibcl.KnowledgeBase([ibcl.DiagonalGaussian([0.0, 0.0], [1.0, 1.0])], d=0)
    knowledge.add("a", [ibcl.DiagonalGaussian([1.0, 1.0], [0.1, 0.5])])
    knowledge.add("b", [ibcl.DiagonalGaussian([2.0, 2.0], [0.2, 0.25])])
    with pytest.warns(ibcl.EvidenceWarning, match=r"50\.0%"):
        forget(knowledge, "a", approximation="rebase")
    (left,) = knowledge.stored
    # b said less than a about the first parameter; about the second 16 − 4 more, at (32 − 4)/12.
    assert left.mean.tolist() == pytest.approx([0.0, 28 / 13])
    assert left.dense().precision.diagonal().tolist() == pytest.approx([1.0, 13.0])


def test_a_dense_posterior_that_would_become_improper_is_refused() -> None:
    def gaussian(mean: float, precision: float) -> ibcl.DenseGaussian:
        return ibcl.DenseGaussian(torch.full((2,), mean), precision * torch.eye(2))

    knowledge = ibcl.KnowledgeBase([gaussian(0.0, 1.0)], d=0)
    knowledge.add("a", [gaussian(1.0, 9.0)])
    knowledge.add("b", [gaussian(2.0, 3.0)])
    before = knowledge.stored, knowledge.records
    with pytest.raises(ValueError, match="positive definite"):
        forget(knowledge, "a", approximation="rebase")
    assert (knowledge.stored, knowledge.records) == before


def test_bad_requests_to_forget() -> None:
    found = learner("ab")
    with pytest.raises(ValueError, match="Unknown task 'x'"):
        found.forget("x")
    with pytest.raises(ValueError, match="approximation must be"):
        found.forget("b", approximation="please")
    ids = ibcl.IBCL(
        ibcl.networks.linear(5), inference=ibcl.DenseVI(), independent=True, task_incremental=2
    )
    for name in "ab":
        ids.learn(*task(name), task=name)
    with pytest.raises(ValueError, match="only the last task"):
        ids.forget("a")
    ids.forget("b")
    assert ids.tasks == ("a",)


def test_unnamed_tasks_get_free_names_after_forgetting() -> None:
    found = learner("", independent=True)
    for _ in range(2):
        found.learn(*task("a"))
    found.forget("task 1")
    found.learn(*task("b"))
    assert found.tasks == ("task 2", "task 3")


@family
def test_merging_independent_tasks_is_one_learner_of_all(changes: dict[str, Any]) -> None:
    merged = ibcl.merge(
        learner("ac", independent=True, **changes), learner("bd", independent=True, **changes)
    )
    assert_knows_the_same(merged, learner("acbd", independent=True, **changes))
    assert merged.likelihood == learner("a", **changes).likelihood


def test_merging_is_associative_and_its_order_only_that_of_the_tasks() -> None:
    a, b, c = (learner(name, independent=True) for name in "abc")
    left, right = ibcl.merge(ibcl.merge(a, b), c), ibcl.merge(a, ibcl.merge(b, c))
    assert_knows_the_same(left, right)
    ours, theirs = ibcl.merge(a, b), ibcl.merge(b, a)
    assert theirs.tasks == ("b", "a")
    preference = {"a": 0.3, "b": 0.7}
    found = theirs.model(preference).theta
    assert torch.allclose(ours.model(preference).theta, found, rtol=1e-12)
    for name in "ab":
        (one,), (other,) = ours.knowledge.extremes(name), theirs.knowledge.extremes(name)
        assert one is other


def test_merging_and_forgetting_undo_each_other() -> None:
    a, b = learner("ac", independent=True), learner("bd", independent=True)
    merged = ibcl.merge(a, b)
    merged.forget("b")
    merged.forget("d")
    assert_knows_the_same(merged, a)


def test_merging_leaves_the_parts_alone_and_goes_on_learning() -> None:
    a, b = learner("a", independent=True), learner("b", independent=True)
    a.metadata, b.metadata = {"columns": [1], "site": "a"}, {"columns": [1], "date": "today"}
    merged = ibcl.merge(a, b)
    assert merged.metadata == {"columns": [1], "site": "a", "date": "today"}
    merged.learn(*task("c"), task="c")
    assert_knows_the_same(merged, learner("abc", independent=True))
    assert_knows_the_same(a, learner("a", independent=True))


def test_merging_with_pointers_keeps_them() -> None:
    changes = {**MEAN_FIELD, "d": 100.0, "independent": True}
    merged = ibcl.merge(learner("ab", **changes), learner("cd", **changes))
    assert [record.posteriors for record in merged.knowledge.records] == [
        (0, 1),
        merged.knowledge.record("b").posteriors,
        (2, 3),
        merged.knowledge.record("d").posteriors,
    ]
    assert set(merged.knowledge.record("b").posteriors) <= {0, 1}
    assert set(merged.knowledge.record("d").posteriors) <= {2, 3}


@pytest.mark.parametrize("independent", [True, False])
def test_merging_with_a_learner_that_knows_nothing_changes_nothing(independent: bool) -> None:
    one = learner("ab", independent=independent)
    for merged in (
        ibcl.merge(one, learner("", independent=independent)),
        ibcl.merge(learner("", independent=independent), one),
    ):
        assert_knows_the_same(merged, one)
        assert merged.likelihood == one.likelihood


@pytest.mark.parametrize("priors", [[2.5], [1.0, 3.0]])
def test_merging_chains_is_exact_for_linear_gaussian_models(priors: list[float]) -> None:
    changes = {"likelihood": ibcl.Normal(0.5), "priors": priors}
    merged = ibcl.merge(learner("ab", **changes), learner("cd", **changes), "rebase")
    assert_knows_the_same(merged, learner("abcd", **changes), tolerance=1e-8)
    assert [r.priors for r in merged.knowledge.records] == [
        r.priors for r in learner("abcd", **changes).knowledge.records
    ]


def test_merging_chains_keeps_all_evidence() -> None:
    a, b = learner("ab"), learner("cd")
    with pytest.raises(ValueError, match=r"'c' and the tasks after it.*rebase"):
        ibcl.merge(a, b)
    merged = ibcl.merge(a, b, approximation="rebase")
    for part in (a, b):
        for name in part.tasks:
            ours, theirs = merged.knowledge.evidence(name, 0), part.knowledge.evidence(name, 0)
            assert torch.allclose(ours.dense().precision, theirs.dense().precision, atol=1e-8)
            assert torch.allclose(ours.linear, theirs.linear, atol=1e-8)
    merged.forget("d")
    merged.forget("c")
    assert_knows_the_same(merged, a)


DIFFERENCES: dict[str, tuple[Callable[[], ibcl.IBCL], str]] = {
    "number of priors": (lambda: learner("b", priors=[2.5, 2.5]), "priors differ"),
    "likelihood": (lambda: learner("b", likelihood=ibcl.Normal()), "likelihood differs"),
    "pooling": (lambda: learner("b", pooling="mixture"), "pooling differs"),
    "threshold": (lambda: learner("b", d=0.1), "d differs"),
    "independent": (lambda: learner("b", independent=True), "independent differs"),
    "tasks": (lambda: learner("a"), "both have learnt a"),
    "network": (
        lambda: ibcl.IBCL(ibcl.networks.mlp(3, hidden=2), pooling="evidence", d=0),
        "networks differ",
    ),
}


@pytest.mark.parametrize(("other", "reason"), DIFFERENCES.values(), ids=DIFFERENCES)
def test_learners_that_do_not_fit_are_not_merged(
    other: Callable[[], ibcl.IBCL], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        ibcl.merge(learner("a"), other(), approximation="rebase")


@pytest.mark.parametrize(
    "prior", [1.0, ibcl.DenseGaussian(torch.zeros(4), torch.eye(4) / 2.5**2)], ids=["std", "family"]
)
def test_other_priors_are_only_merged_as_an_approximation(prior: Any) -> None:
    a, b = learner("a", independent=True), learner("b", independent=True, priors=[prior])
    with pytest.raises(ValueError, match="priors differ"):
        ibcl.merge(a, b)
    merged = ibcl.merge(a, b, approximation="rebase")
    kept, moved = (x.knowledge.evidence("b", 0).dense() for x in (b, merged))
    torch.testing.assert_close(moved.precision, kept.precision)
    torch.testing.assert_close(moved.linear, kept.linear)


def test_other_metadata_and_task_ids_are_not_merged() -> None:
    a, b = learner("a", independent=True), learner("b", independent=True)
    a.metadata, b.metadata = {"classes": ["no", "yes"]}, {"classes": ["yes", "no"]}
    with pytest.raises(ValueError, match=r"metadata\['classes'\] differs"):
        ibcl.merge(a, b)
    ids = [ibcl.IBCL(ibcl.networks.linear(5), task_incremental=2) for _ in range(2)]
    with pytest.raises(ValueError, match="append a task id"):
        ibcl.merge(*ids)
    with pytest.raises(ValueError, match="approximation must be"):
        ibcl.merge(a, b, approximation="anything")


positive = st.floats(0.1, 3.0)
diagonal = st.builds(
    lambda mean, std: ibcl.DiagonalGaussian(
        torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)
    ),
    st.lists(st.floats(-3, 3), min_size=2, max_size=2),
    st.lists(positive, min_size=2, max_size=2),
)


@settings(max_examples=50, deadline=None)
@given(old=diagonal, new=diagonal, evidence=st.lists(positive, min_size=2, max_size=2))
def test_moving_there_and_back_is_nothing(
    old: ibcl.DiagonalGaussian, new: ibcl.DiagonalGaussian, evidence: list[float]
) -> None:
    """Diagonal and dense move alike, and back again."""
    precision = old.std.square().reciprocal() + torch.tensor(evidence, dtype=torch.float64)
    posterior = ibcl.DiagonalGaussian(old.mean + 1, precision.rsqrt())
    moved, share = rebase(posterior, old, new)
    assert share == 0
    back, _ = rebase(moved, new, old)
    assert all(map(torch.allclose, parameters(back), parameters(posterior)))
    dense, _ = rebase(posterior.dense(), old, new.dense())
    assert all(map(torch.allclose, parameters(dense), parameters(moved.dense())))


@pytest.mark.parametrize("kind", FAMILY_NAMES)
@given(seed=st.integers(0, 1000))
def test_every_family_moves_there_and_back(kind: str, seed: int) -> None:
    """Onto a sharper prior and back again, as its dense twin does."""
    old, new = (random_gaussian(name, 5, seed) for name in ("diagonal", kind))
    evidence = random_gaussian(kind, 5, seed + 1).natural_parameters()
    posterior = (old.natural_parameters() + evidence).gaussian()
    moved, share = rebase(posterior, old, new)
    assert share == 0
    twin, _ = rebase(posterior.dense(), old.dense(), new.dense())
    assert_same_gaussian(moved, twin)
    back, _ = rebase(moved, new, old)
    assert_same_gaussian(back, posterior)


@pytest.mark.parametrize("kind", FAMILY_NAMES)
def test_forgetting_a_middle_task_of_a_chain_leaves_the_others(kind: str) -> None:
    knowledge, expected = (random_knowledge(kind, tasks=3, independent=False) for _ in range(2))
    forget(knowledge, "task1", approximation="rebase")
    for name in ("task0", "task2"):
        ours, theirs = knowledge.evidence(name, 0), expected.evidence(name, 0)
        torch.testing.assert_close(ours.linear, theirs.linear)
        torch.testing.assert_close(ours.dense().precision, theirs.dense().precision)


def test_a_moved_posterior_keeps_its_precision() -> None:
    q, old, new = (ibcl.DiagonalGaussian([m], [s]) for m, s in ((1.0, 0.5), (0.0, 1.0), (0.0, 2.0)))
    assert rebase(q, old, new)[0].mean.dtype == torch.float32
    wide = ibcl.DiagonalGaussian(q.mean.double(), q.std.double())
    assert rebase(wide, old, new)[0].mean.dtype == torch.float64


def independent_tasks(tasks: str, **changes: Any) -> ibcl.IBCL:
    return learner(tasks, **{"independent": True, "pooling": "routed1", **changes})


def test_adopted_tasks_are_as_if_learnt_here() -> None:
    here, there = independent_tasks("a"), independent_tasks("bc")
    here.adopt(there)
    assert_knows_the_same(here, independent_tasks("abc"))
    assert [moments is None for moments in here.knowledge.moments] == [False] * 3
    # The other one is as it was, and its tasks are known by now.
    assert there.tasks == ("b", "c")
    with pytest.raises(ValueError, match="b"):
        here.adopt(there)
    assert here.tasks == ("a", "b", "c")


@pytest.mark.parametrize(
    "changes",
    [
        {"priors": [2.0]},
        {"priors": [2.5, 2.5]},
        {"inference": ibcl.DenseVI(tolerance=1e-5)},
        {"likelihood": ibcl.Normal(0.4)},
        {"independent": False},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_tasks_learnt_otherwise_are_not_adopted(changes: dict[str, Any]) -> None:
    here, there = independent_tasks("a"), independent_tasks("b", **changes)
    for one, other in ((here, there), (there, here)):
        with pytest.raises(ValueError, match="Only independent tasks with the same"):
            one.adopt(other)
    assert here.tasks == ("a",)


def test_tasks_of_another_network_or_with_ids_are_not_adopted() -> None:
    def told(module: torch.nn.Module, name: str, ids: int | None) -> ibcl.IBCL:
        made = ibcl.IBCL(module, [1.0], independent=True, pooling="evidence", task_incremental=ids)
        made.learn(torch.eye(2), [0, 1], task=name)
        return made

    linear, features = ibcl.networks.linear, ibcl.networks.random_features
    one = told(linear(2), "a", None)
    for other in (told(features(2, 1), "b", None), told(linear(4), "b", 2)):
        with pytest.raises(ValueError, match="Only independent tasks with the same"):
            one.adopt(other)
    with pytest.raises(ValueError, match="without task ids"):
        told(linear(4), "a", 2).adopt(told(linear(4), "b", 2))


def test_tasks_of_other_tables_are_not_adopted() -> None:
    """The same numbers mean something else where columns are scaled otherwise."""

    def of(scale: float, name: str) -> ibcl.IBCL:
        frame = pd.DataFrame({"u": scale * np.linspace(-1, 1, 30)})
        y = np.where(frame["u"] > 0, "yes", "no")
        schema = Schema.fit(frame, y)
        made = ibcl.IBCL(ibcl.networks.linear(1), [1.0], independent=True, encoder=schema)
        made.learn(frame, y, task=name)
        return made

    here = of(1.0, "a")
    with pytest.raises(ValueError, match="encoder"):
        here.adopt(of(5.0, "b"))
    here.adopt(of(1.0, "b"))
    assert here.tasks == ("a", "b")
