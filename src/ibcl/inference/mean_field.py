r"""Mean-field variational inference: q = N(μ, diag(σ²)) by stochastic gradients on the ELBO.

For each prior p = N(μ₀, diag(σ₀²)) and samples of weights w_s with the sum W (all 1, and W = n,
unless given) it minimises, over μ and log σ,

    −ELBO / W = (1/W) Σ_s w_s E_q[−log p(y_s | f(θ, x_s))] + KL(q ‖ p) / W,

the first term estimated on minibatches, the second and its gradient in closed form:

    KL = Σ ½ (σ²/σ₀² + (μ−μ₀)²/σ₀² − 1) − log(σ/σ₀),   ∂μ = (μ−μ₀)/σ₀²,   ∂log σ = σ²/σ₀² − 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ibcl.gaussians import DiagonalGaussian, Gaussian
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.inference.reparametrisation import (
    GradientEstimate,
    LocalReparametrisation,
    PlainReparametrisation,
    weighted,
)
from ibcl.likelihoods import Likelihood
from ibcl.likelihoods.requirements import require_likelihood
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData

# Of the priors' standard deviations, where no learning rate is given, and its bound.
_RATE_SHARE, _LARGEST_RATE = 0.1, 0.02


@dataclass(frozen=True)
class MeanFieldVI:
    """Mean-field variational inference with Adam, all m priors in one batched run.

    Parameters
    ----------
    epochs, batch_size, learning_rate
        The optimiser's schedule; the learning rate falls to zero along a cosine. None is a tenth
        of the priors' standard deviations, and at most 0.02: steps that do not leave the prior.
    initial_std
        Where σ starts at a first task. Starting at the prior's σ drowns the signal in noise;
        a small σ and a small random μ (the same for all priors) learn.
    patience
        With validation data, stop after so many epochs without a better validation loss of the
        mean model, and keep the best; None uses all epochs and still keeps the best.

    Examples
    --------
    >>> from ibcl.likelihoods import Normal
    >>> from ibcl.networks import linear
    >>> x = torch.linspace(-1, 1, 64)[:, None]
    >>> result = MeanFieldVI(epochs=5).infer(
    ...     FlatNetwork(linear(1)), Normal(0.1), [DiagonalGaussian([0.0, 0.0], [1.0, 1.0])],
    ...     TaskData(x, 3 * x), seed=0)
    >>> result.updates
    10
    """

    epochs: int = 20
    learning_rate: float | None = 5e-3
    batch_size: int = 32
    initial_std: float = 0.05
    patience: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "learning_rate", "batch_size", "initial_std"):
            value = getattr(self, name)
            if not (name == "learning_rate" and value is None) and not value > 0:
                raise ValueError(f"{name} must be positive, not {value!r}.")
        if self.patience is not None and self.patience < 1:
            raise ValueError(f"patience must be at least 1, not {self.patience!r}.")

    def infer(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        priors: Sequence[Gaussian],
        data: TaskData,
        *,
        validation: TaskData | None = None,
        start_from_prior: bool = False,
        seed: int = 0,
        progress: ProgressCallback | None = None,
    ) -> InferenceResult:
        """Return the mean-field posterior of each prior."""
        with torch.no_grad():
            outputs = network(priors[0].mean.to(data.x), data.x[:1]).shape[1]
        require_likelihood(likelihood, data.y, outputs)
        device = data.x.device
        prior_mean, prior_std = (values.to(device) for values in _stack(priors))
        if start_from_prior:
            start_mean, start_std = prior_mean.clone(), prior_std.clone()
        else:
            start = network.initial_parameters(torch.Generator().manual_seed(seed))
            start_mean = start.to(device).expand_as(prior_mean).clone()
            if network.pretrained:
                # A prior around trained weights is kept on disk; a module given to load may differ.
                centred = prior_mean.any(1)
                start_mean[centred] = prior_mean[centred]
            start_std = torch.full_like(prior_std, self.initial_std).minimum(prior_std)
        state = _Optimisation(network, likelihood, data.total_weight, prior_mean, prior_std)
        state.start(start_mean, start_std)
        best = _Best(network, likelihood, validation, len(priors)) if validation else None
        generator = torch.Generator(device).manual_seed(seed)
        # Scaled to an average of 1, so that a minibatch's average estimates Σ_s w_s (…) / W.
        shares = None
        if data.weights is not None:
            shares = (data.weights * (data.size / data.total_weight)).to(device, data.x.dtype)
        per_epoch = math.ceil(data.size / self.batch_size)
        total = self.epochs * per_epoch
        highest = self.learning_rate
        if highest is None:
            width = float(prior_std.square().mean().sqrt())
            highest = min(_LARGEST_RATE, _RATE_SHARE * width)
        updates = 0
        for _ in range(self.epochs):
            order = torch.randperm(data.size, generator=generator, device=device)
            x, y = data.x[order], data.y[order]
            w = None if shares is None else shares[order]
            loss = data.x.new_zeros(())
            for begin in range(0, data.size, self.batch_size):
                batch = slice(begin, begin + self.batch_size)
                rate = 0.5 * highest * (1 + math.cos(math.pi * updates / total))
                weights = None if w is None else w[batch]
                loss = state.step(x[batch], y[batch], weights, rate, generator)
                updates += 1
            if progress:
                progress(Progress(updates, total, float(loss)))
            if best and best.epochs_without_improvement(state.mean, state.std) == self.patience:
                break
        mean, std = (best and best.parameters) or (state.mean, state.std)
        posteriors = tuple(
            DiagonalGaussian(m.to(prior.mean.device, copy=True), s.to(prior.mean.device, copy=True))
            for m, s, prior in zip(mean, std, priors, strict=True)
        )
        bound = state.evidence_lower_bound(data, posteriors, priors, seed)
        return InferenceResult(posteriors, updates * len(priors), bound)


def _stack(gaussians: Sequence[Gaussian]) -> tuple[Tensor, Tensor]:
    """Means and standard deviations of m diagonal Gaussians, each of shape (m, D), in float32."""
    diagonal = []
    for gaussian in gaussians:
        independent = gaussian.as_diagonal()
        if independent is None:
            raise ValueError("MeanFieldVI needs diagonal Gaussians as priors; use DenseVI.")
        diagonal.append(independent)
    means = torch.stack([gaussian.mean.float() for gaussian in diagonal])
    return means, torch.stack([gaussian.std.float() for gaussian in diagonal])


class _Optimisation:
    """μ and log σ of m posteriors as one flat tensor, and Adam on it."""

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        samples: float,
        prior_mean: Tensor,
        prior_std: Tensor,
    ) -> None:
        self.network, self.likelihood, self.samples = network, likelihood, samples
        # One tensor for μ and log σ of all priors, so that Adam is one fused pass.
        self.parameters = prior_mean.new_empty(2, *prior_mean.shape).requires_grad_()
        self.parameters.grad = torch.zeros_like(self.parameters)
        self.mean, self.log_std = self.parameters.detach()
        self.mean_gradient, self.log_std_gradient = self.parameters.grad
        self.variance = torch.empty_like(prior_mean)
        self.variance_gradient = torch.empty_like(prior_mean)
        self.prior_mean = prior_mean
        self.prior_precision_share = prior_std.square().reciprocal() / samples
        estimate = (
            PlainReparametrisation if network.linear_layers() is None else LocalReparametrisation
        )
        self.estimate: GradientEstimate = estimate(
            network,
            likelihood,
            self.mean,
            self.variance,
            self.mean_gradient,
            self.variance_gradient,
        )
        # None leaves it to torch on devices that may have no such pass.
        fused = True if self.parameters.device.type in ("cpu", "cuda") else None
        self.adam = torch.optim.Adam([self.parameters], fused=fused)

    @property
    def std(self) -> Tensor:
        return torch.exp(self.log_std)

    def start(self, mean: Tensor, std: Tensor) -> None:
        self.mean.copy_(mean)
        self.log_std.copy_(std.log())

    def step(
        self,
        x: Tensor,
        y: Tensor,
        weights: Tensor | None,
        rate: float,
        generator: torch.Generator,
    ) -> Tensor:
        """One Adam update of all m posteriors on one minibatch; returns the mean loss."""
        torch.mul(self.log_std, 2, out=self.variance).exp_()
        # The KL's gradient is written first, and the likelihood's is added to it:
        # ∂μ = (μ−μ₀)/(nσ₀²), and ∂σ² = 1/(2nσ₀²) leaves −1/n for ∂log σ = 2σ²·∂σ² − 1/n.
        torch.sub(self.mean, self.prior_mean, out=self.mean_gradient)
        self.mean_gradient.mul_(self.prior_precision_share)
        torch.mul(self.prior_precision_share, 0.5, out=self.variance_gradient)
        loss = self.estimate.accumulate(x, y, generator, weights).mean()
        torch.mul(self.variance, self.variance_gradient, out=self.log_std_gradient)
        self.log_std_gradient.mul_(2).sub_(1 / self.samples)
        self.adam.param_groups[0]["lr"] = rate
        self.adam.step()
        return loss

    def evidence_lower_bound(
        self,
        data: TaskData,
        posteriors: Sequence[DiagonalGaussian],
        priors: Sequence[Gaussian],
        seed: int,
        draws: int = 8,
    ) -> tuple[float, ...]:
        """Estimate E_q[log p(y | θ)] − KL(q ‖ p) of each posterior with a few seeded draws."""
        bounds = []
        for posterior, prior in zip(posteriors, priors, strict=True):
            thetas = posterior.sample(draws, torch.Generator().manual_seed(seed))
            outputs = self.network.outputs_of_many(thetas.to(data.x.device), data.x)
            losses = weighted(self.likelihood.negative_log(outputs, data.y), data.weights)
            bounds.append(-float(losses.sum(-1).mean()) - posterior.kl(prior))
        return tuple(bounds)


class _Best:
    """The parameters with the best validation loss so far, each prior on its own."""

    def __init__(
        self, network: FlatNetwork, likelihood: Likelihood, validation: TaskData, priors: int
    ) -> None:
        self.network, self.likelihood, self.validation = network, likelihood, validation
        self.losses = validation.x.new_full((priors,), math.inf)
        self.parameters: tuple[Tensor, Tensor] | None = None
        self.waited = 0

    def epochs_without_improvement(self, mean: Tensor, std: Tensor) -> int:
        """Judge the present parameters; 0 where any prior's validation loss improved."""
        outputs = self.network.outputs_of_many(mean, self.validation.x)
        losses = self.likelihood.negative_log(outputs, self.validation.y)
        losses = weighted(losses, self.validation.weights).sum(-1) / self.validation.total_weight
        better = losses < self.losses
        if self.parameters is None:
            self.parameters = (mean.clone(), std.clone())
        for kept, current in zip(self.parameters, (mean, std), strict=True):
            kept[better] = current[better]
        self.losses = self.losses.minimum(losses)
        self.waited = 0 if bool(better.any()) else self.waited + 1
        return self.waited
