"""Learning one task: a user's samples are read, and become posteriors and moments (Algorithm 1).

Nothing here changes a learner: what is found becomes known when the learner publishes it.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.conformal import Calibration, held_out
from ibcl.defaults import TaskChoice, as_priors, choose_for_task, settle
from ibcl.depths import choose_depths
from ibcl.encoding import CategoryReader, Encoder
from ibcl.experts import (
    BOOSTING_AGAINST,
    SMALLEST_SHARE,
    Auto,
    Expert,
    ExpertPart,
    Judgement,
    Judges,
    columns_read,
    folded,
    has_leave_one_out,
    leave_one_out,
    own_experts,
    thinned,
)
from ibcl.gaussians import Gaussian
from ibcl.inference import InferenceResult, Progress
from ibcl.inference.sites import Natural
from ibcl.knowledge import KnowledgeBase, Part, Parts
from ibcl.likelihoods import LIKELIHOODS, Likelihood
from ibcl.networks import FlatNetwork
from ibcl.pooling import PoolingRule, pooling_rule
from ibcl.routing import Moments
from ibcl.settings import Settings
from ibcl.state import State
from ibcl.task_scores import TaskScore
from ibcl.tasks import TaskData, append_task_id, as_task

log = logging.getLogger("ibcl")


def read(state: State, x: Any, y: Any, task: str, sample_weight: Any = None) -> TaskData:
    """Read a user's samples as features φ(x), computed once, and labels."""
    data = _read_inputs(state, x, y, task, sample_weight)
    return data._replace(x=state.network.features(data.x))


def _read_inputs(state: State, x: Any, y: Any, task: str, sample_weight: Any) -> TaskData:
    """Read a user's samples as the network's inputs, and labels."""
    if state.encoder is not None:
        x, y = state.encoder.inputs(x), state.encoder.labels(y)
    data = as_task(x, y, sample_weight)
    network, tasks = state.network, state.tasks
    names = tasks if task in tasks else (*tasks, task)
    told = state.settings.task_incremental
    inputs = append_task_id(data.x.to(network.device), task, names, told)
    network.check_width(inputs)
    return data._replace(x=inputs, y=data.y.to(network.device))


def prepare(
    state: State, x: Any, y: Any, task: str, sample_weight: Any = None
) -> tuple[State, TaskData]:
    """Read samples, settle what is open if this is the first task, and check the labels."""
    data = _read_inputs(state, x, y, task, sample_weight)
    depths: dict[str, str] = {}
    if state.settled is None and state.network.has_open_layers:
        network, depths["layers"] = choose_depths(state.network, data, state.given.likelihood)
        state = replace(state, network=network)
    data = data._replace(x=state.network.features(data.x))
    head = state.network.head
    outputs = head.output_count(data.x)
    if state.settled is None:
        settled, reasons = settle(head, data, outputs, state.given)
        reasons = {**reasons, **depths}
        for setting, reason in reasons.items():
            log.info("chose %s: %s", setting, reason)
        state = replace(state, settled=settled, reasons=reasons)
    if not state.learnt:
        state = replace(state, knowledge=empty_knowledge(state.settings, head))
    return state, _checked(state, data, outputs)


def _checked(state: State, data: TaskData, outputs: int) -> TaskData:
    return data._replace(y=state.likelihood_of_noise(None).check(data.y, outputs))


def choose(state: State, data: TaskData, chained: bool) -> TaskChoice:
    """Choose what a task's own data say, where it was left open.

    Parameters
    ----------
    chained
        Whether the task is learnt from another one's posteriors, and not from the priors.
    """
    return choose_for_task(state.network.head, data, state.given, state.settings, chained)


def set_aside(
    state: State, data: TaskData, before: Calibration | None = None
) -> tuple[TaskData, TaskData | None]:
    """Hold rows to calibrate with out of a task's data; None where none are asked for.

    Parameters
    ----------
    before
        What the task's earlier batches are calibrated with. A number of rows is that of all batches
        together.
    """
    settings = state.settings
    wanted = settings.calibration
    if wanted is None:
        return data, None
    if data.y.ndim > 1 and data.y.shape[1] > 1:
        raise ValueError("Calibration rows need one answer each, not several values.")
    if wanted >= 1 and before is not None and settings.calibration_rows == "kept":
        wanted = max(0, wanted - before.n)
        if wanted == 0:
            return data, None
    learnt, kept = held_out(data.size, wanted, settings.seed)
    weights = None if data.weights is None else data.weights[learnt]
    return TaskData(data.x[learnt], data.y[learnt], weights), TaskData(data.x[kept], data.y[kept])


def calibrated(
    state: State, task: str, held: TaskData | None, before: Calibration | None = None
) -> State:
    """Return what is known with these rows, or their scores, to calibrate a task with.

    Parameters
    ----------
    held
        Rows that nothing was learnt from; None leaves the task as it is.
    before
        What its earlier batches are calibrated with. Rows are kept; scores are not, since the
        task's score has changed with the batch.
    """
    if held is None:
        found = before
    elif state.settings.calibration_rows == "kept":
        found = _calibration_rows(state, held)
        found = found if before is None or before.rows != "kept" else before + found
    else:
        score = TaskScore(state.only(task))
        rows = _calibration_rows(state, held)
        features = rows.kept().to(state.network.device)
        scores = score.at(features, rows.tensors()["answers"])
        found = Calibration.of_scores(torch.as_tensor(scores), score.fingerprint)
    if found is None:
        return state
    knowledge = copy.copy(state.knowledge)
    number = knowledge.tasks.index(task)
    parts: list[Parts] = [*knowledge.parts]
    parts[number] = {**parts[number], Calibration.kind: found}
    knowledge.parts = tuple(parts)
    return replace(state, knowledge=knowledge)


def _calibration_rows(state: State, held: TaskData) -> Calibration:
    """Return rows with their answers: class numbers, or values."""
    classification = state.likelihood_of_noise(None).classification
    answers = held.y.long() if classification else held.y.reshape(held.size).double()
    kept = state.network.without_state(held.x).cpu()
    return Calibration.of_rows(kept, answers.cpu(), state.network.tokens_from)


def initial_state(
    network: nn.Module,
    given: Settings,
    encoder: Encoder | None,
    device: str | torch.device | None,
) -> State:
    """Return the state of a learner that has learnt nothing, or refuse what it is to be made of."""
    if encoder is not None and not isinstance(encoder, Encoder):
        raise ValueError(
            f"encoder must be one such as ibcl.tabular.Schema, not {type(encoder).__name__}."
        )
    if given.pooling is not None:
        pooling_rule(given.pooling)
    likelihood = given.likelihood
    named = isinstance(likelihood, str) and (likelihood == "auto" or likelihood in LIKELIHOODS)
    if not named and not isinstance(likelihood, Likelihood):
        raise ValueError(
            f"likelihood must be 'auto' or one of {', '.join(LIKELIHOODS)}, not {likelihood!r}."
        )
    if given.expert is not None and isinstance(network, nn.Module):
        network = given.expert.network(network)
    flat = FlatNetwork(network, device)
    return State(flat, empty_knowledge(given, flat), given, encoder=encoder)


def empty_knowledge(settings: Settings, network: FlatNetwork) -> KnowledgeBase:
    """Return a knowledge base of no tasks; what is open is settled with the first."""
    priors = as_priors(settings.priors or (1.0,), network)
    return KnowledgeBase(
        priors,
        settings.d or 0.0,
        independent=bool(settings.independent),
        distance=settings.distance,
    )


def infer(
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    task: str,
    validation: Any = None,
    start_from_prior: bool = False,
    progress: Callable[[Progress], Any] | None = None,
    noise: float | None = None,
    evidence: Sequence[Natural] | None = None,
) -> InferenceResult:
    """Return the posterior of each prior, stopped early on validation data where there are any.

    Parameters
    ----------
    noise
        Of the task's own, for a regression whose noise was left open.
    evidence
        About what the task adds to a prior, where the choice of the prior came to know it.
    """
    held_out = None
    head, settings = state.network.head, state.settings
    if validation is not None:
        pair = validation if isinstance(validation, tuple | list) else (validation, None)
        if len(pair) not in (2, 3):
            raise ValueError(
                "validation must be a pair (x, y), with sample weights as a third where there are "
                f"any, or a Dataset, not {len(pair)} values."
            )
        found = read(state, pair[0], pair[1], task, *pair[2:])
        held_out = _checked(state, found, head.output_count(found.x))
    assert settings.inference is not None
    # Only what has closed forms is chosen a prior by its evidence.
    known = {} if evidence is None else {"evidence": evidence}
    return settings.inference.infer(
        head,
        state.likelihood_of_noise(noise),
        priors,
        data,
        validation=held_out,
        start_from_prior=start_from_prior,
        seed=settings.seed,
        progress=progress,
        **known,
    )


def as_kept(state: State, result: InferenceResult, priors: Sequence[Gaussian]) -> InferenceResult:
    """Return posteriors learnt from these priors in the form the pooling rule keeps them in."""
    rule = state.rule
    assert rule is not None
    pairs = zip(result.posteriors, priors, strict=True)
    kept = tuple(rule.keep(posterior, prior) for posterior, prior in pairs)
    return replace(result, posteriors=kept)


def moments_of(
    state: State, data: TaskData, result: InferenceResult, before: Moments | None = None
) -> Moments | None:
    """Take the moments that the pooling rule keeps with a task, of all its batches so far."""
    rule, labels = _rule_and_labels(state, data)
    features, posteriors = state.network.head.features(data.x), result.posteriors
    return rule.moments(features, labels, data.weights, posteriors, state.network, before)


def parts_of(
    state: State, data: TaskData, result: InferenceResult, before: Parts | None = None
) -> Parts:
    """Take what else the pooling rule keeps with a task, of all its batches so far."""
    rule, labels = _rule_and_labels(state, data)
    features, posteriors = state.network.head.features(data.x), result.posteriors
    return rule.parts(features, labels, data.weights, posteriors, state.network, before)


def _rule_and_labels(state: State, data: TaskData) -> tuple[PoolingRule, Tensor | None]:
    rule = state.rule
    assert rule is not None
    classification = state.likelihood_of_noise(None).classification
    return rule, data.y.long() if classification else None


# Rows below which a task's held-out part says too little to share by.
_FEWEST_TO_SHARE = 100


def fit_expert(
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    task: str,
    result: InferenceResult,
    noise: float | None = None,
) -> dict[str, Part]:
    """Fit the expert of a task, where it is to have one; a task of one class has its head.

    Parameters
    ----------
    priors, result
        What the task's head was learnt from, and what was learnt.
    noise
        Of the task's own likelihood, where it is a regression's.
    """
    expert = state.settings.expert
    if expert is None:
        return {}
    likelihood = state.likelihood_of_noise(noise)
    classes = None
    if likelihood.classification:
        classes = likelihood.columns(state.network.head.output_count(data.x))
        if len(torch.unique(data.y)) < 2:
            return {}
    seed = int(state.settings.seed)
    if expert.reads_inputs:
        share = expert.share
        if share is None:
            share = _share_of(expert, state, priors, data, task, classes, noise)
        if share < SMALLEST_SHARE:
            return {}
        fitted = expert.fit_on(state.network, data, classes, seed)
        return {ExpertPart.kind: ExpertPart(fitted, None, share)}
    columns = columns_read(state.network, data.x)
    rows = data._replace(x=data.x.flatten(1)[:, :columns])
    if isinstance(expert, Auto):
        return _beside(expert, state, priors, data, rows, task, result, classes, noise)
    fitted = expert.fit_on(state.network, rows, classes, seed)
    return {ExpertPart.kind: ExpertPart(fitted, columns)}


def _beside(
    auto: Auto,
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    inputs: TaskData,
    task: str,
    result: InferenceResult,
    classes: int | None,
    noise: float | None,
) -> dict[str, Part]:
    """Fit an expert beside a task's head, and find who answers for it by rows they did not learn.

    Of most heads it is known without learning them again what they would answer to a row that
    they had not learnt, so that all rows judge; otherwise those that the expert has not learnt.

    Parameters
    ----------
    data, inputs
        The task as its head and as experts read it.
    """
    seed, columns = int(state.settings.seed), inputs.x.shape[1]
    encoder = state.encoder
    groups = encoder.category_inputs if isinstance(encoder, CategoryReader) else ()
    rows = inputs._replace(x=folded(inputs.x, groups))
    learnt, kept = _split(auto, data, seed, classes)
    trial = None
    if len(kept):
        trial = auto.trial(_part(rows, learnt), _part(rows, kept), classes, seed)
    judges = _judges(state, priors, data, learnt, kept, task, result, noise)
    if judges is None:
        return {}
    found: dict[str, Part] = {}
    own = None
    if trial is not None:
        answers = trial.answers[thinned(np.arange(len(kept)))]
        share = judges.share(answers, BOOSTING_AGAINST)
        log.info("share of boosting in %s: %.2f, with %d trees", task, share, trial.trees)
        if share >= SMALLEST_SHARE:
            fitted, own = auto.boosted(rows, classes, seed, trial.trees), answers
            found[ExpertPart.kind] = ExpertPart(fitted, columns, share, groups)
    judgement = judges.judgement(_answers_of_others(state, task, judges.data.x), own)
    return found if judgement is None else {**found, Judgement.kind: judgement}


def _split(
    auto: Auto, data: TaskData, seed: int, classes: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that a trial of boosting learns, and those held out; none of few rows."""
    if data.size >= _FEWEST_TO_SHARE:
        learnt, kept = held_out(data.size, auto.held_out, abs(seed) % 2**32)
        if classes is None or len(torch.unique(data.y[learnt])) > 1:
            return learnt, kept
    return np.arange(data.size), np.arange(0)


def _judges(
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    learnt: NDArray[np.int64],
    kept: NDArray[np.int64],
    task: str,
    result: InferenceResult,
    noise: float | None,
) -> Judges | None:
    """Return rows with what the head answers to each without it; None where that is not known.

    Of most heads it is known without learning them again, so that all rows judge; otherwise the
    head learns those that are not held out.

    Parameters
    ----------
    learnt, kept
        Which rows a trial of boosting has learnt, and which it has not.
    """
    likelihood, network = state.likelihood_of_noise(noise), state.network.head
    if has_leave_one_out(network, likelihood) and len(result.posteriors) == 1:
        every = leave_one_out(network, likelihood, result.posteriors[0], data)
        rows = np.concatenate([thinned(kept), thinned(learnt)])
        return Judges(likelihood, _part(data, rows), every[rows])
    if not len(kept):
        return None
    judging = _part(data, thinned(kept))
    head = _head_answers(state, priors, _part(data, learnt), task, noise, judging.x)
    return Judges(likelihood, judging, head)


def _answers_of_others(state: State, task: str, features: Tensor) -> dict[str, Tensor]:
    """Return what the experts of all other tasks answer, by the tasks' names."""
    known = own_experts(state.knowledge, state.network)
    return {
        other: expert.answers(features)
        for other, expert in known.items()
        if other != task and not expert.costly
    }


def judged_further(
    state: State, data: TaskData, task: str, result: InferenceResult, before: Parts
) -> dict[str, Part]:
    """Return what a task's rows say of other tasks' experts, after another batch of it.

    Parameters
    ----------
    before
        What the task has kept so far.
    """
    known = before.get(Judgement.kind)
    if not isinstance(known, Judgement):
        return {}
    likelihood = state.likelihood_of_noise(state.knowledge.record(task).noise)
    network = state.network.head
    if not has_leave_one_out(network, likelihood) or len(result.posteriors) > 1:
        return {Judgement.kind: known}
    rows = thinned(np.arange(data.size))
    head = leave_one_out(network, likelihood, result.posteriors[0], data)[rows]
    judging = _part(data, rows)
    answers = _answers_of_others(state, task, judging.x)
    others = {other: answers[other] for other in known.tasks}
    further = Judges(likelihood, judging, head).judgement(others)
    assert further is not None
    return {Judgement.kind: known.plus(further)}


# Of a task's rows: those that say how much of the answer is an expert's.
_HELD_OUT = 0.25
# Of an expert, where no rows can say it: the mean before any are seen.
_SHARE_BEFORE = 0.25


def _share_of(
    expert: Expert,
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    task: str,
    classes: int | None,
    noise: float | None,
) -> float:
    """Return how much of a task's answer is its expert's, from rows that neither learnt."""
    seed = int(state.settings.seed)
    learnt, kept = (_part(data, part) for part in held_out(data.size, _HELD_OUT, abs(seed) % 2**32))
    if classes is not None and len(torch.unique(learnt.y)) < 2:
        return _SHARE_BEFORE
    trial = expert.fit_on(state.network, learnt, classes, seed).on(state.network)
    head = _head_answers(state, priors, learnt, task, noise, kept.x)
    share = Judges(state.likelihood_of_noise(noise), kept, head).share(trial.answers(kept.x))
    log.info("share of the %s in %s: %.2f", expert.name, task, share)
    return share


def _part(data: TaskData, rows: Any) -> TaskData:
    weights = None if data.weights is None else data.weights[rows]
    return TaskData(data.x[rows], data.y[rows], weights)


def _head_answers(
    state: State,
    priors: Sequence[Gaussian],
    data: TaskData,
    task: str,
    noise: float | None,
    features: Tensor,
) -> Tensor:
    """Return what a task would answer without an expert, had it these data: (n, columns)."""
    result = as_kept(state, infer(state, priors, data, task, noise=noise), priors)
    alone = empty_knowledge(state.settings, state.network.head)
    alone.add(
        task,
        result.posteriors,
        samples=data.size,
        updates=result.updates,
        moments=moments_of(state, data, result),
        parts=parts_of(state, data, result),
        noise=noise,
    )
    rule = state.rule
    assert rule is not None
    predictives = rule.predictives(alone, state.network, state.likelihood_of_noise(noise))
    return predictives.at(torch.ones(1, dtype=torch.float64)).means(features)[0]
