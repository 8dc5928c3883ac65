"""VCL with rehearsal: variational continual learning with an episodic memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.checked import at_least, positive
from ibcl.experiments.methods.common_settings import BAYES, MLP, VARIATIONAL
from ibcl.experiments.methods.many_models import ManyModels
from ibcl.experiments.methods.registration import REHEARSAL, Registration, register
from ibcl.experiments.methods.rehearsal import Pool, choose_samples
from ibcl.gaussians import DiagonalGaussian
from ibcl.inference import sampled_linear
from ibcl.tasks import TaskData


class VCL(Baseline):
    r"""Nguyen, Li, Bui and Turner, *Variational Continual Learning*, ICLR 2018, with rehearsal.

    The posterior of one task is the prior of the next (equation 4 of the VCL paper). With q
    a Gaussian of independent parameters, and N the number of samples at hand (the current task's
    and the memories'), the model of preference w minimises

        N · E_{θ~q} [ Σ_j w_j L_j(θ) ] + KL(q ‖ q_{i−1}),

    the negative ELBO when there is one task. The expectation is taken with one draw per step
    (`noisy_outputs`), with the same noise for all preferences. q_0 = N(0, `prior_std`² I); the
    first task starts from a small random mean and std `initial_std`, later ones from q_{i−1}.

    The memory is one random coreset per task. In the VCL paper a coreset is left out of the
    posterior that is passed on; in rehearsal it is seen again at every task, as the preferences
    need it. Passed on, as prior and start, is the average (the 2-Wasserstein barycentre: mean of
    means, mean of stds) of the posteriors of the task's preferences. A preference's predictions are
    those of its posterior's mean.
    """

    name = "vcl"

    def __init__(
        self,
        network: nn.Module,
        *,
        memory: int = 50,
        prior_std: float = 2.5,
        initial_std: float = 0.05,
        **settings: Any,
    ) -> None:
        super().__init__(network, **settings)
        if self.descent.weight_decay:
            raise ValueError("vcl takes no weight_decay: its prior regularises (prior_std).")
        self.memory = at_least("memory", memory, 1)
        self.prior_std = positive("prior_std", prior_std)
        self.initial_std = positive("initial_std", initial_std)
        self.memories: list[TaskData] = []
        dimension = self.network.dimension
        self.prior = DiagonalGaussian(
            torch.zeros(dimension), torch.full((dimension,), self.prior_std)
        )
        self.stds: Tensor | None = None

    def fit(self, current: TaskData, preferences: Tensor) -> Tensor:
        """Find every preference's posterior; their average is the next task's prior."""
        generator = self.generator()
        pool = Pool([*self.memories, current])
        if self.thetas is None:
            mean = self.network.initial_parameters(generator)
            std = torch.full_like(mean, self.initial_std)
        else:
            mean, std = self.prior.mean, self.prior.std
        start = torch.cat([mean, std.log()]).repeat(len(preferences), 1)
        posteriors = self.minimise_free_energy(start, pool, preferences, generator)
        self.memories.append(choose_samples(current, self.memory, generator))
        means, log_stds = posteriors.chunk(2, 1)
        self.stds = log_stds.exp()
        self.prior = DiagonalGaussian(means.mean(0), self.stds.mean(0))
        return means

    def minimise_free_energy(
        self, start: Tensor, pool: Pool, preferences: Tensor, generator: torch.Generator
    ) -> Tensor:
        """Descend on the negative ELBO a sample; a row holds a posterior's μ and log σ."""
        data, importance = pool.data, pool.importance(preferences)
        m, precision, N = self.prior.mean, self.prior.std.square().reciprocal(), pool.size
        posteriors = start.clone()

        def gradient(posteriors: Tensor, rows: Tensor, _: int) -> Tensor:
            mean, log_std = (part.clone() for part in posteriors.detach().chunk(2, 1))
            variance = (2 * log_std).exp().requires_grad_()
            outputs = noisy_outputs(
                self.models, mean.requires_grad_(), variance, data.x[rows], generator
            )
            expected = (importance[:, rows] * self.loss(outputs, data.y[rows])).mean(1).sum()
            by_mean, by_variance = torch.autograd.grad(expected, (mean, variance))
            with torch.no_grad():
                # KL(N(μ, σ²) ‖ N(m, s²)) has derivatives (μ−m)/s² by μ and σ²/s² − 1 by log σ.
                by_mean += (mean - m) * (precision / N)
                by_log_std = variance * (2 * by_variance + precision / N) - 1 / N
            return torch.cat([by_mean, by_log_std], 1)

        self.descend(posteriors, N, gradient, generator)
        return posteriors

    @property
    def stored_bytes(self) -> int:
        """Bytes of the samples kept and of the prior of the next task."""
        samples = sum(task.x.nbytes + task.y.nbytes for task in self.memories)
        return samples + (0 if self.thetas is None else self.prior.nbytes)


def noisy_outputs(
    models: ManyModels, mean: Tensor, variance: Tensor, x: Tensor, generator: torch.Generator
) -> Tensor:
    r"""Draw f(θ, x) with θ ~ N(mean, variance) of every model, of shape (P, n, outputs).

    In a network of linear layers, by local reparametrisation (Kingma, Salimans and Welling, 2015):
    a layer's output given its input h is Gaussian with mean h μᵀ and variance h² (σ²)ᵀ, and drawing
    it for every sample makes far less noisy gradients than drawing θ once for all. In any other
    network θ = μ + σ ε. The noise is the same for all models.

    Examples
    --------
    >>> from ibcl.networks import FlatNetwork, linear
    >>> models = ManyModels(FlatNetwork(linear(1)))
    >>> mean, none = torch.tensor([[2.0, 1.0]]), torch.zeros(1, 2)
    >>> noisy_outputs(models, mean, none, torch.tensor([[3.0]]), torch.Generator())
    tensor([[[7.]]])
    """
    if models.layers is None:
        noise = torch.randn(mean.shape[1], generator=generator)
        return models(mean + variance.sqrt() * noise, x)
    means = iter(models.network.unflatten(mean).values())
    variances = iter(models.network.unflatten(variance).values())
    hidden = x.expand(len(mean), *x.shape)
    for layer in models.layers:
        if isinstance(layer, nn.Linear):
            weight, weight_variance = next(means), next(variances)
            bias = next(means) if layer.bias is not None else None
            bias_variance = next(variances) if layer.bias is not None else None
            noise = torch.randn(len(x), layer.out_features, generator=generator)
            hidden = sampled_linear(hidden, weight, weight_variance, bias, bias_variance, noise)
        else:
            hidden = layer(hidden)
    return hidden


register(Registration("vcl", "VCL + rehearsal", VCL, REHEARSAL, MLP, 10.0, VARIATIONAL, BAYES))
