"""Many preferences at once answer as one model each does, for every kind of task and rule."""

import numpy as np
import pytest
import torch

import ibcl
from ibcl import predictive
from ibcl.routing import many_preferences as routed_answers
from kinds import CASES, IDS, INPUTS, learner, preferences, probes, task, taught, teach
from theorems import answer

X = probes()
every_case = pytest.mark.parametrize(("kind", "rule"), CASES, ids=IDS)
# One case of each way to answer: routed, heads by preference, parameters by preference.
WAYS = [("binary", "routed"), ("different classes", "routed by preference"), ("mlp", "mixture")]
each_way = pytest.mark.parametrize(("kind", "rule"), WAYS)


def one_by_one(learnt: ibcl.IBCL, x: torch.Tensor, matrix: np.ndarray) -> torch.Tensor:
    return torch.stack([answer(learnt.model(w), x) for w in matrix]).float()


@every_case
def test_all_preferences_at_once_equal_one_model_each(kind, rule):
    learnt, matrix = taught(kind, rule), preferences()
    found = learnt.predict_many(X, matrix)
    assert found.dtype == torch.float32
    expected = one_by_one(learnt, X, matrix)
    torch.testing.assert_close(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("rule", ["routed", "routed by moments", "routed by evidence"])
@pytest.mark.parametrize("kind", ["binary", "different classes", "regression", "counts"])
def test_vertices_answer_the_same_to_the_last_bit(kind, rule):
    learnt = taught(kind, rule)
    found = learnt.predict_many(X, np.eye(3))
    assert torch.equal(found, one_by_one(learnt, X, np.eye(3)))


@pytest.mark.parametrize("kind", ["binary", "different classes", "regression"])
@pytest.mark.parametrize("gate", ["moments", "evidence"])
def test_tasks_all_far_from_a_row_are_still_told_apart(kind, gate):
    """Every weighted task is so far that Σ_k w_k e_k has no digits left in single precision."""
    sharp = teach(learner(kind, pooling=ibcl.Routed(gate=gate, temperature=0.01)), kind)
    matrix = np.array([[0.0, 0.5, 0.5], [0.5, 0.5, 0.0], [1e-7, 0.4, 0.6 - 1e-7], [0.4, 0.6, 0.0]])
    x = torch.cat([task(kind, 0).x[:8], task(kind, 2).x[:8], X])
    scores = sharp.state.predictives.gate(sharp.network.features(x).double())
    shifted = torch.exp(scores - scores.amax(1, keepdim=True))
    assert float((torch.as_tensor(matrix) @ shifted.T).min()) < 1e-30
    found = sharp.predict_many(x, matrix)
    assert bool(torch.isfinite(found).all())
    # Temperature 0.01 multiplies the rounding of log densities by a hundred, for both alike.
    torch.testing.assert_close(found, one_by_one(sharp, x, matrix), rtol=1e-4, atol=1e-5)


def test_weights_that_nearly_sum_to_one_answer_as_their_model_does():
    """A weight of 0.9999999 on one task and 0 on the others is a vertex; 1 and 1e-7 is none."""
    learnt = taught("binary")
    matrix = np.array([[1 - 5e-7, 0.0, 0.0], [1.0, 5e-7, 0.0], [0.0, 0.0, 1 + 5e-7]])
    found = learnt.predict_many(X, matrix)
    torch.testing.assert_close(found, one_by_one(learnt, X, matrix), rtol=2e-5, atol=2e-6)


@each_way
@pytest.mark.parametrize("numbers", [1, 100, 250, 10**9])
def test_blocks_put_together_are_one_block(kind, rule, numbers):
    learnt, matrix = taught(kind, rule), preferences()
    whole = learnt.predict_many(X, matrix)
    blocks = list(learnt.predict_blocks(X, matrix, numbers=numbers))
    users, rows, columns = whole.shape
    size = min(users, max(1, numbers // (rows * columns)))
    assert [len(block) for block in blocks[:-1]] == [size] * ((users - 1) // size)
    torch.testing.assert_close(torch.cat(blocks), whole, rtol=1e-6, atol=1e-7)


def test_blocks_within_the_processors_cache_do_not_show(monkeypatch):
    learnt, matrix = taught("binary"), preferences()
    whole = learnt.predict_many(X, matrix)
    monkeypatch.setattr(routed_answers, "_CACHED_NUMBERS", 3 * 2 * len(X))
    torch.testing.assert_close(learnt.predict_many(X, matrix), whole, rtol=1e-6, atol=1e-7)
    single = taught("binary", "evidence")
    whole = single.predict_many(X, matrix)
    for numbers in (2 * 2 * len(X), 1):
        monkeypatch.setattr(predictive, "_BLOCK_NUMBERS", numbers)
        monkeypatch.setattr(routed_answers, "_CACHED_NUMBERS", numbers)
        torch.testing.assert_close(single.predict_many(X, matrix), whole, rtol=1e-6, atol=1e-7)
        assert len(learnt.predict_many(X, matrix)) == len(matrix)


@each_way
def test_no_rows_and_no_preferences_give_empty_answers(kind, rule):
    learnt = taught(kind, rule)
    columns = learnt.predict_many(X[:1], preferences()).shape[2]
    assert learnt.predict_many(X[:0], preferences()).shape == (len(preferences()), 0, columns)
    nobody = np.zeros((0, 3))
    assert learnt.predict_many(X, nobody).shape == (0, len(X), columns)


def test_preferences_of_any_kind_are_read_alike():
    learnt = taught("binary")
    found = learnt.predict_many(X, ["a", {"a": 0.5, "b": 0.5, "c": 0}, [0.2, 0.3, 0.5]])
    matrix = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.3, 0.5]])
    assert torch.equal(found, learnt.predict_many(X, matrix))
    array = learnt.predict_many(X.numpy(), matrix)
    assert isinstance(array, np.ndarray)
    assert np.array_equal(array, found.numpy())


def test_preferences_off_the_simplex_and_other_inputs_are_refused():
    learnt = taught("binary")
    with pytest.raises(ValueError, match="sum to 1"):
        learnt.predict_many(X, np.array([[0.2, 0.2, 0.2]]))
    with pytest.raises(ValueError, match="cannot take inputs"):
        learnt.predict_many(torch.zeros(2, INPUTS + 1), preferences())


def test_a_learner_told_the_tasks_answers_for_one_of_them():
    told = ibcl.IBCL(
        ibcl.networks.linear(INPUTS + 2), [1.0], ibcl.DenseVI(), "evidence", task_incremental=2
    )
    for name in "ab":
        told.learn(*task("binary", "ab".index(name)), task=name)
    matrix = np.array([[0.5, 0.5], [0.0, 1.0]])
    found = told.predict_many(X, matrix, task="b")
    expected = torch.stack([told.model(w).predict_proba(X, task="b") for w in matrix])
    torch.testing.assert_close(found, expected)
