"""Tuning: every method's own hyperparameters, with one rule and one budget for all, by Optuna.

The rule: for every benchmark, method and size of memory apart, the same number of trials. A trial
is the average per-task score (the benchmark's metric) of the mean models on *validation* data after
the last of **all** tasks, with three preferences, averaged over the validation seeds 100, 101 and
102; results are reported of other seeds, on test data. The first trial is the settings before
tuning, the others are drawn by the tree-structured Parzen estimator from the method's own space
(`ibcl.experiments.methods.registry`). A trial whose average after one or two seeds is below the
median of the earlier trials' at that point is stopped; it counts as a trial, and cannot win.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import optuna
import pandas as pd

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.contenders import Contender, contender, not_searched
from ibcl.experiments.evaluation.places import read_bytes, write_bytes
from ibcl.experiments.evaluation.protocol import Protocol, run
from ibcl.experiments.methods import Range

SEEDS = (100, 101, 102)
"""Of data, preferences and starts; none of them is one that results are reported of."""

PREFERENCES = 3


@dataclass(frozen=True)
class Search:
    """One search: a method on a benchmark, with one size of memory.

    Parameters
    ----------
    folder
        Where what was found is kept, so that an interrupted search of many goes on.
    """

    benchmark: str
    method: str
    memory: int
    trials: int
    backbone: str | None = None
    seeds: tuple[int, ...] = SEEDS
    tasks: int | None = None
    folder: str | None = None

    @property
    def file(self) -> Path | None:
        """The file of its trials."""
        if self.folder is None:
            return None
        stem = Path(self.benchmark).stem
        return Path(self.folder) / f"{stem}--{self.method}--memory{self.memory}.json"


@dataclass(frozen=True)
class Trial:
    """Settings, and the score of each validation seed they were tried on."""

    settings: dict[str, float]
    scores: tuple[float, ...]
    finished: bool
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """All trials of a search, the first being the settings before it."""

    search: Search
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """The finished trial with the best average over seeds."""
        finished = [trial for trial in self.trials if trial.finished]
        if not finished:
            raise ValueError(
                f"No trial of {self.search.method} on {self.search.benchmark} came to an end."
            )
        return max(finished, key=lambda trial: sum(trial.scores) / len(trial.scores))


def searches(
    benchmark: str,
    names: Sequence[str],
    trials: int,
    memories: Sequence[int] | None = None,
    backbone: str | None = None,
    **settings: Any,
) -> list[Search]:
    """List the searches of these methods on a benchmark; sizes of memory are searched apart."""
    declared = benchmarks.registered(benchmark)
    found = []
    for name in names:
        sizes = (memories or declared.memories) if contender(name).rehearses else (0,)
        for memory in sizes:
            image = backbone if declared.backbone else None
            found.append(Search(benchmark, name, memory, trials, image, **settings))
    return found


def tune(search: Search) -> Tuned:
    """Find a method's best settings on a benchmark's validation data.

    What the folder holds already is read, not searched again.
    """
    if search.trials < 1:
        raise ValueError(f"Tuning needs at least one trial, not {search.trials}.")
    if search.file is not None:
        with suppress(FileNotFoundError):
            found = read_tuned(search.file)
            if len(found.trials) >= search.trials:
                return found
    start = contender(search.method, search.benchmark, search.memory)
    space = start.registration.space
    # Where classes are so unequal, every good answer to a dense preference is the majority's.
    family = "sparse" if "sparse" in benchmarks.registered(search.benchmark).families else "uniform"
    protocol = Protocol(
        PREFERENCES, family, samples=0, part="validation", tasks=search.tasks, asked="last"
    )
    done: list[Trial] = []

    def objective(trial: optuna.Trial) -> float:
        drawn = suggest(trial, start)
        scores: list[float] = []
        begin = time.process_time()

        def note(finished: bool) -> None:
            done.append(Trial(drawn, tuple(scores), finished, time.process_time() - begin))

        for step, seed in enumerate(search.seeds):
            try:
                scores.append(_score(start.changed(**drawn), search, seed, protocol))
            except ValueError:
                # Settings under which a method diverges are a failed trial, not the search's end.
                note(finished=False)
                raise
            average = sum(scores) / len(scores)
            trial.report(average, step)
            if step + 1 < len(search.seeds) and trial.should_prune():
                note(finished=False)
                raise optuna.TrialPruned
        note(finished=True)
        return average

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=4),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=1, n_min_trials=1),
    )
    study.enqueue_trial(_present(start))
    study.optimize(objective, n_trials=search.trials if space else 1, catch=(ValueError,))
    found = Tuned(search, tuple(done))
    if search.file is not None:
        write_bytes(search.file, (json.dumps(asdict(found), indent=1) + "\n").encode())
    return found


def read_tuned(path: Path) -> Tuned:
    """Read the trials of a search."""
    content = json.loads(read_bytes(path))
    search = Search(**{**content["search"], "seeds": tuple(content["search"]["seeds"])})
    trials = [Trial(**{**trial, "scores": tuple(trial["scores"])}) for trial in content["trials"]]
    return Tuned(search, tuple(trials))


def suggest(trial: optuna.Trial, start: Contender) -> dict[str, float]:
    """Draw the settings of one trial from the method's own space."""
    drawn: dict[str, float] = {}
    for name, values in start.registration.space.items():
        if not isinstance(values, Range):
            drawn[name] = trial.suggest_categorical(name, values)
        elif isinstance(values.low, int):
            drawn[name] = trial.suggest_int(name, values.low, int(values.high), log=True)
        else:
            drawn[name] = _rounded(trial.suggest_float(name, *values, log=True))
    return drawn


def _present(start: Contender) -> dict[str, float]:
    """The settings before tuning, as a trial; where one is outside the space, it is drawn."""
    present: dict[str, Any] = {"feature_norm": start.feature_norm, **start.options}
    return {name: present[name] for name in start.registration.space if name in present}


def _score(chosen: Contender, search: Search, seed: int, protocol: Protocol) -> float:
    data = _load(search.benchmark, search.backbone, seed)
    table = run(chosen, data, seed, search.memory, protocol).assign(label="")
    values = metrics.at_last_task(metrics.average_per_task(table, data.metric))
    return float(values["value"].mean())


@lru_cache(maxsize=len(SEEDS))
def _load(benchmark: str, backbone: str | None, seed: int) -> Benchmark:
    return benchmarks.load(benchmark, backbone=backbone, seed=seed)


def as_toml(found: Iterable[Tuned]) -> str:
    """Write the best settings as sections for the folder of settings.

    What a section says already and no trial varied, such as a number of random features, stays.

    Examples
    --------
    >>> search = Search("digits", "gem", 50, trials=1)
    >>> print(as_toml([Tuned(search, (Trial({"learning_rate": 0.001}, (0.9, 0.8), True, 1.0),))]))
    [gem.50]  # validation score 0.8500, best of 1 trials
    learning_rate = 0.001
    <BLANKLINE>
    """
    lines = []
    for tuned in found:
        best, search = tuned.best, tuned.search
        section = f"{search.method}.{search.memory}" if search.memory else search.method
        score = sum(best.scores) / len(best.scores)
        lines.append(
            f"[{section}]  # validation score {score:.4f}, best of {len(tuned.trials)} trials"
        )
        settings = {**not_searched(search.method, search.benchmark), **best.settings}
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
        lines.append("")
    return "\n".join(lines)


def trials_table(found: Iterable[Tuned]) -> pd.DataFrame:
    """Return all trials as one table, for the record."""
    rows = []
    for tuned in found:
        for number, trial in enumerate(tuned.trials):
            rows.append(
                {
                    "benchmark": tuned.search.benchmark,
                    "method": tuned.search.method,
                    "memory": tuned.search.memory,
                    "trial": number,
                    "settings": json.dumps(trial.settings),
                    "score": sum(trial.scores) / max(1, len(trial.scores)),
                    "seeds": len(trial.scores),
                    "finished": trial.finished,
                    "seconds": trial.seconds,
                    "chosen": trial is tuned.best,
                }
            )
    return pd.DataFrame(rows)


def _rounded(value: float) -> float:
    """Two digits are all that so few trials can tell apart."""
    return float(f"{value:.2g}")
