"""A learner whose module lives on another device computes there, and answers the same."""

import numpy as np
import pytest
import torch

import ibcl
from kinds import learner, preferences, probes, task, taught, teach
from second_device import DEVICE, Elsewhere, second_device
from theorems import answer

X = probes(16)
# Mean-field inference draws with a generator of its device, which only a real one has: see
# tests/inference/test_devices.py.
CASES = [
    ("binary", "routed by preference"),
    ("binary", "mixture"),
    ("different classes", "routed"),
    ("two outputs", "routed by evidence"),
    ("counts", "evidence"),
]


def test_the_second_device_is_one():
    with second_device():
        there = torch.ones(3, device=DEVICE)
        assert there.device == DEVICE
        assert (2 * there).device == DEVICE
        assert there.cpu().tolist() == [1, 1, 1]
        with pytest.raises(RuntimeError, match="two devices"):
            there + torch.ones(3)
        with pytest.raises((RuntimeError, TypeError)):
            there.numpy()


def tensors_of(made: ibcl.IBCL) -> list[torch.Tensor]:
    knowledge = made.knowledge
    found = [t for q in (*knowledge.priors, *knowledge.stored) for t in q.tensors().values()]
    for kept in knowledge.moments:
        found += [] if kept is None else list(kept.tensors().values())
    return found


@pytest.mark.parametrize(("kind", "rule"), CASES)
def test_everything_is_computed_where_the_module_is(kind, rule, tmp_path):
    here = taught(kind, rule)
    with second_device():
        there = teach(learner(kind, rule, device=DEVICE), kind, "abc")
        assert there.network.device == DEVICE
        assert all(isinstance(t, Elsewhere) for t in tensors_of(there))
        for w in ([0.2, 0.3, 0.5], [1.0, 0.0, 0.0]):
            ours, expected = there.model(w), here.model(w)
            torch.testing.assert_close(
                answer(ours, X).cpu(), answer(expected, X), rtol=1e-3, atol=1e-3
            )
            array = ours.predict(X.numpy())
            assert isinstance(array, np.ndarray)
            assert answer(ours, X, 3).cpu().shape == answer(expected, X).shape
            bounds = zip(ours.credal_bounds(X, 2), expected.credal_bounds(X, 2), strict=True)
            for bound, other in bounds:
                torch.testing.assert_close(bound.cpu(), other, rtol=1e-2, atol=1e-2)
            assert len(ours.uncertainty(X, samples=3).total) == len(X)
            assert len(ours.uncertainty(X).total) == len(X)
            module = ours.module()
            assert module(X.to(DEVICE)).device == DEVICE
            if rule.startswith("routed"):
                torch.testing.assert_close(
                    ours.routing(X).cpu(), expected.routing(X), rtol=1e-3, atol=1e-4
                )
                assert len(ours.novelty(X)) == len(X)
        many = there.predict_many(X, preferences())
        torch.testing.assert_close(
            many.cpu(), here.predict_many(X, preferences()), rtol=1e-3, atol=1e-3
        )
        if rule.startswith("routed"):
            x, y = task(kind, 0, size=9, seed=2)
            for labels in (None, y):
                found = there.infer_preference(x, labels)
                np.testing.assert_allclose(
                    found.vector(), here.infer_preference(x, labels).vector(), atol=1e-3
                )
        there.save(tmp_path / "kb")
        there.model([0.2, 0.3, 0.5]).save(tmp_path / "model.safetensors")
    # What was learnt there is read here, where there is no such device.
    again = ibcl.load(tmp_path / "kb")
    torch.testing.assert_close(
        answer(again.model([0.2, 0.3, 0.5]), X),
        answer(here.model([0.2, 0.3, 0.5]), X),
        rtol=1e-3,
        atol=1e-3,
    )
    assert again.network.device == torch.device("cpu")
    ibcl.load_model(tmp_path / "model.safetensors").predict(X)


@pytest.mark.parametrize("kind", ["binary"])
def test_tasks_are_revised_there_too(kind):
    with second_device():
        made = teach(learner(kind, device=DEVICE), kind)
        made.extend(*task(kind, 0, seed=3), task="a")
        made.replace(*task(kind, 1, seed=3), task="b")
        made.forget("b")
        other = learner(kind, device=DEVICE)
        other.learn(*task(kind, 1), task="b")
        merged = ibcl.merge(made, other)
        assert merged.tasks == ("a", "c", "b")
        assert merged.model([0.2, 0.3, 0.5]).predict(X.numpy()).shape == (16,)


@pytest.mark.parametrize("kind", ["binary", "shared classes", "regression"])
def test_what_is_left_open_is_chosen_there(kind):
    """Prior, noise and all: nothing is given but the network and where to compute."""
    outputs = 3 if kind == "shared classes" else 1
    network = ibcl.networks.linear(3, outputs)
    with second_device():
        made = ibcl.IBCL(network, device=DEVICE)
        made.learn(*task(kind, 0))
        assert made.model([1.0]).predict(X.numpy()).shape == (16,)
    # The user's own module stays where it was.
    assert {parameter.device for parameter in network.parameters()} == {torch.device("cpu")}


def test_without_a_device_the_module_says_where():
    with second_device():
        made = ibcl.IBCL(ibcl.networks.linear(3).to(DEVICE), [1.0], ibcl.DenseVI(), "routed")
        made.learn(*task("binary", 0))
        assert made.network.device == DEVICE
    assert ibcl.IBCL(ibcl.networks.linear(3), device="cpu").network.device == torch.device("cpu")
    with pytest.raises(ValueError, match="device must be"):
        ibcl.IBCL(ibcl.networks.linear(3), device="nowhere")
