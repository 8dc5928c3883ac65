"""Experts of other tasks: who borrows them, by how much, and that forgetting leaves nothing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ibcl
from ibcl.experts import ExpertPart, Judgement
from ibcl.experts.judgement import mixing_weights
from ibcl.experts.judges import MOST_JUDGES, Judges, thinned
from ibcl.likelihoods import Bernoulli, Normal
from ibcl.tasks import as_task

pytest.importorskip("skops")


def stripes(rows: int, seed: int, sign: int = 1, place: float = 0.0):
    """Stripes, which neither linear heads nor Gaussians of classes can learn."""
    x = np.random.default_rng(seed).normal(size=(rows, 2))
    return x + place, (sign * np.sin(4 * x[:, 0]) > 0).astype(int)


def learner(**settings: object) -> ibcl.IBCL:
    return ibcl.IBCL(ibcl.networks.linear(2), expert="auto", **settings)


def taught(*tasks: tuple[str, tuple[np.ndarray, np.ndarray]], **settings: object) -> ibcl.IBCL:
    found = learner(**settings)
    for name, (x, y) in tasks:
        found.learn(x, y, task=name)
    return found


def judgement(known: ibcl.IBCL, task: str) -> Judgement:
    found = known.knowledge.parts[known.tasks.index(task)][Judgement.kind]
    assert isinstance(found, Judgement)
    return found


def accuracy(known: ibcl.IBCL, task: str, sign: int = 1, place: float = 0.0) -> float:
    x, y = stripes(500, 99, sign, place)
    return float((known.model(task).predict(x) == y).mean())


FIRST = ("first", stripes(300, 0))


def test_few_rows_borrow_the_trees_of_a_task_that_is_alike():
    few = ("few", stripes(40, 1))
    known = taught(FIRST, few)
    assert ExpertPart.kind not in known.knowledge.parts[1]
    assert judgement(known, "few").others["first"] > 0.7
    assert accuracy(known, "few") > 0.9
    assert accuracy(taught(few), "few") < 0.7


@pytest.mark.parametrize("rows", [40, 300])
@pytest.mark.parametrize("place", [0.0, 5.0])
def test_a_task_that_contradicts_another_keeps_to_itself(rows, place):
    # Linear heads of both tasks are alike: they see nothing of either.
    known = taught(FIRST, ("opposite", stripes(rows, 1, -1, place)))
    assert judgement(known, "opposite").others["first"] < 0.04
    assert accuracy(known, "first") > 0.9
    if rows == 300:
        assert accuracy(known, "opposite", -1, place) > 0.85


def test_a_task_that_is_alike_elsewhere_gets_nothing_from_trees_that_were_never_there():
    known = taught(FIRST, ("far", stripes(300, 1, 1, 5.0)))
    assert judgement(known, "far").others["first"] < 0.05
    assert accuracy(known, "far", 1, 5.0) > 0.9


def test_of_several_tasks_those_that_explain_the_rows_are_borrowed():
    known = taught(FIRST, ("opposite", stripes(300, 1, -1)), ("few", stripes(50, 2)))
    others = judgement(known, "few").others
    assert others["first"] > 0.7
    assert others["opposite"] < 0.04


def test_the_answer_is_the_mixture_of_head_own_and_other_experts():
    known = taught(FIRST, ("second", stripes(250, 1)))
    x, _ = stripes(50, 3)
    found = judgement(known, "second")
    head = taught(FIRST, ("second", stripes(250, 1))).state
    for parts in head.knowledge.parts:
        parts.pop(ExpertPart.kind)
        parts.pop(Judgement.kind, None)
    expected = found.found[0] * ibcl.IBCL.from_state(head).model("second").predict_proba(x)
    rows = torch.as_tensor(x, dtype=torch.float32)
    for share, parts in zip(found.found[1:], known.knowledge.parts, strict=True):
        expected = expected + share * parts[ExpertPart.kind].answers(rows).numpy()
    assert np.allclose(known.model("second").predict_proba(x), expected, atol=1e-5)
    many = known.predict_many(x, [[0.0, 1.0], [0.5, 0.5]])
    assert np.allclose(many[0], expected, atol=1e-5)
    assert np.allclose(many[1], known.model([0.5, 0.5]).predict_proba(x), atol=1e-5)


def test_a_task_that_is_forgotten_was_never_borrowed_from():
    rest = [("second", stripes(200, 1)), ("few", stripes(50, 2)), ("last", stripes(120, 3))]
    known, never = taught(FIRST, *rest), taught(*rest)
    assert judgement(known, "few").others["first"] > 0.1
    known.forget("first")
    for ours, theirs in zip(known.knowledge.parts, never.knowledge.parts, strict=True):
        assert ours.keys() == theirs.keys()
        assert all(ours[kind].encode() == theirs[kind].encode() for kind in ours)
    x, _ = stripes(30, 4)
    weights = [0.2, 0.5, 0.3]
    assert np.array_equal(
        known.model(weights).predict_proba(x), never.model(weights).predict_proba(x)
    )


def test_a_task_learnt_under_the_name_of_a_forgotten_one_is_not_borrowed_from():
    known = taught(FIRST, ("few", stripes(40, 1)), ("other", stripes(200, 2)))
    known.forget("first")
    known.learn(*stripes(300, 3, -1), task="first")
    assert judgement(known, "first").others["other"] < 0.02
    assert Judgement.kind not in known.knowledge.parts[0]


def test_a_task_learnt_anew_judges_all_others_and_is_judged_no_more():
    known = taught(("few", stripes(40, 1)), ("big", stripes(300, 0)), ("third", stripes(60, 2)))
    assert Judgement.kind not in known.knowledge.parts[0]
    known.replace(*stripes(40, 1), task="few")
    assert judgement(known, "few").others["big"] > 0.8
    known.replace(*stripes(300, 5, -1), task="big")
    assert Judgement.kind not in known.knowledge.parts[0]
    assert Judgement.kind not in known.knowledge.parts[2]
    assert accuracy(known, "big", -1) > 0.9


def test_a_stored_base_answers_the_same(tmp_path):
    known = taught(FIRST, ("few", stripes(50, 1)))
    known.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base")
    x, _ = stripes(30, 2)
    assert np.array_equal(known.model("few").predict_proba(x), again.model("few").predict_proba(x))
    assert judgement(again, "few").encode() == judgement(known, "few").encode()
    again.forget("first")
    assert Judgement.kind not in again.knowledge.parts[0]


def test_tasks_of_merged_bases_answer_as_they_did():
    ours = taught(FIRST, ("few", stripes(50, 1)))
    theirs = ibcl.IBCL(ibcl.networks.linear(2), priors=ours.knowledge.priors, expert="auto")
    theirs.learn(*stripes(200, 2, -1), task="opposite")
    theirs.learn(*stripes(50, 3, -1), task="few too")
    united = ibcl.merge(ours, theirs)
    assert judgement(united, "few").tasks == ("first",)
    assert judgement(united, "few too").tasks == ("opposite",)
    assert accuracy(united, "few") > 0.9
    assert accuracy(united, "few too", -1) > 0.85


def test_further_rows_judge_the_same_experts():
    known = taught(FIRST, ("few", stripes(30, 1)))
    before = judgement(known, "few")
    known.learn(*stripes(200, 2, -1), task="opposite")
    known.extend(*stripes(40, 3), task="few")
    after = judgement(known, "few")
    assert after.tasks == ("first",)
    assert torch.equal(after.rows[:30], before.rows)
    assert len(after.rows) == 70
    assert accuracy(known, "few") > 0.9


def test_values_borrow_where_they_are_alike():
    x = np.random.default_rng(0).uniform(-2, 2, size=(460, 1))
    y = np.where(np.sin(4 * x[:, 0]) > 0, 2.0, -1.0)
    task = np.repeat(["first", "few", "opposite"], [300, 40, 120])
    wanted = np.where(task == "opposite", -y, y)
    known = ibcl.IBCLRegressor("linear", expert="auto").fit(x, wanted, task=task).learner_
    assert judgement(known, "few").others["first"] > 0.7
    assert judgement(known, "opposite").others["first"] < 0.05
    errors = np.abs(known.model("few").predict(x[:300]) - y[:300])
    assert errors.mean() < 0.5


def test_classes_that_came_later_do_not_change_what_is_borrowed():
    x, y = stripes(340, 0)
    labels = np.where(y == 1, "same", "other")
    estimator = ibcl.IBCLClassifier("linear", expert="auto")
    estimator.fit(x, labels, task=np.repeat(["first", "few"], [300, 40]))
    few = estimator.predict_proba(x, preference=[0.0, 1.0])
    before = judgement(estimator.learner_, "few").encode()
    more = np.where(x[:, 0] > 1, "large", labels)
    estimator.partial_fit(x, more, task="third", classes=["large", "other", "same"])
    after = estimator.predict_proba(x, preference=[0.0, 1.0, 0.0])
    assert judgement(estimator.learner_, "few").encode() == before
    assert np.allclose(after[:, :2], few, atol=0.01)
    assert judgement(estimator.learner_, "third").others["first"] > 0.02


def test_rows_to_calibrate_with_do_not_judge():
    known = taught(FIRST, ("few", stripes(60, 1)), calibration=0.25)
    assert len(judgement(known, "few").rows) == 45
    assert known.model("few").predict_set(stripes(20, 2)[0]).shape == (20, 2)


@given(st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_mixing_weights_are_the_most_probable_ones(rows, classes, seed):
    random = np.random.default_rng(seed)
    found = torch.from_numpy(random.uniform(0.05, 1, size=(rows, 2)))
    weights = torch.from_numpy(random.integers(1, 4, size=rows))

    def density(share):
        mixed = (1 - share) * found[:, 0] + share * found[:, 1]
        fit = mixed.log() if classes else -0.5 * mixed.square()
        return float(fit @ weights.double()) + 2 * np.log(share) + 2 * np.log(1 - share)

    best = density(float(mixing_weights(found, weights, classes)[1]))
    assert best >= max(density(share) for share in np.linspace(0.001, 0.999, 500)) - 1e-6


def test_columns_of_a_task_that_explains_nothing_change_nothing_much():
    likely = torch.full((200, 2), 0.7)
    nothing = torch.full((200, 1), 1e-6)
    with_it = Judgement(
        ("a", "b"), torch.cat([likely, nothing], 1), torch.empty(0), torch.ones(200), True
    )
    assert with_it.others["b"] < 0.02
    assert sum(with_it.found) == pytest.approx(1)


def test_many_rows_are_judged_by_as_many_as_are_enough():
    assert len(thinned(np.arange(10 * MOST_JUDGES + 3))) <= MOST_JUDGES
    assert thinned(np.arange(7)).tolist() == list(range(7))


def test_judges_take_weights_and_several_values():
    data = as_task(np.zeros((3, 1)), np.array([0, 1, 1]), np.array([1.0, 2.0, 3.0]))
    head = torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.2, 0.8]])
    found = Judges(Bernoulli(), data, head).judgement({"other": 1 - head})
    assert found is not None
    assert torch.allclose(found.rows, torch.tensor([[0.6, 0.4], [0.5, 0.5], [0.8, 0.2]]))
    assert found.weights.tolist() == [1, 2, 3]
    values = as_task(np.zeros((2, 1)), np.array([[0.0, 2.0], [4.0, 6.0]]))
    judges = Judges(Normal(2.0), values, torch.zeros(2, 2))
    several = judges.judgement({"other": torch.ones(2, 2)})
    assert several is not None
    assert several.rows.tolist() == [[0, 0.5], [-1, -0.5], [-2, -1.5], [-3, -2.5]]


def test_bytes_that_are_no_judgement_are_refused():
    known = judgement(taught(FIRST, ("few", stripes(40, 1))), "few").encode()
    line, _, rest = known.partition(b"\n")
    for data in (b"", b"{}\n", known[:-9], line.replace(b'"first"', b'"a", "b"') + b"\n" + rest):
        with pytest.raises(ValueError, match="nothing of a task's experts"):
            Judgement.decode(data)
