"""Labelled rows to measure models on, kept in the service's folder with one table per task.

The service needs no data to answer; who wants to see how good a model is on every task gives such
rows when starting it (``--validation task=table.csv``), and they are there from then on.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.predictive import Answers
from ibcl.serve.errors import ApiError
from ibcl.serve.logs import report
from ibcl.serve.served import Numbers, Served
from ibcl.serve.settings import Settings
from ibcl.tabular import read_csv

LABEL = "(label)"
LARGEST_TABLE = 400
"""Rows of a task that models are measured on; a random sample of more, fewer for many tasks."""
EXAMPLES, MOST_EXAMPLES = 4, 20
"""Rows of a task that the explorer shows, and of all tasks."""
FRONT_STEPS = 21
_ENDING = ".parquet"
_LONGEST_NAME = 240
"""Bytes of a file's name that every file system takes, with its ending."""


@dataclass(frozen=True)
class Measured:
    """The validation rows of one version, ready to be predicted."""

    tasks: tuple[str, ...]
    """Those with rows, in order of learning."""
    answers: Answers
    labels: NDArray[Any]
    ends: tuple[int, ...]
    frames: tuple[pd.DataFrame, ...]

    def by_task(self, values: NDArray[Any]) -> list[NDArray[Any]]:
        """Split an array with one entry per row."""
        return np.split(values, self.ends[:-1])


class Validation:
    """All validation rows of a service.

    Parameters
    ----------
    served
        The version that new tables of its tasks must fit; tables of other tasks wait for them.
    """

    def __init__(self, settings: Settings, served: Served) -> None:
        self._folder = settings.folder / "validation"
        self._largest = settings.largest_request
        self._lock = threading.Lock()
        self._measured: dict[str, tuple[Any, Measured | None]] = {}
        frames = {
            task: _labelled(task, _read(path), settings.label)
            for task, path in settings.validation.items()
        }
        for task, frame in frames.items():
            if task in served.tasks:
                try:
                    _encoded(served, frame)
                except (ApiError, ValueError) as error:
                    sentence = f"The validation rows of {task!r} do not fit: {error}"
                    raise ValueError(sentence) from None
        for task, frame in frames.items():
            keep(settings, task, frame, LABEL)

    def measured(self, served: Served) -> Measured | None:
        """Return the rows of a version's tasks, None where there are none."""
        there = {path.name: path for path in self._folder.glob(f"*{_ENDING}")}
        names = {task: _file_name(task) for task in served.tasks} if there else {}
        paths = {task: there[name] for task, name in names.items() if name in there}
        signature = [(task, path.stat().st_mtime_ns) for task, path in paths.items()]
        with self._lock:
            found = self._measured.get(served.version)
            if found is None or found[0] != signature:
                found = signature, _measure(served, paths, self._largest)
                self._measured = {**dict(list(self._measured.items())[-3:]), served.version: found}
            return found[1]

    def scores(self, served: Served, preferences: Numbers) -> dict[str, list[float]]:
        """Return a task's score of each preference: accuracy, or R² for regression."""
        measured = self.measured(served)
        if measured is None:
            return {}
        result: dict[str, list[float]] = {task: [] for task in measured.tasks}
        for preference in preferences:
            weights = np.broadcast_to(preference, (len(measured.labels), len(preference)))
            means = served.predict(measured.answers, weights)
            parts = zip(
                measured.tasks,
                measured.by_task(means),
                measured.by_task(measured.labels),
                strict=True,
            )
            for task, guess, truth in parts:
                result[task].append(_score(served, guess, truth))
        return result

    def front(self, served: Served, first: str, second: str) -> dict[str, Any]:
        """Return the scores of models between two tasks, and of every task's own model."""
        for task in (first, second):
            if task not in served.tasks:
                raise ApiError(404, "The front is drawn between two tasks of the knowledge base.")
        count = len(served.tasks)
        steps = np.linspace(0, 1, FRONT_STEPS)
        between = np.zeros((FRONT_STEPS, count))
        between[:, served.tasks.index(second)] += steps
        between[:, served.tasks.index(first)] += 1 - steps
        scores = self.scores(served, np.concatenate([between, np.eye(count)]))
        return {
            "between": {task: values[:FRONT_STEPS] for task, values in scores.items()},
            "vertices": {task: values[FRONT_STEPS:] for task, values in scores.items()},
        }

    def examples(self, served: Served) -> list[dict[str, Any]]:
        """Return a few rows of every task, with their labels."""
        measured = self.measured(served)
        if measured is None:
            return []
        each = max(1, min(EXAMPLES, MOST_EXAMPLES // len(measured.tasks)))
        return [
            {"task": task, "label": _plain(row.pop(LABEL)), "row": row}
            for task, frame in zip(measured.tasks, measured.frames, strict=True)
            for row in _rows(frame.head(each), served.columns)
        ]

    def sizes(self, served: Served) -> dict[str, int]:
        """Return how many rows of each task are measured on."""
        measured = self.measured(served)
        if measured is None:
            return {}
        return {t: len(f) for t, f in zip(measured.tasks, measured.frames, strict=True)}


def keep(settings: Settings, task: str, frame: pd.DataFrame, label: str | None) -> None:
    """Keep a table of labelled rows for a task, instead of any it had."""
    folder = settings.folder / "validation"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _file_name(task)
    partial = path.with_suffix(".partial")
    _labelled(task, frame, label).to_parquet(partial, index=False)
    partial.rename(path)


def _measure(served: Served, paths: dict[str, Path], largest: int) -> Measured | None:
    """Predict the tables that fit this version; what does not is left out, and said in the log."""
    frames: dict[str, pd.DataFrame] = {}
    inputs, labels = [], []
    for task, path in paths.items():
        frame = pd.read_parquet(path)
        rows_of_task = min(LARGEST_TABLE, max(1, largest // (len(paths) * len(served.tasks))))
        if len(frame) > rows_of_task:
            frame = frame.sample(rows_of_task, random_state=0)
        frame = frame.reset_index(drop=True)
        try:
            encoded = _encoded(served, frame)
        except (ApiError, ValueError):
            report("validation rows do not fit", task=task, version=served.version)
            continue
        frames[task] = frame
        inputs.append(encoded[0])
        labels.append(encoded[1])
    if not frames:
        return None
    answers = served.answers(torch.cat(inputs))
    ends = tuple(np.cumsum([len(frame) for frame in frames.values()]).tolist())
    truth = torch.cat(labels).numpy()
    return Measured(tuple(frames), answers, truth, ends, tuple(frames.values()))


def _encoded(served: Served, frame: pd.DataFrame) -> tuple[Tensor, Tensor]:
    """Return the inputs and the labels of a table; what does not fit is refused."""
    rows = _rows(frame, served.columns)
    labels = served.labels([row.pop(LABEL) for row in rows])
    return served.encode(rows), labels


def _file_name(task: str) -> str:
    """Return what the table of a task is called, whatever the task is called.

    Examples
    --------
    >>> _file_name("sci-fi/new"), len(_file_name("x" * 1000))
    ('sci-fi%2Fnew.parquet', 72)
    """
    name = quote(task, safe="")
    if len(name) > _LONGEST_NAME:
        name = hashlib.sha256(task.encode()).hexdigest()
    return name + _ENDING


def _labelled(task: str, frame: pd.DataFrame, label: str | None) -> pd.DataFrame:
    if label is None or label not in frame.columns:
        raise ValueError(
            f"The validation rows of {task!r} have no column {label!r} of labels; name it with "
            f"--label (there are {', '.join(map(str, frame.columns))})"
        )
    return frame.rename(columns={label: LABEL})


def _rows(frame: pd.DataFrame, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows as plain values; what is missing is None."""
    chosen = frame[[name for name in (*columns, LABEL) if name in frame.columns]]
    return [
        {str(name): _plain(value) for name, value in row.items()}
        for row in chosen.to_dict("records")
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if value is None or value != value else value


def _score(served: Served, means: Numbers, truth: NDArray[Any]) -> float:
    if served.classes is not None:
        return float((means.argmax(1) == truth).mean())
    guess = torch.as_tensor(means[:, 0])
    target = torch.as_tensor(truth).reshape(-1).to(guess.dtype)
    spread = float((target - target.mean()).square().sum())
    return 1 - float((target - guess).square().sum()) / spread if spread > 0 else 0.0


def _read(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise ValueError(f"{path} is not a file that exists")
    frame = pd.read_parquet(path) if path.suffix == ".parquet" else read_csv(path)
    frame.columns = frame.columns.map(str)
    if frame.empty:
        raise ValueError(f"{path} has no rows")
    return frame
