"""Learning one task: a user's samples are read, and become posteriors and moments (Algorithm 1).

Nothing here changes a learner: what is found becomes known when the learner publishes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from ibcl.choices import Choices, Given, decide
from ibcl.gaussians import Gaussian
from ibcl.inference import InferenceResult, Progress
from ibcl.moments import Moments
from ibcl.networks import FlatNetwork
from ibcl.pooling import Routed
from ibcl.tasks import TaskData, as_task
from ibcl.view import View, append_task_id

log = logging.getLogger("ibcl")


def read(view: View, x: Any, y: Any, task: str, sample_weight: Any = None) -> TaskData:
    """Read a user's samples as the network's inputs and labels."""
    if view.encoder is not None:
        x, y = view.encoder.inputs(x), view.encoder.labels(y)
    data = as_task(x, y, sample_weight)
    tasks, device = view.knowledge.tasks, view.network.device
    names = tasks if task in tasks else (*tasks, task)
    inputs = append_task_id(data.x.to(device), task, names, view.task_incremental)
    return data._replace(x=inputs, y=data.y.to(device))


def settle(
    view: View, data: TaskData, given: Given, choices: Choices | None
) -> tuple[Choices, TaskData]:
    """Settle what is open, if this is the first task, and check the labels.

    Parameters
    ----------
    choices
        What the first task settled; None before it.
    """
    outputs = view.network.check_inputs(data.x)
    if choices is None:
        choices = decide(view.network, data, outputs, given)
        for setting, reason in choices.reasons.items():
            log.info("chose %s: %s", setting, reason)
    return choices, data._replace(y=choices.likelihood.check(data.y, outputs))


def infer(
    view: View,
    choices: Choices,
    priors: Sequence[Gaussian],
    data: TaskData,
    task: str,
    validation: Any = None,
    start_from_prior: bool = False,
    progress: Callable[[Progress], Any] | None = None,
) -> InferenceResult:
    """Return the posterior of each prior, stopped early on validation data where there are any."""
    held_out = None
    if validation is not None:
        pair = validation if isinstance(validation, tuple | list) else (validation, None)
        if len(pair) not in (2, 3):
            raise ValueError(
                "validation must be a pair (x, y), with sample weights as a third where there are "
                f"any, or a Dataset, not {len(pair)} values."
            )
        found = read(view, pair[0], pair[1], task, *pair[2:])
        outputs = view.network.check_inputs(found.x)
        held_out = found._replace(y=choices.likelihood.check(found.y, outputs))
    return choices.inference.infer(
        view.network,
        choices.likelihood,
        priors,
        data,
        validation=held_out,
        start_from_prior=start_from_prior,
        seed=view.seed,
        progress=progress,
    )


def moments_of(
    network: FlatNetwork,
    choices: Choices,
    data: TaskData,
    result: InferenceResult,
    before: Moments | None = None,
) -> Moments | None:
    """Take the moments a gate needs, of all batches so far, where the rule keeps them."""
    rule = choices.pooling
    if not isinstance(rule, Routed) or rule.gate == "evidence":
        return None
    features = network.features(data.x)
    if not rule.may_keep_moments(features.shape[1]):
        return None
    labels = data.y.long() if choices.likelihood.classification else None
    moments = Moments.of(features, labels, data.weights)
    if before is not None:
        moments = before + moments
    return moments if rule.keeps_moments(moments, result.posteriors, network) else None
