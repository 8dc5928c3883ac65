"""DER: uniform reservoirs, and logits as they were at insertion."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from ibcl import networks
from ibcl.experiments.methods import create
from ibcl.experiments.methods.der import DER, Reservoir
from ibcl.experiments.methods.rehearsal import Pool


@pytest.mark.parametrize(("capacity", "length"), [(5, 20), (1, 7), (19, 20)])
def test_reservoir_keeps_every_item_equally_often(capacity, length):
    generator = torch.Generator().manual_seed(1)
    counts = np.zeros(length)
    for _ in range(3000):
        reservoir = Reservoir(capacity, generator)
        for item in range(length):
            reservoir.add(torch.tensor(item))
        (kept,) = reservoir.stacked()
        assert len(set(kept.tolist())) == capacity
        counts[kept.numpy()] += 1
    assert counts.sum() == 3000 * capacity
    # Kept items exclude each other, which only makes the counts more even than the test assumes.
    assert chisquare(counts).pvalue > 0.01
    # And not more even than sampling can be: the spread is that of 3000 draws.
    share = capacity / length
    assert np.std(counts) > 0.3 * np.sqrt(3000 * share * (1 - share))


def test_reservoir_keeps_all_of_a_short_stream():
    reservoir = Reservoir(5, torch.Generator())
    for item in range(3):
        reservoir.add(torch.tensor(item), torch.tensor(-item))
    first, second = reservoir.stacked()
    assert first.tolist() == [0, 1, 2]
    assert second.tolist() == [0, -1, -2]


def test_logits_are_those_seen_at_insertion(three_tasks):
    # One epoch of one batch: everything is inserted before the first step changes the model.
    task = three_tasks[0]
    method = DER(networks.mlp(3, hidden=4), memory=10, epochs=1, batch_size=48, learning_rate=0.1)
    start = method.network.initial_parameters(method.generator())
    method.learn("first", task, None, [[1.0]])
    (memory,), (logits,) = method.memories, method.logits
    assert memory.size == 10
    torch.testing.assert_close(logits, method.network(start, memory.x))
    assert not torch.allclose(logits, method.predict_logits(memory.x)[0], atol=1e-3)


def test_stored_logits_stay_as_they_were(three_tasks):
    method = DER(networks.linear(3), memory=10, epochs=2)
    method.learn("first", three_tasks[0], None, [[1.0]])
    before = method.logits[0].clone()
    method.learn("second", three_tasks[1], None, [[0.5, 0.5], [0.1, 0.9]])
    assert torch.equal(method.logits[0], before)
    assert len(method.logits) == 2


def test_logits_of_several_preferences_are_averaged(three_tasks):
    method = DER(networks.linear(3), memory=48, epochs=1, batch_size=96, learning_rate=0.1)
    method.learn("first", three_tasks[0], None, [[1.0]])
    start = method.carried.clone()
    method.learn("second", three_tasks[1], None, [[1.0, 0.0], [0.0, 1.0]])
    torch.testing.assert_close(method.logits[1], method.network(start, method.memories[1].x))


@pytest.mark.parametrize(("name", "alpha", "beta"), [("der", 0.7, 0.0), ("derpp", 0.7, 0.4)])
def test_loss_is_the_papers(three_tasks, name, alpha, beta):
    settings = {"alpha": alpha, "memory": 20, "epochs": 3}
    method = create(name, networks.mlp(3, hidden=4), **settings, **({"beta": beta} if beta else {}))
    method.learn("first", three_tasks[0], None, [[1.0]])
    second = method._checked(three_tasks[1])
    pool = Pool([*method.memories, second])
    weights = torch.tensor([[0.3, 0.7], [1.0, 0.0]])
    thetas = torch.randn(2, method.network.dimension, generator=torch.Generator().manual_seed(0))
    rule = method.direction(pool, weights, torch.Generator())
    steps = rule(thetas, torch.arange(pool.size), 0)
    for theta, w, step in zip(thetas, weights, steps, strict=True):
        leaf = theta.clone().requires_grad_()
        past, now = method.network(leaf, method.memories[0].x), method.network(leaf, second.x)
        old = alpha * (past - method.logits[0]).square().sum(-1).mean()
        labels = method.loss(past, method.memories[0].y).mean()
        total = w[1] * method.loss(now, second.y).mean() + w[0] * (old + beta * labels)
        torch.testing.assert_close(step, torch.autograd.grad(total, leaf)[0], rtol=1e-4, atol=1e-5)
