r"""The protocol: one contender, one benchmark, one seed; a tidy table comes out.

Tasks arrive in order. With task i come the preferences asked until the next one: the scalar 1 at
task 1, and 10 random ones afterwards, the same for all contenders. After every task the model of
every preference is tested on all tasks seen so far. Features go through the contender's own map
(`ibcl.experiments.evaluation.feature_maps`); nothing is fitted on data that has not arrived.

A row of the table is one preference's model on one task's test data:

===================== ==========================================================================
column                meaning
===================== ==========================================================================
label                 empty, or `UNIFORM_BASELINE`; ablations have others
benchmark, backbone   what was learnt
metric                the column the benchmark prefers
method, memory, seed  who learnt it; memory is 0 for contenders without one
preferences           their family: ``uniform`` (the paper's), ``sparse`` or ``vertices``
task_seen             i, counted from 1
preference            number of the preference at task i, from 0
task_tested           j ≤ i
selection             which model stands for the preference; see the module ``selections``
weight                w_ij, the preference's weight of the task tested
accuracy              on test data, as are the next five
balanced_accuracy     mean of the classes' recalls
calibration_error     expected calibration error, 15 bins
brier                 Σ_c (p_c − 1[y = c])², averaged
log_loss              −log p_y, averaged, with probabilities of at least 10⁻⁶
right                 which test examples were answered correctly, as packed bits; kept after the
                      last task and of mean models only
labels                the test examples' labels, one byte each, where ``right`` is kept
class_accuracy        the answer among all classes of all tasks seen, where a method gives one
updates               optimiser steps at task i, counted per model
bytes                 kept for the next task
posteriors            posteriors stored so far (IBCL)
seconds               CPU time of learning task i and making its preferences' models
total_updates         over all tasks so far
total_seconds         over all tasks so far
===================== ==========================================================================
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.experiments.benchmarks import Benchmark, BenchmarkTask, Part, Split
from ibcl.experiments.evaluation.contenders import Contender
from ibcl.experiments.evaluation.feature_maps import FeatureMap
from ibcl.experiments.evaluation.model_selections import (
    Selection,
    class_probabilities,
    draw,
    draw_inverted,
    sampled_selections,
)
from ibcl.experiments.evaluation.preference_families import FAMILIES
from ibcl.experiments.methods import AnswersAmongAllClasses, KeepsAllData, Method
from ibcl.experiments.methods.ibcl_methods import IBCLMethod
from ibcl.tasks import TaskData
from ibcl.uncertainty import expected_calibration_error

# Probabilities that count as none in the log loss; one such mistake costs 14.
_SMALLEST = 1e-6

UNIFORM_BASELINE = "uniform preference"
"""Label of rows in which everybody is answered by the uniform preference's model."""


@dataclass(frozen=True)
class Protocol:
    """How contenders are evaluated.

    Parameters
    ----------
    preferences
        How many at each task after the first.
    family
        Name of a family in `ibcl.experiments.evaluation.preference_families`.
    samples
        Models drawn from each highest density region for the selections beyond the mean model; 0
        leaves those out.
    part
        Where models are tested; ``"validation"`` is for choosing hyperparameters.
    tasks
        Use only so many tasks, the first ones; all without a number.
    evaluate_after
        ``"every"``: preferences come with every task after the first, and all models are tested
        after every task, as in the paper. ``"last"``: with the tasks before the last one comes only
        the uniform preference, and models are tested after the last task only, which costs a
        fraction of it.
    order
        Number of a random order of the tasks; 0 is the benchmark's own.
    uniform_baseline
        Whether all preferences are also answered by the model of the uniform one, and scored with
        their own weights, in rows labelled `UNIFORM_BASELINE`: what a preference is worth.
    inverted
        Draw from per-coordinate intervals of mass α instead of from the highest density region; see
        `ibcl.experiments.evaluation.model_selections.draw_inverted`.
    """

    preferences: int = 10
    family: str = "uniform"
    samples: int = 10
    part: Part = "test"
    tasks: int | None = None
    order: int = 0
    inverted: bool = False
    evaluate_after: str = "every"
    uniform_baseline: bool = False

    def __post_init__(self) -> None:
        if self.family not in FAMILIES:
            raise ValueError(
                f"Preferences are {' or '.join(FAMILIES)}, not {self.family!r}; choose one."
            )
        if self.evaluate_after not in ("every", "last"):
            raise ValueError(
                f"Models are evaluated after 'every' task or the 'last', not "
                f"{self.evaluate_after!r}."
            )
        if self.preferences < 1 or self.samples < 0 or (self.tasks is not None and self.tasks < 1):
            raise ValueError("A protocol needs at least one preference and one task.")
        needed = FAMILIES[self.family].tasks
        if needed is not None and (self.tasks is None or self.tasks > needed):
            raise ValueError(
                f"Preferences of the family {self.family!r} are laid over {needed} tasks: give "
                f"tasks={needed}."
            )

    def tasks_of(self, benchmark: Benchmark) -> list[BenchmarkTask]:
        """Return the tasks to learn, in the order they arrive."""
        tasks = list(benchmark.tasks)
        if self.order:
            mixed = np.random.default_rng(self.order).permutation(len(tasks))
            tasks = [tasks[index] for index in mixed]
        return tasks[: self.tasks]

    def preferences_at(self, task: int, seed: int) -> NDArray[np.float64]:
        """Return the preferences asked at task i, one per row.

        Examples
        --------
        >>> Protocol().preferences_at(1, seed=0).tolist()
        [[1.0]]
        >>> Protocol().preferences_at(3, seed=0).shape
        (10, 3)
        """
        if task == 1:
            return np.ones((1, 1))
        entropy = [seed, task, list(FAMILIES).index(self.family)]
        drawn = int(np.random.SeedSequence(entropy).generate_state(1)[0])
        return FAMILIES[self.family].draw(task, self.preferences, drawn)


def run(
    contender: Contender,
    benchmark: Benchmark,
    seed: int = 0,
    memory: int = 50,
    protocol: Protocol | None = None,
) -> pd.DataFrame:
    """Run a contender through a benchmark's tasks; return the table of all its results.

    Examples
    --------
    >>> from ibcl.experiments import benchmarks
    >>> from ibcl.experiments.evaluation.contenders import contender
    >>> digits = benchmarks.load("digits")
    >>> table = run(contender("ibcl_evidence"), digits, protocol=Protocol(samples=0, tasks=2))
    >>> len(table)  # one model on one task, then ten models on two
    21
    """
    protocol = protocol or Protocol()
    tasks = protocol.tasks_of(benchmark)
    features = contender.fit_map(tasks[0].train.x)
    method = contender.create(features.width(benchmark.features), memory, seed)
    constants = {
        "benchmark": benchmark.name,
        "metric": benchmark.metric,
        "backbone": benchmark.provenance.backbone,
        "method": contender.name,
        "memory": memory if contender.rehearses else 0,
        "seed": seed,
        "preferences": protocol.family,
    }
    rows: list[dict[str, Any]] = []
    seconds = 0.0
    for seen, task in enumerate(tasks, start=1):
        updates, begin = method.updates, time.process_time()
        if protocol.evaluate_after == "last" and seen < len(tasks):
            _learn_unasked(method, task.name, _task_data(task.train, features), seen)
            seconds += time.process_time() - begin
            continue
        weights = protocol.preferences_at(seen, seed)
        asked = np.vstack([weights, np.full((1, seen), 1 / seen)][: 1 + protocol.uniform_baseline])
        method.learn(task.name, _task_data(task.train, features), None, asked)
        method.predict_logits(torch.zeros(1, features.width(benchmark.features)))
        spent = time.process_time() - begin
        seconds += spent
        cost = {
            "updates": method.updates - updates,
            "bytes": method.stored_bytes,
            "posteriors": (
                len(method.learner.knowledge.stored) if isinstance(method, IBCLMethod) else None
            ),
            "seconds": spent,
            "total_updates": method.updates,
            "total_seconds": seconds,
        }
        tests = [earlier.parts()[protocol.part] for earlier in tasks[:seen]]
        validations = [earlier.validation for earlier in tasks[:seen]]
        among_all = class_accuracies(method, tests, features, len(asked))
        for selection in selections(method, tests, validations, features, weights, protocol):
            mean = selection.name == "mean"
            keep = seen == len(tasks) and mean
            for j, (test, probabilities) in enumerate(
                zip(tests, selection.probabilities, strict=True)
            ):
                for label, k, answered in answers_asked(weights, protocol, mean):
                    model = probabilities[answered]
                    rows.append(
                        {"label": label}
                        | constants
                        | {"task_seen": seen, "preference": k, "task_tested": j + 1}
                        | {"selection": selection.name, "weight": weights[k, j]}
                        | scores(model, test.y)
                        | {"class_accuracy": among_all[j][answered]}
                        | (answers_kept(model, test) if keep else NOT_KEPT)
                        | cost
                    )
    return pd.DataFrame(rows)


def answers_asked(
    weights: NDArray[np.float64], protocol: Protocol, mean: bool
) -> Iterator[tuple[str, int, int]]:
    """Yield label, preference and number of the model that answers it; the uniform one is last."""
    for k in range(len(weights)):
        yield "", k, k
    if protocol.uniform_baseline and mean:
        for k in range(len(weights)):
            yield UNIFORM_BASELINE, k, len(weights)


def _learn_unasked(method: Method, task: str, data: TaskData, seen: int) -> None:
    """Learn a task without evaluation: with the uniform preference, or by keeping its data."""
    if isinstance(method, KeepsAllData):
        method.keep(task, data)
    else:
        method.learn(task, data, None, np.full((1, seen), 1 / seen))


def class_accuracies(
    method: Method, tests: Sequence[Split], features: FeatureMap, models: int
) -> list[list[float]]:
    """How often each preference's model finds the class among those of all tasks, by task.

    NaN where a method does not answer that question, and where tasks share their inputs, so that
    it has no answer.
    """
    inputs = Inputs(tests, features)
    shared = len(inputs.x) < sum(len(test) for test in tests)
    if shared or not isinstance(method, AnswersAmongAllClasses):
        return [[float("nan")] * models for _ in tests]
    answers = method.columns[method.predict_classes(inputs.x).argmax(-1)]
    return [
        (found == torch.stack([torch.full_like(y, j), y], 1)).all(-1).double().mean(1).tolist()
        for j, (found, y) in enumerate(
            zip(inputs.split(answers), (torch.from_numpy(t.y) for t in tests), strict=True)
        )
    ]


def selections(
    method: Method,
    tests: Sequence[Split],
    validations: Sequence[Split],
    features: FeatureMap,
    weights: NDArray[np.float64],
    protocol: Protocol,
) -> Iterator[Selection]:
    """Yield the class probabilities of the mean models, then of those drawn from the regions."""
    inputs = Inputs(tests, features)
    probabilities = class_probabilities(method.predict_logits(inputs.x))
    yield Selection("mean", inputs.split(probabilities))
    if protocol.samples and isinstance(method, IBCLMethod):
        held_out = Inputs(validations, features)
        yield from sampled_selections(
            method.models()[: len(weights)],
            weights,
            [
                (inputs.x, inputs.split, [test.y for test in tests]),
                (held_out.x, held_out.split, [part.y for part in validations]),
            ],
            protocol.samples,
            draw_inverted if protocol.inverted else draw,
        )


class Inputs:
    """The inputs of several tasks as one table; inputs that tasks share are in it once."""

    def __init__(self, splits: Sequence[Split], features: FeatureMap) -> None:
        unique = {id(split.x): split.x for split in splits}
        starts = np.cumsum([0, *(len(x) for x in unique.values())])
        places = dict(zip(unique, starts.tolist(), strict=False))
        self.slices = [
            slice(places[id(split.x)], places[id(split.x)] + len(split)) for split in splits
        ]
        self.x = torch.from_numpy(features(np.concatenate(list(unique.values()))))

    def split(self, values: Tensor) -> list[Tensor]:
        """Return each task's own rows of values of shape (models, rows, ...)."""
        return [values[:, rows] for rows in self.slices]


def scores(probabilities: Tensor, y: NDArray[np.int64]) -> dict[str, float]:
    """Accuracies and calibration of one model's class probabilities.

    Examples
    --------
    >>> found = scores(torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8]]), np.array([0, 1, 1]))
    >>> {name: round(value, 3) for name, value in found.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'accuracy': 0.667, 'balanced_accuracy': 0.75, 'calibration_error': 0.3, 'brier': 0.273,
     'log_loss': 0.415}
    """
    # A model whose training diverged knows nothing.
    values = np.nan_to_num(probabilities.numpy(), nan=1 / probabilities.shape[1])
    right = values.argmax(1) == y
    truth = np.eye(values.shape[1])[y]
    own = np.clip(values[np.arange(len(y)), y], _SMALLEST, None)
    return {
        "accuracy": float(right.mean()),
        "balanced_accuracy": float(np.mean([right[y == label].mean() for label in np.unique(y)])),
        "calibration_error": expected_calibration_error(values, y),
        "brier": float(np.square(values - truth).sum(1).mean()),
        "log_loss": float(-np.log(own).mean()),
    }


NOT_KEPT = {"right": b"", "labels": b""}


def answers_kept(probabilities: Tensor, test: Split) -> dict[str, bytes]:
    r"""Which examples a model answers correctly, for intervals over test examples.

    Examples
    --------
    >>> split = Split(np.zeros((2, 1), np.float32), np.array([0, 1]))
    >>> answers_kept(torch.tensor([[0.9, 0.1], [0.6, 0.4]]), split)["right"]
    b'\x80'
    """
    values = np.nan_to_num(probabilities.numpy(), nan=1 / probabilities.shape[1])
    return {
        "right": np.packbits(values.argmax(1) == test.y).tobytes(),
        "labels": test.y.astype(np.uint8).tobytes(),
    }


def _task_data(split: Split, features: FeatureMap) -> TaskData:
    return TaskData(torch.from_numpy(features(split.x)), torch.from_numpy(split.y))
