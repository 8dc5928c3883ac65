r"""Twin critics Q₁, Q₂ of state and action, their gradients written out by hand.

Both are perceptrons with layer normalisation (without gain or offset) and ReLU, stacked in one
batch of two so that every layer is a single matrix product. For networks this small, automatic
differentiation and an optimiser that walks over ten tensors cost more than the arithmetic; one flat
parameter vector, one flat gradient and one fused optimiser step do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.rl.policies import Floats
from ibcl.rl.variational import State

EPSILON = 1e-5
TWINS = 2


class FlatAdam:
    """Adam on one flat vector, moved in place by PyTorch's fused kernel.

    Examples
    --------
    >>> parameters = torch.zeros(2)
    >>> FlatAdam(2).step(parameters, torch.tensor([1.0, -3.0]), rate=0.1)
    >>> [round(value, 3) for value in parameters.tolist()]
    [-0.1, 0.1]
    """

    def __init__(self, dimension: int, decay: tuple[float, float] = (0.9, 0.99)) -> None:
        self.decay = decay
        self.first = torch.zeros(dimension)
        self.second = torch.zeros(dimension)
        self.count = torch.zeros(())

    def step(self, parameters: Tensor, gradient: Tensor, rate: float) -> None:
        """Descend along the gradient."""
        self.count += 1
        torch._fused_adam_(
            [parameters],
            [gradient],
            [self.first],
            [self.second],
            [],
            [self.count],
            lr=rate,
            beta1=self.decay[0],
            beta2=self.decay[1],
            weight_decay=0.0,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )

    def state(self, name: str) -> State:
        """Arrays to store, under names that begin with ``name``."""
        return {
            f"{name}.first": self.first.numpy(),
            f"{name}.second": self.second.numpy(),
            f"{name}.count": self.count.numpy(),
        }

    def load(self, name: str, state: Mapping[str, NDArray[Any]]) -> None:
        """Take the arrays back."""
        self.first = torch.tensor(state[f"{name}.first"])
        self.second = torch.tensor(state[f"{name}.second"])
        self.count = torch.tensor(state[f"{name}.count"])


class Layer(NamedTuple):
    """What the backward pass needs of one hidden layer."""

    inputs: Tensor
    affine: Tensor
    mean: Tensor
    inverse_std: Tensor
    output: Tensor


class TwinCritics:
    """Two critics (inputs → hidden … → 1) and their slowly following targets.

    Examples
    --------
    >>> critics = TwinCritics(3, (8, 8), np.random.default_rng(0))
    >>> critics.values(torch.zeros(5, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, hidden: tuple[int, ...], rng: np.random.Generator) -> None:
        self.sizes = (inputs, *hidden, 1)
        dimension = TWINS * sum((i + 1) * o for i, o in pairwise(self.sizes))
        self.parameters = torch.zeros(dimension)
        self.gradient = torch.zeros(dimension)
        self._layers = self._views(self.parameters)
        self._gradients = self._views(self.gradient)
        for weight, _ in self._layers:
            scale = 1 / np.sqrt(weight.shape[1])
            weight.copy_(torch.tensor(rng.normal(0, scale, weight.shape), dtype=torch.float32))
        self.target = self.parameters.clone()
        self._target_layers = self._views(self.target)
        self._adam = FlatAdam(dimension)

    def _views(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """View a flat vector as weights (2, in, out) and biases (2, 1, out)."""
        views, start = [], 0
        for i, o in pairwise(self.sizes):
            weight = flat[start : start + TWINS * i * o].view(TWINS, i, o)
            start += TWINS * i * o
            views.append((weight, flat[start : start + TWINS * o].view(TWINS, 1, o)))
            start += TWINS * o
        return views

    def state(self) -> State:
        """Arrays for a checkpoint."""
        return {
            "parameters": self.parameters.numpy(),
            "target": self.target.numpy(),
            **self._adam.state("adam"),
        }

    def load(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a checkpoint."""
        self.parameters.copy_(torch.tensor(state["parameters"]))
        self.target.copy_(torch.tensor(state["target"]))
        self._adam.load("adam", state)

    def values(self, inputs: Tensor) -> Tensor:
        """Q₁ and Q₂ of inputs (N, in), shape (2, N)."""
        return self._forward(self._layers, inputs)[0]

    def target_values(self, inputs: Tensor) -> Tensor:
        """Return the smaller of the two targets' values, shape (N,)."""
        return self._forward(self._target_layers, inputs)[0].amin(0)

    def follow(self, share: float) -> None:
        """Move the targets by a share of the way to the critics."""
        self.target.lerp_(self.parameters, share)

    def _forward(
        self, layers: list[tuple[Tensor, Tensor]], inputs: Tensor, critics: int = TWINS
    ) -> tuple[Tensor, list[Layer]]:
        """Values of the first ``critics`` critics and what their backward pass needs."""
        hidden = inputs.expand(critics, *inputs.shape)
        trace = []
        for weight, bias in layers[:-1]:
            affine = torch.baddbmm(bias[:critics], hidden, weight[:critics])
            normal, mean, inverse_std = torch.native_layer_norm(
                affine, affine.shape[-1:], None, None, EPSILON
            )
            output = normal.relu_()
            trace.append(Layer(hidden, affine, mean, inverse_std, output))
            hidden = output
        weight, bias = layers[-1]
        return torch.baddbmm(bias[:critics], hidden, weight[:critics])[..., 0], trace

    @staticmethod
    def _before_normalisation(layer: Layer, gradient: Tensor) -> Tensor:
        """∂L/∂affine from ∂L/∂output, back through ReLU and layer normalisation."""
        active = torch.ops.aten.threshold_backward(gradient, layer.output, 0)
        result: Tensor = torch.ops.aten.native_layer_norm_backward(
            active,
            layer.affine,
            layer.affine.shape[-1:],
            layer.mean,
            layer.inverse_std,
            None,
            None,
            [True, False, False],
        )[0]
        return result

    def differentiate(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """Put ∂/∂parameters of ½ Σ_i mean (Q_i − target)² into ``gradient``; returns the values."""
        values, trace = self._forward(self._layers, inputs)
        upstream = ((values - targets) / len(inputs))[..., None]
        into_weight, into_bias = self._gradients[-1]
        torch.bmm(trace[-1].output.transpose(1, 2), upstream, out=into_weight)
        torch.sum(upstream, 1, keepdim=True, out=into_bias)
        gradient = upstream * self._layers[-1][0].transpose(1, 2)
        for index in range(len(trace) - 1, -1, -1):
            layer = trace[index]
            gradient = self._before_normalisation(layer, gradient)
            into_weight, into_bias = self._gradients[index]
            torch.bmm(layer.inputs.transpose(1, 2), gradient, out=into_weight)
            torch.sum(gradient, 1, keepdim=True, out=into_bias)
            if index:
                gradient = torch.bmm(gradient, self._layers[index][0].transpose(1, 2))
        return values

    def fit(self, inputs: Tensor, targets: Tensor, rate: float) -> None:
        """Take one step towards the targets."""
        self.differentiate(inputs, targets)
        self._adam.step(self.parameters, self.gradient, rate)

    def slope(self, inputs: Tensor, actions: int) -> Floats:
        """∂Q₁/∂a of shape (N, actions), the last inputs, along which a policy climbs."""
        _, trace = self._forward(self._layers, inputs, critics=1)
        gradient = self._layers[-1][0][:1].transpose(1, 2).expand(1, len(inputs), -1).contiguous()
        for index in range(len(trace) - 1, -1, -1):
            weight = self._layers[index][0][:1]
            if not index:
                weight = weight[:, -actions:]
            gradient = self._before_normalisation(trace[index], gradient)
            gradient = torch.bmm(gradient, weight.transpose(1, 2))
        return gradient[0].numpy()
