"""Heads and adapters behind the gate: a preference is K numbers."""

from __future__ import annotations

import numpy as np

from ibcl.experiments.adapters.contenders.scene import Outcome, Scene, Taught, contender


def behind_the_gate(scene: Scene, taught: Taught, adapted: float = 0.0) -> Outcome:
    """What a learner answers to all preferences."""
    found = taught.learner.predict_many(scene.inputs, scene.preferences)
    size = taught.learner.knowledge.nbytes / len(scene.tasks)
    return Outcome(found, taught.seconds, size, adapted, gated=True)


@contender("routed adapters")
def routed_adapters(scene: Scene) -> Outcome:
    """One LoRA per task behind the gate, those run that matter for a row."""
    learner = scene.adapted.learner
    run = [
        len(row)
        for preference in scene.preferences
        for row in learner.model(preference).routing_table(scene.inputs[::10])
    ]
    return behind_the_gate(scene, scene.adapted, float(np.mean(run)))


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
