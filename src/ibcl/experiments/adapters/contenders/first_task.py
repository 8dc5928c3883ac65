"""First-task adaptation: fine-tune on the first task, then freeze (RanPAC's way)."""

from __future__ import annotations

import copy
from dataclasses import replace

from ibcl.experiments.adapters.contenders.routed import behind_the_gate
from ibcl.experiments.adapters.contenders.scene import Outcome, Scene, contender


@contender("routed heads, base adapted on the first task")
def first_task(scene: Scene) -> Outcome:
    """Heads on depths of the base with the first task's LoRA merged into it for good."""
    adapter = scene.adapted.adapters[0]
    # The base's weights are shared: a copy is changed.
    adapted = copy.deepcopy(adapter.on(scene.untaught.network).adapted.peft)
    taught = scene.taught(adapted.merge_and_unload(), scene.layers, None)
    found = behind_the_gate(scene, taught)
    tasks = len(scene.tasks)
    return replace(
        found,
        seconds=found.seconds + scene.adapted.seconds / tasks,
        nbytes=found.nbytes + len(adapter.encode()) / tasks,
    )
