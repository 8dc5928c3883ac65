"""IBCL's variants behind the baselines' interface."""

import numpy as np
import pytest
import torch

import ibcl
from ibcl import networks
from ibcl.experiments.methods import METHODS, AnswersAmongAllClasses, Method, create
from ibcl.experiments.methods.ibcl_methods import IBCLMethod

IBCL_VARIANTS = ["ibcl", "ibcl_mixture", "ibcl_evidence"]
ROUTED = ["routed", "routed1", "routed_mean_field", "routed1_classes"]
PREFERENCES = np.array([[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])


def learnt(name, tasks, preferences=PREFERENCES, **settings):
    method = create(name, networks.linear(3), **settings)
    method.learn("first", tasks[0], None, [[1.0]])
    method.learn("second", tasks[1], None, preferences)
    return method


@pytest.mark.parametrize("name", [*IBCL_VARIANTS, "routed", "routed1", "routed_mean_field"])
def test_predicts_by_the_mean_models_of_the_learner(name, three_tasks):
    method = learnt(name, three_tasks)
    assert isinstance(method, Method)
    x = three_tasks[2].x
    logits = method.predict_logits(x)
    assert logits.shape == (3, 48, 1)
    for preference, row, model in zip(PREFERENCES, logits, method.models(), strict=True):
        torch.testing.assert_close(model.outputs(x)[0].float(), row, rtol=1e-4, atol=1e-5)
        expected = method.learner.model(preference).outputs(x)[0].float()
        torch.testing.assert_close(expected, row, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", IBCL_VARIANTS + ROUTED)
def test_cost_does_not_depend_on_the_number_of_preferences(name, three_tasks):
    few = learnt(name, three_tasks, PREFERENCES[:1])
    many = learnt(name, three_tasks, np.repeat(PREFERENCES, 30, 0))
    assert few.updates == many.updates
    assert few.stored_bytes == many.stored_bytes
    torch.testing.assert_close(
        few.predict_logits(three_tasks[0].x)[0], many.predict_logits(three_tasks[0].x)[0]
    )


@pytest.mark.parametrize("name", ["ibcl", "ibcl_mixture"])
def test_updates_and_bytes_are_the_papers(name, three_tasks):
    method = learnt(name, three_tasks, epochs=3, batch_size=16, d=0.0)
    assert method.updates == 2 * 48 * 3 / 16
    assert method.stored_bytes == 2 * 2 * 4 * 4
    assert learnt(name, three_tasks, epochs=3, d=1e9).stored_bytes == 2 * 4 * 4


def test_pooling_rules_are_the_named_ones(three_tasks):
    kinds = {
        name: type(learnt(name, three_tasks).models()[0].distribution) for name in IBCL_VARIANTS
    }
    assert kinds == {
        "ibcl": ibcl.DiagonalGaussian,
        "ibcl_mixture": ibcl.Mixture,
        "ibcl_evidence": ibcl.DenseGaussian,
    }


def test_evidence_needs_a_linear_head(three_tasks):
    method = create("ibcl_evidence", networks.mlp(3, hidden=4))
    with pytest.raises(ValueError, match="linear in its parameters"):
        method.learn("first", three_tasks[0], None, [[1.0]])


@pytest.mark.parametrize("name", IBCL_VARIANTS + ROUTED)
def test_bad_input_is_refused(name, three_tasks):
    method = create(name, networks.linear(3))
    with pytest.raises(ValueError, match=f"{name} has not learnt a task yet"):
        method.predict_logits(three_tasks[0].x)
    with pytest.raises(ValueError, match="must sum to 1"):
        method.learn("first", three_tasks[0], None, [[0.7]])
    with pytest.raises(ValueError, match="at least one preference"):
        method.learn("first", three_tasks[0], None, np.empty((0, 1)))
    assert method.learner.tasks == ()
    with pytest.raises(ValueError, match="prior_std must be a positive number"):
        create(name, networks.linear(3), prior_std=0.0)


@pytest.mark.parametrize(("storage", "tolerance"), [("exact", 1e-6), ("float16", 1e-2)])
def test_what_is_saved_between_tasks_goes_on_learning(storage, tolerance, three_tasks):
    kept = learnt("ibcl_evidence", three_tasks)
    stored = learnt("ibcl_evidence", three_tasks, storage=storage)
    x = three_tasks[2].x
    torch.testing.assert_close(
        stored.predict_logits(x), kept.predict_logits(x), rtol=tolerance, atol=tolerance
    )
    assert stored.learner.tasks == kept.learner.tasks
    assert stored.stored_bytes > 0


def test_every_registered_variant_is_an_ibcl_learner():
    variants = [entry for entry in METHODS.values() if entry.group == "IBCL"]
    assert variants
    assert all(issubclass(entry.method, IBCLMethod) for entry in variants)


@pytest.mark.parametrize("heads", ["uniform", "preference"])
@pytest.mark.parametrize("gate", ["moments", "evidence"])
def test_routed_answers_are_bayes_rule(gate, heads, three_tasks):
    """p(y | x, w) = Σ_k r_k(x, w) p_k(y | x), and at a vertex the task's own answer."""
    method = learnt("routed1", three_tasks, gate=gate, heads=heads)
    x = three_tasks[2].x
    for weights, logits in zip(PREFERENCES, method.predict_logits(x), strict=True):
        model = method.learner.model(weights)
        routing = model.routing(x)
        torch.testing.assert_close(routing.sum(1), torch.ones(len(x), dtype=routing.dtype))
        predictive = model.predictive
        features = model.features(x).values
        own = torch.stack(
            [
                predictive.extreme_means(features, task, head[None])[:, 1]
                for head, task in zip(predictive.heads, predictive.active.tolist(), strict=True)
            ],
            1,
        )
        expected = (routing[:, predictive.active] * own).sum(1)
        found = torch.sigmoid(logits[:, 0]).to(expected)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["routed", "routed1", "routed1_classes"])
def test_classes_of_all_tasks_sum_to_one_and_to_the_labels(name, three_tasks):
    method = learnt(name, three_tasks)
    assert isinstance(method, AnswersAmongAllClasses)
    assert method.columns.tolist() == [[0, 0], [0, 1], [1, 0], [1, 1]]
    x = three_tasks[2].x
    joint = method.predict_classes(x).exp()
    torch.testing.assert_close(
        joint.sum(-1), torch.ones(joint.shape[:2]).to(joint), rtol=1e-4, atol=1e-5
    )
    ones = joint[..., method.columns[:, 1] == 1].sum(-1)
    answers = torch.sigmoid(method.predict_logits(x)[..., 0])
    torch.testing.assert_close(ones.float(), answers, rtol=1e-3, atol=1e-4)
