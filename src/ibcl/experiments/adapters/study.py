"""The comparison of adapters: the same tasks, preferences and base model for every contender."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import ibcl
from ibcl.adapters import LoRA
from ibcl.experiments import benchmarks
from ibcl.experiments.adapters.bases import BASES, Base
from ibcl.experiments.adapters.contenders import CONTENDERS, DEAR, Outcome, Scene
from ibcl.experiments.benchmarks.benchmark import BenchmarkTask, Split

# Rows that passes are timed on.
_TIMED = 64


@dataclass(frozen=True)
class Settings:
    """What to compare on.

    Parameters
    ----------
    tasks
        The first of the benchmark; all where None.
    train
        Rows per task to learn from, at most; all where None.
    test
        Rows per task to test on, and to choose settings on, at most; all where None.
    few
        Preferences that are answered by contenders that train a model for each.
    """

    benchmark: str
    seed: int = 0
    tasks: int | None = None
    train: int | None = None
    test: int | None = None
    preferences: int = 10
    few: int = 3


@dataclass(frozen=True)
class Row:
    """A contender's line of the table.

    Parameters
    ----------
    accuracy
        Σ_k w_k accuracy_k on test rows, on average over all preferences it answered.
    accuracy_few
        The same over the first few, which all contenders answered.
    adapted
        Adapted models that are run per prediction, on average.
    passes
        Processor time of a prediction's passes, in passes through the whole frozen model.
    settings
        What validation rows chose, as JSON.
    answered_all
        Whether it answered all preferences.
    """

    benchmark: str
    title: str
    seed: int
    tasks: int
    accuracy: float
    accuracy_few: float
    seconds_per_task: float
    bytes_per_task: float
    adapted: float
    passes: float
    seconds_per_preference: float
    settings: str
    answered_all: bool


def run(settings: Settings, titles: Collection[str]) -> Iterator[Row]:
    """Yield the lines of some contenders as they finish."""
    chosen = [title for title in CONTENDERS if title in titles]
    if chosen:
        scene, relative = prepared(settings)
        for title in chosen:
            yield _row(title, settings, CONTENDERS[title](scene), scene, relative)


def prepared(settings: Settings) -> tuple[Scene, float]:
    """Return what contenders are given, and what an adapted pass costs in whole passes."""
    base = BASES[settings.benchmark]
    loaded = benchmarks.load(
        settings.benchmark, backbone=base.backbone(), seed=settings.seed, dimension=None
    )
    random = np.random.default_rng(settings.seed)
    tasks = [_fewer(task, settings, random) for task in [*loaded][: settings.tasks]]
    preferences = ibcl.sample_preferences(len(tasks), settings.preferences, seed=settings.seed)
    matrix = np.asarray(preferences, dtype=np.float64)
    upper = base.upper()
    few, last = settings.few, (upper.last_name,)
    scene = Scene(upper, tasks, matrix, few, expert(base), base.layers, last)
    return scene, relative_cost(base, tasks[0].test.x[:_TIMED])


def expert(base: Base) -> LoRA:
    """Return how adapters of a base are learnt."""
    return LoRA(base.rank, base.targets, epochs=base.epochs, learning_rate=base.learning_rate)


def relative_cost(base: Base, rows: NDArray[np.float32]) -> float:
    """Return processor time of a pass through the upper part, in passes through the whole."""
    upper, inputs = base.upper(), torch.as_tensor(rows)
    whole, given = base.whole(len(rows))

    def seconds(module: Any, x: torch.Tensor) -> float:
        found = []
        with torch.inference_mode():
            for _ in range(3):
                begin = time.process_time()
                module(x)
                found.append(time.process_time() - begin)
        return min(found)

    # First the whole, as in a prediction: it leaves the process memory that the upper part reuses.
    entire = seconds(whole, given)
    return seconds(upper, inputs) / entire


def _fewer(task: BenchmarkTask, settings: Settings, random: np.random.Generator) -> BenchmarkTask:
    def drawn(split: Split, rows: int | None) -> Split:
        kept = slice(None) if rows is None else random.permutation(len(split))[:rows]
        return Split(split.x[kept], split.y[kept])

    return replace(
        task,
        train=drawn(task.train, settings.train),
        validation=drawn(task.validation, settings.test),
        test=drawn(task.test, settings.test),
    )


def _row(title: str, settings: Settings, outcome: Outcome, scene: Scene, relative: float) -> Row:
    scores = weighted_accuracy(outcome.probabilities, scene)
    return Row(
        settings.benchmark,
        title,
        settings.seed,
        len(scene.tasks),
        float(scores.mean()),
        float(scores[: scene.few].mean()),
        outcome.seconds,
        outcome.nbytes,
        outcome.adapted,
        1.0 + relative * outcome.adapted if outcome.gated else 1.0,
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


def main(arguments: Sequence[str] | None = None) -> None:
    """Add the lines of the table that a file lacks, as they are found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark", choices=sorted(BASES))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tasks", type=int, help="only the first tasks of the benchmark")
    parser.add_argument("--rows", type=int, help="per task to learn from, at most")
    parser.add_argument("--test-rows", type=int, help="per task to test on, at most")
    parser.add_argument("--preferences", type=int, default=10)
    parser.add_argument("--output", type=Path, required=True, help="a file of lines of JSON")
    parser.add_argument("--cheap", action="store_true", help="without what trains per preference")
    parser.add_argument("--few", type=int, default=3, help="preferences of what trains for each")
    parser.add_argument("--only", nargs="+", choices=[*CONTENDERS], help="these contenders alone")
    given = parser.parse_args(arguments)
    settings = Settings(
        given.benchmark,
        given.seed,
        given.tasks,
        given.rows,
        given.test_rows,
        given.preferences,
        given.few,
    )
    known = given.output.read_text().splitlines() if given.output.exists() else []
    done = {
        row["title"]
        for row in map(json.loads, known)
        if (row["benchmark"], row["seed"]) == (settings.benchmark, settings.seed)
    }
    wanted = [title for title in given.only or CONTENDERS if title not in done]
    if given.cheap:
        wanted = [title for title in wanted if title not in DEAR]
    for row in run(settings, wanted):
        with given.output.open("a") as file:
            file.write(json.dumps(asdict(row)) + "\n")
        print(row.title, f"{row.accuracy:.2f}", flush=True)
