r"""The knowledge base: a finitely generated credal set, and its update (Algorithm 1).

It holds the m initial priors, the posteriors stored so far (the extreme elements), and one record
per task: which stored posterior stands for each of its m extremes, and which prior that was learnt
from. A new posterior that lies within the threshold d of a stored one is not stored: its record
points to the nearest stored posterior, which is then also the next task's prior.

What d is compared with is one of `ibcl.knowledge.distances`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ibcl.deprecation import independent_from
from ibcl.gaussians import DiagonalGaussian, Gaussian, NaturalParameters, linear_combination
from ibcl.knowledge.distances import RMS, distance_named
from ibcl.knowledge.parts import CommonPart, Parts, separated, sums
from ibcl.names import check_name, listed
from ibcl.routing.moments import Moments

# Stored posteriors up to which a report compares each with all before it.
_MOST_COMPARED = 500
# Multiplications of decomposing full covariances up to which it does so: a few seconds.
_LARGEST_COMPARISON = 2**34


class EvidenceWarning(UserWarning):
    """A task's evidence was not a proper likelihood and had to be cut back."""


class ForgettingWarning(UserWarning):
    """Something of a task stays where it was forgotten."""


@dataclass(frozen=True)
class TaskRecord:
    """What the knowledge base knows of one task, one entry for each of the m priors."""

    name: str
    posteriors: tuple[int, ...]
    """Positions in `KnowledgeBase.stored`."""
    priors: tuple[int | None, ...]
    """Stored posteriors they were learnt from; None is the initial prior."""
    pointers: tuple[bool, ...]
    """True where a posterior stored earlier stands in for the learnt one."""
    distances: tuple[float | None, ...]
    """From each learnt posterior to the nearest one stored before; None where not needed."""
    samples: int = 0
    updates: int = 0
    scale: float | None = None
    """What its own data multiplied the standard deviations of the initial priors by."""
    noise: float | None = None
    """Standard deviation of a regression's noise, by its own data."""


class Growth(NamedTuple):
    """One row of the knowledge base's report: its size after a task."""

    task: str
    learnt: int
    stored: int
    nbytes: int
    """All bytes kept of the tasks so far."""
    distances: tuple[float | None, ...]
    """To the nearest posterior stored before."""
    undivided: tuple[float | None, ...]
    """The same distances before they are divided by a number of parameters: plain W2 of "rms"."""


def scaled(prior: Gaussian, scale: float | None) -> Gaussian:
    """Return a prior whose standard deviations are multiplied; itself where there is no scale.

    Examples
    --------
    >>> scaled(DiagonalGaussian([0.0], [2.0]), 3.0).std.item()
    6.0
    """
    if scale is None:
        return prior
    diagonal = prior.as_diagonal()
    if diagonal is None:
        raise ValueError("Only priors of independent parameters have a scale of each task's own.")
    return DiagonalGaussian(diagonal.mean, diagonal.std * scale)


class KnowledgeBase:
    """Extreme elements of the credal set of all tasks so far.

    Parameters
    ----------
    priors
        The m initial priors, ex[Q₀].
    d
        Distance threshold of Algorithm 1; 0 stores every posterior.
    independent
        True learns every task from the initial priors, False from the previous task's posteriors.
    distance
        Name of what d is compared with: ``"rms"``, W2/√D, or ``"norms"``, (‖Δμ‖ + ‖Δσ‖)/D.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> prior = DiagonalGaussian([0.0], [1.0])
    >>> knowledge = KnowledgeBase([prior], d=0.1)
    >>> knowledge.add("a", [DiagonalGaussian([1.0], [0.5])]).pointers
    (False,)
    >>> knowledge.add("b", [DiagonalGaussian([1.05], [0.5])]).pointers
    (True,)
    >>> knowledge.tasks, len(knowledge.stored)
    (('a', 'b'), 1)
    """

    def __init__(
        self,
        priors: Sequence[Gaussian],
        d: float = 0.012,
        *,
        independent: bool | None = None,
        continual: bool | None = None,
        distance: str = RMS,
    ) -> None:
        if not priors:
            raise ValueError("A knowledge base needs at least one prior.")
        for prior in priors:
            priors[0].check_same_dimension(prior)
        if not isinstance(d, int | float | np.number) or not 0 <= d < math.inf:
            raise ValueError(
                f"The distance threshold d must be finite and not negative, not {d!r}."
            )
        self.priors = tuple(priors)
        self.d = float(d)
        distance_named(distance)
        self.distance = distance
        self.independent = bool(independent_from(continual, independent))
        self.stored: tuple[Gaussian, ...] = ()
        self.records: tuple[TaskRecord, ...] = ()
        self.moments: tuple[Moments | None, ...] = ()
        """Moments of each task's features, where a gate needs them."""
        self.parts: tuple[Parts, ...] = ()
        """What else each task keeps."""
        self.common: Mapping[str, CommonPart] = {}
        """Sums over all tasks, by kind."""

    def __copy__(self) -> KnowledgeBase:
        """Return another knowledge base that knows the same; adding to it leaves this one alone."""
        other = self.empty()
        other.restore(self.stored, self.records, self.moments, self.parts, self.common)
        # Evidence of the tasks both know is the same, and costly enough to keep.
        other.factors.update(self.factors)
        return other

    def empty(self) -> KnowledgeBase:
        """Return a knowledge base of the same settings that knows no task."""
        return KnowledgeBase(
            self.priors, self.d, independent=self.independent, distance=self.distance
        )

    def __repr__(self) -> str:
        return (
            f"KnowledgeBase(tasks={list(self.tasks)}, stored={len(self.stored)}, "
            f"dimension={self.dimension})"
        )

    @property
    def dimension(self) -> int:
        """D, the number of parameters."""
        return self.priors[0].dimension

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order they were learnt."""
        return tuple(record.name for record in self.records)

    @property
    def nbytes(self) -> int:
        """Bytes of the stored posteriors, of moments and of all other parts."""
        kept = sum(self._kept_bytes(number) for number in range(len(self.records)))
        kept += self._common_bytes
        return kept + sum(posterior.nbytes for posterior in self.stored)

    def _kept_bytes(self, number: int) -> int:
        """Bytes that a task keeps beside its posteriors."""
        moments = self.moments[number]
        own = 0 if moments is None else moments.nbytes
        return own + sum(part.nbytes for part in self.parts[number].values())

    @property
    def _common_bytes(self) -> int:
        """Bytes of what all tasks keep together."""
        return sum(part.nbytes for part in self.common.values())

    def record(self, task: str) -> TaskRecord:
        """Return the record of a task."""
        number = self._numbers.get(task)
        if number is not None:
            return self.records[number]
        known = listed(self.tasks) or "none yet"
        raise ValueError(f"Unknown task {task!r}; known tasks are {known}.")

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """Where each task's record is."""
        return {record.name: number for number, record in enumerate(self.records)}

    def only(self, task: str) -> KnowledgeBase:
        """Return what is known of one task, as if no other had been learnt."""
        record = self.record(task)
        number, m = self._numbers[task], len(self.priors)
        alone = KnowledgeBase(self.priors, self.d, independent=self.independent)
        first = replace(
            record,
            posteriors=tuple(range(m)),
            priors=(None,) * m,
            pointers=(False,) * m,
            distances=(None,) * m,
        )
        moments, parts = (self.moments[number],), (self.parts[number],)
        # Without sums over all tasks: they change with every other one.
        alone.restore(self.extremes(task), (first,), moments, parts)
        return alone

    def extremes(self, task: str | None = None) -> tuple[Gaussian, ...]:
        """Return the m extreme elements of a task, through its pointers; of all tasks without one.

        The extreme elements of all tasks are the stored posteriors, each once.
        """
        if task is None:
            return self.stored
        return tuple(self.stored[index] for index in self.record(task).posteriors)

    def next_priors(self, scale: float | None = None) -> tuple[Gaussian, ...]:
        """Return the priors of the next task: q_{i−1}, or q₀ where tasks are independent.

        Parameters
        ----------
        scale
            Of the task's own, where it is learnt from the initial priors.
        """
        if self.independent or not self.records:
            return tuple(scaled(prior, scale) for prior in self.priors)
        return tuple(self.stored[index] for index in self.records[-1].posteriors)

    def nearest(self, posterior: Gaussian, among: int | None = None) -> tuple[int, float] | None:
        """Position of and distance to the nearest stored posterior; None if none is stored.

        The distance of the means bounds it from below, which spares most of the costly distances
        between dense Gaussians.

        Parameters
        ----------
        among
            Look only at so many posteriors, the first ones stored.
        """
        stored, distance = self.stored[:among], distance_named(self.distance)
        bounds = self._mean_distances(posterior)[:among]
        best: tuple[int, float] | None = None
        for index in sorted(range(len(bounds)), key=bounds.__getitem__):
            if best is not None and bounds[index] >= best[1]:
                break
            found = distance.of(posterior, stored[index])
            if best is None or found < best[1]:
                best = (index, found)
        return best and (best[0], best[1] / distance.unit(self.dimension))

    def _compared_in_seconds(self) -> bool:
        """Whether the distances between all stored posteriors are found in seconds."""
        pairs = len(self.stored) * (len(self.stored) - 1) // 2
        if pairs * self.dimension**3 <= _LARGEST_COMPARISON:
            return True
        return all(posterior.as_diagonal() is not None for posterior in self.stored)

    def _mean_distances(self, posterior: Gaussian) -> list[float]:
        """Return the distance of a posterior's mean to that of every stored one."""
        if not self.stored:
            return []
        moved = self._stored_means - posterior.mean.double()
        lengths: list[float] = torch.linalg.vector_norm(moved, dim=1).tolist()
        return lengths

    @cached_property
    def _stored_means(self) -> Tensor:
        return torch.stack([q.mean.double() for q in self.stored])

    def add(
        self,
        task: str,
        posteriors: Sequence[Gaussian],
        samples: int = 0,
        updates: int = 0,
        moments: Moments | None = None,
        parts: Parts | None = None,
        scale: float | None = None,
        noise: float | None = None,
    ) -> TaskRecord:
        """Update the credal set with a task's m learnt posteriors (Algorithm 1, lines 6 to 13)."""
        self.check_new(task)
        if len(posteriors) != len(self.priors):
            raise ValueError(
                f"Expected {len(self.priors)} posteriors, one per prior, not {len(posteriors)}."
            )
        for posterior in posteriors:
            self.priors[0].check_same_dimension(posterior)
        # Without a threshold no distance can matter, and dense ones are costly: see `report`.
        found = [self.nearest(posterior) if self.d else None for posterior in posteriors]
        pointers = tuple(near is not None and near[1] < self.d for near in found)
        stored = list(self.stored)
        positions = []
        for posterior, near, pointer in zip(posteriors, found, pointers, strict=True):
            if pointer and near is not None:
                positions.append(near[0])
            else:
                positions.append(len(stored))
                stored.append(posterior)
        chained = not self.independent and bool(self.records)
        record = TaskRecord(
            name=task,
            posteriors=tuple(positions),
            priors=self.records[-1].posteriors if chained else (None,) * len(self.priors),
            pointers=pointers,
            distances=tuple(None if near is None else near[1] for near in found),
            samples=samples,
            updates=updates,
            scale=scale,
            noise=noise,
        )
        own, added = separated(parts or {})
        self.restore(
            tuple(stored),
            (*self.records, record),
            (*self.moments, moments),
            (*self.parts, own),
            sums(self.common, added),
        )
        return record

    def check_new(self, task: str) -> None:
        """Refuse a task name that cannot be learnt."""
        if check_name(task) != task.strip() or "," in task:
            raise ValueError(
                f"A task's name must be text without commas or outer blanks, not {task!r}."
            )
        if task in self._numbers:
            raise ValueError(f"Task {task!r} has been learnt already; give the new one its name.")

    def restore(
        self,
        stored: tuple[Gaussian, ...],
        records: tuple[TaskRecord, ...],
        moments: tuple[Moments | None, ...] | None = None,
        parts: tuple[Parts, ...] | None = None,
        common: Mapping[str, CommonPart] | None = None,
    ) -> None:
        """Replace what is known; without moments or parts, no task has any."""
        self.stored, self.records = stored, records
        self.common = {} if common is None or not records else dict(common)
        self.parts = ({},) * len(records) if parts is None else parts
        self.moments = (None,) * len(records) if moments is None else moments
        for name in ("stacked_means", "_stored_means", "factors", "correlated", "_numbers"):
            self.__dict__.pop(name, None)

    @cached_property
    def correlated(self) -> bool:
        """Whether the posteriors know how parameters depend on each other, as evidence needs."""
        return all(posterior.as_diagonal() is None for posterior in self.stored)

    def task_evidence(self, task: str) -> NaturalParameters:
        """Return the task's likelihood as one factor: the mean over its m extremes."""
        m = len(self.priors)
        return linear_combination((1 / m, self.evidence(task, index)) for index in range(m))

    def prior_of(self, task: str, index: int) -> Gaussian:
        """Return the prior that the task's extreme element of this index was learnt from."""
        record = self.record(task)
        position = record.priors[index]
        if position is None:
            return scaled(self.priors[index], record.scale)
        return self.stored[position]

    def initial_prior_of(self, task: str, index: int) -> Gaussian:
        """Return the prior that the chain of posteriors up to this task's began with."""
        record = self.record(task)
        while (position := record.priors[index]) is not None:
            record = next(
                other
                for other in self.records
                if (position, False) in zip(other.posteriors, other.pointers, strict=True)
            )
            index = record.posteriors.index(position)
        return scaled(self.priors[index], record.scale)

    def evidence(self, task: str, index: int) -> NaturalParameters:
        """Return the task's likelihood as a Gaussian factor, ℓ_k = q_k / q_{k−1}.

        In natural parameters a quotient is a difference: Λ_k = P_k − P_{k−1} and
        η_k = P_k μ_k − P_{k−1} μ_{k−1}.
        """
        known = self.factors.get((task, index))
        if known is None:
            after, before = self.extremes(task)[index], self.prior_of(task, index)
            known = after.natural_parameters() - before.natural_parameters()
            self.factors[task, index] = known
        return known

    @cached_property
    def factors(self) -> dict[tuple[str, int], NaturalParameters]:
        """Evidence computed so far; every preference needs the same."""
        return {}

    @cached_property
    def stacked_means(self) -> Tensor:
        """Means of all tasks' extremes, shape (tasks, m, D)."""
        return torch.stack(
            [torch.stack([q.mean for q in self.extremes(task)]) for task in self.tasks]
        )

    def report(self) -> list[Growth]:
        """Return the size of the knowledge base after every task (the buffer-growth figure).

        Distances that learning did not need are found here, unless there are very many posteriors,
        or full covariances too large to compare in seconds.
        """
        rows = []
        unit = distance_named(self.distance).unit(self.dimension)
        seen: set[int] = set()
        kept = self._common_bytes
        few = len(self.stored) <= _MOST_COMPARED and self._compared_in_seconds()
        for number, record in enumerate(self.records, start=1):
            distances = record.distances
            if None in distances and seen and few:
                found = [self.nearest(self.stored[i], len(seen)) for i in record.posteriors]
                distances = tuple(None if near is None else near[1] for near in found)
            new = set(record.posteriors) - seen
            seen |= new
            kept += self._kept_bytes(number - 1) + sum(self.stored[index].nbytes for index in new)
            rows.append(
                Growth(
                    record.name,
                    number * len(self.priors),
                    len(seen),
                    kept,
                    distances,
                    tuple(None if x is None else x * unit for x in distances),
                )
            )
        return rows
