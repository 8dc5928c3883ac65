"""What every contender is given, and what it gives back."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

import ibcl
from ibcl.adapters import Adapter, LoRA
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask
from ibcl.experts import ExpertPart

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Taught:
    """A learner of all tasks, and its processor seconds per task."""

    learner: ibcl.IBCL
    seconds: float

    @property
    def adapters(self) -> list[Adapter]:
        """The adapters it has learnt, task by task."""
        found = []
        for parts in self.learner.knowledge.parts:
            part = parts[ExpertPart.kind]
            assert isinstance(part, ExpertPart)
            assert isinstance(part.fitted, Adapter)
            found.append(part.fitted)
        return found


@dataclass
class Scene:
    """What every contender is given; what several of them need is computed once.

    Parameters
    ----------
    base
        The model to read or to fine-tune.
    preferences
        One row each; a contender that must train for a preference answers the first `few` only.
    layers
        The depths that all but one contender read.
    last
        The last features, read as a depth.
    """

    base: nn.Module
    tasks: Sequence[BenchmarkTask]
    preferences: Matrix
    few: int
    expert: LoRA
    layers: Sequence[str] = ()
    last: Sequence[str] = ()

    @property
    def inputs(self) -> NDArray[np.float32]:
        """Test inputs of all tasks, one after another."""
        return np.concatenate([task.test.x for task in self.tasks])

    def learner(self, base: nn.Module, layers: Sequence[str], expert: LoRA | None) -> ibcl.IBCL:
        """Return a learner that has learnt nothing."""
        network = ibcl.networks.with_backbone(base, layers=layers, example=self.tasks[0].test.x[:1])
        return ibcl.IBCL(network, expert=expert)

    def taught(self, base: nn.Module, layers: Sequence[str], expert: LoRA | None) -> Taught:
        """Return a learner that has learnt all tasks."""
        learner = self.learner(base, layers, expert)
        begin = time.process_time()
        for task in self.tasks:
            learner.learn(task.train.x, task.train.y, task=task.name)
        return Taught(learner, (time.process_time() - begin) / len(self.tasks))

    @cached_property
    def adapted(self) -> Taught:
        """The learner with one adapter per task."""
        return self.taught(self.base, self.layers, self.expert)

    @cached_property
    def untaught(self) -> ibcl.IBCL:
        """A learner that reads as `adapted` does; features are the same before all tasks."""
        return self.learner(self.base, self.layers, self.expert)

    @cached_property
    def test_features(self) -> Tensor:
        """φ of the test inputs, with what adapters need."""
        return self.untaught.state.features(self.inputs)

    @cached_property
    def train_features(self) -> list[Tensor]:
        """φ of each task's training inputs, with what adapters need."""
        state = self.untaught.state
        return [state.features(task.train.x) for task in self.tasks]

    @cached_property
    def validation_features(self) -> list[Tensor]:
        """φ of each task's validation inputs, with what adapters need."""
        state = self.untaught.state
        return [state.features(task.validation.x) for task in self.tasks]


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
    adapted
        Adapted models that are run per prediction.
    gated
        Whether the frozen model is run beside them.
    per_preference
        Seconds of processor time to make a preference's model.
    settings
        What validation rows chose, where they chose something.
    """

    probabilities: NDArray[np.float32]
    seconds: float
    nbytes: float
    adapted: float
    per_preference: float = 0.0
    settings: str = ""
    gated: bool = False


Contender = Callable[[Scene], Outcome]
CONTENDERS: dict[str, Contender] = {}
"""All contenders, in the order of the table."""
DEAR: set[str] = set()
"""Those that train a model for each preference, or on all tasks' data."""


def contender(title: str, *, dear: bool = False) -> Callable[[Contender], Contender]:
    """Make a contender known by its title."""

    def add(run: Contender) -> Contender:
        CONTENDERS[title] = run
        if dear:
            DEAR.add(title)
        return run

    return add
