"""Heads and adapters behind the gate: a preference is K numbers."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np

import ibcl
from ibcl.experiments.adapters.contenders.scene import Outcome, Scene, Taught, contender
from ibcl.experts import ExpertPart
from ibcl.pooling import RoutedEvidence


def behind_the_gate(scene: Scene, taught: Taught, adapted: float = 0.0) -> Outcome:
    """What a learner answers to all preferences."""
    found = taught.learner.predict_many(scene.inputs, scene.preferences)
    size = taught.learner.knowledge.nbytes / len(scene.tasks)
    return Outcome(found, taught.seconds, size, adapted, gated=True)


def _run(scene: Scene, learner: ibcl.IBCL) -> float:
    """How many adapters are run for a row, on average."""
    rule = learner.state.rule
    assert isinstance(rule, RoutedEvidence)
    run = [
        len(row)
        for preference in scene.preferences
        for row in learner.model(preference).routing_table(scene.inputs[::10], rule.tolerance)
    ]
    return float(np.mean(run))


@contender("routed adapters")
def routed_adapters(scene: Scene) -> Outcome:
    """One LoRA per task beside its head, behind the gate; those run that matter for a row."""
    learner = scene.adapted.learner
    outcome = behind_the_gate(scene, scene.adapted, _run(scene, learner))
    parts = (parts[ExpertPart.kind] for parts in learner.knowledge.parts)
    shares = [round(part.share, 2) for part in parts if isinstance(part, ExpertPart)]
    return replace(outcome, settings=json.dumps({"shares": shares}))


@contender("routed adapters, no heads beside them")
def adapters_alone(scene: Scene) -> Outcome:
    """The same adapters as all of their tasks' answers."""
    state = scene.adapted.learner.state
    knowledge = copy.copy(state.knowledge)
    knowledge.parts = tuple(
        {
            kind: replace(part, share=1.0) if isinstance(part, ExpertPart) else part
            for kind, part in parts.items()
        }
        for parts in state.knowledge.parts
    )
    learner = ibcl.IBCL.from_state(replace(state, knowledge=knowledge))
    taught = replace(scene.adapted, learner=learner)
    return behind_the_gate(scene, taught, _run(scene, learner))


@contender("routed adapters, only the top one")
def top_adapter(scene: Scene) -> Outcome:
    """The adapter with a row's largest share alone, as servers of adapters run it."""
    learner = scene.adapted.learner
    each = learner.predict_many(scene.inputs, np.eye(len(scene.tasks)))
    rows = np.arange(each.shape[1])
    found = np.stack(
        [
            each[np.asarray(learner.model(preference).routing(scene.inputs)).argmax(1), rows]
            for preference in scene.preferences
        ]
    )
    size = learner.knowledge.nbytes / len(scene.tasks)
    return Outcome(found, scene.adapted.seconds, size, 1.0, gated=True)


@contender("routed heads, inner depths")
def several_depths(scene: Scene) -> Outcome:
    """Heads on inner depths."""
    return behind_the_gate(scene, scene.taught(scene.base, scene.layers, None))


@contender("routed heads, last features")
def last_features(scene: Scene) -> Outcome:
    """Heads on the frozen model's output."""
    return behind_the_gate(scene, scene.taught(scene.base, scene.last, None))
