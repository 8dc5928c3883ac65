r"""Two unbiased estimates of the expected log likelihood's gradient, for m posteriors at once.

The expectation is E_{θ~q}[−log p(y | f(θ, x))] with q = N(μ, diag(σ²)).

*Local reparametrisation* (Kingma, Salimans and Welling, 2015) samples the pre-activations of each
linear layer, which are Gaussian given its input h:

    a = h μ_Wᵀ + μ_b + √(h² (σ_W²)ᵀ + σ_b²) ε,     ε ~ N(0, I) for every sample and unit.

*Plain reparametrisation* samples θ = μ + σ ε once a minibatch, for any differentiable module; the
gradient g with respect to θ gives ∂μ = g and ∂σ² = g ε / (2σ).

The m posteriors share their noise ε as they share their start: networks that began at one place and
were pushed alike stay near each other, so that what is between them, such as their barycentre, is a
network that works too.

Both work with variances, whose gradient the caller turns into that of its own parametrisation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import grad_and_value, vmap

from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork


class GradientEstimate(Protocol):
    """Adds the gradient of the mean expected −log p to two buffers of shape (m, D)."""

    def accumulate(
        self, x: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor | None = None
    ) -> Tensor:
        """Add ∂/∂μ and ∂/∂σ² of the batch's mean expected −w log p; return it, one value per prior.

        Every sample has the weight w = 1 without `weights`.
        """


def weighted(losses: Tensor, weights: Tensor | None) -> Tensor:
    """Losses of shape (..., n), each times its sample's weight.

    Examples
    --------
    >>> weighted(torch.ones(2), torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    return losses if weights is None else losses * weights.to(losses)


class LocalReparametrisation:
    """Samples pre-activations; for networks of linear layers.

    Every layer's parameters are views of the flat (m, D) tensors, so that the optimiser's update
    of the flat tensor is at once the layers' update.
    """

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        mean: Tensor,
        variance: Tensor,
        mean_gradient: Tensor,
        variance_gradient: Tensor,
    ) -> None:
        layers = network.linear_layers()
        assert layers is not None
        self.layers = layers
        self.likelihood = likelihood
        self.models = len(mean)
        self.means = _leaves(network, mean)
        self.variances = _leaves(network, variance)
        self.gradients = [
            *network.unflatten(mean_gradient).values(),
            *network.unflatten(variance_gradient).values(),
        ]

    def forward(self, x: Tensor, generator: torch.Generator) -> Tensor:
        """Sample the network's outputs: shape (m, n, outputs)."""
        hidden = x.expand(self.models, *x.shape)
        parameter = iter(zip(self.means, self.variances, strict=True))
        for layer in self.layers:
            if not isinstance(layer, nn.Linear):
                hidden = layer(hidden)
                continue
            weight, weight_variance = next(parameter)
            bias, bias_variance = next(parameter) if layer.bias is not None else (None, None)
            noise = torch.randn(
                hidden.shape[1], layer.out_features, generator=generator, device=generator.device
            )
            hidden = sampled_linear(hidden, weight, weight_variance, bias, bias_variance, noise)
        return hidden

    def accumulate(
        self, x: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor | None = None
    ) -> Tensor:
        """Add the batch's gradients to the buffers; return the mean −log p of each model."""
        losses = self.likelihood.negative_log(self.forward(x, generator), y)
        loss = weighted(losses, weights).mean(-1)
        gradients = torch.autograd.grad(loss.sum(), self.means + self.variances)
        torch._foreach_add_(self.gradients, gradients)
        return loss.detach()


def sampled_linear(
    hidden: Tensor,
    weight: Tensor,
    weight_variance: Tensor,
    bias: Tensor | None,
    bias_variance: Tensor | None,
    noise: Tensor,
) -> Tensor:
    """Sample the pre-activations of m linear layers with Gaussian parameters.

    Shapes: hidden (m, n, in), weight and its variance (m, out, in), bias and its variance (m, out),
    noise (m, n, out), or (n, out) to give all layers the same.

    Examples
    --------
    >>> one = torch.ones(1, 1, 1)
    >>> sampled_linear(one, 2 * one, 9 * one, None, None, noise=one)  # 2 + √9
    tensor([[[5.]]])
    """
    drawn: Tensor = _SampledLinear.apply(  # type: ignore[no-untyped-call]
        hidden, weight, weight_variance, bias, bias_variance, noise
    )
    return drawn


class _SampledLinear(torch.autograd.Function):
    """a = h μ_Wᵀ + μ_b + √(h² (σ_W²)ᵀ + σ_b²) ε for m layers at once, with its gradient by hand.

    With g = ∂a and γ = g ε / (2√v) = ∂v: ∂μ_W = gᵀh, ∂σ_W² = γᵀh², ∂h = g μ_W + 2h ⊙ (γ σ_W²).
    Automatic differentiation finds the same in twice the time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        weight_variance: Tensor,
        bias: Tensor | None,
        bias_variance: Tensor | None,
        noise: Tensor,
    ) -> Tensor:
        square = hidden.square()
        activation = torch.bmm(hidden, weight.transpose(1, 2))
        variance = torch.bmm(square, weight_variance.transpose(1, 2))
        if bias is not None and bias_variance is not None:
            activation += bias.unsqueeze(1)
            variance += bias_variance.unsqueeze(1)
        # Where an input is all zeros the variance is 0, and a root's slope there is infinite.
        std = variance.clamp_(min=1e-30).sqrt_()
        ctx.save_for_backward(hidden, square, weight, weight_variance, noise / (2 * std))
        return activation.addcmul_(std, noise)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        hidden, square, weight, weight_variance, slope = ctx.saved_tensors
        variance_gradient = gradient * slope
        inner = None
        if ctx.needs_input_grad[0]:
            inner = torch.bmm(gradient, weight)
            inner.addcmul_(hidden, torch.bmm(variance_gradient, weight_variance), value=2)
        has_bias = ctx.needs_input_grad[3]
        return (
            inner,
            torch.bmm(gradient.transpose(1, 2), hidden),
            torch.bmm(variance_gradient.transpose(1, 2), square),
            gradient.sum(1) if has_bias else None,
            variance_gradient.sum(1) if has_bias else None,
            None,
        )


def _leaves(network: FlatNetwork, values: Tensor) -> list[Tensor]:
    """Each parameter as a view of the flat tensor that gradients are taken with respect to."""
    return [value.detach().requires_grad_() for value in network.unflatten(values).values()]


class PlainReparametrisation:
    """Samples θ itself; for any module."""

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        mean: Tensor,
        variance: Tensor,
        mean_gradient: Tensor,
        variance_gradient: Tensor,
    ) -> None:
        self.mean, self.variance = mean, variance
        self.mean_gradient, self.variance_gradient = mean_gradient, variance_gradient

        def loss(theta: Tensor, x: Tensor, y: Tensor, weights: Tensor | None) -> Tensor:
            return weighted(likelihood.negative_log(network(theta, x), y), weights).mean()

        self.gradients: Callable[..., tuple[Tensor, Tensor]] = vmap(
            grad_and_value(loss), in_dims=(0, None, None, None)
        )

    def accumulate(
        self, x: Tensor, y: Tensor, generator: torch.Generator, weights: Tensor | None = None
    ) -> Tensor:
        """Add the batch's gradients to the buffers; return the mean −log p of each model."""
        noise = torch.randn(self.mean.shape[1:], generator=generator, device=generator.device)
        std = self.variance.sqrt()
        gradient, loss = self.gradients(self.mean + std * noise, x, y, weights)
        self.mean_gradient += gradient
        self.variance_gradient += gradient * noise / (2 * std)
        return loss
