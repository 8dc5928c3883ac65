"""Networks and their hand-written gradients, normalisers and clocks."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from known_fronts import TwoGoals

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


def test_each_row_of_parameters_acts_on_its_own_observation():
    rng = np.random.default_rng(0)
    policy = Policy(3, 2, hidden=(5,))
    theta = rng.normal(size=(4, policy.dimension))
    observations = rng.normal(size=(4, 3))
    together = policy.act(theta, observations)
    for row in range(4):
        alone = policy.act(theta[[row]], observations[[row]])
        np.testing.assert_allclose(together[[row]], alone, atol=1e-12)


def test_the_clock_adds_its_phase():
    policy = Policy(1, 1, hidden=(), clock=8)
    observation = np.array([[5.0], [5.0]])
    features = policy.features(observation, np.array([0, 2]))
    np.testing.assert_allclose(features, [[5, 0, 1], [5, 1, 0]], atol=1e-12)
    with pytest.raises(ValueError, match="number of steps"):
        policy.features(observation)


def test_the_normaliser_standardises_what_random_actions_show():
    rng = np.random.default_rng(0)
    normaliser = Normaliser.fit(TwoGoals(4), 50, rng)
    again = Normaliser.fit(TwoGoals(4), 50, np.random.default_rng(0))
    np.testing.assert_array_equal(normaliser.mean, again.mean)
    scaled = normaliser(normaliser.mean + 2 * normaliser.std)
    np.testing.assert_allclose(scaled, 2, rtol=1e-6)
    assert normaliser(normaliser.mean + 1e6).max() == 10
