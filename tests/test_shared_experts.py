"""Experts that tasks share: votes by rows and alikeness, and nothing left of what is forgotten."""

import numpy as np
import pytest
import torch

import ibcl
from ibcl.experts import ExpertPart
from ibcl.pooling import RoutedEvidence
from ibcl.pooling.power_prior import borrowed

pytest.importorskip("skops")
ROWS = {"b": 240, "a": 160, "few": 40, "apart": 200}


def rows_of(task: str, rows: int | None = None, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Chequered squares, which heads cannot learn; those of the last task are the other way."""
    random = np.random.default_rng([seed, *map(ord, task)])
    x = random.normal(size=(ROWS[task] if rows is None else rows, 2))
    sign = -1 if task == "apart" else 1
    line = x @ [1.0, 0.5] * sign
    return x, (np.sign(x[:, 0] * x[:, 1]) * sign + line > 0).astype(int)


def learner(tasks, **settings) -> ibcl.IBCL:
    taught = ibcl.IBCL(
        ibcl.networks.linear(2),
        expert="auto",
        pooling=RoutedEvidence(head_share=1.0, borrow=True),
        **settings,
    )
    for task in tasks:
        taught.learn(*rows_of(task), task=task)
    return taught


@pytest.fixture(scope="module")
def taught() -> ibcl.IBCL:
    return learner(ROWS)


def test_every_task_has_a_say_by_its_rows_and_by_alikeness(taught):
    x, _ = rows_of("a", 50, seed=1)
    heads = ibcl.IBCL(ibcl.networks.linear(2), pooling=RoutedEvidence(head_share=1.0, borrow=True))
    for task in ROWS:
        heads.learn(*rows_of(task), task=task)
    powers = [each.power for each in borrowed(taught.knowledge)]
    parts = [kept.get(ExpertPart.kind) for kept in taught.knowledge.parts]
    features = torch.tensor(x, dtype=torch.float32)
    for number, task in enumerate(ROWS):
        votes = np.array([rows * powers[number] for rows in ROWS.values()])
        votes[number] = ROWS[task]
        votes /= votes.sum()
        head = heads.model(task).predict_proba(x)
        expected = np.zeros_like(head)
        for vote, part in zip(votes, parts, strict=True):
            share = 0.0 if part is None else part.share
            expected += vote * (1 - share) * head
            if part is not None:
                expected += vote * share * part.answers(features).numpy()
        assert np.allclose(taught.model(task).predict_proba(x), expected, atol=1e-5)
        vertex = np.eye(len(ROWS))[[number]]
        assert np.allclose(taught.predict_many(x, vertex)[0], expected, atol=1e-5)


def test_a_task_of_few_rows_answers_with_the_others_boosting(taught):
    assert ExpertPart.kind not in taught.knowledge.parts[2]
    x, y = rows_of("few", 400, seed=2)
    alone = learner(["few"])
    gain = (taught.model("few").predict(x) == y).mean() - (
        alone.model("few").predict(x) == y
    ).mean()
    assert gain > 0.05


def test_a_task_unlike_the_others_keeps_to_itself(taught):
    x, y = rows_of("apart", 400, seed=3)
    alone = learner(["apart"])
    ours, its = ((each.model("apart").predict(x) == y).mean() for each in (taught, alone))
    assert abs(ours - its) < 0.03


def test_what_is_forgotten_was_never_known(taught):
    kept = ibcl.IBCL.from_state(taught.state)
    kept.forget("a")
    never = learner([task for task in ROWS if task != "a"])
    x, _ = rows_of("b", 60, seed=4)
    for task in kept.tasks:
        assert np.array_equal(kept.model(task).predict_proba(x), never.model(task).predict_proba(x))


def test_the_order_of_learning_and_merging_do_not_matter(taught):
    x, _ = rows_of("b", 60, seed=5)
    backwards = learner([*ROWS][::-1])
    one, two = learner(["b", "few"]), learner(["apart", "a"])
    united = ibcl.merge(one, two)
    for task in ROWS:
        answers = taught.model(task).predict_proba(x)
        assert np.array_equal(backwards.model(task).predict_proba(x), answers)
        assert np.array_equal(united.model(task).predict_proba(x), answers)


def test_estimators_in_place_of_heads_are_not_shared():
    from sklearn.tree import DecisionTreeClassifier

    taught = ibcl.IBCL(
        ibcl.networks.linear(2),
        expert=DecisionTreeClassifier(max_depth=3, random_state=0),
        pooling=RoutedEvidence(head_share=1.0, borrow=True),
    )
    for task in ("a", "b"):
        taught.learn(*rows_of(task), task=task)
    x, y = rows_of("a")
    tree = DecisionTreeClassifier(max_depth=3, random_state=0).fit(x.astype(np.float32), y)
    expected = tree.predict_proba(x.astype(np.float32))
    assert np.allclose(taught.model("a").predict_proba(x), expected, atol=1e-5)


def test_classes_that_a_task_has_not_seen_stay_impossible():
    random = np.random.default_rng(0)
    x = random.normal(size=(900, 2))
    rare = random.uniform(size=900) < 0.1
    y = np.where(x[:, 0] * x[:, 1] > 0, 1, 0) + 2 * rare
    taught = ibcl.IBCLClassifier("linear", expert="auto")
    taught.partial_fit(x[:600], y[:600], task="four", classes=range(6))
    two = np.flatnonzero(y[600:] < 2) + 600
    taught.partial_fit(x[two], y[two], task="two")
    knowledge = taught.learner_.knowledge
    assert all(ExpertPart.kind in parts for parts in knowledge.parts)
    assert borrowed(knowledge)[1].power > 0
    fresh = random.normal(size=(200, 2))
    for task, seen in {"four": range(4), "two": range(2)}.items():
        answers = taught.predict_proba(fresh, preference=task)
        assert np.allclose(answers.sum(1), 1)
        assert not np.delete(answers, list(seen), axis=1).any()


def test_noisy_values_are_better_known_together():
    together, alone = (ibcl.IBCLRegressor("linear", expert="auto") for _ in range(2))
    for task in ("a", "b"):
        x, _ = rows_of(task)
        noise = np.random.default_rng(0).normal(size=len(x))
        y = np.sign(x[:, 0] * x[:, 1]) + noise
        together.partial_fit(x, y, task=task)
        if task == "a":
            alone.partial_fit(x, y, task=task)
    x, _ = rows_of("a", 300, seed=6)
    wanted = np.sign(x[:, 0] * x[:, 1])
    ours, its = (
        np.square(each.predict(x, preference="a") - wanted).mean() for each in (together, alone)
    )
    assert ours < 0.9 * its
