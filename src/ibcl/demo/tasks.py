"""Five tasks on the digits inside scikit-learn, each asking whether a digit is even or odd."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ibcl.experiments.benchmarks import load
from ibcl.tasks import TaskData, as_task

PIXELS = 64
# Grey levels of the images, whose pixels the benchmark gives between 0 and 1.
LEVELS = 16


@dataclass(frozen=True)
class Scaling:
    """z = (x − centre) / scale: pixels around the average image of the first task."""

    centre: NDArray[np.float32]
    scale: float

    def __call__(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scale pixels, of shape (n, 64)."""
        return ((pixels - self.centre) / self.scale).astype(np.float32)


@dataclass(frozen=True)
class DigitTask:
    """One task: scaled pixels and labels, and the test images as they were."""

    name: str
    train: TaskData
    test: TaskData
    test_pixels: NDArray[np.float32]


@dataclass(frozen=True)
class DigitTasks:
    """All tasks in order, and the scaling that the first one fixed."""

    tasks: tuple[DigitTask, ...]
    scaling: Scaling

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(task.name for task in self.tasks)


def digit_tasks(seed: int) -> DigitTasks:
    """Load the tasks; what other experiments keep for validation is trained on as well.

    The scaling comes from the first task alone: later tasks' data is not there yet when it is
    needed.

    Examples
    --------
    >>> digits = digit_tasks(seed=0)
    >>> digits.names
    ('0-vs-1', '2-vs-3', '4-vs-5', '6-vs-7', '8-vs-9')
    >>> digits.tasks[0].train.size, digits.tasks[0].test.size
    (288, 72)
    """
    parts = load("digits", seed=seed).tasks
    pixels = [np.concatenate([part.train.x, part.validation.x]) for part in parts]
    centre = pixels[0].mean(0)
    scaling = Scaling(centre, float((pixels[0] - centre).std()))
    tasks = [
        DigitTask(
            part.name,
            as_task(scaling(x), np.concatenate([part.train.y, part.validation.y])),
            as_task(scaling(part.test.x), part.test.y),
            part.test.x,
        )
        for part, x in zip(parts, pixels, strict=True)
    ]
    return DigitTasks(tuple(tasks), scaling)
