"""Adapters merged into one for each preference: soup, and what stands in `merges`."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ibcl.adapters import Adapter, averaged
from ibcl.adapters.adapter import AdapterOnBase
from ibcl.experiments.adapters.contenders.scene import Outcome, Scene, contender
from ibcl.experiments.adapters.merges import MERGES, Change, Merge, as_adapter, change_of

# Of each task's training rows: what a merge learns of a task from.
_ROWS = 200


def _answers(scene: Scene, adapter: Adapter, features: Tensor) -> NDArray[np.float32]:
    model = folded(adapter.on(scene.untaught.network))
    found: NDArray[np.float32] = model.answers(features).numpy().astype(np.float32)
    return found


def folded(model: AdapterOnBase) -> AdapterOnBase:
    """Put an adapter's change into weights of its own, where it costs nothing to run.

    The changes of merges have full rank, and would take longer beside the weights than in them.
    """
    adapted = model.adapted
    for name in adapted.layers():
        layer: Any = adapted.frozen.backbone.get_submodule(name)
        # The base's weights are shared with all others.
        layer.base_layer.weight = nn.Parameter(layer.base_layer.weight.clone(), False)
        layer.merge()
    return model


@contender("soup")
def soup(scene: Scene) -> Outcome:
    """The preference's average of adapters and heads, as one model."""
    adapters = scene.adapted.adapters
    begin = time.process_time()
    merged = [averaged(adapters, list(row)) for row in scene.preferences]
    each = (time.process_time() - begin) / len(merged)
    found = np.stack([_answers(scene, adapter, scene.test_features) for adapter in merged])
    return Outcome(found, scene.adapted.seconds, _size(adapters), 1.0, each)


def merged(scene: Scene, merge: Merge) -> Outcome:
    """What a merge answers, with the settings that have the best validation accuracy.

    They are chosen once, at the equal preference.
    """
    adapters, tasks = scene.adapted.adapters, len(scene.tasks)
    changes, seconds = _changes(scene, merge)
    size = sum(each.nbytes for change in changes for each in change.knowledge.values()) / tasks
    scores = [_validated(scene, merge, changes, settings) for settings in merge.choices]
    chosen = merge.choices[int(np.argmax(scores))]
    answers, each = [], 0.0
    for row in scene.preferences:
        begin = time.process_time()
        adapter = as_adapter(merge.rule(changes, row.tolist(), **chosen), adapters[0])
        each += (time.process_time() - begin) / len(scene.preferences)
        answers.append(_answers(scene, adapter, scene.test_features))
    return Outcome(
        np.stack(answers),
        scene.adapted.seconds + seconds,
        _size(adapters) + size,
        1.0,
        each,
        json.dumps(chosen) if chosen else "",
    )


def _size(adapters: Sequence[Adapter]) -> float:
    return float(np.mean([len(adapter.encode()) for adapter in adapters]))


def _changes(scene: Scene, merge: Merge) -> tuple[list[Change], float]:
    """Every task's change with what the merge wants to know, and its seconds per task."""
    begin = time.process_time()
    changes = [change_of(adapter) for adapter in scene.adapted.adapters]
    if merge.learning is not None:
        network = scene.untaught.network
        changes = [
            replace(change, knowledge=merge.learning(adapter, network, features[:_ROWS]))
            for change, adapter, features in zip(
                changes, scene.adapted.adapters, scene.train_features, strict=True
            )
        ]
    return changes, (time.process_time() - begin) / len(changes)


def _validated(
    scene: Scene, merge: Merge, changes: Sequence[Change], settings: Mapping[str, Any]
) -> float:
    """Accuracy on all tasks' validation rows at the equal preference, tasks counting alike."""
    if len(merge.choices) == 1:
        return 1.0
    tasks = len(changes)
    change = merge.rule(changes, [1 / tasks] * tasks, **settings)
    adapter = as_adapter(change, scene.adapted.adapters[0])
    answers = _answers(scene, adapter, torch.cat(scene.validation_features))
    labels = np.concatenate([task.validation.y for task in scene.tasks])
    ends = np.cumsum([len(task.validation) for task in scene.tasks])[:-1]
    right = np.split(answers.argmax(1) == labels, ends)
    return float(np.mean([part.mean() for part in right]))


for _merge in MERGES.values():
    contender(_merge.title)(partial(merged, merge=_merge))
