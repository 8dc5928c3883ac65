r"""Revising what is known without any data: forgetting a task, merging knowledge bases.

Both move posteriors from the prior they were learnt from to another one: what a posterior q says
beyond its old prior, said on top of the new one,

    q′ ∝ q · new / old,     P′ = P − P_old + P_new,     P′μ′ = Pμ − P_old μ_old + P_new μ_new.

Where tasks are independent (``independent=True``) nothing has to be moved, and both are exact.
Posteriors of a chain were found with the earlier tasks as their prior; moving them is exact for
linear-Gaussian models and an approximation, named ``"rebase"``, for all others.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ibcl.gaussians import Gaussian, ImproperError
from ibcl.knowledge.base import EvidenceWarning, KnowledgeBase, TaskRecord, scaled
from ibcl.knowledge.parts import CommonPart, Parts, separated, sums, without
from ibcl.routing.moments import Moments

REBASE = "rebase"


def rebase(posterior: Gaussian, old: Gaussian, new: Gaussian) -> tuple[Gaussian, float]:
    """Return q · new / old, and the share of parameters in which q said less than its old prior.

    A mean-field posterior can be wider than its prior in some coordinates; what it says there is no
    likelihood, so it is taken to say nothing and the new prior stands.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> def gaussian(mean, std):
    ...     return DiagonalGaussian([mean], [std])
    >>> moved, _ = rebase(gaussian(1.0, 0.5), gaussian(0.0, 1.0), gaussian(0.0, 1.0))
    >>> moved.mean.item(), moved.std.item()
    (1.0, 0.5)
    """
    after, before, onto = (q.natural_parameters() for q in (posterior, old, new))
    evidence, share = (after - before).proper()
    try:
        return (onto + evidence).gaussian(posterior.mean.dtype), share
    except ImproperError:
        raise ValueError(
            "A posterior cannot be moved to another prior: its precision would not stay positive "
            "definite."
        ) from None


Move = tuple[Gaussian, Gaussian, Gaussian] | tuple[Gaussian, None, None]


def _rebase_all(moves: Sequence[Move]) -> tuple[Gaussian, ...]:
    """Move the posteriors that come with an old and a new prior; warn once."""
    moved, worst = [], 0.0
    for posterior, old, new in moves:
        share = 0.0
        if old is not None and new is not None:
            posterior, share = rebase(posterior, old, new)
        moved.append(posterior)
        worst = max(worst, share)
    if worst > 0:
        warnings.warn(
            f"Evidence was negative in up to {worst:.1%} of a posterior's parameters and is left "
            "out there.",
            EvidenceWarning,
            stacklevel=4,
        )
    return tuple(moved)


def check_approximation(approximation: str | None) -> None:
    """Refuse an approximation that is not known."""
    if approximation not in (None, REBASE):
        raise ValueError(f"approximation must be None or 'rebase', not {approximation!r}.")


def forget(
    knowledge: KnowledgeBase,
    task: str,
    approximation: str | None = None,
    common: Mapping[str, CommonPart] | None = None,
) -> None:
    """Remove a task and all that was learnt from its data; nothing changes if that is refused.

    Exact, as if the task had never been learnt, where no later task was learnt from its posteriors:
    for independent tasks, and for the last task of a chain.

    Parameters
    ----------
    approximation
        ``"rebase"`` accepts, for a task inside a chain, that its evidence is divided out of the
        later posteriors instead.
    common
        What the task added to the sums over all tasks; without it, it stays in them as long as
        there are other tasks.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], independent=True)
    >>> for name, mean in [("a", 1.0), ("b", 2.0)]:
    ...     _ = knowledge.add(name, [DiagonalGaussian([mean], [0.5])])
    >>> forget(knowledge, "a")
    >>> knowledge.tasks, len(knowledge.stored)
    (('b',), 1)
    """
    check_approximation(approximation)
    record = knowledge.record(task)
    number = knowledge.records.index(record)
    later = knowledge.records[number + 1 :]
    own = {
        position: index
        for index, (position, pointer) in enumerate(
            zip(record.posteriors, record.pointers, strict=True)
        )
        if not pointer
    }
    for other in later:
        if own.keys() & set(other.posteriors):
            raise ValueError(
                f"Task {task!r} cannot be forgotten: its posterior also stands for task "
                f"{other.name!r}, which was within the threshold d of it; forget that one first."
            )
    exact = not later or later[0].priors == record.priors
    if not exact and approximation is None:
        raise ValueError(
            f"Task {task!r} cannot be forgotten exactly: {later[0].name!r} was learnt from its "
            "posteriors; forget the later tasks first, learn tasks independently "
            "(independent=True), or accept approximation='rebase', which "
            "divides its evidence out of them."
        )
    moves: list[Move] = []
    for position, ancestor in enumerate(_ancestors(knowledge, own)):
        posterior = knowledge.stored[position]
        if ancestor is not None:
            prior = knowledge.prior_of(task, own[ancestor])
            moves.append((posterior, knowledge.stored[ancestor], prior))
        elif position not in own:
            moves.append((posterior, None, None))
    stored = _rebase_all(moves)

    def renumber(position: int | None) -> int | None:
        if position in own:
            position = record.priors[own[position]]
        return None if position is None else position - sum(gone < position for gone in own)

    records = [
        replace(
            other,
            posteriors=tuple(
                position - sum(gone < position for gone in own) for position in other.posteriors
            ),
            priors=tuple(renumber(position) for position in other.priors),
            # What was learnt from the forgotten task now stands on the prior that one had.
            scale=record.scale if own.keys() & set(other.priors) else other.scale,
        )
        for other in knowledge.records
        if other.name != task
    ]
    moments = knowledge.moments[:number] + knowledge.moments[number + 1 :]
    others = knowledge.parts[:number] + knowledge.parts[number + 1 :]
    parts = tuple(without(kept, task) for kept in others)
    measured = _with_distances(knowledge, stored, records, number)
    rest = {
        kind: part.minus(common[kind]) if common and kind in common else part
        for kind, part in knowledge.common.items()
    }
    knowledge.restore(stored, measured, moments, parts, rest)


def replace_task(
    knowledge: KnowledgeBase,
    task: str,
    posteriors: Sequence[Gaussian],
    samples: int,
    updates: int,
    moments: Moments | None = None,
    parts: Parts | None = None,
    scale: float | None = None,
    noise: float | None = None,
) -> TaskRecord:
    """Put other posteriors in the place of a task's, learnt from the same priors as they were.

    Refused, as `forget` is, where a later task was learnt from the task or points to it. The new
    posteriors are stored whatever their distance to others.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], independent=True)
    >>> for name, mean in [("a", 1.0), ("b", 2.0)]:
    ...     _ = knowledge.add(name, [DiagonalGaussian([mean], [0.5])])
    >>> _ = replace_task(knowledge, "a", [DiagonalGaussian([3.0], [0.5])], 1, 0)
    >>> knowledge.tasks, [q.mean.item() for q in knowledge.stored]
    (('a', 'b'), [3.0, 2.0])
    """
    old = knowledge.record(task)
    number = knowledge.records.index(old)
    rest = copy.copy(knowledge)
    forget(rest, task)
    m = len(knowledge.priors)
    place = sum(record.pointers.count(False) for record in rest.records[:number])

    def moved(position: int) -> int:
        return position if position < place else position + m

    record = replace(
        old,
        posteriors=tuple(range(place, place + m)),
        pointers=(False,) * m,
        distances=(None,) * m,
        samples=samples,
        updates=updates,
        scale=scale,
        noise=noise,
    )
    later = [
        replace(
            other,
            posteriors=tuple(map(moved, other.posteriors)),
            priors=tuple(None if prior is None else moved(prior) for prior in other.priors),
        )
        for other in rest.records[number:]
    ]
    own, added = separated(parts or {})
    knowledge.restore(
        (*rest.stored[:place], *posteriors, *rest.stored[place:]),
        (*rest.records[:number], record, *later),
        (*rest.moments[:number], moments, *rest.moments[number:]),
        (*rest.parts[:number], own, *rest.parts[number:]),
        sums(knowledge.common, added),
    )
    return record


def _ancestors(knowledge: KnowledgeBase, own: dict[int, int]) -> list[int | None]:
    """For each stored posterior, which of these it was, directly or not, learnt from."""
    found: list[int | None] = []
    for record in knowledge.records:
        for prior, pointer in zip(record.priors, record.pointers, strict=True):
            if not pointer:
                found.append(None if prior is None else prior if prior in own else found[prior])
    return found


def _with_distances(
    knowledge: KnowledgeBase,
    stored: tuple[Gaussian, ...],
    records: Sequence[TaskRecord],
    start: int,
) -> tuple[TaskRecord, ...]:
    """Measure again how far each later posterior is from those stored before it, where known."""
    measured = knowledge.empty()
    measured.restore(stored, ())
    result = []
    before = 0
    for number, record in enumerate(records):
        distances = list(record.distances)
        if number >= start and any(distance is not None for distance in distances):
            for index, position in enumerate(record.posteriors):
                if not record.pointers[index]:
                    near = measured.nearest(stored[position], before) if before else None
                    distances[index] = None if near is None else near[1]
        before += record.pointers.count(False)
        result.append(replace(record, distances=tuple(distances)))
    return tuple(result)


def merged(
    first: KnowledgeBase, second: KnowledgeBase, approximation: str | None = None
) -> KnowledgeBase:
    """Unite what was learnt independently from the same priors; the first's tasks come first.

    Exact for independent tasks: learning all of them in one place would know the same.

    Parameters
    ----------
    approximation
        ``"rebase"`` accepts, for chains, that the second's posteriors are moved on top of the
        first's last ones.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> def site(task, mean):
    ...     knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], independent=True)
    ...     _ = knowledge.add(task, [DiagonalGaussian([mean], [0.5])])
    ...     return knowledge
    >>> merged(site("north", 1.0), site("south", 2.0)).tasks
    ('north', 'south')
    """
    check_approximation(approximation)
    chained = not first.independent
    if chained and approximation is None:
        raise ValueError(
            f"The learners cannot be merged exactly: {second.records[0].name!r} and the tasks "
            "after it were not learnt from the other's posteriors; learn tasks independently "
            "(independent=True), or accept approximation='rebase', which moves them on top of "
            "those."
        )
    last = first.records[-1].posteriors if chained else (None,) * len(first.priors)
    onto = first.extremes(first.tasks[-1]) if chained else first.priors
    moved = second.stored
    rebased = chained or not same_gaussians(first.priors, second.priors)
    if rebased:
        moved = _rebase_all(
            [
                (posterior, root, onto[index])
                for posterior, (index, root) in zip(moved, _roots(second), strict=True)
            ]
        )
    offset = len(first.stored)

    following = [
        replace(
            record,
            posteriors=tuple(position + offset for position in record.posteriors),
            priors=tuple(
                last[index] if position is None else position + offset
                for index, position in enumerate(record.priors)
            ),
            # They were measured in the other knowledge base; `report` measures them anew.
            distances=(None,) * len(record.distances),
            scale=None if rebased else record.scale,
        )
        for record in second.records
    ]
    knowledge = first.empty()
    knowledge.restore(
        (*first.stored, *moved),
        (*first.records, *following),
        (*first.moments, *second.moments),
        (*first.parts, *second.parts),
        sums(first.common, second.common),
    )
    return knowledge


def adopted(ours: KnowledgeBase, theirs: KnowledgeBase) -> KnowledgeBase:
    """Return what is known with another's tasks, independent and of the same priors, at the end."""
    knowledge = copy.copy(ours)
    knowledge.common = sums(ours.common, theirs.common)
    kept = zip(theirs.records, theirs.moments, theirs.parts, strict=True)
    for record, moments, parts in kept:
        knowledge.add(
            record.name,
            theirs.extremes(record.name),
            samples=record.samples,
            updates=record.updates,
            moments=moments,
            parts=parts,
            scale=record.scale,
            noise=record.noise,
        )
    return knowledge


def _roots(knowledge: KnowledgeBase) -> list[tuple[int, Gaussian]]:
    """For each stored posterior, the index and the scaled initial prior its chain began with."""
    roots: list[tuple[int, Gaussian]] = []
    for record in knowledge.records:
        for index, (prior, pointer) in enumerate(zip(record.priors, record.pointers, strict=True)):
            if not pointer:
                initial = index, scaled(knowledge.priors[index], record.scale)
                roots.append(initial if prior is None else roots[prior])
    return roots


def same_gaussians(ours: Sequence[Gaussian], theirs: Sequence[Gaussian]) -> bool:
    """Tell whether two lists hold the same Gaussians."""
    return len(ours) == len(theirs) and all(q.equal(p) for q, p in zip(ours, theirs, strict=True))
