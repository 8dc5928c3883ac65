"""The comparison of adapters: the same tasks, preferences and base model for every contender."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import ibcl
from ibcl.adapters import LoRA
from ibcl.experiments import benchmarks
from ibcl.experiments.adapters.contenders import CONTENDERS, Outcome, Scene
from ibcl.experiments.benchmarks.backbones import minilm_model
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask, Split

LAST_LAYER = r"encoder\.layer\.5\..*(query|key|value|dense)"


@dataclass(frozen=True)
class Settings:
    """What to compare on.

    Parameters
    ----------
    train, validation, test
        Rows per task, at most.
    few
        Preferences that are answered by contenders that train a model for each.
    """

    seed: int = 0
    train: int = 400
    validation: int = 100
    test: int = 200
    preferences: int = 10
    few: int = 3
    epochs: int = 3
    rank: int = 8
    learning_rate: float = 5e-4


@dataclass(frozen=True)
class Row:
    """A contender's line of the table.

    Parameters
    ----------
    accuracy
        Σ_k w_k accuracy_k, on average over all preferences it answered.
    accuracy_few
        The same over the first few, which all contenders answered.
    settings
        What validation rows chose, as JSON.
    answered_all
        Whether it answered all preferences.
    """

    title: str
    seed: int
    accuracy: float
    accuracy_few: float
    seconds_per_task: float
    bytes_per_task: float
    adapted_passes: float
    seconds_per_preference: float
    settings: str
    answered_all: bool


def run(settings: Settings) -> Iterator[Row]:
    """Yield the lines of the table as contenders finish."""
    benchmark = benchmarks.load(
        "20news", backbone="minilm-tokens", seed=settings.seed, dimension=None
    )
    random = np.random.default_rng(settings.seed)
    tasks = [_fewer(task, settings, random) for task in benchmark]
    base = minilm_model()
    first = ibcl.IBCL(ibcl.networks.with_backbone(base, layers="auto"))
    first.learn(tasks[0].train.x, tasks[0].train.y, task=tasks[0].name)
    chosen = first.network.backbone
    preferences = ibcl.sample_preferences(len(tasks), settings.preferences, seed=settings.seed)
    expert = LoRA(
        settings.rank,
        LAST_LAYER,
        epochs=settings.epochs,
        learning_rate=settings.learning_rate,
    )
    matrix = np.asarray(preferences, dtype=np.float64)
    layers = () if chosen is None else chosen.layers
    scene = Scene(base, tasks, matrix, settings.few, expert, layers)
    for title, contender in CONTENDERS.items():
        yield _row(title, settings.seed, contender(scene), scene)


def _fewer(task: BenchmarkTask, settings: Settings, random: np.random.Generator) -> BenchmarkTask:
    def some(split: Split, rows: int) -> Split:
        kept = random.permutation(len(split))[:rows]
        return Split(split.x[kept], split.y[kept])

    return replace(
        task,
        train=some(task.train, settings.train),
        validation=some(task.validation, settings.validation),
        test=some(task.test, settings.test),
    )


def _row(title: str, seed: int, outcome: Outcome, scene: Scene) -> Row:
    scores = weighted_accuracy(outcome.probabilities, scene)
    return Row(
        title,
        seed,
        float(scores.mean()),
        float(scores[: scene.few].mean()),
        outcome.seconds,
        outcome.nbytes,
        outcome.passes,
        outcome.per_preference,
        outcome.settings,
        len(scores) == len(scene.preferences),
    )


def weighted_accuracy(probabilities: NDArray[Any], scene: Scene) -> NDArray[np.float64]:
    """Σ_k w_k accuracy_k in per cent, for each preference that was answered."""
    right = probabilities.argmax(2) == np.concatenate([task.test.y for task in scene.tasks])
    ends = np.cumsum([len(task.test) for task in scene.tasks])[:-1]
    accuracies = np.stack([part.mean(1) for part in np.split(right, ends, axis=1)], 1)
    weighted: NDArray[np.float64] = 100 * (scene.preferences[: len(accuracies)] * accuracies).sum(1)
    return weighted


def main() -> None:
    """Print the lines of the table as JSON; settings come from the variable IBCL_ADAPTERS."""
    settings = Settings(**json.loads(os.environ.get("IBCL_ADAPTERS", "{}")))
    for row in run(settings):
        print(json.dumps(asdict(row)), flush=True)
