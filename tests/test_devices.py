"""A learner whose module lives on another device computes there, and answers the same."""

import numpy as np
import pytest
import torch

import ibcl
from kinds import KINDS, learner, preferences, probes, task, taught, teach
from second_device import DEVICE, Elsewhere, second_device
from theorems import answer

X = probes(16)
CASES = [
    ("binary", "routed by preference"),
    ("binary", "mixture"),
    ("different classes", "routed"),
    ("two outputs", "routed by evidence"),
    ("counts", "evidence"),
    ("mlp", "wasserstein"),
    ("mlp", "mixture"),
    ("mlp", "routed"),
    ("module", "routed by moments"),
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
        generator = torch.Generator(DEVICE).manual_seed(0)
        assert torch.randn(2, generator=generator, device=generator.device).device == DEVICE
        with pytest.raises(RuntimeError, match="was to draw on cpu"):
            torch.randn(2, generator=generator, device="cpu")
        with pytest.raises(RuntimeError, match="was to draw on meta"):
            torch.randperm(2, generator=torch.Generator(), device=DEVICE)


def tensors_of(made: ibcl.IBCL) -> list[torch.Tensor]:
    knowledge = made.knowledge
    found = [t for q in (*knowledge.priors, *knowledge.stored) for t in q.tensors().values()]
    for kept in knowledge.moments:
        found += [] if kept is None else list(kept.tensors().values())
    return found


@pytest.mark.parametrize(("kind", "rule"), CASES)
def test_everything_is_computed_where_the_module_is(kind, rule, tmp_path):
    here = taught(kind, rule)
    network = KINDS[kind]["network"] if kind == "module" else None
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
            drawn = ours.region.sample(2)
            assert drawn.device == DEVICE
            assert bool(ours.region.contains(drawn).all())
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
        w = [0.2, 0.3, 0.5]
        there.save(tmp_path / "kb")
        there.model(w).save(tmp_path / "model.safetensors")
        # Read back there, by name and where its module is.
        moved = ibcl.load(tmp_path / "kb", network=network, device=DEVICE)
        assert all(isinstance(t, Elsewhere) for t in tensors_of(moved))
        model = ibcl.load_model(tmp_path / "model.safetensors", network=network, device=DEVICE)
        for read in (moved.model(w), model):
            assert read.theta.device == DEVICE
            torch.testing.assert_close(
                answer(read, X).cpu(), answer(here.model(w), X), rtol=1e-3, atol=1e-3
            )
    # What was learnt there is read here, where there is no such device.
    again = ibcl.load(tmp_path / "kb", network=network)
    torch.testing.assert_close(
        answer(again.model(w), X), answer(here.model(w), X), rtol=1e-3, atol=1e-3
    )
    assert again.network.device == torch.device("cpu")
    ibcl.load_model(tmp_path / "model.safetensors", network=network).predict(X)


def test_networks_are_learnt_there_in_a_chain_with_weights_and_validation():
    prior = ibcl.DiagonalGaussian(torch.zeros(21), torch.ones(21))
    settings = {"priors": [prior], "pooling": "wasserstein", "independent": False}
    weights = np.linspace(0.5, 2.0, 60)

    def taught_on(device):
        made = learner("mlp", "wasserstein", device=device, **settings)
        for name in ("a", "b"):
            x, y = task("mlp", "ab".index(name))
            made.learn(x, y, task=name, validation=(x, y), sample_weight=weights)
        made.extend(*task("mlp", 1, seed=3), task="b")
        return made

    here = taught_on("cpu")
    with second_device():
        # A prior given on the processor is moved where the network is.
        there = taught_on(DEVICE)
        assert all(isinstance(t, Elsewhere) for t in tensors_of(there))
        answers = answer(there.model([0.3, 0.7]), X).cpu()
    torch.testing.assert_close(answers, answer(here.model([0.3, 0.7]), X), rtol=1e-3, atol=1e-3)


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


def test_without_a_device_the_module_says_where(tmp_path):
    with second_device():
        made = ibcl.IBCL(ibcl.networks.linear(3).to(DEVICE), [1.0], ibcl.DenseVI(), "routed")
        made.learn(*task("binary", 0))
        assert made.network.device == DEVICE
        made.save(tmp_path)
        module = ibcl.networks.linear(3).to(DEVICE)
        assert ibcl.load(tmp_path, network=module).model([1.0]).theta.device == DEVICE
    with pytest.raises(ValueError, match="device must be"):
        ibcl.load(tmp_path, device="nowhere")
    assert ibcl.IBCL(ibcl.networks.linear(3), device="cpu").network.device == torch.device("cpu")
    with pytest.raises(ValueError, match="device must be"):
        ibcl.IBCL(ibcl.networks.linear(3), device="nowhere")
