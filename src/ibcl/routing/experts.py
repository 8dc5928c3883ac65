r"""The answer of routed evidence: experts of head and class densities, behind their gate.

The expert of task k is the geometric mean of its head and of its class densities J
(`ibcl.routing.densities`), among the classes the task has seen,

    p_k(y | φ) ∝ head_k(y | φ)^a J_ky(φ)^(1 − a),     p(y | φ, w) = Σ_k w_k e_k p_k / Σ_k w_k e_k.

For regression and counts it is the head alone. The head is that of the task's own posterior, so
that neither heads nor densities depend on w: the answer is a ratio of linear functions of w,
continuous everywhere, and at a vertex it is the task's expert.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ibcl.likelihoods import Likelihood
from ibcl.networks import FlatNetwork
from ibcl.predictive import CredalSet, head_outputs
from ibcl.routing.densities import DENSITY_TENSORS, DensityGate, DensitySettings
from ibcl.routing.predictive import (
    RoutedAnswers,
    RoutedNetworks,
    gate_features,
    mixed,
    row_blocks,
)

_SETTINGS = "settings"


@dataclass(frozen=True, eq=False)
class Experts:
    """How parameters of tasks' heads, and densities of classes, become answers p_k(y | φ).

    Parameters
    ----------
    head
        From features to outputs.
    share
        a, the exponent of the head.
    """

    head: FlatNetwork
    likelihood: Likelihood
    gate: DensityGate
    share: float

    def answers(self, thetas: Tensor, features: Tensor, joint: Tensor, tasks: Tensor) -> Tensor:
        """Return p_k(y | φ) of these tasks, whose parameters are rows: (tasks, n, columns).

        Parameters
        ----------
        joint
            J of the same rows.
        """
        means = self.likelihood.mean(head_outputs(self.head, thetas, features))
        if not self.likelihood.classification:
            return means
        return combined(self.gate, means.to(joint.dtype), joint, tasks, self.share)


def _allowed(seen: Tensor) -> Tensor:
    """Which classes a task answers with.

    With two classes a task that has seen only one still says how far inputs are from it.
    """
    return seen | (seen.shape[1] <= 2)


def combined(
    gate: DensityGate, means: Tensor, joint: Tensor, tasks: Tensor, share: float
) -> Tensor:
    """head^a J^(1 − a) among the classes seen; means are (tasks, n, columns)."""
    seen = gate.seen(means.shape[-1])
    allowed, compared = _allowed(seen)[tasks], gate.among_classes(joint, seen)[tasks]
    # A task of one class has no densities to compare it with.
    single = (seen.sum(1) == 1)[tasks][:, None, None]
    exponent = torch.where(single, 1.0, share).to(means.dtype)
    logarithms = means.clamp(min=torch.finfo(means.dtype).tiny).log()
    scores = exponent * logarithms + (1 - exponent) * compared
    return torch.softmax(scores.masked_fill(~allowed[:, None, :], -torch.inf), -1)


class RoutedExperts(RoutedNetworks):
    """The experts of every task with any weight, and the gate between them.

    Parameters
    ----------
    heads
        Parameters of the heads of the tasks with weight, shape (heads, D).
    weights
        The preference w, one number per task.
    share
        a, the exponent of the head.
    """

    gate: DensityGate

    def __init__(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        heads: Tensor,
        gate: DensityGate,
        weights: Tensor,
        share: float,
        credal: CredalSet | None = None,
    ) -> None:
        super().__init__(network, likelihood, heads, gate, weights, None, credal)
        self.experts = Experts(network.head, likelihood, gate, share)

    def _block_means(self, features: Tensor, models: list[Tensor]) -> Tensor:
        joint = self._joint(features)
        active = self.active.to(features.device)
        scores = self.gate.of_joint(joint) + self.weights.log().to(joint)
        shares = torch.softmax(scores, 1)[:, active]
        answers = (self.experts.answers(heads, features, joint, active) for heads in models)
        return torch.stack([mixed(shares, answer) for answer in answers])

    def _joint(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            return self.gate.joint(gate_features(features))

    def extreme_means(self, features: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of a task's expert."""
        tasks = torch.full((len(thetas),), position, device=thetas.device)
        return self.experts.answers(thetas, features, self._joint(features), tasks).mean(0)

    def credal_members(self, features: Tensor, samples: int, seed: int) -> Iterator[Tensor]:
        """Yield the predictive of every task's own posterior, and the answer of its expert."""
        yield from super().credal_members(features, samples, seed)
        if self.likelihood.classification and self.experts.share < 1:
            for position, extreme in self.extremes:
                generator = torch.Generator().manual_seed(seed + position)
                thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
                outputs = head_outputs(self.network.head, thetas, features)
                yield self.likelihood.mean(outputs).mean(0)

    def module(self) -> nn.Module:
        """Return features, heads and gate as one plain module."""
        return ExpertsModule(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return heads, weights and gate."""
        gate = {f"gate.{name}": getattr(self.gate, name) for name in DENSITY_TENSORS}
        settings = self.gate.settings
        numbers = settings.temperature, settings.contamination, self.experts.share
        known = {_SETTINGS: torch.tensor(numbers, dtype=torch.float64)}
        return {"heads": self.heads, "weights": self.weights, **gate, **known}


def are_experts(tensors: dict[str, Tensor]) -> bool:
    """Tell whether tensors are those of `RoutedExperts`, and not of another routed model."""
    return _SETTINGS in tensors


def experts_from_tensors(tensors: dict[str, Tensor]) -> tuple[DensityGate, float]:
    """Return gate and exponent among the tensors of `RoutedExperts`, and take them out of them."""
    parts = {name: tensors.pop(name) for name in [*tensors] if name.startswith("gate.")}
    numbers = tensors.pop(_SETTINGS)
    if numbers.shape != (3,) or not bool(torch.isfinite(numbers).all()):
        raise ValueError("its settings do not fit")
    temperature, contamination, share = numbers.cpu().tolist()
    if not 0 <= contamination < 1 or not 0 <= share <= 1:
        raise ValueError("its settings are out of range")
    settings = DensitySettings(temperature, contamination)
    gate = {name.removeprefix("gate."): value for name, value in parts.items()}
    return DensityGate(gate, settings), share


class ExpertsModule(nn.Module):
    """A routed model as a plain module in single precision: x to outputs, as one network would."""

    log_weights: Tensor
    active: Tensor

    def __init__(self, predictive: RoutedExperts) -> None:
        super().__init__()
        network = predictive.network
        self.likelihood = predictive.likelihood
        self.features = network.fixed_part()
        self.flat = network.is_linear
        self.share = predictive.experts.share
        self.heads = nn.ModuleList([network.head.module(theta) for theta in predictive.heads])
        gate = predictive.gate
        tensors = {name: getattr(gate, name).clone() for name in DENSITY_TENSORS}
        self.gate = DensityGate(tensors, gate.settings).float()
        self.register_buffer("log_weights", predictive.weights.log().float())
        self.register_buffer("active", predictive.active.clone())

    def forward(self, x: Tensor) -> Any:
        """Outputs whose mean is Σ_k r_k(φ, w) p_k(y | φ)."""
        features = self.features(x)
        flat = features.flatten(1)
        joint = self.gate.joint(flat)
        shares = torch.softmax(self.gate.of_joint(joint) + self.log_weights, 1)[:, self.active]
        inputs = flat if self.flat else features
        means = torch.stack([self.likelihood.mean(head(inputs).flatten(1)) for head in self.heads])
        if self.likelihood.classification:
            means = combined(self.gate, means, joint, self.active, self.share)
        return self.likelihood.outputs_of(mixed(shares, means))


class ExpertAnswers(RoutedAnswers):
    """Answers of experts, which are the same for all preferences, vertices included.

    Parameters
    ----------
    heads
        Parameters of all tasks' heads, shape (tasks, D).
    """

    def __init__(self, experts: Experts, heads: Tensor, features: Tensor, columns: int) -> None:
        super().__init__(None, experts.gate, heads, heads, features, columns)
        self._experts = experts

    @cached_property
    def _joint(self) -> Tensor:
        with torch.no_grad():
            return self._experts.gate.joint(gate_features(self.features))

    @cached_property
    def densities(self) -> Tensor:
        """Log e_k(φ) up to a term that all tasks share, of shape (rows, tasks)."""
        return self._experts.gate.of_joint(self._joint)

    @cached_property
    def of_tasks(self) -> Tensor:
        """p_k(y | φ) of every task's expert, of shape (tasks, rows, columns)."""
        return self._experts_of(slice(None))

    def _experts_of(self, rows: slice) -> Tensor:
        tasks = torch.arange(len(self._heads), device=self._heads.device)
        return self._experts.answers(self._heads, self.features[rows], self._joint[rows], tasks)

    @cached_property
    def _at_vertices(self) -> Tensor:
        return self.of_tasks

    def paired(self, preferences: Tensor) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ), with each row's own w."""
        weights = preferences.to(self.features.device)
        shares = torch.softmax(self.densities + weights.to(self.densities).log(), 1)
        found = []
        begin = 0
        for part in row_blocks(self.features, len(self._heads), self.columns):
            rows = slice(begin, begin + len(part))
            found.append(mixed(shares[rows], self._experts_of(rows).double()))
            begin += len(part)
        return torch.cat(found)
