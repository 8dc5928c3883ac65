"""Many models of one network, evaluated together: one model per preference."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import vmap

from ibcl.networks import FlatNetwork


class ManyModels:
    """A network at many parameter vectors θ_p at once, all on the same inputs.

    A network of linear layers is one batched matrix product per layer; any other goes through
    `torch.func.vmap`. The two agree.

    Examples
    --------
    >>> from ibcl import networks
    >>> models = ManyModels(FlatNetwork(networks.mlp(3, hidden=2)))
    >>> models(torch.zeros(5, models.network.dimension), torch.zeros(7, 3)).shape
    torch.Size([5, 7, 1])
    """

    def __init__(self, network: FlatNetwork) -> None:
        self.network = network
        self.layers = network.linear_layers()

    def __call__(self, thetas: Tensor, x: Tensor) -> Tensor:
        """f(θ_p, x) for thetas of shape (P, D); the result has shape (P, n, outputs)."""
        if self.layers is None:
            return vmap(self.network, in_dims=(0, None))(thetas, x)
        parameters = iter(self.network.unflatten(thetas).values())
        hidden = x.expand(len(thetas), *x.shape)
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                bias = layer.bias is not None
                hidden = affine(hidden, next(parameters), next(parameters) if bias else None)
            else:
                hidden = layer(hidden)
        return hidden


def affine(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return x Wᵀ + b of every model: x is (P, n, in), W is (P, out, in) and b is (P, out).

    Examples
    --------
    >>> affine(torch.ones(2, 4, 3), torch.ones(2, 5, 3), None).shape
    torch.Size([2, 4, 5])
    """
    if bias is None:
        return torch.bmm(x, weight.mT)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
