"""Gradients of single samples' losses: any weighted sum of them, and their inner products.

In a network of linear layers the gradient of sample s with respect to a layer's weights is the
outer product δ_s a_sᵀ of the loss's derivative by the layer's output and the layer's input. Hence

    Σ_s c_s ∇ℓ_s = Σ_s c_s δ_s a_sᵀ  in every layer,
    ⟨∇ℓ_s, ∇ℓ_t⟩ = Σ_layers (δ_sᵀδ_t) (a_sᵀa_t + 1)          (the 1 is the bias's share),

and no gradient of a sample is ever written out: GEM's inner products cost less than its step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.func import jacrev, vmap

from ibcl.experiments.methods.many_models import ManyModels, affine

Slopes = Callable[[Tensor], Tensor]
"""From outputs (P, n, outputs) to the derivative of each sample's loss by its own: their shape."""


class PerSampleGradients(Protocol):
    """∇ℓ_s(θ_p) of all models p and samples s, and the outputs f(θ_p, x_s) they belong to."""

    outputs: Tensor

    def combine(self, coefficients: Tensor, out: Tensor | None = None) -> Tensor:
        """Σ_s c_s ∇ℓ_s of every model, of shape (P, D), for coefficients of shape (P, n)."""

    def inner_products(self) -> Tensor:
        """⟨∇ℓ_s, ∇ℓ_t⟩ of every model, of shape (P, n, n)."""


def per_sample_gradients(
    models: ManyModels, thetas: Tensor, x: Tensor, slopes: Slopes
) -> PerSampleGradients:
    """Gradients of losses of f(θ_p, x), sample by sample, from the losses' slopes.

    Examples
    --------
    >>> from ibcl.networks import FlatNetwork, linear
    >>> models = ManyModels(FlatNetwork(linear(2)))
    >>> samples = per_sample_gradients(
    ...     models, torch.zeros(1, 3), torch.eye(2), torch.ones_like
    ... )
    >>> samples.combine(torch.tensor([[2.0, 3.0]]))
    tensor([[2., 3., 5.]])
    >>> samples.inner_products()
    tensor([[[2., 1.],
             [1., 2.]]])
    """
    kind = OfAnyNetwork if models.layers is None else OfLinearLayers
    return kind(models, thetas.detach(), x, slopes)


class OfLinearLayers:
    """Gradients in a network of linear layers, kept as the factors of their outer products."""

    def __init__(self, models: ManyModels, thetas: Tensor, x: Tensor, slopes: Slopes) -> None:
        assert models.layers is not None
        self.network = models.network
        self.shape = thetas.shape
        self.biases: list[bool] = []
        self.inputs: list[Tensor] = []
        parameters = iter(self.network.unflatten(thetas).values())
        hidden = x.expand(len(thetas), *x.shape)
        backwards: list[Callable[[Tensor], Tensor]] = []
        for layer in models.layers:
            if isinstance(layer, nn.Linear):
                bias = layer.bias is not None
                self.biases.append(bias)
                self.inputs.append(hidden)
                weight = next(parameters)
                backwards.append(partial(self._through_linear, weight, bool(backwards)))
                hidden = affine(hidden, weight, next(parameters) if bias else None)
            elif isinstance(layer, nn.ReLU):
                hidden = layer(hidden)
                backwards.append(hidden.sign().mul)
            else:
                before = hidden.detach().requires_grad_()
                after = layer(before)
                backwards.append(partial(_through_any, before, after))
                hidden = after.detach()
        self.outputs = hidden
        self.deltas: list[Tensor] = []
        # By hand, because in networks this small automatic differentiation costs more than the
        # arithmetic.
        delta = slopes(hidden)
        for backward in reversed(backwards):
            delta = backward(delta)
        self.deltas.reverse()

    def _through_linear(self, weight: Tensor, deeper: bool, delta: Tensor) -> Tensor:
        """Note a layer's δ, and go on to the δ of its input where another layer is before it."""
        self.deltas.append(delta)
        return torch.bmm(delta, weight) if deeper else delta

    def combine(self, coefficients: Tensor, out: Tensor | None = None) -> Tensor:
        """Σ_s c_s δ_s a_sᵀ, and Σ_s c_s δ_s for a bias."""
        result = torch.empty(self.shape) if out is None else out
        parts = iter(self.network.unflatten(result).values())
        for a, delta, bias in zip(self.inputs, self.deltas, self.biases, strict=True):
            scaled = delta * coefficients.unsqueeze(-1)
            torch.bmm(scaled.mT, a, out=next(parts))
            if bias:
                torch.sum(scaled, 1, out=next(parts))
        return result

    def inner_products(self) -> Tensor:
        """⟨∇ℓ_s, ∇ℓ_t⟩ = Σ_layers (δ_sᵀδ_t) (a_sᵀa_t + 1)."""
        # The first layer's inputs are the same for all models: one model's products will do.
        likeness = [self.inputs[0][:1], *self.inputs[1:]]
        products = torch.zeros(())
        for a, delta, bias in zip(likeness, self.deltas, self.biases, strict=True):
            products = products + (a @ a.mT + float(bias)) * (delta @ delta.mT)
        return products


def _through_any(before: Tensor, after: Tensor, delta: Tensor) -> Tensor:
    """δ before a layer without parameters, from δ after it."""
    (result,) = torch.autograd.grad(after, before, delta)
    return result


class OfAnyNetwork:
    """Gradients in any network, by automatic differentiation."""

    def __init__(self, models: ManyModels, thetas: Tensor, x: Tensor, slopes: Slopes) -> None:
        self.models, self.x = models, x
        self.thetas = thetas.clone().requires_grad_()
        self.each = models(self.thetas, x)
        self.outputs = self.each.detach()
        self.slopes = slopes(self.outputs)

    def combine(self, coefficients: Tensor, out: Tensor | None = None) -> Tensor:
        """∇ of Σ_s c_s ℓ_s."""
        weighted = coefficients.unsqueeze(-1) * self.slopes
        (result,) = torch.autograd.grad(self.each, self.thetas, weighted, retain_graph=True)
        return result if out is None else out.copy_(result)

    def inner_products(self) -> Tensor:
        """⟨∇ℓ_s, ∇ℓ_t⟩, from the gradients written out."""

        def each(theta: Tensor, slope: Tensor) -> Tensor:
            return (self.models.network(theta, self.x) * slope).sum(-1)

        written: Tensor = vmap(jacrev(each))(self.thetas.detach(), self.slopes)
        return written @ written.mT
