"""From what a learner knows to what it knows next: a task learnt, extended, replaced or adopted.

Every function takes a `State` and returns another one. Nothing here changes a learner, saves
anything or waits for a turn: that is `ibcl.learner.IBCL`'s, which publishes what is returned. The
steps that these are made of are in `ibcl.learning`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from typing import Any, NamedTuple

from ibcl.conformal import Calibration
from ibcl.encoding import same_encoder
from ibcl.experts import ExpertPart
from ibcl.gaussians import Gaussian
from ibcl.growth import grown_for
from ibcl.inference import InferenceResult, Progress
from ibcl.knowledge import (
    CommonPart,
    ForgettingWarning,
    KnowledgeBase,
    Parts,
    TaskRecord,
    adopted,
    replace_task,
    same_gaussians,
    scaled,
    separated,
)
from ibcl.knowledge import forget as forget_task
from ibcl.learning import (
    as_kept,
    calibrated,
    choose,
    fit_expert,
    infer,
    judged_further,
    moments_of,
    parts_of,
    prepare,
    set_aside,
)
from ibcl.likelihoods import Likelihood
from ibcl.routing import ClassDensities, Moments
from ibcl.state import State
from ibcl.tasks import TaskData


class Revised(NamedTuple):
    """What is known after a task was learnt, and the record of that task."""

    state: State
    record: TaskRecord


def next_name(tasks: tuple[str, ...]) -> str:
    """Return ``"task 1"``, ``"task 2"``, ..., the first one free.

    Examples
    --------
    >>> next_name(("task 1", "task 3"))
    'task 4'
    """
    number = len(tasks) + 1
    while f"task {number}" in tasks:
        number += 1
    return f"task {number}"


def learn(
    state: State,
    x: Any,
    y: Any,
    task: str,
    validation: Any = None,
    progress: Callable[[Progress], Any] | None = None,
    sample_weight: Any = None,
) -> Revised:
    """Learn a task that is new; see `IBCL.learn`."""
    prepared, data = prepare(grown_for(state, x, y), x, y, task, sample_weight)
    data, held = set_aside(prepared, data)
    return _added(prepared, data, task, held, None, validation, progress)


def add_adapter(
    state: State, task: str, folder: str | PathLike[str], moments_from: Any, y: Any = None
) -> Revised:
    """Add a task whose adapter was trained elsewhere; see `IBCL.add_adapter`."""
    from ibcl.adapters import bringing, with_head

    adapter, labels = bringing(state, folder, moments_from)
    prepared, data = prepare(state, moments_from, labels if y is None else y, task)
    held = None
    if y is not None:
        data, held = set_aside(prepared, data)
        adapter = with_head(adapter, prepared, data)
    return _added(prepared, data, task, held, ExpertPart(adapter, None))


def _added(
    state: State,
    data: TaskData,
    name: str,
    held: TaskData | None,
    expert: ExpertPart | None = None,
    validation: Any = None,
    progress: Callable[[Progress], Any] | None = None,
) -> Revised:
    """Learn a new task from data that are ready.

    Parameters
    ----------
    held
        Rows to calibrate it with.
    expert
        What answers for it; fitted on its data, where that is asked for, without one.
    """
    knowledge = copy.copy(state.knowledge)
    chained = not knowledge.independent and bool(knowledge.records)
    scale, noise, evidence = choose(state, data, chained)
    priors = knowledge.next_priors(scale)
    result = infer(state, priors, data, name, validation, chained, progress, noise, evidence)
    result = as_kept(state, result, priors)
    brought = (
        fit_expert(state, priors, data, name, result, noise)
        if expert is None
        else {ExpertPart.kind: expert}
    )
    record = knowledge.add(
        name,
        result.posteriors,
        samples=data.size,
        updates=result.updates,
        moments=moments_of(state, data, result),
        parts={**parts_of(state, data, result), **brought},
        scale=scale,
        noise=noise,
    )
    return Revised(calibrated(replace(state, knowledge=knowledge), name, held), record)


def extend(
    state: State,
    x: Any,
    y: Any,
    task: str,
    progress: Callable[[Progress], Any] | None = None,
    sample_weight: Any = None,
) -> Revised:
    """Learn another batch of a task; see `IBCL.extend`."""
    knowledge = state.knowledge
    before = knowledge.record(task)
    number = knowledge.tasks.index(task)
    held = knowledge.parts[number]
    if ExpertPart.kind in held:
        raise ValueError(
            f"Task {task!r} has an expert, which cannot take further batches; learn all "
            "its rows anew with replace."
        )
    state, data = prepare(state, x, y, task, sample_weight)
    known = held.get(Calibration.kind)
    earlier = known if isinstance(known, Calibration) else None
    data, aside = set_aside(state, data, earlier)
    priors = knowledge.extremes(task)
    result = infer(state, priors, data, task, None, True, progress, before.noise)
    result = as_kept(state, result, _priors_of(knowledge, task))
    record = replace(
        before, samples=before.samples + data.size, updates=before.updates + result.updates
    )
    kept = knowledge.moments[number]
    moments = None if kept is None else moments_of(state, data, result, kept)
    found = {
        **parts_of(state, data, result, held),
        **judged_further(state, data, task, result, held),
    }
    return _in_place(state, record, result, moments, found, aside, earlier)


def relearn(
    state: State,
    x: Any,
    y: Any,
    task: str,
    validation: Any = None,
    progress: Callable[[Progress], Any] | None = None,
    sample_weight: Any = None,
) -> Revised:
    """Learn a task anew, in its place; see `IBCL.replace`."""
    knowledge = state.knowledge
    record = knowledge.record(task)
    state, data = prepare(state, x, y, record.name, sample_weight)
    data, aside = set_aside(state, data)
    chained = any(prior is not None for prior in record.priors)
    scale, noise, evidence = choose(state, data, chained)
    priors = _priors_of(knowledge, record.name)
    if not chained:
        priors = tuple(scaled(prior, scale) for prior in knowledge.priors)
    result = infer(state, priors, data, record.name, validation, chained, progress, noise, evidence)
    result = as_kept(state, result, priors)
    anew = replace(record, samples=data.size, updates=result.updates, scale=scale, noise=noise)
    moments = moments_of(state, data, result)
    own = fit_expert(state, priors, data, record.name, result, noise)
    found = {**parts_of(state, data, result), **own}
    if knowledge.common:
        state = _without_sums(state, record.name)
    return _in_place(state, anew, result, moments, found, aside)


def _without_sums(state: State, task: str) -> State:
    """Return what is known with sums over all tasks but this one, as far as that can be known."""
    knowledge = copy.copy(state.knowledge)
    if len(knowledge.tasks) == 1:
        knowledge.common = {}
    else:
        _warn_of_sums(task)
    return replace(state, knowledge=knowledge)


def _priors_of(knowledge: KnowledgeBase, task: str) -> tuple[Gaussian, ...]:
    """Return the priors that a task was learnt from."""
    return tuple(knowledge.prior_of(task, index) for index in range(len(knowledge.priors)))


def _in_place(
    state: State,
    record: TaskRecord,
    result: InferenceResult,
    moments: Moments | None,
    parts: Parts,
    held: TaskData | None,
    earlier: Calibration | None = None,
) -> Revised:
    """Put what was learnt in the place of what the task of this record was.

    Parameters
    ----------
    held, earlier
        Rows to calibrate with, and what earlier batches are calibrated with.
    """
    knowledge = copy.copy(state.knowledge)
    record = replace_task(
        knowledge,
        record.name,
        result.posteriors,
        record.samples,
        record.updates,
        moments,
        parts,
        record.scale,
        record.noise,
    )
    known = replace(state, knowledge=knowledge)
    return Revised(calibrated(known, record.name, held, earlier), record)


def calibrate(state: State, task: str, x: Any, y: Any) -> State:
    """Calibrate a task with fresh samples, in place of those it had; see `IBCL.calibrate`."""
    state.knowledge.record(task)
    state, data = prepare(state, x, y, task)
    return calibrated(state, task, data)


def adopt(ours: State, theirs: State) -> State:
    """Add the independent tasks of another learner, as if learnt here; see `IBCL.adopt`."""
    same = (
        ours.network.fingerprint == theirs.network.fingerprint
        and ours.inference == theirs.inference
        and ours.settings.likelihood == theirs.settings.likelihood
        and same_gaussians(ours.knowledge.priors, theirs.knowledge.priors)
        and same_encoder(ours.encoder, theirs.encoder)
    )
    independent = ours.knowledge.independent and theirs.knowledge.independent
    told = any(state.given.task_incremental is not None for state in (ours, theirs))
    if not same or not independent or told:
        raise ValueError(
            "Only independent tasks with the same network, priors, inference, likelihood and "
            "encoder, and without task ids, can be adopted; ibcl.merge unites other learners."
        )
    return replace(ours, knowledge=adopted(ours.knowledge, theirs.knowledge))


def forgotten(
    state: State,
    task: str,
    approximation: str | None = None,
    x: Any = None,
    y: Any = None,
    sample_weight: Any = None,
) -> State:
    """Return what is known without a task; see `IBCL.forget`."""
    _check_forgettable(state, task)
    knowledge = copy.copy(state.knowledge)
    given = None if x is None else _shares_of(state, task, x, y, sample_weight)
    forget_task(knowledge, task, approximation, given)
    if given is None and knowledge.common:
        _warn_of_sums(task)
    return replace(state, knowledge=knowledge)


def _warn_of_sums(task: str) -> None:
    warnings.warn(
        f"The covariance that all tasks share (memory='shared') remains an average over what was "
        f"learnt of {task!r} and the others: nothing but the task's own rows can be taken out of "
        "it.",
        ForgettingWarning,
        stacklevel=4,
    )


def _shares_of(
    state: State, task: str, x: Any, y: Any, sample_weight: Any
) -> Mapping[str, CommonPart]:
    """Return what a task added to the sums over all tasks, from all the data it was learnt from."""
    knowledge = state.knowledge
    posteriors = knowledge.extremes(task)
    state, data = prepare(state, x, y, task, sample_weight)
    data, _ = set_aside(state, data)
    own, common = separated(parts_of(state, data, InferenceResult(posteriors, 0, ())))
    if not common:
        return common
    kept = knowledge.parts[knowledge.tasks.index(task)].get(ClassDensities.kind)
    again = own.get(ClassDensities.kind)
    assert isinstance(kept, ClassDensities)
    assert isinstance(again, ClassDensities)
    if not again.same_samples(kept):
        raise ValueError(
            f"These are not the rows that {task!r} was learnt from: their counts or means differ. "
            "Give all of them, in their order and with their sample weights, or forget the task "
            "without them."
        )
    return common


def _check_forgettable(state: State, task: str) -> None:
    """Refuse to forget a task whose successors have ids that would change."""
    if state.given.task_incremental is not None and task in state.tasks[:-1]:
        raise ValueError(
            f"Task {task!r} cannot be forgotten: the ids of the tasks after it, which "
            "inputs carry, would change; only the last task can be."
        )


def restored(
    state: State,
    knowledge: KnowledgeBase,
    likelihood: Likelihood,
    reasons: Mapping[str, str] | None = None,
) -> State:
    """Take over what was learnt elsewhere with the same settings; see `IBCL.restore`."""
    settled = replace(
        state.settings,
        priors=knowledge.priors,
        d=knowledge.d,
        independent=knowledge.independent,
        likelihood=likelihood,
    )
    kept = state.reasons if reasons is None else dict(reasons)
    return replace(state, knowledge=knowledge, settled=settled, reasons=kept)
