r"""The gate of routed evidence: class densities on two feature maps, averaged.

With φ̂ and h of `ibcl.routing.maps`, the class c of task k has the log densities

* Q¹_kc, a Gaussian on φ̂ with covariance C_c = (1 − b)((1 − o) S̄ + o S_c) + b v I: the covariance S̄
  within all classes, a share of the class's own, and a ridge, v the mean of S̄'s diagonal;
* Q²_kc, a Gaussian in the discriminant subspace of h: with L Lᵀ = (1 − b) S̄_h + b v I and B = L⁻ᵀU,
  U the directions of the whitened class means, its covariance is C_k = (1 − o) I + o Bᵀ S_k B.

Both are tempered by t, which answers for their being only roughly right, and averaged:

    J_kc(φ) = ½ (Q¹_kc + Q²_kc)/t + log π_c,     g_k(φ) = Σ_c exp J_kc(φ).

A share ε of a task's inputs may look like any task's, so its density is

    e_k(φ) = (1 − ε) g_k(φ) + ε mean_j g_j(φ).

Ratios of densities are then at most K/ε, so that |r(φ, w) − r(φ, w′)| ≤ (K/ε) ‖w − w′‖₁: answers
are continuous in the preference w at the vertices too, by a constant of a usual size.

All is made from the tasks' records (`ibcl.routing.records`), summed in the order of the tasks'
names: the same gate, bit for bit, in whatever order they were learnt or merged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ibcl.routing.gate import TaskGate, components_by_task
from ibcl.routing.maps import fourier, fourier_frequencies, polar
from ibcl.routing.records import ClassDensities

# Shares of own covariances and ridges of both densities, chosen on validation data of five
# benchmarks, one for all of them.
OWN, RIDGE = 0.1, 0.05
FOURIER_OWN, FOURIER_RIDGE = 0.6, 0.1
# Variances below this are rounding: φ̂ and h are of size 1.
_SMALLEST_VARIANCE = 1e-9
# Numbers of whitened features that are held at a time.
_BLOCK = 2**22


@dataclass(frozen=True)
class DensitySettings:
    """Temperature t of both densities, and contamination ε."""

    temperature: float = 3.0
    contamination: float = 1e-3


class _Classes(NamedTuple):
    """Of Q¹: what does not depend on the input."""

    origin: Tensor
    whitening: Tensor
    means: Tensor
    maps: Tensor
    stretch: Tensor
    log_determinant: Tensor


class _Subspace(NamedTuple):
    """Of Q²: what does not depend on the input."""

    fourier_origin: Tensor
    basis: Tensor
    fourier_means: Tensor
    fourier_whitening: Tensor
    fourier_log_determinant: Tensor


DENSITY_TENSORS = ("task", "label", "log_share", *_Classes._fields, *_Subspace._fields)


class DensityGate(TaskGate):
    r"""Densities of all tasks, as a module without parameters, so that it can be exported.

    Made by `density_gate`; the tensors are its buffers. In the space whitened by S̄ a class's own
    covariance is a low rank Ũ on top of (1 + t_c) I, so that its distance takes no d×d product:

        distance = (‖z‖² − ‖Vᵀz‖²)/(1 + t_c),     V Vᵀ = Ũ ((1 + t_c) I + ŨᵀŨ)⁻¹ Ũᵀ.

    Parameters
    ----------
    tensors
        Those of `DENSITY_TENSORS`.
    """

    task: Tensor
    label: Tensor
    log_share: Tensor
    origin: Tensor
    whitening: Tensor
    means: Tensor
    maps: Tensor
    stretch: Tensor
    log_determinant: Tensor
    fourier_origin: Tensor
    basis: Tensor
    fourier_means: Tensor
    fourier_whitening: Tensor
    fourier_log_determinant: Tensor
    frequencies: Tensor
    phases: Tensor
    by_task: Tensor
    stacked_maps: Tensor
    mapped_means: Tensor
    stacked_whitening: Tensor
    whitened_means: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], settings: DensitySettings) -> None:
        super().__init__()
        _check(tensors, settings)
        self.settings, self.temperature = settings, float(settings.temperature)
        for name in DENSITY_TENSORS:
            self.register_buffer(name, tensors[name])
        self.tasks = int(self.task.max()) + 1
        self.columns = len(self.origin) - 1
        waves = fourier_frequencies(self.columns)
        derived = {
            "frequencies": waves.frequencies,
            "phases": waves.phases,
            "by_task": components_by_task(self.task),
            # All classes' maps side by side, so that one product serves them all.
            "stacked_maps": self.maps.flatten(0, 1).T.contiguous(),
            "mapped_means": torch.einsum("crd,cd->cr", self.maps, self.means),
            "stacked_whitening": self.fourier_whitening.flatten(0, 1).T.contiguous(),
            "whitened_means": torch.einsum(
                "cpq,cq->cp", self.fourier_whitening[self.task], self.fourier_means
            ),
        }
        for name, tensor in derived.items():
            self.register_buffer(name, tensor.to(self.means.device), persistent=False)

    def joint(self, features: Tensor) -> Tensor:
        """J_kc of every class of every task, shape (n, components)."""
        if torch.compiler.is_compiling() or len(features) * self.stacked_maps.shape[1] <= _BLOCK:
            return self._joint(features)
        rows = max(1, _BLOCK // self.stacked_maps.shape[1])
        return torch.cat([self._joint(part) for part in torch.split(features, rows)])

    def _joint(self, features: Tensor) -> Tensor:
        directions = polar(features)
        first = self._class_distances(directions) + self.log_determinant
        second = self._subspace_distances(directions) + self.fourier_log_determinant[self.task]
        return -0.25 * (first + second) / self.temperature + self.log_share

    def _class_distances(self, directions: Tensor) -> Tensor:
        """(φ̂ − μ_c)ᵀC_c⁻¹(φ̂ − μ_c), shape (n, components)."""
        z = (directions - self.origin) @ self.whitening.T
        squares = z.square().sum(1, keepdim=True) + self.means.square().sum(1)
        distances = (squares - 2 * z @ self.means.T).clamp(min=0)
        inside = (z @ self.stacked_maps).reshape(-1, *self.mapped_means.shape)
        own = (inside - self.mapped_means).square().sum(2)
        return (distances - own).clamp(min=0) / self.stretch

    def _subspace_distances(self, directions: Tensor) -> Tensor:
        """(z − m_c)ᵀC_k⁻¹(z − m_c) with z = Bᵀh, shape (n, components)."""
        waves = fourier(directions, self.frequencies, self.phases)
        z = (waves - self.fourier_origin) @ self.basis
        whitened = (z @ self.stacked_whitening).reshape(-1, self.tasks, self.basis.shape[1])
        return (whitened[:, self.task] - self.whitened_means).square().sum(2)

    def of_joint(self, joint: Tensor) -> Tensor:
        """Log e_k of every task up to one term, shape (n, tasks)."""
        # A task with fewer classes than others has a row filled up with a component of no weight.
        nothing = torch.full_like(joint[:, :1], -torch.inf)
        parts = torch.cat([joint, nothing], 1)[:, self.by_task]
        # Relative to the row's largest, written out: what runs exported models need not shift a
        # logsumexp by itself, and then loses tasks that an input is far from.
        largest = joint.amax(1, keepdim=True)
        densities = torch.exp(parts - largest[:, :, None]).sum(2)
        share = self.settings.contamination
        mixed = (1 - share) * densities + share * densities.mean(1, keepdim=True)
        return mixed.clamp(min=torch.finfo(mixed.dtype).tiny).log()

    def forward(self, features: Tensor) -> Tensor:
        """Log e_k of every task up to one term, shape (n, tasks)."""
        return self.of_joint(self.joint(features))

    def among_classes(self, joint: Tensor, seen: Tensor) -> Tensor:
        """Log of every task's J among its classes, shape (tasks, n, columns); 0 where not seen.

        Parameters
        ----------
        seen
            Which columns are classes of each task, shape (tasks, columns).
        """
        places = self._places(seen)
        nothing = torch.full_like(joint[:, :1], -torch.inf)
        parts = torch.cat([joint, nothing], 1)[:, places]
        found = torch.log_softmax(parts, 2).transpose(0, 1)
        return found.masked_fill(~seen[:, None, :], 0.0)

    def _places(self, seen: Tensor) -> Tensor:
        """Position of each task's component of each class; the last plus one where not seen."""
        places = torch.full(seen.shape, len(self.task), device=self.task.device)
        places[self.task, self.label] = torch.arange(len(self.task), device=self.task.device)
        return places

    def seen(self, columns: int) -> Tensor:
        """Which classes each task has seen, shape (tasks, columns)."""
        mask = torch.zeros(self.tasks, columns, dtype=torch.bool, device=self.task.device)
        mask[self.task, self.label] = True
        return mask

    def novelty(self, features: Tensor) -> Tensor:
        """Squared Mahalanobis distance of φ̂ to the nearest class, divided by the features' number.

        About 1 for inputs like those learnt, and growing with the distance from all of them.
        """
        distances = self._class_distances(polar(features))
        return distances.amin(1) / (features.shape[1] + 1)


def _check(tensors: Mapping[str, Tensor], settings: DensitySettings) -> None:
    """Refuse tensors that are no gate."""
    if not 0 < settings.temperature < math.inf:
        raise ValueError(
            f"The temperature of a gate must be positive, not {settings.temperature!r}."
        )
    if set(tensors) != set(DENSITY_TENSORS):
        raise ValueError(f"a gate cannot consist of {', '.join(sorted(tensors)) or 'nothing'}")
    components, columns = tensors["means"].shape if tensors["means"].ndim == 2 else (0, 0)
    if components == 0 or columns < 2:
        raise ValueError("the gate has no components")
    for name in ("task", "label"):
        if tensors[name].dtype != torch.int64 or bool((tensors[name] < 0).any()):
            raise ValueError(f"the {name} of the gate must be whole numbers from 0")
    tasks = int(tensors["task"].max()) + 1 if tensors["task"].numel() else 0
    width, dimensions = tensors["basis"].shape if tensors["basis"].ndim == 2 else (0, 0)
    rank = tensors["maps"].shape[1] if tensors["maps"].ndim == 3 else 0
    shapes = {
        "task": (components,),
        "label": (components,),
        "log_share": (components,),
        "origin": (columns,),
        "whitening": (columns, columns),
        "means": (components, columns),
        "maps": (components, rank, columns),
        "stretch": (components,),
        "log_determinant": (components,),
        "fourier_origin": (len(fourier_frequencies(columns - 1).phases),),
        "basis": (len(fourier_frequencies(columns - 1).phases), dimensions),
        "fourier_means": (components, dimensions),
        "fourier_whitening": (tasks, dimensions, dimensions),
        "fourier_log_determinant": (tasks,),
    }
    for name, shape in shapes.items():
        if tuple(tensors[name].shape) != shape:
            raise ValueError(f"the {name} of the gate does not fit its means")
        if not bool(torch.isfinite(tensors[name]).all()):
            raise ValueError("the gate holds a value that is not finite")
    if tasks > components or width == 0:
        raise ValueError("the gate has tasks without components")


def density_gate(
    records: Mapping[str, ClassDensities], settings: DensitySettings | None = None
) -> DensityGate:
    """Return the gate between tasks with these records, by their names, in this order.

    Examples
    --------
    >>> from ibcl.routing.records import Ranks
    >>> generator = torch.Generator().manual_seed(0)
    >>> rows = torch.randn(2, 50, 3, generator=generator) + torch.tensor([[[4.0]], [[-4.0]]])
    >>> kept = [ClassDensities.of(each, None, None, Ranks(96, 128, 32)) for each in rows]
    >>> gate = density_gate({"north": kept[0], "south": kept[1]})
    >>> torch.softmax(gate(torch.tensor([[4.0, 4.0, 4.0]]).double()), 1).argmax().item()
    0
    """
    names = sorted(records)
    ordered = [records[name] for name in names]
    if len({record.columns for record in ordered}) > 1:
        raise ValueError("The tasks' densities are of different features.")
    places = torch.tensor([list(records).index(name) for name in names])
    sizes = torch.tensor([len(record.classes) for record in ordered])
    canonical = torch.repeat_interleave(torch.arange(len(ordered)), sizes)
    counts = torch.cat([record.counts for record in ordered])
    totals = torch.stack([record.counts.sum() for record in ordered])
    classes = _classes(ordered, counts)
    subspace = _subspace(ordered, totals)
    back = torch.argsort(places)
    tensors = {
        "task": places[canonical],
        "label": torch.cat([record.classes for record in ordered]),
        "log_share": (counts / totals[canonical]).log(),
        **classes._asdict(),
        **subspace._asdict(),
    }
    for name in ("fourier_whitening", "fourier_log_determinant"):
        tensors[name] = tensors[name][back]
    settings = DensitySettings() if settings is None else settings
    return DensityGate({name: value.contiguous() for name, value in tensors.items()}, settings)


def _identity(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


def _classes(records: Sequence[ClassDensities], counts: Tensor) -> _Classes:
    """Q¹ of all classes."""
    roots = [root for record in records for root in record.scatters.roots()]
    tails = [tail for record in records for tail in record.scatters.tails()]
    columns = len(tails[0])
    joined = torch.cat(roots, 1)
    shared = (joined @ joined.T + torch.diag(torch.stack(tails).sum(0))) / counts.sum()
    size = shared.diagonal().mean().clamp(min=_SMALLEST_VARIANCE)
    factor = torch.linalg.cholesky(
        (1 - RIDGE) * (1 - OWN) * shared + RIDGE * size * _identity(columns)
    )
    whitening = torch.linalg.solve_triangular(factor, _identity(columns), upper=False)
    log_determinant = 2 * factor.diagonal().log().sum()
    means = torch.cat([record.means for record in records]).double()
    origin = means.mean(0)
    rank = max(root.shape[1] for root in roots)
    maps, stretches, determinants = [], [], []
    for count, root, tail in zip(counts.tolist(), roots, tails, strict=True):
        share = (1 - RIDGE) * OWN / count
        own = math.sqrt(share) * whitening @ root
        stretch = 1 + share * float((whitening.square() @ tail).mean())
        lower = torch.linalg.cholesky(stretch * _identity(own.shape[1]) + own.T @ own)
        inside = torch.linalg.solve_triangular(lower, own.T, upper=False)
        maps.append(torch.cat([inside, inside.new_zeros(rank - len(inside), columns)]))
        stretches.append(stretch)
        rest = (columns - own.shape[1]) * math.log(stretch)
        determinants.append(rest + 2 * lower.diagonal().log().sum() + log_determinant)
    return _Classes(
        origin,
        whitening,
        (means - origin) @ whitening.T,
        torch.stack(maps),
        torch.tensor(stretches, dtype=torch.float64),
        torch.stack(determinants),
    )


def _subspace(records: Sequence[ClassDensities], totals: Tensor) -> _Subspace:
    """Q² of all classes."""
    roots = [record.fourier_scatter.roots()[0] for record in records]
    tails = [record.fourier_scatter.tails()[0] for record in records]
    joined = torch.cat(roots, 1)
    shared = (joined @ joined.T + torch.diag(torch.stack(tails).sum(0))) / totals.sum()
    size = shared.diagonal().mean().clamp(min=_SMALLEST_VARIANCE)
    ridged = (1 - FOURIER_RIDGE) * shared + FOURIER_RIDGE * size * _identity(len(shared))
    factor = torch.linalg.cholesky(ridged)
    means = torch.cat([record.fourier_means for record in records]).double()
    origin = means.mean(0)
    whitened = torch.linalg.solve_triangular(factor, (means - origin).T, upper=False)
    kept = max(1, min(len(means) - 1, len(shared)))
    directions = torch.linalg.svd(whitened, full_matrices=False)[0][:, :kept]
    basis = torch.linalg.solve_triangular(factor.T, directions, upper=True)
    whitenings, determinants = [], []
    for root, tail, total in zip(roots, tails, totals.tolist(), strict=True):
        inside = basis.T @ root
        own = (inside @ inside.T + basis.T @ (tail[:, None] * basis)) / total
        lower = torch.linalg.cholesky((1 - FOURIER_OWN) * _identity(kept) + FOURIER_OWN * own)
        whitenings.append(torch.linalg.solve_triangular(lower, _identity(kept), upper=False))
        determinants.append(2 * lower.diagonal().log().sum())
    return _Subspace(
        origin,
        basis,
        (means - origin) @ basis,
        torch.stack(whitenings),
        torch.stack(determinants),
    )
