"""Batched networks and per-sample gradients, against automatic differentiation one at a time."""

import pytest
import torch
from torch import nn

from ibcl import networks
from ibcl.experiments.methods.many_models import ManyModels
from ibcl.experiments.methods.per_sample import OfAnyNetwork, OfLinearLayers, per_sample_gradients
from ibcl.networks import FlatNetwork

CHAINS = {
    "linear": lambda: networks.linear(3, outputs=2),
    "mlp": lambda: networks.mlp(3, hidden=[5, 4], outputs=2, activation="tanh"),
    "no bias": lambda: nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU(), nn.Linear(4, 2)),
    "bare layer": lambda: nn.Linear(3, 2),
}
OTHERS = {
    "random features": lambda: networks.random_features(3, width=4, outputs=2),
    "normalised": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
}


def squared(outputs):
    return (outputs - 0.3).square().sum(-1)


def slope_of_squared(outputs):
    return 2 * (outputs - 0.3)


def setting(build):
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(0)
    network = FlatNetwork(build())
    thetas = torch.randn(4, network.dimension, generator=generator)
    x = torch.randn(6, 3, generator=generator)
    coefficients = torch.randn(4, 6, generator=generator)
    return ManyModels(network), thetas, x, coefficients


@pytest.mark.parametrize("build", [*CHAINS.values(), *OTHERS.values()], ids=[*CHAINS, *OTHERS])
def test_outputs_are_those_of_each_model_alone(build):
    models, thetas, x, _ = setting(build)
    alone = torch.stack([models.network(theta, x) for theta in thetas])
    torch.testing.assert_close(models(thetas, x), alone)
    samples = per_sample_gradients(models, thetas, x, slope_of_squared)
    torch.testing.assert_close(samples.outputs, alone)


@pytest.mark.parametrize("build", [*CHAINS.values(), *OTHERS.values()], ids=[*CHAINS, *OTHERS])
def test_gradients_are_those_of_each_sample_alone(build):
    models, thetas, x, coefficients = setting(build)
    written = torch.zeros(4, 6, models.network.dimension)
    for p, theta in enumerate(thetas):
        for s, sample in enumerate(x):
            leaf = theta.clone().requires_grad_()
            loss = squared(models.network(leaf, sample[None]))[0]
            written[p, s] = torch.autograd.grad(loss, leaf)[0]
    samples = per_sample_gradients(models, thetas, x, slope_of_squared)
    expected = torch.einsum("ps,psd->pd", coefficients, written)
    torch.testing.assert_close(samples.combine(coefficients), expected, rtol=1e-4, atol=1e-4)
    buffer = torch.full_like(expected, torch.nan)
    assert samples.combine(coefficients, out=buffer) is buffer
    torch.testing.assert_close(buffer, expected, rtol=1e-4, atol=1e-4)
    products = written @ written.mT
    torch.testing.assert_close(samples.inner_products(), products, rtol=1e-4, atol=1e-3)


def test_networks_of_linear_layers_take_the_fast_way_and_others_the_general_one():
    models, thetas, x, _ = setting(CHAINS["mlp"])
    assert isinstance(per_sample_gradients(models, thetas, x, slope_of_squared), OfLinearLayers)
    models, thetas, x, _ = setting(OTHERS["random features"])
    assert isinstance(per_sample_gradients(models, thetas, x, slope_of_squared), OfAnyNetwork)
