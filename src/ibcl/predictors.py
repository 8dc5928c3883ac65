"""Predictors: parameters, and the answers they give; one network, or several behind a gate.

Both answer with the likelihood's mean: class probabilities, or expected values. A model is a
predictor with the distribution its parameters were taken from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.gates import GATE_TENSORS, Gate
from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork


class Predictor(ABC):
    """A network's parameters θ, flat, and what they answer."""

    network: FlatNetwork
    likelihood: Likelihood
    theta: Tensor

    @abstractmethod
    def means(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Return the likelihood's mean of every model, shape (models, n, columns).

        Parameters
        ----------
        thetas
            Other parameters than its own, one row a model.
        """

    @abstractmethod
    def outputs(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Return the outputs of every model, shape (models, n, outputs)."""

    @abstractmethod
    def member(self, x: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Return the means, averaged over thetas, of one extreme element of the credal set."""

    @abstractmethod
    def module(self) -> nn.Module:
        """Return a plain module that gives the outputs."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what it consists of beside the network's fixed part, by name."""


def _network_outputs(network: FlatNetwork, thetas: Tensor, x: Tensor) -> Tensor:
    """Outputs of many models; linear heads in double precision, so that batches do not matter."""
    if network.is_linear:
        return network.outputs_of_features(thetas.double(), network.features(x).double())
    with torch.no_grad():
        return network.outputs_of_many(thetas.to(x.dtype), x)


class SingleNetwork(Predictor):
    """One network with one parameter vector θ."""

    def __init__(self, network: FlatNetwork, likelihood: Likelihood, theta: Tensor) -> None:
        self.network, self.likelihood, self.theta = network, likelihood, theta

    def outputs(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """f(θ, x)."""
        return _network_outputs(self.network, self.theta[None] if thetas is None else thetas, x)

    def means(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """E[y | f(θ, x)]."""
        return self.likelihood.mean(self.outputs(x, thetas))

    def member(self, x: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of the extreme element's own models."""
        return self.means(x, thetas).mean(0)

    def module(self) -> nn.Module:
        """Return the network with parameters θ."""
        return self.network.module(self.theta)

    def tensors(self) -> dict[str, Tensor]:
        """Return θ by the names of the network's parameters."""
        return dict(self.network.unflatten(self.theta))


class RoutedNetworks(Predictor):
    r"""A head for every task with any weight, and the gate between them.

    p(y | x, w) = Σ_k r_k(x, w) p_k(y | x),  r(x, w) = softmax(gate(x) + log w).

    Parameters
    ----------
    heads
        Parameters of the heads of the tasks with weight, shape (heads, D).
    weights
        The preference w, one number a task.
    seen
        Which classes each task has seen, where tasks have different ones; p_k is then Bayes' rule
        among those only.
    """

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        heads: Tensor,
        gate: Gate,
        weights: Tensor,
        seen: Tensor | None = None,
    ) -> None:
        self.network, self.likelihood = network, likelihood
        self.heads, self.gate, self.seen = heads, gate, seen
        self.weights = weights.double().to(heads.device)
        self.active = torch.nonzero(self.weights > 0).flatten()
        self.theta = heads.flatten()

    def routing(self, x: Tensor) -> Tensor:
        """r_k(x, w), shape (n, tasks)."""
        return self._routing(self.network.features(x).double())

    def _routing(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.softmax(self.gate(features) + self.weights.log().to(features), 1)

    def novelty(self, x: Tensor) -> Tensor:
        """How far x is from every task; about 1 for inputs like those learnt."""
        with torch.no_grad():
            return self.gate.novelty(self.network.features(x).double())

    def means(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Σ_k r_k(x, w) p_k(y | x)."""
        shares = self._routing(self.network.features(x).double())[:, self.active.to(x.device)].T
        rows = self.theta[None] if thetas is None else thetas
        found = []
        for row in rows:
            means = self._head_means(x, row.reshape(len(self.active), -1), self.active)
            found.append((shares[:, :, None].to(means) * means).sum(0))
        return torch.stack(found)

    def _head_means(self, x: Tensor, thetas: Tensor, tasks: Tensor) -> Tensor:
        """p_k(y | x) of these tasks' heads, shape (tasks, n, columns)."""
        return head_means(self.network, self.likelihood, thetas, x, tasks, self.seen)

    def outputs(self, x: Tensor, thetas: Tensor | None = None) -> Tensor:
        """Outputs of one network that would answer the same."""
        return self.likelihood.outputs_of(self.means(x, thetas))

    def member(self, x: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of a task's head."""
        tasks = torch.full((len(thetas),), position, device=thetas.device)
        return self._head_means(x, thetas, tasks).mean(0)

    def module(self) -> nn.Module:
        """Return features, heads and gate as one plain module."""
        return RoutedModule(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return heads, weights, gate and what the tasks have seen."""
        gate = {f"gate.{name}": getattr(self.gate, name) for name in GATE_TENSORS}
        seen = {} if self.seen is None else {"seen": self.seen}
        return {"heads": self.heads, "weights": self.weights, **gate, **seen}


def head_means(
    network: FlatNetwork,
    likelihood: Likelihood,
    thetas: Tensor,
    x: Tensor,
    tasks: Tensor,
    seen: Tensor | None,
) -> Tensor:
    """p_k(y | x) of heads of these tasks, shape (tasks, n, columns)."""
    means = likelihood.mean(_network_outputs(network, thetas, x))
    return means if seen is None else _among_seen(means, seen[tasks])


def _among_seen(means: Tensor, seen: Tensor) -> Tensor:
    """Bayes' rule among the classes each task has seen; means are (tasks, n, columns)."""
    kept = means[..., : seen.shape[1]] * seen[:, None, :].to(means)
    kept = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(means.dtype).tiny)
    return torch.cat([kept, torch.zeros_like(means[..., seen.shape[1] :])], -1)


class RoutedModule(nn.Module):
    """A routed model as a plain module in single precision: x to outputs, as one network would."""

    weights: Tensor
    seen: Tensor | None

    def __init__(self, predictor: RoutedNetworks) -> None:
        super().__init__()
        network = predictor.network
        self.likelihood = predictor.likelihood
        modules = [network.module(theta) for theta in predictor.heads]
        self.linear = network.is_linear
        if self.linear:
            first = FlatNetwork(modules[0]).linear_head().features
            self.features: nn.Module = first
            modules = [FlatNetwork(module).linear_head().layer for module in modules]
        else:
            self.features = nn.Flatten()
        self.heads = nn.ModuleList(modules)
        gate = predictor.gate
        tensors = {name: getattr(gate, name).clone() for name in GATE_TENSORS}
        self.gate = Gate(tensors, gate.temperature).float()
        self.register_buffer("log_weights", predictor.weights.log().float())
        self.register_buffer("active", predictor.active.clone())
        self.register_buffer("seen", None if predictor.seen is None else predictor.seen.clone())

    log_weights: Tensor
    active: Tensor

    def forward(self, x: Tensor) -> Any:
        """Outputs whose mean is Σ_k r_k(x, w) p_k(y | x)."""
        features = self.features(x).flatten(1)
        shares = torch.softmax(self.gate(features) + self.log_weights, 1)[:, self.active]
        inputs = features if self.linear else x
        means = torch.stack([self.likelihood.mean(head(inputs).flatten(1)) for head in self.heads])
        if self.seen is not None:
            means = _among_seen(means, self.seen[self.active])
        return self.likelihood.outputs_of((shares.T[:, :, None] * means).sum(0))
