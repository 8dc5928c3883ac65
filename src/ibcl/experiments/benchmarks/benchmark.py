"""What a benchmark is once its data has arrived: named tasks of features in three splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

Metric = Literal["accuracy", "balanced_accuracy"]
Part = Literal["train", "validation", "test"]

PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True)
class Split:
    """Features and labels of one part of a task.

    Tasks that share their inputs (all of CelebA's do) share one array ``x`` instead of copying it,
    so do not write into it.

    Parameters
    ----------
    x
        Features, float32, one row per example.
    y
        Labels, int64, one per example.

    Examples
    --------
    >>> split = Split(np.zeros((3, 2), np.float32), np.array([0, 1, 1]))
    >>> split
    Split(3 examples, 2 features)
    >>> split.classes
    (0, 1)
    """

    x: NDArray[np.float32]
    y: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.y)

    def __repr__(self) -> str:
        return f"Split({len(self)} examples, {self.x.shape[1]} features)"

    @property
    def classes(self) -> tuple[int, ...]:
        """Labels that occur, in order."""
        return tuple(np.unique(self.y).tolist())


@dataclass(frozen=True)
class BenchmarkTask:
    """One task: a name, and the examples to learn from, to choose by, and to report on."""

    name: str
    train: Split
    validation: Split
    test: Split

    def parts(self) -> Mapping[Part, Split]:
        """Return the three splits by name."""
        return {"train": self.train, "validation": self.validation, "test": self.test}


@dataclass(frozen=True)
class Provenance:
    """Where a benchmark's numbers come from, enough to tell two runs' data apart.

    Parameters
    ----------
    source
        The data: a hub id, a folder or a file.
    backbone
        Name of the feature extractor, or ``"none"`` where the data are numbers already.
    settings
        Everything that determines the features: the extractor's settings, its weights' hash, and
        the projection.
    seed
        Seed of the splits.
    sizes
        Number of examples of every task, by task and part.
    sha256
        Hash of all features, labels and splits.
    """

    source: str
    backbone: str
    settings: Mapping[str, Any]
    seed: int
    sizes: Mapping[str, Mapping[Part, int]]
    sha256: str


@dataclass(frozen=True)
class Benchmark:
    """Tasks in the order they arrive, and where they come from.

    Parameters
    ----------
    name
        Name of the benchmark.
    tasks
        Tasks in order of arrival.
    metric
        The metric to prefer: ``"balanced_accuracy"`` where the classes are so unequal that always
        answering with the larger one looks good.
    provenance
        Source, backbone, sizes and hash.
    """

    name: str
    tasks: tuple[BenchmarkTask, ...]
    metric: Metric = "accuracy"
    provenance: Provenance = field(repr=False, kw_only=True)

    def __len__(self) -> int:
        return len(self.tasks)

    def __iter__(self) -> Iterator[BenchmarkTask]:
        return iter(self.tasks)

    @property
    def task_names(self) -> tuple[str, ...]:
        """Names of the tasks in order of arrival."""
        return tuple(task.name for task in self.tasks)

    @property
    def features(self) -> int:
        """Width of the feature vectors."""
        return int(self.tasks[0].train.x.shape[1])
