"""A state is what was known at one moment: nothing learnt later changes it or its models."""

import numpy as np
import pytest
import torch

import ibcl
from kinds import RULES, inputs, learner, probes, task, teach
from theorems import answer

X = probes()


@pytest.mark.parametrize("rule", RULES)
def test_a_model_does_not_change_when_its_learner_does(rule):
    changing = teach(learner("binary", rule), "binary", "ab")
    model = changing.model([0.3, 0.7])
    state = changing.state
    before = answer(model, X), model.credal_bounds(X), answer(model, X, 3)
    changing.learn(*task("binary", 2), task="c")
    changing.extend(*task("binary", 0, seed=4), task="a")
    changing.forget("b")
    changing.replace(*task("binary", 1), task="c")
    assert changing.tasks == ("a", "c")
    # Also what is first computed afterwards belongs to the moment the model was made.
    late = ibcl.IBCL.from_state(state).model([0.3, 0.7])
    for found in (model, late):
        assert torch.equal(answer(found, X), before[0])
        assert torch.equal(answer(found, X, 3), before[2])
        for bound, expected in zip(found.credal_bounds(X), before[1], strict=True):
            assert torch.equal(bound, expected)
    assert state.knowledge.tasks == ("a", "b")


def test_a_failure_while_learning_publishes_nothing(monkeypatch):
    made = teach(learner("binary"), "binary", "a")
    state = made.state

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ibcl.DenseVI, "infer", fail)
    for act in (made.learn, made.extend, made.replace):
        with pytest.raises(KeyboardInterrupt):
            act(*task("binary", 0), task="b" if act == made.learn else "a")
    assert made.state is state


def test_a_replaced_task_is_as_if_it_had_been_learnt_so_at_once():
    replaced = teach(learner("binary"), "binary")
    replaced.replace(*task("binary", 1, seed=6), task="b")
    expected = learner("binary")
    for name in "abc":
        expected.learn(*task("binary", "abc".index(name), seed=6 if name == "b" else 0), task=name)
    for weights in (*np.eye(3), [0.2, 0.3, 0.5]):
        assert torch.equal(answer(replaced.model(weights), X), answer(expected.model(weights), X))
    assert replaced.knowledge.record("b").samples == 60


def test_task_ids_are_appended_to_plain_vectors_only():
    told = ibcl.IBCL(ibcl.networks.linear(5), [1.0], task_incremental=2, pooling="evidence")
    told.learn(*task("binary", 0), task="a")
    encoded = told.state.inputs(inputs(0), "a")
    assert torch.equal(encoded[:, 3:], torch.tensor([[1.0, 0.0]]).expand(60, 2))
    told.learn(*task("binary", 1), task="b")
    assert torch.equal(told.state.inputs(inputs(0), "b")[0, 3:], torch.tensor([0.0, 1.0]))
    with pytest.raises(ValueError, match="plain vectors"):
        told.state.inputs(torch.zeros(2, 3, 1), "a")


def test_nothing_is_answered_before_the_first_task():
    empty = ibcl.IBCL(ibcl.networks.linear(3))
    with pytest.raises(ValueError, match="no task yet"):
        _ = empty.state.predictives
    with pytest.raises(ValueError, match="no task yet"):
        empty.model([1.0])
    with pytest.raises(ValueError, match="no task yet"):
        empty.predict_many(X, [[1.0]])
    assert empty.pooling is None
    assert empty.inference is None
    assert empty.likelihood == "auto"
