"""Twin critics: hand-written gradients against autograd, the optimiser against torch.optim."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ibcl.rl.adam import FlatAdam
from ibcl.rl.twin_critics import TwinCritics


def single(values):
    return np.asarray(values, dtype=np.float32)


def by_modules(critics, flat, inputs):
    """Both critics' values from a flat parameter vector, by PyTorch's own layers."""
    hidden, start = inputs.expand(2, *inputs.shape), 0
    sizes = critics.sizes.tolist()
    for index, (i, o) in enumerate(pairwise(sizes)):
        weight = flat[start : start + 2 * i * o].view(2, i, o)
        start += 2 * i * o
        bias = flat[start : start + 2 * o].view(2, 1, o)
        start += 2 * o
        hidden = hidden @ weight + bias
        if index < len(sizes) - 2:
            hidden = functional.relu(functional.layer_norm(hidden, (o,)))
    return hidden[..., 0]


@given(
    inputs=st.integers(3, 6),
    hidden=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    rows=st.integers(1, 7),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=30, deadline=None)
def test_gradients_are_autograds(inputs, hidden, rows, seed):
    rng = np.random.default_rng(seed)
    critics = TwinCritics(inputs, tuple(hidden), rng)
    critics.parameters += single(0.1 * rng.normal(size=critics.parameters.size))
    x, y = single(rng.normal(size=(rows, inputs))), single(rng.normal(size=rows))
    values = critics.differentiate(x, y)
    slope = critics.slope(x, actions=2)

    flat = torch.tensor(critics.parameters, requires_grad=True)
    leaf = torch.tensor(x, requires_grad=True)
    expected = by_modules(critics, flat, leaf)
    loss = 0.5 * (expected - torch.tensor(y)).square().mean(1).sum()
    np.testing.assert_allclose(values, expected.detach(), atol=1e-5, rtol=1e-4)
    np.testing.assert_allclose(critics.values(x), values, atol=1e-6, rtol=1e-5)
    (gradient,) = torch.autograd.grad(loss, flat, retain_graph=True)
    np.testing.assert_allclose(critics.gradient, gradient, atol=2e-5, rtol=2e-3)
    (by_input,) = torch.autograd.grad(expected[0].sum(), leaf)
    np.testing.assert_allclose(slope, by_input[:, -2:], atol=2e-4, rtol=2e-3)


def test_the_optimiser_is_adam():
    rng = np.random.default_rng(0)
    ours = single(rng.normal(size=20))
    theirs = torch.tensor(ours, requires_grad=True)
    flat, adam = FlatAdam(20), torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99))
    for _ in range(10):
        gradient = single(rng.normal(size=20))
        theirs.grad = torch.tensor(gradient)
        adam.step()
        flat.step(ours, gradient, 0.01)
    np.testing.assert_allclose(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


def test_critics_learn_a_function_and_their_targets_follow_it():
    rng = np.random.default_rng(1)
    critics = TwinCritics(3, (32, 32), rng)
    x = single(rng.uniform(-1, 1, (256, 3)))
    y = x[:, 0] * x[:, 1] - np.square(x[:, 2])
    for _ in range(600):
        critics.fit(x, y, 3e-3)
    errors = np.abs(critics.values(x) - y).mean(1)
    assert (errors < 0.05).all()
    before = np.abs(critics.target_values(x) - y).mean()
    critics.follow(1.0)
    after = np.abs(critics.target_values(x) - y).mean()
    assert after < 0.05 < before
    np.testing.assert_allclose(critics.target_values(x), critics.values(x).min(0), atol=1e-6)


def test_a_stored_critic_continues_as_it_was():
    rng = np.random.default_rng(2)
    first, second = (TwinCritics(3, (8,), np.random.default_rng(seed)) for seed in (3, 4))
    x = single(rng.normal(size=(5, 3)))
    first.fit(x, x[:, 0].copy(), 1e-2)
    second.load({name: array.copy() for name, array in first.state().items()})
    for critics in (first, second):
        critics.fit(x, x[:, 1].copy(), 1e-2)
    np.testing.assert_array_equal(first.values(x), second.values(x))
    with pytest.raises(ValueError, match="another policy"):
        second.load(TwinCritics(4, (8,), rng).state())
