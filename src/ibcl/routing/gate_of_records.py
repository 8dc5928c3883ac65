r"""The gate between tasks, made of their records (`ibcl.routing.records`).

With the scatters of all classes, S̄ is the covariance within classes, v the mean of its diagonal,
and what `ibcl.routing.densities` says of C_c, B and C_k is computed from the factors that records
keep. All sums are in the order of the tasks' names: the same gate, bit for bit, in whatever order
they were learnt or merged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ibcl.routing.densities import (
    ClassGaussians,
    DensityGate,
    DensitySettings,
    SubspaceGaussians,
)
from ibcl.routing.overconfidence import LogRatios, log_ratios, sharpness
from ibcl.routing.records import ClassDensities, typical_length
from ibcl.routing.scatters import Scatters
from ibcl.routing.shared import SharedScatters
from ibcl.routing.sketches import RowSketch

# Shares of own covariances and ridges of both densities, chosen on validation data of five
# benchmarks, one for all of them.
OWN, RIDGE = 0.1, 0.05
FOURIER_OWN, FOURIER_RIDGE = 0.6, 0.1
# Variances below this are rounding: φ̂ and h are of size 1.
_SMALLEST_VARIANCE = 1e-9
# Numbers of the scatters that are held at a time.
_BLOCK = 2**22
# Numbers that the roots of all classes' scatters, and the covariances of all tasks in the subspace,
# may take: of very many tasks, each has the largest directions only, so that neither memory nor
# time for a row grows any further.
_LARGEST_ROOTS = 2**25
_LARGEST_COVARIANCES = 2**24
# Classes of all tasks up to which their densities' overconfidence is worked out.
_MOST_COMPARED = 512


def density_gate(
    records: Mapping[str, ClassDensities],
    settings: DensitySettings | None = None,
    reads: Tensor | None = None,
    shared: SharedScatters | None = None,
    sketches: Mapping[str, RowSketch] | None = None,
) -> DensityGate:
    """Return the gate between tasks with these records, by their names, in this order.

    Parameters
    ----------
    reads
        Positions in φ of the features that the records are of; all where None.
    shared
        Scatters within the classes of all tasks, where they are kept for all together; otherwise
        they are the sum of the records' own.
    sketches
        Of all tasks' rows, where densities are to be made as sharp as rows that were not learnt
        allow (`ibcl.routing.overconfidence`).

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
    kept = [sketches[name] for name in names] if sketches else []
    compared = kept if len(records) > 1 and len(counts) <= _MOST_COMPARED else []
    classes, first = _classes(ordered, counts, within, compared)
    subspace, second = _subspace(ordered, totals, fourier_within, compared)
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
    settings = replace(settings, typical=typical_length(ordered))
    if first is not None and second is not None:
        shares = tensors["log_share"].exp()
        found = sharpness(first.averaged_with(second), canonical, shares)
        settings = replace(settings, sharpness=found)
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


def _classes(
    records: Sequence[ClassDensities],
    counts: Tensor,
    shared: Tensor | None,
    compared: Sequence[RowSketch],
) -> tuple[ClassGaussians, LogRatios | None]:
    """Q¹ of all classes, and with sketches their log ratios over other rows."""
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
    found = ClassGaussians(
        origin,
        whitening,
        (means - origin) @ whitening.T,
        maps,
        stretch,
        torch.cat(determinants) + (columns - rank) * stretch.log() + log_determinant,
    )
    if not compared:
        return found, None
    sums = torch.cat([each.spread()[0] for each in compared])
    directions = (part for part, _ in own.blocks())
    return found, log_ratios(factor, directions, (1 - RIDGE) * (1 - OWN), means, counts, sums)


def _subspace(
    records: Sequence[ClassDensities],
    totals: Tensor,
    shared: Tensor | None,
    compared: Sequence[RowSketch],
) -> tuple[SubspaceGaussians, LogRatios | None]:
    """Q² of all classes, and with sketches their log ratios over other rows."""
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
    whitening = torch.empty(len(records), kept, kept, dtype=torch.float64)
    determinants = []
    begin = 0
    for roots, tails in own.blocks():
        block = slice(begin, begin + len(roots))
        begin += len(roots)
        inside = basis.T @ roots
        diagonals = torch.stack([(basis.T * tail) @ basis for tail in tails])
        spread = inside @ inside.mT + diagonals
        mixed = FOURIER_OWN * spread / totals[block, None, None]
        lower = torch.linalg.cholesky((1 - FOURIER_OWN) * _identity(kept) + mixed)
        whitening[block] = torch.linalg.solve_triangular(lower, _identity(kept), upper=False)
        determinants.append(2 * lower.diagonal(dim1=1, dim2=2).log().sum(1))
    found = SubspaceGaussians(
        origin, basis, (means - origin) @ basis, whitening, torch.cat(determinants)
    )
    if not compared:
        return found, None
    sums = torch.cat([each.spread()[1] for each in compared])
    counts = torch.cat([record.counts for record in records])
    directions = (part for part, _ in own.blocks())
    return found, log_ratios(factor, directions, 1 - FOURIER_RIDGE, means, counts, sums)


def _directions(means: Tensor) -> Tensor:
    """Return the directions in which columns differ, those of the largest differences first."""
    directions: Tensor
    if means.shape[1] <= len(means):
        directions, _, _ = torch.linalg.svd(means, full_matrices=False)
    else:
        directions = torch.linalg.eigh(means @ means.T).eigenvectors.flip(1)
    return directions
