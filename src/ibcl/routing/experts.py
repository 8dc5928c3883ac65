r"""The answer of routed evidence: experts of head and class densities, behind their gate.

The expert of task k is the geometric mean of its head and of its class densities J
(`ibcl.routing.densities`), among the classes the task has seen,

    p_k(y | φ) ∝ head_k(y | φ)^a J_ky(φ)^(1 − a),     p(y | φ, w) = Σ_k w_k e_k p_k / Σ_k w_k e_k.

For regression and counts it is the head alone. A task that brought an expert of its own
(`ibcl.experts`) answers with that, or with a share of it beside the above. The head is that of the
task's own posterior, so that neither experts nor densities depend on w: the answer is a ratio of
linear functions of w, continuous everywhere, and at a vertex it is the task's expert.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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
    TaskExpert,
    beside,
    gate_features,
    in_range,
    mixed,
    row_blocks,
)
from ibcl.routing.top_k import kept_shares

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
    brought
        What answers in place of head and densities, or beside them, by the tasks' numbers.
    tolerance
        τ of `ibcl.routing.top_k`.
    """

    head: FlatNetwork
    likelihood: Likelihood
    gate: DensityGate
    share: float
    brought: Mapping[int, TaskExpert] = field(default_factory=dict)
    tolerance: float = 0.0

    def answers(
        self,
        thetas: Tensor,
        features: Tensor,
        joint: Tensor,
        tasks: Tensor,
        shares: Tensor | None = None,
    ) -> Tensor:
        """Return p_k(y | φ) of these tasks, whose parameters are rows: (tasks, n, columns).

        Parameters
        ----------
        joint
            J of the same rows.
        shares
            Shape (n, all tasks): costly experts are not run where theirs is zero, and what stands
            there in the result is not to be used.
        """
        means = self.likelihood.mean(head_outputs(self.head, thetas, features))
        if self.likelihood.classification:
            means = combined(self.gate, means.to(joint.dtype), joint, tasks, self.share)
        for task in sorted({*tasks.cpu().tolist()} & self.brought.keys()):
            expert, places = self.brought[task], torch.nonzero(tasks == task)
            rows = torch.arange(len(features), device=features.device)
            if shares is not None and expert.costly:
                rows = torch.nonzero(shares[:, task] > 0).flatten()
            if len(rows):
                answers = in_range(self.likelihood, expert.answers(features[rows]).to(means))
                means[places, rows] = beside(means[places, rows], answers, expert.share)
        return means

    @property
    def costly(self) -> bool:
        """Whether any task has a costly expert."""
        return any(expert.costly for expert in self.brought.values())

    def kept(self, shares: Tensor) -> Tensor:
        """Return the shares that are answered with, shape (n, tasks)."""
        if not self.costly:
            return shares
        costly = torch.zeros(shares.shape[1], dtype=torch.bool, device=shares.device)
        costly[[task for task, expert in self.brought.items() if expert.costly]] = True
        return kept_shares(shares, costly, self.tolerance)


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
    allowed, compared = _allowed(seen)[tasks], gate.among_classes(joint, seen, tasks)
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
    brought, tolerance
        As in `Experts`.
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
        brought: Mapping[int, TaskExpert] | None = None,
        tolerance: float = 0.0,
    ) -> None:
        super().__init__(network, likelihood, heads, gate, weights, None, credal, brought)
        self.experts = Experts(network.head, likelihood, gate, share, brought or {}, tolerance)

    def _shares_and_answers(
        self, features: Tensor, models: list[Tensor]
    ) -> tuple[Tensor, Iterator[Tensor]]:
        joint = self._joint(features)
        active = self.active.to(features.device)
        scores = self.gate.of_joint(joint) + self.weights.log().to(joint)
        shares = self.experts.kept(torch.softmax(scores, 1))
        answers = (self.experts.answers(each, features, joint, active, shares) for each in models)
        return shares[:, active], answers

    def _joint(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            return self.gate.joint(gate_features(features, self.gate))

    def extreme_means(self, features: Tensor, position: int, thetas: Tensor) -> Tensor:
        """Average of a task's expert."""
        tasks = torch.full((len(thetas),), position, device=thetas.device)
        return self.experts.answers(thetas, features, self._joint(features), tasks).mean(0)

    def credal_members(self, features: Tensor, samples: int, seed: int) -> Iterator[Tensor]:
        """Yield the predictive of every task's own posterior, and the answer of its expert."""
        joint = self._joint(features)
        for position, extreme in self.extremes:
            generator = torch.Generator().manual_seed(seed + position)
            thetas = extreme.sample(samples, generator) if samples else extreme.mean[None]
            tasks = torch.full((len(thetas),), position, device=thetas.device)
            yield self.experts.answers(thetas, features, joint, tasks).mean(0)
            own = position not in self.experts.brought and self.experts.share < 1
            if own and self.likelihood.classification:
                outputs = head_outputs(self.network.head, thetas, features)
                yield self.likelihood.mean(outputs).mean(0)

    def module(self) -> nn.Module:
        """Return features, heads and gate as one plain module."""
        self._refuse_experts("module of their own")
        return ExpertsModule(self)

    def tensors(self) -> dict[str, Tensor]:
        """Return heads, weights and gate."""
        self._refuse_experts("tensors to write as one file (save the learner)")
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
        joint = self.gate.joint(flat[:, : self.gate.columns])
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
        self._found: Tensor | None = None
        self._run: Tensor | None = None

    @cached_property
    def _joint(self) -> Tensor:
        with torch.no_grad():
            gate = self._experts.gate
            return gate.joint(gate_features(self.features, gate))

    @cached_property
    def densities(self) -> Tensor:
        """Log e_k(φ) up to a term that all tasks share, of shape (rows, tasks)."""
        return self._experts.gate.of_joint(self._joint)

    @cached_property
    def of_tasks(self) -> Tensor:
        """p_k(y | φ) of every task's expert, of shape (tasks, rows, columns)."""
        return self._where_shared(torch.ones_like(self.densities))

    def _where_shared(self, shares: Tensor) -> Tensor:
        """p_k(y | φ) where these shares, of shape (rows, tasks), are not zero; kept for later."""
        if self._found is None or self._run is None:
            self._found, self._run = self._experts_of(slice(None), shares), shares > 0
        elif bool((missing := (shares > 0) & ~self._run).any()):
            fresh = self._experts_of(slice(None), missing.to(shares))
            self._found = torch.where(missing.T[:, :, None], fresh, self._found)
            self._run = self._run | missing
        return self._found

    def _experts_of(self, rows: slice, shares: Tensor) -> Tensor:
        tasks = torch.arange(len(self._heads), device=self._heads.device)
        features, joint = self.features[rows], self._joint[rows]
        return self._experts.answers(self._heads, features, joint, tasks, shares)

    def _kept(self, weights: Tensor) -> Tensor:
        """Shares under one preference, or one per row, that are answered with: (rows, tasks)."""
        scores = self.densities + weights.to(self.densities).log()
        return self._experts.kept(torch.softmax(scores, 1))

    def crossed(self, preferences: Tensor) -> Tensor:
        """(W (e ∘ p)ᵀ) / (W eᵀ); where experts are costly, each is run once on all its rows."""
        if not self._experts.costly:
            return super().crossed(preferences)
        users = preferences.to(self.features.device)
        wanted = torch.zeros_like(self.densities)
        for user in users:
            wanted = torch.maximum(wanted, self._kept(user))
        answers = self._where_shared(wanted)
        empty = torch.empty(0, self.rows, self.columns, device=self.features.device)
        found = [mixed(self._kept(user), answers).float()[None] for user in users]
        return torch.cat([empty, *found])

    @cached_property
    def _at_vertices(self) -> Tensor:
        return self.of_tasks

    def paired(self, preferences: Tensor) -> Tensor:
        """Σ_k r_k(φ, w) p_k(y | φ), with each row's own w."""
        shares = self._kept(preferences.to(self.features.device))
        found = []
        begin = 0
        for part in row_blocks(self.features, len(self._heads), self.columns):
            rows = slice(begin, begin + len(part))
            found.append(mixed(shares[rows], self._experts_of(rows, shares[rows]).double()))
            begin += len(part)
        return torch.cat(found)
