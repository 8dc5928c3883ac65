r"""The gate of routed evidence: class densities on two feature maps, averaged.

The maps need no data, so that nothing of any task is in them:

* φ̂ = [φ/‖φ‖, log‖φ‖/√d], the direction of φ and the logarithm of its length: features of any size
  are of size 1, and size still tells tasks apart;
* h = √2 cos(φ̂ Ω/ℓ + b) with Ω ~ N(0, 1) and b ~ U(0, 2π) from a fixed seed, which take no bytes:
  random Fourier features, whose products approximate a Gaussian kernel of bandwidth ℓ = √2, the
  distance of orthogonal directions.

On them the class c of task k has the log densities

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

A task's head and the densities of the classes it has seen make its answer, their geometric mean:

    p_k(y | φ) ∝ head_k(y | φ)^a exp(J_ky(φ))^(1 − a).

The gate between tasks is made of their records (`ibcl.routing.gate_of_records`). Of few rows it is
made flatter: between tasks, t/s stands in place of t (`ibcl.routing.overconfidence`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibcl.routing.gate import TaskGate, check_parts, components_by_task

BANDWIDTH = math.sqrt(2)
SETTINGS = "settings"
_SEED = 0
# Features shorter than this have no direction.
SHORTEST = 1e-6
# Of the typical length, below which rows are taken to have ever less of a direction and a length.
_SHORT = 0.1
# Numbers of all classes' densities that are held at a time.
_BLOCK = 2**22
# Numbers of whitened features that are made and summed while in the processor's cache.
_CACHED = 2**18
# Numbers of all classes' maps above which z is made and mapped in single precision: that is most of
# a row's multiplications, and as squares are summed in double, J moves by some 1e-8 of its size.
_MANY_MAPS = 2**19


class Frequencies(NamedTuple):
    """Ω/ℓ of shape (columns, width), and b."""

    frequencies: Tensor
    phases: Tensor


def polar(features: Tensor, typical: float = 0.0) -> Tensor:
    r"""φ̂ of features of shape (n, d): shape (n, d + 1).

    Rows with hardly any features, such as those of empty texts, have no direction, and their length
    says nothing: with the share s = min(1, ‖φ‖ / 0.1 τ) they are

        φ̂ = [s φ/‖φ‖, (s log‖φ‖ + (1 − s) log τ)/√d],

    which is continuous in φ, and no outlier at φ = 0.

    Parameters
    ----------
    typical
        τ, the typical length; where 0, all rows have a direction and a length.

    Examples
    --------
    >>> polar(torch.tensor([[3.0, 4.0]])).round(decimals=3).tolist()
    [[0.6000000238418579, 0.800000011920929, 1.1380000114440918]]
    >>> polar(torch.zeros(1, 2), typical=1.0).tolist()
    [[0.0, 0.0, 0.0]]
    """
    length = torch.linalg.vector_norm(features, dim=1, keepdim=True)
    logarithm = length.clamp(min=SHORTEST).log()
    if typical > 0:
        share = (length / (_SHORT * typical)).clamp(max=1.0)
        logarithm = share * logarithm + (1 - share) * math.log(typical)
    direction = features / length.clamp(min=max(SHORTEST, _SHORT * typical))
    return torch.cat([direction, logarithm / math.sqrt(features.shape[1])], 1)


def fourier_width(columns: int) -> int:
    """Return how many Fourier features so many features φ have.

    Examples
    --------
    >>> fourier_width(2), fourier_width(10), fourier_width(512)
    (64, 160, 1000)
    """
    return min(1000, max(64, 16 * columns))


@lru_cache(8)
def fourier_frequencies(columns: int) -> Frequencies:
    """Return Ω/ℓ and b for d features φ, always the same."""
    # The stream of this generator is the only one of numpy's that no later version may change.
    generator = np.random.RandomState(_SEED)
    width = fourier_width(columns)
    frequencies = generator.standard_normal((columns + 1, width)) / BANDWIDTH
    phases = generator.random_sample(width) * 2 * math.pi
    return Frequencies(torch.from_numpy(frequencies), torch.from_numpy(phases))


def fourier(directions: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """H of φ̂: shape (n, width)."""
    return torch.addmm(phases, directions, frequencies).cos_().mul_(math.sqrt(2))


@dataclass(frozen=True)
class DensitySettings:
    """Temperature t, contamination ε, the exponent a of heads, typical length τ, and sharpness s.

    Between tasks, densities are tempered by t/s (`ibcl.routing.overconfidence`).
    """

    temperature: float = 3.0
    contamination: float = 1e-3
    head_share: float = 1.0
    typical: float = 0.0
    sharpness: float = 1.0


class ClassGaussians(NamedTuple):
    """Of Q¹: what does not depend on the input."""

    origin: Tensor
    whitening: Tensor
    means: Tensor
    maps: Tensor
    stretch: Tensor
    log_determinant: Tensor


class SubspaceGaussians(NamedTuple):
    """Of Q²: what does not depend on the input."""

    fourier_origin: Tensor
    basis: Tensor
    fourier_means: Tensor
    fourier_whitening: Tensor
    fourier_log_determinant: Tensor


_MADE = (*ClassGaussians._fields, *SubspaceGaussians._fields)
DENSITY_TENSORS = ("task", "label", "log_share", "reads", *_MADE)


class DensityGate(TaskGate):
    r"""Densities of all tasks, as a module without parameters, so that it can be exported.

    Made by `ibcl.routing.density_gate`; the tensors are its buffers. In the space whitened by S̄ a
    class's own covariance is a low rank Ũ on top of (1 + t_c) I, so that its distance takes no d×d
    product:

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
    product_whitening: Tensor
    product_maps: Tensor
    mapped_means: Tensor
    whitened_means: Tensor

    def __init__(self, tensors: Mapping[str, Tensor], settings: DensitySettings) -> None:
        super().__init__()
        _check(tensors, settings)
        self.settings, self.temperature = settings, float(settings.temperature)
        self.head_share = settings.head_share
        for name in DENSITY_TENSORS:
            self.register_buffer(name, tensors[name])
        self.tasks = int(self.task.max()) + 1
        self.columns = len(self.origin) - 1
        waves = fourier_frequencies(self.columns)
        by_number = torch.argsort(self.task, stable=True)
        counts = torch.bincount(self.task, minlength=self.tasks)
        self._begins = [0, *counts.cumsum(0).cpu().tolist()]
        self._most_classes = int(counts.max())
        single = self.maps.numel() > _MANY_MAPS
        derived = {
            "frequencies": waves.frequencies,
            "phases": waves.phases,
            "by_task": components_by_task(self.task),
            # Components in the order of their tasks, and where each of them is in that order.
            "by_number": by_number,
            "ranked": torch.argsort(by_number),
            "product_whitening": self.whitening.float() if single else self.whitening,
            "product_maps": self.maps.float() if single else self.maps,
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
        directions = polar(self.read(features), self.settings.typical)
        first = self._class_distances(directions) + self.log_determinant
        second = self._subspace_distances(directions) + self.fourier_log_determinant[self.task]
        return -0.25 * (first + second) / self.temperature + self.log_share

    def read(self, features: Tensor) -> Tensor:
        """Return the columns of φ that it reads: those a network began with, before it grew."""
        return features if features.shape[1] == self.columns else features[:, self.reads]

    def _class_distances(self, directions: Tensor) -> Tensor:
        """(φ̂ − μ_c)ᵀC_c⁻¹(φ̂ − μ_c), shape (n, components)."""
        z = (directions - self.origin).to(self.product_maps) @ self.product_whitening.T
        exact = z.to(directions)
        squares = exact.square().sum(1, keepdim=True) + self.means.square().sum(1)
        distances = (squares - 2 * exact @ self.means.T).clamp(min=0)
        own = []
        for block in _blocks(len(self.maps), z.shape[0] * self.maps.shape[1]):
            # The classes' maps side by side, so that one product serves many.
            maps, means = self.product_maps[block], self.mapped_means[block].to(z)
            inside = (z @ maps.flatten(0, 1).T).reshape(-1, *means.shape)
            own.append((inside - means).square().sum(2, dtype=exact.dtype))
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
        """Log e_k of every task up to one term, from J: shape (n, tasks)."""
        if self.settings.sharpness != 1:
            joint = self.settings.sharpness * (joint - self.log_share) + self.log_share
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

    def answers(self, means: Tensor, joint: Tensor, tasks: Tensor) -> Tensor:
        """p_k ∝ head^a J^(1 − a) among the classes that a task has seen."""
        means, seen = means.to(joint.dtype), self.seen(means.shape[-1])
        compared = self.among_classes(joint, seen, tasks)
        # With two classes a task that has seen only one still says how far inputs are from it.
        allowed = (seen | (seen.shape[1] <= 2))[tasks]
        # A task of one class has no densities to compare it with.
        single = (seen.sum(1) == 1)[tasks][:, None, None]
        exponent = torch.where(single, 1.0, self.head_share).to(means.dtype)
        logarithms = means.clamp(min=torch.finfo(means.dtype).tiny).log()
        scores = exponent * logarithms + (1 - exponent) * compared
        return torch.softmax(scores.masked_fill(~allowed[:, None, :], -torch.inf), -1)

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
        typical = self.settings.typical
        nearest = self._by_rows(
            lambda rows: self._class_distances(polar(rows, typical)).amin(1), self.read(features)
        )
        return nearest / (self.columns + 1)

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors it is made of, with its settings."""
        numbers = torch.tensor(astuple(self.settings), dtype=torch.float64)
        return {
            **{f"gate.{name}": getattr(self, name) for name in DENSITY_TENSORS},
            SETTINGS: numbers,
        }


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
    fractions = 0 <= settings.contamination < 1 and 0 <= settings.head_share <= 1
    fractions = fractions and 0 <= settings.sharpness <= 1
    if not fractions or not 0 <= settings.typical < math.inf:
        raise ValueError("the settings of the gate are out of range")
    check_parts(tensors, DENSITY_TENSORS)
    components, columns = tensors["means"].shape if tensors["means"].ndim == 2 else (0, 0)
    if components == 0 or columns < 2:
        raise ValueError("the gate has no components")
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
    if tasks > components or width == 0:
        raise ValueError("the gate has tasks without components")
