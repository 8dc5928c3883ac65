"""Who is compared: heads and adapters behind the gate, one merged adapter, and retraining."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import ibcl
from ibcl.adapters import Adapter, LoRA, averaged
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask
from ibcl.experts import ExpertPart
from ibcl.tasks import TaskData

Matrix = NDArray[np.float64]


@dataclass
class Scene:
    """What every contender is given.

    Parameters
    ----------
    base
        The model to read or to fine-tune.
    layers
        The depths that `ibcl.depths` chose on the first task.
    preferences
        One row each; a contender that must train for a preference answers the first `few` only.
    """

    base: nn.Module
    tasks: Sequence[BenchmarkTask]
    preferences: Matrix
    few: int
    expert: LoRA
    layers: Sequence[str] = ()
    shared: dict[str, Any] = field(default_factory=dict)

    @property
    def inputs(self) -> NDArray[np.float32]:
        """Test inputs of all tasks, one after another."""
        return np.concatenate([task.test.x for task in self.tasks])


@dataclass(frozen=True)
class Outcome:
    """What a contender answered, and what that cost.

    Parameters
    ----------
    probabilities
        Shape (preferences answered, rows, classes).
    seconds
        Of processor time per task, for learning.
    nbytes
        Kept per task.
    passes
        Adapted passes through the base per prediction, beside the frozen one where there is a gate.
    per_preference
        Seconds of processor time to make a preference's model.
    """

    probabilities: NDArray[np.float32]
    seconds: float
    nbytes: float
    passes: float
    per_preference: float = 0.0


Contender = Callable[[Scene], Outcome]
CONTENDERS: dict[str, Contender] = {}
"""All contenders, in the order of the table."""


def contender(title: str) -> Callable[[Contender], Contender]:
    """Make a contender known by its title."""

    def add(run: Contender) -> Contender:
        CONTENDERS[title] = run
        return run

    return add


def _taught(scene: Scene, layers: Sequence[str], expert: LoRA | None) -> tuple[ibcl.IBCL, float]:
    """Return a learner of all tasks, and its seconds per task."""
    network = ibcl.networks.with_backbone(scene.base, layers=layers)
    learner = ibcl.IBCL(network, expert=expert)
    begin = time.process_time()
    for task in scene.tasks:
        learner.learn(task.train.x, task.train.y, task=task.name)
    return learner, (time.process_time() - begin) / len(scene.tasks)


def _behind_the_gate(scene: Scene, layers: Sequence[str], expert: LoRA | None) -> Outcome:
    learner, seconds = _taught(scene, layers, expert)
    found = learner.predict_many(scene.inputs, scene.preferences)
    passes = 0.0
    if expert is not None:
        scene.shared["learner"] = learner
        tables = [
            row
            for preference in scene.preferences
            for row in learner.model(preference).routing_table(scene.inputs[::10])
        ]
        passes = float(np.mean([len(row) for row in tables]))
    return Outcome(found, seconds, learner.knowledge.nbytes / len(scene.tasks), passes)


@contender("routed heads, last features")
def last_features(scene: Scene) -> Outcome:
    """Heads on the frozen model's output."""
    return _behind_the_gate(scene, (), None)


@contender("routed heads, several depths")
def several_depths(scene: Scene) -> Outcome:
    """Heads on depths that the first task chose."""
    return _behind_the_gate(scene, scene.layers, None)


@contender("routed adapters")
def routed_adapters(scene: Scene) -> Outcome:
    """One LoRA per task behind the gate."""
    return _behind_the_gate(scene, scene.layers, scene.expert)


def _adapters(scene: Scene) -> tuple[ibcl.IBCL, list[Adapter]]:
    """Return the learner of `routed_adapters`, and the adapters it has learnt."""
    if "learner" not in scene.shared:
        scene.shared["learner"] = _taught(scene, scene.layers, scene.expert)[0]
    learner: ibcl.IBCL = scene.shared["learner"]
    found = []
    for parts in learner.knowledge.parts:
        part = parts[ExpertPart.kind]
        assert isinstance(part, ExpertPart)
        assert isinstance(part.fitted, Adapter)
        found.append(part.fitted)
    return learner, found


def _features(scene: Scene, learner: ibcl.IBCL) -> Tensor:
    if "features" not in scene.shared:
        scene.shared["features"] = learner.state.features(scene.inputs)
    found: Tensor = scene.shared["features"]
    return found


@contender("soup of the adapters")
def soup(scene: Scene) -> Outcome:
    """The preference's average of adapters and heads, as one model."""
    learner, adapters = _adapters(scene)
    features, answers = _features(scene, learner), []
    begin = time.process_time()
    merged = [averaged(adapters, list(row)) for row in scene.preferences[: scene.few]]
    each = (time.process_time() - begin) / scene.few
    answers = [adapter.on(learner.network).answers(features).numpy() for adapter in merged]
    size = np.mean([len(adapter.encode()) for adapter in adapters])
    return Outcome(np.stack(answers).astype(np.float32), float("nan"), float(size), 1.0, each)


def _all_data(scene: Scene, learner: ibcl.IBCL, shares: Mapping[str, float]) -> TaskData:
    """All tasks' training data, each task weighted to its share."""
    rows, labels, weights = [], [], []
    for task in scene.tasks:
        if shares[task.name] > 0:
            rows.append(learner.state.features(task.train.x))
            labels.append(torch.as_tensor(task.train.y))
            weights.append(torch.full((len(task.train),), shares[task.name] / len(task.train)))
    return TaskData(torch.cat(rows), torch.cat(labels), torch.cat(weights))


def _retrained(scene: Scene, preferences: Matrix) -> Outcome:
    learner, _ = _adapters(scene)
    features, answers, seconds = _features(scene, learner), [], []
    for row in preferences:
        begin = time.process_time()
        data = _all_data(scene, learner, dict(zip(learner.tasks, row, strict=True)))
        adapter = scene.expert.fit_on(learner.network, data, 2, learner.seed)
        seconds.append(time.process_time() - begin)
        answers.append(adapter.on(learner.network).answers(features).numpy())
    found = np.stack(answers).astype(np.float32)
    return Outcome(found, float("nan"), len(adapter.encode()), 1.0, float(np.mean(seconds)))


@contender("LoRA on all data, one for all preferences")
def once(scene: Scene) -> Outcome:
    """One LoRA on all tasks' data at once, which knows no preference."""
    tasks = len(scene.tasks)
    found = _retrained(scene, np.full((1, tasks), 1 / tasks))
    repeated = found.probabilities.repeat(len(scene.preferences), 0)
    return Outcome(repeated, float("nan"), found.nbytes, 1.0, 0.0)


@contender("LoRA retrained on all data per preference")
def retrained(scene: Scene) -> Outcome:
    """One LoRA per preference, on all tasks' data weighted by it."""
    return _retrained(scene, scene.preferences[: scene.few])
