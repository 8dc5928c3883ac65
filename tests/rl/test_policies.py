"""Networks and their hand-written gradients, and normalisers."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import TwoGoals

from ibcl.rl import kernels
from ibcl.rl.policies import Normaliser, Perceptron, Policy


@given(
    st.lists(st.integers(1, 5), min_size=2, max_size=4),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 10_000),
)
@settings(max_examples=30, deadline=None)
def test_gradients_are_autograds(sizes, batch, rows, seed):
    rng = np.random.default_rng(seed)
    network = Perceptron(tuple(sizes))
    theta = rng.normal(size=(batch, network.dimension))
    inputs = rng.normal(size=(batch, rows, sizes[0]))
    upstream = rng.normal(size=(batch, rows, sizes[-1]))
    activations = network.forward(theta, inputs)
    ours = network.backward(theta, activations, upstream)

    leaf = torch.tensor(theta, requires_grad=True)
    hidden, start = torch.tensor(inputs), 0
    for index, (i, o) in enumerate(pairwise(sizes)):
        weight = leaf[:, start : start + i * o].reshape(batch, i, o)
        bias = leaf[:, start + i * o : start + (i + 1) * o].reshape(batch, 1, o)
        hidden = torch.bmm(hidden, weight) + bias
        if index < len(sizes) - 2:
            hidden = torch.tanh(hidden)
        start += (i + 1) * o
    (hidden * torch.tensor(upstream)).sum().backward()
    np.testing.assert_allclose(activations[-1], hidden.detach().numpy(), atol=1e-12)
    np.testing.assert_allclose(ours, leaf.grad.numpy(), atol=1e-10)


@given(
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(1, 6),
    st.booleans(),
    st.integers(0, 10_000),
)
@settings(max_examples=30, deadline=None)
def test_one_parameter_vector_for_many_rows_is_compiled_to_the_same(sizes, rows, squashed, seed):
    rng = np.random.default_rng(seed)
    network = Perceptron(tuple(sizes), squashed)
    theta = rng.normal(size=network.dimension)
    inputs, upstream = rng.normal(size=(rows, sizes[0])), rng.normal(size=(rows, sizes[-1]))
    activations = network.forward(theta[None], inputs[None])
    gradient = network.backward(theta[None], activations, upstream[None])[0]
    single = [np.asarray(array, dtype=np.float32) for array in (theta, inputs, upstream)]
    output, work = network.act(single[0], single[1])
    np.testing.assert_allclose(output, activations[-1][0], atol=2e-5)
    ours = network.gradient(single[0], single[1], work, single[2])
    np.testing.assert_allclose(ours, gradient, atol=2e-4)


def test_the_compiled_tanh_is_tanh_and_never_leaves_the_unit_interval():
    x = np.linspace(-30, 30, 200_001, dtype=np.float32)[None]
    values = x.copy()
    kernels.tanh_of_sum(values, np.zeros(x.size, dtype=np.float32))
    np.testing.assert_allclose(values, np.tanh(x.astype(np.float64)), atol=6e-7)
    assert np.abs(values).max() <= 1
    assert np.isnan(_tanh(np.nan))
    assert _tanh(np.inf) == -_tanh(-np.inf) == pytest.approx(1)


def _tanh(value):
    values = np.array([[value]], dtype=np.float32)
    kernels.tanh_of_sum(values, np.zeros(1, dtype=np.float32))
    return float(values[0, 0])


def test_each_row_of_parameters_acts_on_its_own_observation():
    rng = np.random.default_rng(0)
    policy = Policy(3, 2, hidden=(5,))
    theta = rng.normal(size=(4, policy.dimension))
    observations = rng.normal(size=(4, 3))
    together = policy.act(theta, observations)
    for row in range(4):
        alone = policy.act(theta[[row]], observations[[row]])
        np.testing.assert_allclose(together[[row]], alone, atol=1e-12)


def test_the_normaliser_standardises_what_random_actions_show():
    rng = np.random.default_rng(0)
    normaliser = Normaliser.fit(TwoGoals(4), 50, rng)
    again = Normaliser.fit(TwoGoals(4), 50, np.random.default_rng(0))
    np.testing.assert_array_equal(normaliser.mean, again.mean)
    scaled = normaliser(normaliser.mean + 2 * normaliser.std)
    np.testing.assert_allclose(scaled, 2, rtol=1e-6)
    assert normaliser(normaliser.mean + 1e6).max() == 10
