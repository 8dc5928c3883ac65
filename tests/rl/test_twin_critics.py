"""Twin critics: hand-written gradients against autograd, the optimiser against torch.optim."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from ibcl.rl.twin_critics import FlatAdam, TwinCritics


def by_modules(critics, flat, inputs):
    """Both critics' values from a flat parameter vector, by PyTorch's own layers."""
    hidden, start = inputs.expand(2, *inputs.shape), 0
    sizes = critics.sizes
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
    critics.parameters.add_(0.1 * torch.tensor(rng.normal(size=len(critics.parameters))))
    x = torch.tensor(rng.normal(size=(rows, inputs)), dtype=torch.float32)
    y = torch.tensor(rng.normal(size=rows), dtype=torch.float32)
    values = critics.differentiate(x, y)
    slope = critics.slope(x, actions=2)

    flat = critics.parameters.clone().requires_grad_()
    leaf = x.clone().requires_grad_()
    expected = by_modules(critics, flat, leaf)
    loss = 0.5 * (expected - y).square().mean(1).sum()
    torch.testing.assert_close(values, expected.detach(), atol=1e-5, rtol=1e-4)
    (gradient,) = torch.autograd.grad(loss, flat, retain_graph=True)
    torch.testing.assert_close(critics.gradient, gradient, atol=2e-5, rtol=2e-3)
    (by_input,) = torch.autograd.grad(expected[0].sum(), leaf)
    np.testing.assert_allclose(slope, by_input[:, -2:], atol=2e-4, rtol=2e-3)


def test_the_optimiser_is_adam():
    rng = np.random.default_rng(0)
    ours = torch.tensor(rng.normal(size=20), dtype=torch.float32)
    theirs = ours.clone().requires_grad_()
    flat, adam = FlatAdam(20), torch.optim.Adam([theirs], lr=0.01, betas=(0.9, 0.99))
    for _ in range(10):
        gradient = torch.tensor(rng.normal(size=20), dtype=torch.float32)
        theirs.grad = gradient
        adam.step()
        flat.step(ours, gradient, 0.01)
    torch.testing.assert_close(ours, theirs.detach())


def test_critics_learn_a_function_and_their_targets_follow_it():
    rng = np.random.default_rng(1)
    critics = TwinCritics(3, (32, 32), rng)
    x = torch.tensor(rng.uniform(-1, 1, (256, 3)), dtype=torch.float32)
    y = x[:, 0] * x[:, 1] - x[:, 2].square()
    for _ in range(600):
        critics.fit(x, y, 3e-3)
    errors = (critics.values(x) - y).abs().mean(1)
    assert (errors < 0.05).all()
    before = (critics.target_values(x) - y).abs().mean()
    critics.follow(1.0)
    after = (critics.target_values(x) - y).abs().mean()
    assert after < 0.05 < before
    torch.testing.assert_close(critics.target_values(x), critics.values(x).amin(0))


def test_a_stored_critic_continues_as_it_was():
    rng = np.random.default_rng(2)
    first, second = (TwinCritics(3, (8,), np.random.default_rng(seed)) for seed in (3, 4))
    x = torch.tensor(rng.normal(size=(5, 3)), dtype=torch.float32)
    first.fit(x, x[:, 0], 1e-2)
    second.load({name: array.copy() for name, array in first.state().items()})
    for critics in (first, second):
        critics.fit(x, x[:, 1], 1e-2)
    torch.testing.assert_close(first.values(x), second.values(x), rtol=0, atol=0)
    with pytest.raises(RuntimeError):
        second.load(TwinCritics(4, (8,), rng).state())
