r"""Revising what is known without any data: forgetting a task, merging knowledge bases.

Both move posteriors from the prior they were learnt from to another one: what a posterior q says
beyond its old prior, said on top of the new one,

    q′ ∝ q · new / old,     P′ = P − P_old + P_new,     P′μ′ = Pμ − P_old μ_old + P_new μ_new.

Where tasks were learnt apart (``continual=False``) nothing has to be moved, and both are exact.
Posteriors of a chain were found with the earlier tasks as their prior; moving them is exact for
linear-Gaussian models and an approximation, named ``"rebase"``, for all others.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ibcl.gaussians import Gaussian, ImproperError
from ibcl.knowledge import KnowledgeBase, TaskRecord
from ibcl.learner import IBCL
from ibcl.moments import Moments
from ibcl.pooling import EvidenceWarning, Routed

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


def _check_approximation(approximation: str | None) -> None:
    if approximation not in (None, REBASE):
        raise ValueError(f"approximation must be None or 'rebase', not {approximation!r}.")


def forget(knowledge: KnowledgeBase, task: str, approximation: str | None = None) -> None:
    """Remove a task and all that was learnt from its data; nothing changes if that is refused.

    Exact, as if the task had never been learnt, where no later task was learnt from its posteriors:
    for tasks learnt apart, and for the last task of a chain.

    Parameters
    ----------
    approximation
        ``"rebase"`` accepts, for a task inside a chain, that its evidence is divided out of the
        later posteriors instead.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], continual=False)
    >>> for name, mean in [("a", 1.0), ("b", 2.0)]:
    ...     _ = knowledge.add(name, [DiagonalGaussian([mean], [0.5])])
    >>> forget(knowledge, "a")
    >>> knowledge.tasks, len(knowledge.stored)
    (('b',), 1)
    """
    _check_approximation(approximation)
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
            "posteriors; forget the later tasks first, learn tasks apart (continual=False), or "
            "accept approximation='rebase', which divides its evidence out of them."
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
        )
        for other in knowledge.records
        if other.name != task
    ]
    moments = knowledge.moments[:number] + knowledge.moments[number + 1 :]
    knowledge.restore(stored, _with_distances(knowledge, stored, records, number), moments)


def replace_task(
    knowledge: KnowledgeBase,
    task: str,
    posteriors: Sequence[Gaussian],
    samples: int,
    updates: int,
    moments: Moments | None = None,
) -> TaskRecord:
    """Put other posteriors in the place of a task's, learnt from the same priors as they were.

    Refused, as `forget` is, where a later task was learnt from the task or points to it. The new
    posteriors are stored whatever their distance to others.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], continual=False)
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
    )
    later = [
        replace(
            other,
            posteriors=tuple(map(moved, other.posteriors)),
            priors=tuple(None if prior is None else moved(prior) for prior in other.priors),
        )
        for other in rest.records[number:]
    ]
    knowledge.restore(
        (*rest.stored[:place], *posteriors, *rest.stored[place:]),
        (*rest.records[:number], record, *later),
        (*rest.moments[:number], moments, *rest.moments[number:]),
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
    measured = KnowledgeBase(knowledge.priors, knowledge.d, knowledge.continual)
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


def merge(a: IBCL, b: IBCL, approximation: str | None = None) -> IBCL:
    """Unite what two learners learnt apart from the same priors and network; a's tasks come first.

    Exact for tasks learnt apart (``continual=False``): one learner of all the tasks would know the
    same. Everything that does not concern the posteriors (seed, alpha, inference) is a's.

    Parameters
    ----------
    approximation
        ``"rebase"`` accepts, for chains, that b's posteriors are moved on top of a's last ones.

    Examples
    --------
    >>> import ibcl, torch
    >>> x = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    >>> def site(column, task):
    ...     learner = ibcl.IBCL(ibcl.networks.linear(2), priors=[3.0])
    ...     _ = learner.learn(x, x[:, column] > 0, task=task)
    ...     return learner
    >>> merge(site(0, "north"), site(1, "south")).tasks
    ('north', 'south')
    """
    _check_approximation(approximation)
    _check_mergeable(a, b, approximation)
    if not a.tasks or not b.tasks:
        source = a if a.tasks else b
        return _learner(a, b, source, copy.copy(source.knowledge))
    first, second = a.knowledge, b.knowledge
    chained = first.continual
    if chained and approximation is None:
        raise ValueError(
            f"The learners cannot be merged exactly: {second.records[0].name!r} and the tasks "
            "after it were not learnt from the other's posteriors; learn tasks apart "
            "(continual=False), or accept approximation='rebase', which moves them on top of "
            "those."
        )
    last = first.records[-1].posteriors if chained else (None,) * len(first.priors)
    onto = first.extremes(first.tasks[-1]) if chained else first.priors
    moved = second.stored
    if chained or not _same(first.priors, second.priors):
        moved = _rebase_all(
            [
                (posterior, second.priors[root], onto[root])
                for posterior, root in zip(moved, _roots(second), strict=True)
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
        )
        for record in second.records
    ]
    knowledge = KnowledgeBase(first.priors, first.d, first.continual)
    knowledge.restore(
        (*first.stored, *moved),
        (*first.records, *following),
        (*first.moments, *second.moments),
    )
    return _learner(a, b, a, knowledge)


def check_adoptable(a: IBCL, b: IBCL) -> None:
    """Refuse to add b's tasks to a as if learnt there, where a would have learnt them otherwise."""
    _check_learners(a, b)
    same = (
        a.network.fingerprint == b.network.fingerprint
        and a.inference == b.inference
        and a.likelihood == b.likelihood
        and _same(a.knowledge.priors, b.knowledge.priors)
        and _same_encoder(a, b)
    )
    apart = not a.knowledge.continual and not b.knowledge.continual
    told = a.task_incremental is not None or b.task_incremental is not None
    if not same or not apart or told:
        raise ValueError(
            "Only tasks learnt apart with the same network, priors, inference, likelihood and "
            "encoder, and without task ids, can be adopted; ibcl.merge unites other learners."
        )


def adopted(ours: KnowledgeBase, theirs: KnowledgeBase) -> KnowledgeBase:
    """Return what is known with another's tasks, learnt apart from the same priors, at the end."""
    knowledge = copy.copy(ours)
    for record, moments in zip(theirs.records, theirs.moments, strict=True):
        knowledge.add(
            record.name,
            theirs.extremes(record.name),
            samples=record.samples,
            updates=record.updates,
            moments=moments,
        )
    return knowledge


def _learner(a: IBCL, b: IBCL, source: IBCL, knowledge: KnowledgeBase) -> IBCL:
    """Return a learner that knows this, with a's settings as far as the source settled them."""
    pooling = source.view.pooling if isinstance(source.view.pooling, Routed) else source.pooling
    merged = IBCL(
        a.network.template,
        knowledge.priors if knowledge.records else a.given.priors,
        source.inference,
        pooling if source.pooling is not None else None,
        knowledge.d if knowledge.records else a.given.d,
        a.alpha,
        a.seed,
        likelihood=a.given.likelihood,
        continual=knowledge.continual if knowledge.records else a.given.continual,
        encoder=source.encoder,
    )
    if knowledge.records:
        merged.restore(knowledge, source.view.likelihood)
    merged.metadata = {**b.metadata, **a.metadata}
    merged.storage = a.storage
    return merged


def _roots(knowledge: KnowledgeBase) -> list[int]:
    """For each stored posterior, the index of the initial prior its chain began with."""
    roots: list[int] = []
    for record in knowledge.records:
        for index, (prior, pointer) in enumerate(zip(record.priors, record.pointers, strict=True)):
            if not pointer:
                roots.append(index if prior is None else roots[prior])
    return roots


def _same(ours: Sequence[Gaussian], theirs: Sequence[Gaussian]) -> bool:
    return len(ours) == len(theirs) and all(q.equal(p) for q, p in zip(ours, theirs, strict=True))


def _check_learners(*learners: IBCL) -> None:
    """Refuse what is no learner, such as the path of one."""
    for learner in learners:
        if not isinstance(learner, IBCL):
            raise ValueError(f"Only learners can be united, not {type(learner).__name__}.")


def _same_encoder(a: IBCL, b: IBCL) -> bool:
    """Whether both read inputs and classes alike."""
    ours, theirs = (
        None if learner.encoder is None else learner.encoder.description() for learner in (a, b)
    )
    return bool(ours == theirs)


def _check_mergeable(a: IBCL, b: IBCL, approximation: str | None) -> None:
    """Refuse learners whose posteriors do not mean the same, and say what differs."""
    _check_learners(a, b)
    if a.task_incremental is not None or b.task_incremental is not None:
        raise ValueError(
            "Learners that append a task id to their inputs cannot be merged: both have used the "
            "same ids."
        )
    if a.network.fingerprint != b.network.fingerprint:
        raise ValueError("The learners cannot be merged: their networks differ.")
    settings: dict[str, tuple[Any, Any]] = {
        f"metadata[{key!r}]": (a.metadata[key], b.metadata[key])
        for key in a.metadata.keys() & b.metadata.keys()
    }
    if not _same_encoder(a, b):
        raise ValueError(
            "The learners cannot be merged: they read their inputs or classes differently."
        )
    if a.tasks and b.tasks:
        ours, theirs = a.knowledge.priors, b.knowledge.priors
        movable = approximation is not None and len(ours) == len(theirs)
        if not _same(ours, theirs) and not movable:
            raise ValueError(
                "The learners cannot be merged exactly: their priors differ; make both with the "
                "same priors=, or accept approximation='rebase', which moves the second's "
                "evidence onto the first's priors."
            )
        settings |= {
            "likelihood": (a.likelihood, b.likelihood),
            "pooling": (a.view.pooling, b.view.pooling),
            "d": (a.knowledge.d, b.knowledge.d),
            "continual": (a.knowledge.continual, b.knowledge.continual),
        }
    for name, (ours, theirs) in settings.items():
        if ours != theirs:
            raise ValueError(
                f"The learners cannot be merged: their {name} differs ({ours!r} and {theirs!r})."
            )
    common = [task for task in a.tasks if task in b.tasks]
    if common:
        raise ValueError(f"The learners cannot be merged: both have learnt {', '.join(common)}.")
