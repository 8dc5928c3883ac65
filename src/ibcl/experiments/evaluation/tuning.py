"""Tuning: every method's own hyperparameters, with one rule and one budget for all, by Optuna.

The rule: for every benchmark, method and size of memory separately, the same number of trials. A
trial is the average per-task score (the benchmark's metric) of the mean models on *validation* data
after the last of **all** tasks, with three preferences, averaged over the validation seeds 100, 101
and 102; results are reported of other seeds, on test data. The first trial is the method's
registered settings, for rivals those that their authors publish; the next ones are random, up to a
third of all and at most ten; the others are drawn by the tree-structured Parzen estimator from the
method's own space, with a seed of the search's own. Seeds are the resource of successive halving: a
trial goes on to its next seed only if it is among the better half of those that got as far. One
that is stopped counts as a trial, and cannot win.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.contenders import Contender, contender, not_searched
from ibcl.experiments.evaluation.protocol import Protocol, run
from ibcl.experiments.evaluation.result_files import read_bytes, write_bytes
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

    def sampling_seed(self, trials: int) -> int:
        """Seed of its draws after so many trials: no two searches draw the same settings."""
        name = f"{self.benchmark} {self.method} {self.memory} {trials}"
        return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")

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

    settings: dict[str, float | str]
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

    What the folder holds already is read, and the search goes on from there.
    """
    if search.trials < 1:
        raise ValueError(f"Tuning needs at least one trial, not {search.trials}.")
    done: list[Trial] = []
    if search.file is not None:
        with suppress(FileNotFoundError):
            done = list(read_tuned(search.file).trials)
    if len(done) >= search.trials:
        return Tuned(search, tuple(done))
    start = contender(search.method, search.benchmark, search.memory)
    # Where classes are so unequal, every good answer to a dense preference is the majority's.
    family = "sparse" if "sparse" in benchmarks.registered(search.benchmark).families else "uniform"
    protocol = Protocol(
        PREFERENCES, family, samples=0, part="validation", tasks=search.tasks, evaluate_after="last"
    )

    def objective(trial: optuna.Trial) -> float:
        drawn = suggest(trial, start)
        scores: list[float] = []
        begin = time.process_time()

        def note(finished: bool) -> None:
            done.append(Trial(drawn, tuple(scores), finished, time.process_time() - begin))
            _write(Tuned(search, tuple(done)))

        for number, seed in enumerate(search.seeds, start=1):
            try:
                scores.append(_score(start.changed(**drawn), search, seed, protocol))
            except ValueError:
                # Settings under which a method diverges are a failed trial, not the search's end.
                note(finished=False)
                raise
            average = sum(scores) / len(scores)
            trial.report(average, number)
            if number < len(search.seeds) and trial.should_prune():
                note(finished=False)
                raise optuna.TrialPruned
        note(finished=True)
        return average

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize",
        sampler=optuna.samplers.TPESampler(
            seed=search.sampling_seed(len(done)), n_startup_trials=min(10, 1 + search.trials // 3)
        ),
        pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2),
    )
    for earlier in done:
        study.add_trial(_as_optuna(earlier, start))
    if not done:
        study.enqueue_trial(_registered(start))
    wanted = search.trials if start.registration.searched else 1
    study.optimize(objective, n_trials=max(0, wanted - len(done)), catch=(ValueError,))
    return Tuned(search, tuple(done))


def _write(found: Tuned) -> None:
    if found.search.file is not None:
        write_bytes(found.search.file, (json.dumps(asdict(found), indent=1) + "\n").encode())


def _as_optuna(trial: Trial, start: Contender) -> optuna.trial.FrozenTrial:
    """Return a trial of an interrupted search as Optuna knows it."""
    steps = range(1, len(trial.scores) + 1)
    averages = {step: sum(trial.scores[:step]) / step for step in steps}
    if trial.finished:
        state, value = optuna.trial.TrialState.COMPLETE, averages[len(trial.scores)]
    elif trial.scores:
        state, value = optuna.trial.TrialState.PRUNED, averages[len(trial.scores)]
    else:
        state, value = optuna.trial.TrialState.FAIL, None
    return optuna.trial.create_trial(
        state=state,
        value=value,
        params=trial.settings,
        distributions=distributions(start),
        intermediate_values=averages,
    )


def read_tuned(path: Path) -> Tuned:
    """Read the trials of a search."""
    content = json.loads(read_bytes(path))
    search = Search(**{**content["search"], "seeds": tuple(content["search"]["seeds"])})
    trials = [Trial(**{**trial, "scores": tuple(trial["scores"])}) for trial in content["trials"]]
    return Tuned(search, tuple(trials))


def distributions(start: Contender) -> dict[str, BaseDistribution]:
    """What tuning draws a method's settings from."""
    found: dict[str, BaseDistribution] = {}
    for name, values in start.registration.searched.items():
        if not isinstance(values, Range):
            found[name] = CategoricalDistribution(values)
        elif isinstance(values.low, int):
            found[name] = IntDistribution(values.low, int(values.high), log=True)
        else:
            found[name] = FloatDistribution(*values, log=True)
    return found


def _draw(trial: optuna.Trial, name: str, space: BaseDistribution) -> Any:
    if isinstance(space, CategoricalDistribution):
        return trial.suggest_categorical(name, space.choices)
    if isinstance(space, IntDistribution):
        return trial.suggest_int(name, space.low, space.high, log=True)
    assert isinstance(space, FloatDistribution)
    return trial.suggest_float(name, space.low, space.high, log=True)


def suggest(trial: optuna.Trial, start: Contender) -> dict[str, float | str]:
    """Draw the settings of one trial from the method's own space."""
    drawn = {name: _draw(trial, name, space) for name, space in distributions(start).items()}
    return {name: _rounded(v) if isinstance(v, float) else v for name, v in drawn.items()}


def _registered(start: Contender) -> dict[str, Any]:
    """The method's registered settings as a trial; one outside the space is drawn."""
    entry = start.registration
    own = {"feature_norm": entry.feature_norm, "feature_map": entry.feature_map}
    present: dict[str, Any] = {**own, **entry.settings}
    return {name: present[name] for name in entry.searched if name in present}


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


def _rounded(value: float) -> float:
    """Two digits are all that so few trials can tell apart."""
    return float(f"{value:.2g}")
