r"""Gates: which task an input comes from, as densities of its features φ.

A preference is the prior probability that the next input comes from task k, so by Bayes' rule

    r_k(x, w) = w_k e_k(φ) / Σ_j w_j e_j(φ),     e_k(φ) = Σ_c π_c exp(q_c(φ) / t),

where the sum is over the task's *components*, Gaussians with log densities q_c and with shares π_c
that sum to 1, each tempered by t, which answers for them being only roughly right:

* `linear_gate`: one covariance C for all components, so that log p_c is linear in φ up to a term
  that all of them share, q_c(φ) = m_cᵀC⁻¹φ − ½ m_cᵀC⁻¹m_c. The components are the classes of the
  stored moments, or one per task read off its evidence (`evidence_components`).
* `quadratic_gate`: every class has its own covariance C_c as well,
  q_c(φ) = −½ (φ − μ_c)ᵀC_c⁻¹(φ − μ_c) − ½ log|C_c|: dearer by a matrix product per class, a little
  more accurate, and most so where tasks have different classes, since nearly all errors are then
  errors of the gate.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ibcl.gaussians import NaturalParameters
from ibcl.routing.moments import Moments


class Components(NamedTuple):
    """Gaussian components of the tasks' densities, before their covariances are regularised."""

    task: Tensor
    """Which task each belongs to: shape (components,)."""
    label: Tensor
    """Which class each is."""
    share: Tensor
    """π_c: its share of its task."""
    means: Tensor
    """Shape (components, columns)."""
    within: Tensor
    """S̄, the covariance within components, pooled over all of them."""
    own: Tensor | None
    """S_c of every component, shape (components, columns, columns), where known."""


def moment_components(moments: Sequence[Moments]) -> Components:
    """Classes of all tasks as components, from their stored moments."""
    counts = torch.cat([m.counts for m in moments])
    sizes = torch.tensor([len(m.classes) for m in moments], device=counts.device)
    numbers = torch.arange(len(moments), device=counts.device)
    task = torch.repeat_interleave(numbers, sizes)
    totals = torch.stack([m.counts.sum() for m in moments])
    within = torch.stack([m.within() for m in moments]).sum(0) / counts.sum()
    own = None
    if all(m.by_class for m in moments):
        own = torch.cat([m.scatters.double() / m.counts[:, None, None] for m in moments])
    return Components(
        task,
        torch.cat([m.classes for m in moments]),
        counts / totals[task],
        torch.cat([m.means for m in moments]),
        within,
        own,
    )


def evidence_components(evidence: Sequence[NaturalParameters], positions: Tensor) -> Components:
    r"""One component per task, read off its evidence: nothing more needs to be stored.

    For a linear head with a bias the evidence is Λ_k = Σ_s λ_s (φ_s, 1)(φ_s, 1)ᵀ. Its entries at
    the bias are moments of the features, weighted by the curvature λ_s of each sample's
    likelihood, summed over the outputs:

        c_k = Λ_k[1,1],   m_k = Λ_k[φ,1] / c_k,   S_k = Λ_k[φ,φ] / c_k − m_k m_kᵀ.

    Parameters
    ----------
    positions
        Of each output's parameters in θ, the bias last (`ibcl.networks.LinearHead.positions`).
    """
    means, scatters, counts = [], [], []
    for factor in evidence:
        whole = sum(
            (factor.precision_at(own) for own in positions[1:]),
            factor.precision_at(positions[0]),
        )
        count = whole[-1, -1].clamp(min=torch.finfo(whole.dtype).tiny)
        mean = whole[:-1, -1] / count
        counts.append(count)
        means.append(mean)
        scatters.append(whole[:-1, :-1] - count * mean[:, None] * mean)
    total = torch.stack(counts).sum()
    return Components(
        torch.arange(len(means), device=total.device),
        torch.zeros(len(means), dtype=torch.int64, device=total.device),
        torch.ones(len(means), dtype=torch.float64, device=total.device),
        torch.stack(means),
        torch.stack(scatters).sum(0) / total,
        None,
    )


@dataclass(frozen=True)
class GateSettings:
    """Temperature t, ridge b, and the part 1 − a of every class's own covariance."""

    temperature: float
    ridge: float
    own: float = 0.0


# Chosen on validation data, the same for all benchmarks (docs/theory.md).
LINEAR_FROM_EVIDENCE = GateSettings(temperature=1.5, ridge=0.1)
LINEAR_FROM_MOMENTS = GateSettings(temperature=2.0, ridge=0.1)
QUADRATIC = GateSettings(temperature=2.5, ridge=0.05, own=0.05)
# Numbers of whitened features that are held at a time.
_BLOCK = 2**22


class TaskGate(nn.Module, ABC):
    """Densities of all tasks' features, and of their classes'."""

    tasks: int
    columns: int
    """How many of φ's columns it reads."""
    temperature: float
    head_share: float = 1.0
    """a: a task answers with head^a · class densities^(1 − a)."""

    def read(self, features: Tensor) -> Tensor:
        """Return the columns of φ that it reads: the first ones."""
        return features[:, : self.columns]

    @abstractmethod
    def joint(self, features: Tensor) -> Tensor:
        """J: log density of every component with its share in its task, shape (n, components)."""

    @abstractmethod
    def of_joint(self, joint: Tensor) -> Tensor:
        """Log density of every task up to one term, from J: shape (n, tasks)."""

    def forward(self, features: Tensor) -> Tensor:
        """Log density of every task up to one term, shape (n, tasks)."""
        return self.of_joint(self.joint(features))

    @abstractmethod
    def answers(self, means: Tensor, joint: Tensor, tasks: Tensor) -> Tensor:
        """p_k(y | φ) of these tasks from their heads' class probabilities: (tasks, n, classes)."""

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """Return what a file keeps of it, by name."""

    @abstractmethod
    def novelty(self, features: Tensor) -> Tensor:
        """How far features are from every task; about 1 for inputs like those learnt."""


class Gate(TaskGate):
    """Densities of all tasks, as a module without parameters, so that it can be exported.

    Made by `linear_gate` and `quadratic_gate`; the tensors are its buffers.

    Parameters
    ----------
    tensors
        Of each component its ``task``, its class ``label``, ``log_share`` (log π_c) and
        ``log_determinant`` (log |C_c|), each of shape (components,); ``means`` of shape
        (components, columns); ``whitening`` V with VᵀV = C⁻¹, of shape (columns, columns) for a
        linear gate and (components, columns, columns) for a quadratic one.
    temperature
        t.
    seen
        Which classes each task has seen, shape (tasks, classes), where tasks have different ones;
        p_k is then Bayes' rule among those only.
    """

    task: Tensor
    label: Tensor
    log_share: Tensor
    log_determinant: Tensor
    means: Tensor
    whitening: Tensor
    by_task: Tensor
    slope: Tensor
    offset: Tensor
    origin: Tensor
    whitened_means: Tensor
    stacked_whitening: Tensor
    seen: Tensor | None

    def __init__(
        self, tensors: Mapping[str, Tensor], temperature: float, seen: Tensor | None = None
    ) -> None:
        super().__init__()
        if not temperature > 0 or not math.isfinite(temperature):
            raise ValueError(f"The temperature of a gate must be positive, not {temperature!r}.")
        self.temperature = float(temperature)
        _check(tensors)
        for name in GATE_TENSORS:
            self.register_buffer(name, tensors[name])
        self.tasks, self.columns = int(self.task.max()) + 1, self.means.shape[1]
        if seen is not None and (
            seen.ndim != 2 or len(seen) != self.tasks or seen.dtype != torch.bool
        ):
            raise ValueError("what its tasks have seen does not fit")
        self.register_buffer("seen", seen, persistent=False)
        self.register_buffer("by_task", components_by_task(self.task), persistent=False)
        self.is_linear = self.whitening.ndim == 2
        if self.is_linear:
            centres = self.means @ self.whitening.T
            slope, offset = (centres @ self.whitening).T.contiguous(), centres.square().sum(1)
            # C⁻¹ m_c, of shape (columns, components), and −½ m_cᵀC⁻¹m_c.
            self.register_buffer("slope", slope, persistent=False)
            self.register_buffer("offset", -0.5 * offset, persistent=False)
        else:
            # All classes' whitenings side by side, so that one product serves them all; distances
            # are taken from the means' mean, lest large features lose digits.
            origin = self.means.mean(0)
            centres = torch.einsum("cij,cj->ci", self.whitening, self.means - origin)
            stacked = self.whitening.flatten(0, 1).T.contiguous()
            self.register_buffer("origin", origin, persistent=False)
            self.register_buffer("whitened_means", centres, persistent=False)
            self.register_buffer("stacked_whitening", stacked, persistent=False)

    def joint(self, features: Tensor) -> Tensor:
        """q_c / t + log π_c of every component, shape (n, components).

        Up to a term that all components share, which no posterior over them depends on.
        """
        if self.is_linear:
            scores = features @ self.slope + self.offset
        else:
            scores = -0.5 * (self._distances(features) + self.log_determinant)
        return scores / self.temperature + self.log_share

    def _distances(self, features: Tensor) -> Tensor:
        """(φ − μ_c)ᵀC_c⁻¹(φ − μ_c), shape (n, components)."""
        if self.is_linear:
            whitened, centres = features @ self.whitening.T, self.means @ self.whitening.T
            squares = whitened.square().sum(1, keepdim=True) + centres.square().sum(1)
            return (squares - 2 * whitened @ centres.T).clamp(min=0)
        if torch.compiler.is_compiling() or len(features) * self.whitened_means.numel() <= _BLOCK:
            return self._distances_at_once(features)
        rows = max(1, _BLOCK // self.whitened_means.numel())
        return torch.cat([self._distances_at_once(part) for part in torch.split(features, rows)])

    def _distances_at_once(self, features: Tensor) -> Tensor:
        """The same of a quadratic gate, by one product for all components."""
        whitened = (features - self.origin) @ self.stacked_whitening
        parts = whitened.reshape(-1, *self.whitened_means.shape)
        return (parts - self.whitened_means).square().sum(2)

    def of_joint(self, joint: Tensor) -> Tensor:
        """Log Σ_c π_c exp(q_c / t) of every task up to one term, shape (n, tasks)."""
        if self.by_task.shape[1] == 1:
            return joint[:, self.by_task[:, 0]]
        # A task with fewer classes than others has a row filled up with a component of no weight.
        nothing = torch.full_like(joint[:, :1], -torch.inf)
        parts = torch.cat([joint, nothing], 1)[:, self.by_task]
        # As torch.logsumexp, but written out: what runs exported models need not shift by itself,
        # and then loses tasks that an input is far from.
        largest = parts.amax(2, keepdim=True)
        return torch.exp(parts - largest).sum(2).log() + largest[:, :, 0]

    def answers(self, means: Tensor, joint: Tensor, tasks: Tensor) -> Tensor:
        """Bayes' rule among the classes that each task has seen."""
        if self.seen is None:
            return means
        seen = self.seen[tasks]
        kept = means[..., : seen.shape[1]] * seen[:, None, :].to(means)
        kept = kept / kept.sum(-1, keepdim=True).clamp(min=torch.finfo(means.dtype).tiny)
        return torch.cat([kept, torch.zeros_like(means[..., seen.shape[1] :])], -1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors it is made of, and what the tasks have seen."""
        seen = {} if self.seen is None else {SEEN: self.seen}
        return {**{f"gate.{name}": getattr(self, name) for name in GATE_TENSORS}, **seen}

    def novelty(self, features: Tensor) -> Tensor:
        """Squared Mahalanobis distance to the nearest component, divided by the features' number.

        About 1 for inputs like those learnt, and growing with the distance from all of them.
        """
        return self._distances(features).amin(1) / features.shape[1]


def components_by_task(task: Tensor) -> Tensor:
    """Positions of each task's components, one row per task, filled up with the last plus one.

    Examples
    --------
    >>> components_by_task(torch.tensor([0, 0, 1]))
    tensor([[0, 1],
            [2, 3]])
    """
    counts = torch.bincount(task)
    order = torch.argsort(task, stable=True)
    starts = counts.cumsum(0) - counts
    within = torch.arange(len(task), device=task.device) - starts[task[order]]
    rows = task.new_full((len(counts), int(counts.max())), len(task))
    rows[task[order], within] = order
    return rows


SEEN = "seen"
GATE_TENSORS = ("task", "label", "log_share", "log_determinant", "means", "whitening")


def check_parts(tensors: Mapping[str, Tensor], names: Sequence[str]) -> None:
    """Refuse other tensors than these, numbers that are not finite, and tasks that are none."""
    if set(tensors) != set(names):
        raise ValueError(f"a gate cannot consist of {', '.join(sorted(tensors)) or 'nothing'}")
    for name in {"task", "label", "reads"} & set(names):
        if tensors[name].dtype != torch.int64 or bool((tensors[name] < 0).any()):
            raise ValueError(f"the {name} of the gate must be whole numbers from 0")
    if not all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values()):
        raise ValueError("the gate holds a value that is not finite")


def _check(tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are no gate."""
    check_parts(tensors, GATE_TENSORS)
    components, columns = tensors["means"].shape if tensors["means"].ndim == 2 else (0, 0)
    for name in ("task", "label", "log_share", "log_determinant"):
        if tensors[name].shape != (components,) or components == 0:
            raise ValueError(f"the gate needs one {name} for each of its {components} components")
    square = (columns, columns)
    if tensors["whitening"].shape not in (square, (components, *square)):
        raise ValueError("the whitening of the gate does not fit its means")


def linear_gate(components: Components, settings: GateSettings) -> Gate:
    r"""Return the gate with one covariance C = (1 − b) S̄ + b v I, v = mean(diag S̄).

    Examples
    --------
    >>> tasks = [torch.tensor([[0.0], [2.0]]), torch.tensor([[8.0], [10.0]])]
    >>> components = moment_components([Moments.of(features) for features in tasks])
    >>> gate = linear_gate(components, GateSettings(temperature=1.0, ridge=0.0))
    >>> torch.softmax(gate(torch.tensor([[5.0], [9.0]]).double()), 1).round(decimals=3).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    return _gate(components, settings, components.within)


def quadratic_gate(components: Components, settings: GateSettings) -> Gate:
    r"""Return the gate in which every class has its own covariance.

    C_c = (1 − b)(a S̄ + (1 − a) S_c) + b v I, with v the mean of S̄'s diagonal.
    """
    if components.own is None:
        raise ValueError("Every class needs its own scatter for covariances of their own.")
    mixed = (1 - settings.own) * components.within + settings.own * components.own
    return _gate(components, settings, mixed)


def _gate(components: Components, settings: GateSettings, covariance: Tensor) -> Gate:
    """Return the gate with this covariance, ridged, for all components or one each."""
    size = components.within.diagonal().mean().clamp(min=torch.finfo(torch.float32).tiny)
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    ridged = (1 - settings.ridge) * covariance + settings.ridge * size * identity
    factor, failure = torch.linalg.cholesky_ex(ridged)
    if int(failure.max()):
        raise ValueError(
            "The tasks' features have no positive definite covariance, so that inputs cannot be "
            "routed; scale the features."
        )
    log_determinant = 2 * factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return Gate(
        {
            "task": components.task,
            "label": components.label,
            "log_share": components.share.log(),
            "log_determinant": log_determinant.expand(len(components.task)).contiguous(),
            "means": components.means,
            "whitening": torch.linalg.solve_triangular(
                factor, identity.expand_as(factor), upper=False
            ).contiguous(),
        },
        settings.temperature,
    )
