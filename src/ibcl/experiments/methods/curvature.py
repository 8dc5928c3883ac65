r"""Fisher information of a network's parameters on a task, in full or its diagonal.

    F(θ) = mean over samples of J(x)ᵀ H(x) J(x),    J = ∂f/∂θ,   H = −∂² log p(y | f) / ∂f².

For the likelihoods used here H does not depend on y, so that this is the expectation over the
model's own labels, not the "empirical" Fisher of the observed ones.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.func import hessian, jacrev, vmap

from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Samples whose Jacobians exist at the same time.
_BLOCK = 64


def fisher_diagonal(
    network: FlatNetwork, likelihood: Likelihood, theta: Tensor, data: TaskData
) -> Tensor:
    """Return the diagonal of F(θ), of shape (D,).

    Examples
    --------
    >>> from ibcl.likelihoods import Bernoulli
    >>> from ibcl.networks import linear
    >>> data = TaskData(torch.tensor([[2.0]]), torch.tensor([1.0]))
    >>> fisher_diagonal(FlatNetwork(linear(1)), Bernoulli(), torch.zeros(2), data)
    tensor([1.0000, 0.2500])
    """
    total = torch.zeros_like(theta)
    for jacobian, curvature in _blocks(network, likelihood, theta, data):
        total += torch.einsum("nad,nab,nbd->d", jacobian, curvature, jacobian)
    return total / data.size


def fisher_matrix(
    network: FlatNetwork, likelihood: Likelihood, theta: Tensor, data: TaskData
) -> Tensor:
    """Return F(θ), of shape (D, D), in double precision: for small networks only.

    Examples
    --------
    >>> from ibcl.likelihoods import Bernoulli
    >>> from ibcl.networks import linear
    >>> data = TaskData(torch.tensor([[2.0]]), torch.tensor([1.0]))
    >>> fisher_matrix(FlatNetwork(linear(1)), Bernoulli(), torch.zeros(2), data)
    tensor([[1.0000, 0.5000],
            [0.5000, 0.2500]], dtype=torch.float64)
    """
    if _single_linear_layer(network) is not None:
        with torch.no_grad():
            inputs = torch.cat([data.x, torch.ones(data.size, 1)], 1).double()
            curvature = _curvatures(likelihood, network(theta, data.x), data.y).flatten().double()
        return inputs.T @ (curvature[:, None] * inputs) / data.size
    total = torch.zeros(len(theta), len(theta), dtype=torch.float64)
    for jacobian, curvature in _blocks(network, likelihood, theta, data):
        rows = jacobian.double()
        weighted = torch.einsum("nab,nbd->nad", curvature.double(), rows)
        total += rows.flatten(0, 1).T @ weighted.flatten(0, 1)
    return total / data.size


def _blocks(
    network: FlatNetwork, likelihood: Likelihood, theta: Tensor, data: TaskData
) -> Iterator[tuple[Tensor, Tensor]]:
    """Jacobians (n, outputs, D) and curvatures (n, outputs, outputs), block by block."""

    def outputs(theta: Tensor, x: Tensor) -> Tensor:
        return network(theta, x[None])[0]

    for begin in range(0, data.size, _BLOCK):
        x, y = data.x[begin : begin + _BLOCK], data.y[begin : begin + _BLOCK]
        with torch.no_grad():
            f = network(theta, x)
        jacobian = vmap(jacrev(outputs), in_dims=(None, 0))(theta, x)
        yield jacobian, _curvatures(likelihood, f, y)


def _curvatures(likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
    """H of every sample, of shape (n, outputs, outputs)."""

    def loss(f: Tensor, y: Tensor) -> Tensor:
        return likelihood.negative_log(f[None], y[None])[0]

    curvatures: Tensor = vmap(hessian(loss))(f, y)
    return curvatures


def _single_linear_layer(network: FlatNetwork) -> nn.Linear | None:
    """The one layer of logistic or linear regression, where J = (x, 1) needs no differentiation."""
    layers = network.linear_layers()
    if layers is None or len(layers) != 1 or not isinstance(layers[0], nn.Linear):
        return None
    layer = layers[0]
    return layer if layer.out_features == 1 and layer.bias is not None else None


def some_of(data: TaskData, n: int, generator: torch.Generator) -> TaskData:
    """Return n random samples, which are enough to estimate curvature (all, if there are fewer).

    Examples
    --------
    >>> some_of(TaskData(torch.zeros(5, 2), torch.zeros(5)), 3, torch.Generator()).size
    3
    """
    rows = torch.randperm(data.size, generator=generator)[:n]
    return TaskData(data.x[rows], data.y[rows])
