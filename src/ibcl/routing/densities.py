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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from ibcl.routing.gate import TaskGate, components_by_task
from ibcl.routing.maps import fourier, fourier_frequencies, polar
from ibcl.routing.records import ClassDensities
from ibcl.routing.scatters import Scatters
from ibcl.routing.shared import SharedScatters

# Shares of own covariances and ridges of both densities, chosen on validation data of five
# benchmarks, one for all of them.
OWN, RIDGE = 0.1, 0.05
FOURIER_OWN, FOURIER_RIDGE = 0.6, 0.1
# Variances below this are rounding: φ̂ and h are of size 1.
_SMALLEST_VARIANCE = 1e-9
# Numbers of all classes' densities, or of the scatters they are made from, held at a time.
_BLOCK = 2**22
# Numbers of whitened features that are made and summed while in the processor's cache.
_CACHED = 2**18
# Numbers that the roots of all classes' scatters, and the covariances of all tasks in the subspace,
# may take: of very many tasks, each has the largest directions only, so that neither memory nor
# time for a row grows any further.
_LARGEST_ROOTS = 2**25
_LARGEST_COVARIANCES = 2**24


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


DENSITY_TENSORS = ("task", "label", "log_share", "reads", *_Classes._fields, *_Subspace._fields)


class DensityGate(TaskGate):
    r"""Densities of all tasks, as a module without parameters, so that it can be exported.

    Made by `density_gate`; the tensors are its buffers. In the space whitened by S̄ a class's own
    covariance is a low rank Ũ on top of (1 + t_c) I, so that its distance takes no d×d product:

        distance = (‖z‖² − ‖Vᵀz‖²)/(1 + t_c),     V Vᵀ = Ũ ((1 + t_c) I + ŨᵀŨ)⁻¹ Ũᵀ.

    Parameters
    ----------
    tensors
        Those of `DENSITY_TENSORS`; ``reads`` are the positions in φ of the features it is of.
    """

    reads: Tensor
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
    by_number: Tensor
    ranked: Tensor
    mapped_means: Tensor
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
        by_number = torch.argsort(self.task, stable=True)
        counts = torch.bincount(self.task, minlength=self.tasks)
        self._begins = [0, *counts.cumsum(0).cpu().tolist()]
        self._most_classes = int(counts.max())
        derived = {
            "frequencies": waves.frequencies,
            "phases": waves.phases,
            "by_task": components_by_task(self.task),
            # Components in the order of their tasks, and where each of them is in that order.
            "by_number": by_number,
            "ranked": torch.argsort(by_number),
            "mapped_means": torch.einsum("crd,cd->cr", self.maps, self.means),
            "whitened_means": torch.cat(
                [
                    mean @ self.fourier_whitening[task].T
                    for task, mean in zip(self.task.cpu().tolist(), self.fourier_means, strict=True)
                ]
            ).reshape(self.fourier_means.shape),
        }
        for name, tensor in derived.items():
            self.register_buffer(name, tensor.to(self.means.device), persistent=False)

    def joint(self, features: Tensor) -> Tensor:
        """J_kc of every class of every task, shape (n, components)."""
        return self._by_rows(self._joint, features)

    def _by_rows(self, found: Callable[[Tensor], Tensor], features: Tensor) -> Tensor:
        """Apply a function of rows to few of them at a time, so that its memory is bounded."""
        components, rank = self.mapped_means.shape
        numbers = max(components, rank, self._most_classes * self.basis.shape[1])
        if torch.compiler.is_compiling() or len(features) * numbers <= _BLOCK:
            return found(features)
        rows = max(1, _BLOCK // numbers)
        return torch.cat([found(part) for part in torch.split(features, rows)])

    def _joint(self, features: Tensor) -> Tensor:
        directions = polar(self.read(features))
        first = self._class_distances(directions) + self.log_determinant
        second = self._subspace_distances(directions) + self.fourier_log_determinant[self.task]
        return -0.25 * (first + second) / self.temperature + self.log_share

    def read(self, features: Tensor) -> Tensor:
        """Return the columns of φ that it reads: those a network began with, before it grew."""
        return features if features.shape[1] == self.columns else features[:, self.reads]

    def _class_distances(self, directions: Tensor) -> Tensor:
        """(φ̂ − μ_c)ᵀC_c⁻¹(φ̂ − μ_c), shape (n, components)."""
        z = (directions - self.origin) @ self.whitening.T
        squares = z.square().sum(1, keepdim=True) + self.means.square().sum(1)
        distances = (squares - 2 * z @ self.means.T).clamp(min=0)
        own = []
        for block in _blocks(len(self.maps), z.shape[0] * self.maps.shape[1]):
            # The classes' maps side by side, so that one product serves many.
            maps, means = self.maps[block], self.mapped_means[block]
            inside = (z @ maps.flatten(0, 1).T).reshape(-1, *means.shape)
            own.append((inside - means).square().sum(2))
        return (distances - torch.cat(own, 1)).clamp(min=0) / self.stretch

    def _subspace_distances(self, directions: Tensor) -> Tensor:
        """(z − m_c)ᵀC_k⁻¹(z − m_c) with z = Bᵀh, shape (n, components)."""
        waves = fourier(directions, self.frequencies, self.phases)
        z = (waves - self.fourier_origin) @ self.basis
        found = []
        for block in _blocks(self.tasks, z.shape[0] * self._most_classes * z.shape[1]):
            part = self.by_number[self._begins[block.start] : self._begins[block.stop]]
            maps = self.fourier_whitening[block]
            whitened = (z @ maps.flatten(0, 1).T).reshape(-1, *maps.shape[:2])
            own = whitened[:, self.task[part] - block.start]
            found.append((own - self.whitened_means[part]).square().sum(2))
        return torch.cat(found, 1)[:, self.ranked]

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
        return self._by_rows(lambda rows: self.of_joint(self._joint(rows)), features)

    def among_classes(self, joint: Tensor, seen: Tensor, tasks: Tensor) -> Tensor:
        """Log of these tasks' J among their classes, shape (tasks, n, columns); 0 where not seen.

        Parameters
        ----------
        seen
            Which columns are classes of each task of the gate, shape (all tasks, columns).
        tasks
            Numbers of tasks, in any order and any number.
        """
        places = self._places(seen)[tasks]
        nothing = torch.full_like(joint[:, :1], -torch.inf)
        parts = torch.cat([joint, nothing], 1)[:, places]
        found = torch.log_softmax(parts, 2).transpose(0, 1)
        return found.masked_fill(~seen[tasks][:, None, :], 0.0)

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
        nearest = self._by_rows(
            lambda rows: self._class_distances(polar(rows)).amin(1), self.read(features)
        )
        return nearest / (self.columns + 1)


def _blocks(number: int, width: int) -> list[slice]:
    """Split so many things of this width so that a few fit into the processor's cache."""
    step = number if torch.compiler.is_compiling() else max(1, _CACHED // max(1, width))
    return [slice(begin, min(begin + step, number)) for begin in range(0, number, step)]


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
    for name in ("task", "label", "reads"):
        if tensors[name].dtype != torch.int64 or bool((tensors[name] < 0).any()):
            raise ValueError(f"the {name} of the gate must be whole numbers from 0")
    tasks = int(tensors["task"].max()) + 1 if tensors["task"].numel() else 0
    width, dimensions = tensors["basis"].shape if tensors["basis"].ndim == 2 else (0, 0)
    rank = tensors["maps"].shape[1] if tensors["maps"].ndim == 3 else 0
    shapes = {
        "task": (components,),
        "label": (components,),
        "log_share": (components,),
        "reads": (columns - 1,),
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
    records: Mapping[str, ClassDensities],
    settings: DensitySettings | None = None,
    reads: Tensor | None = None,
    shared: SharedScatters | None = None,
) -> DensityGate:
    """Return the gate between tasks with these records, by their names, in this order.

    Parameters
    ----------
    reads
        Positions in φ of the features that the records are of; all where None.
    shared
        Scatters within the classes of all tasks, where they are kept for all together; otherwise
        they are the sum of the records' own.

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
    numbers = {name: number for number, name in enumerate(records)}
    places = torch.tensor([numbers[name] for name in names])
    sizes = torch.tensor([len(record.classes) for record in ordered])
    canonical = torch.repeat_interleave(torch.arange(len(ordered)), sizes)
    counts = torch.cat([record.counts for record in ordered])
    totals = torch.stack([record.counts.sum() for record in ordered])
    within, fourier_within = (None, None) if shared is None else shared.covariances()
    classes = _classes(ordered, counts, within)
    subspace = _subspace(ordered, totals, fourier_within)
    back = torch.argsort(places)
    tensors = {
        "task": places[canonical],
        "label": torch.cat([record.classes for record in ordered]),
        "log_share": (counts / totals[canonical]).log(),
        "reads": torch.arange(ordered[0].columns) if reads is None else reads,
        **classes._asdict(),
        **subspace._asdict(),
    }
    for name in ("fourier_whitening", "fourier_log_determinant"):
        tensors[name] = tensors[name][back]
    settings = DensitySettings() if settings is None else settings
    return DensityGate({name: value.contiguous() for name, value in tensors.items()}, settings)


def _identity(size: int) -> Tensor:
    return torch.eye(size, dtype=torch.float64)


class _Roots(NamedTuple):
    """Several scatters F Fᵀ + diag(t)."""

    roots: Tensor
    """F, shape (number, columns, rank)."""
    tails: Tensor
    """t, shape (number, columns)."""

    def total(self) -> Tensor:
        """Return the sum of the scatters, shape (columns, columns)."""
        result = torch.diag(self.tails.sum(0))
        for part, _ in self.blocks():
            joined = part.transpose(0, 1).flatten(1)
            result += joined @ joined.T
        return result

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield both parts of a few scatters at a time."""
        size = max(1, _BLOCK // self.roots[0].numel())
        return zip(torch.split(self.roots, size), torch.split(self.tails, size), strict=True)


def _leading(scatters: Sequence[Scatters]) -> _Roots:
    """Return roots of one rank: all directions, or of very many scatters the largest of each.

    What is left out of a root stays on the diagonal.
    """
    number = sum(len(each.factor) for each in scatters)
    columns = scatters[0].columns
    rank = max(each.factor.shape[2] for each in scatters)
    rank = min(rank, max(1, _LARGEST_ROOTS // (number * columns)))
    roots = torch.zeros(number, columns, rank, dtype=torch.float64)
    tails = torch.cat([each.tails() for each in scatters])
    begin = 0
    for each in scatters:
        found = each.roots()
        end = begin + len(found)
        if found.shape[2] > rank:
            sizes, squares = found.square().sum(1), found.square().sum(2)
            largest = sizes.topk(rank, 1).indices
            found = found.gather(2, largest[:, None, :].expand(-1, columns, -1))
            tails[begin:end] += (squares - found.square().sum(2)).clamp(min=0)
        roots[begin:end, :, : found.shape[2]] = found
        begin = end
    return _Roots(roots, tails)


def _classes(records: Sequence[ClassDensities], counts: Tensor, shared: Tensor | None) -> _Classes:
    """Q¹ of all classes."""
    own = _leading([record.scatters for record in records])
    columns, rank = own.roots.shape[1:]
    shared = own.total() / counts.sum() if shared is None else shared
    size = shared.diagonal().mean().clamp(min=_SMALLEST_VARIANCE)
    factor = torch.linalg.cholesky(
        (1 - RIDGE) * (1 - OWN) * shared + RIDGE * size * _identity(columns)
    )
    whitening = torch.linalg.solve_triangular(factor, _identity(columns), upper=False)
    log_determinant = 2 * factor.diagonal().log().sum()
    means = torch.cat([record.means for record in records]).double()
    origin = means.mean(0)
    shares = (1 - RIDGE) * OWN / counts
    stretch = 1 + shares * (own.tails @ whitening.square().mean(0))
    maps, determinants = torch.empty(len(counts), rank, columns, dtype=torch.float64), []
    begin = 0
    for roots, _ in own.blocks():
        block = slice(begin, begin + len(roots))
        begin += len(roots)
        inside = shares[block, None, None].sqrt() * (whitening @ roots)
        ridge = stretch[block, None, None] * _identity(rank)
        lower = torch.linalg.cholesky(ridge + inside.mT @ inside)
        maps[block] = torch.linalg.solve_triangular(lower, inside.mT, upper=False)
        determinants.append(2 * lower.diagonal(dim1=1, dim2=2).log().sum(1))
    return _Classes(
        origin,
        whitening,
        (means - origin) @ whitening.T,
        maps,
        stretch,
        torch.cat(determinants) + (columns - rank) * stretch.log() + log_determinant,
    )


def _subspace(
    records: Sequence[ClassDensities], totals: Tensor, shared: Tensor | None
) -> _Subspace:
    """Q² of all classes."""
    own = _leading([record.fourier_scatter for record in records])
    shared = own.total() / totals.sum() if shared is None else shared
    size = shared.diagonal().mean().clamp(min=_SMALLEST_VARIANCE)
    ridged = (1 - FOURIER_RIDGE) * shared + FOURIER_RIDGE * size * _identity(len(shared))
    factor = torch.linalg.cholesky(ridged)
    means = torch.cat([record.fourier_means for record in records]).double()
    origin = means.mean(0)
    whitened = torch.linalg.solve_triangular(factor, (means - origin).T, upper=False)
    most = math.isqrt(_LARGEST_COVARIANCES // len(records))
    kept = max(1, min(len(means) - 1, len(shared), most))
    basis = torch.linalg.solve_triangular(factor.T, _directions(whitened)[:, :kept], upper=True)
    # Bᵀ diag(t) B of any diagonal t is one product with these.
    pairs = (basis[:, :, None] * basis[:, None, :]).flatten(1)
    whitening = torch.empty(len(records), kept, kept, dtype=torch.float64)
    determinants = []
    begin = 0
    for roots, tails in own.blocks():
        block = slice(begin, begin + len(roots))
        begin += len(roots)
        inside = basis.T @ roots
        spread = inside @ inside.mT + (tails @ pairs).unflatten(1, (kept, kept))
        mixed = FOURIER_OWN * spread / totals[block, None, None]
        lower = torch.linalg.cholesky((1 - FOURIER_OWN) * _identity(kept) + mixed)
        whitening[block] = torch.linalg.solve_triangular(lower, _identity(kept), upper=False)
        determinants.append(2 * lower.diagonal(dim1=1, dim2=2).log().sum(1))
    return _Subspace(origin, basis, (means - origin) @ basis, whitening, torch.cat(determinants))


def _directions(means: Tensor) -> Tensor:
    """Return the directions in which columns differ, those of the largest differences first."""
    directions: Tensor
    if means.shape[1] <= len(means):
        directions, _, _ = torch.linalg.svd(means, full_matrices=False)
    else:
        directions = torch.linalg.eigh(means @ means.T).eigenvectors.flip(1)
    return directions
