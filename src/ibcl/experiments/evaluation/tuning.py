"""Tuning: every method's hyperparameters, in one search space, with one budget, by Optuna.

The score is the average per-task accuracy of the mean models on *validation* data after the last
task tried; test data is never looked at. A method with a memory gets one choice for all sizes of
it, and its score is the average over them. Settings that a method does not have are left out of its
search, the others are searched in the same ranges by all: how the features are scaled, the learning
rate, and the prior's standard deviation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
import pandas as pd

from ibcl.experiments import methods
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.contenders import Contender
from ibcl.experiments.evaluation.protocol import Protocol, run


@dataclass(frozen=True)
class Tuned:
    """The best settings of a contender, and its validation score with them."""

    settings: dict[str, float]
    score: float
    trials: int

    def toml(self, name: str) -> str:
        """Write the settings as a section for the folder of settings.

        Examples
        --------
        >>> print(Tuned({"learning_rate": 0.001}, 0.9, 8).toml("gem"))
        [gem]
        # validation score 0.9000 after 8 trials
        learning_rate = 0.001
        """
        lines = [f"[{name}]", f"# validation score {self.score:.4f} after {self.trials} trials"]
        return "\n".join(lines + [f"{key} = {value}" for key, value in self.settings.items()])


def suggest(trial: optuna.Trial, contender: Contender) -> dict[str, float]:
    """Draw settings of one trial from the search space that all methods share."""
    options = methods.options(contender.method)
    drawn: dict[str, float] = {
        "feature_norm": trial.suggest_categorical("feature_norm", [1.0, 3.0, 10.0])
    }
    if "learning_rate" in options:
        drawn["learning_rate"] = _rounded(
            trial.suggest_float("learning_rate", 3e-4, 1e-1, log=True)
        )
    if "prior_std" in options:
        drawn["prior_std"] = _rounded(trial.suggest_float("prior_std", 0.05, 10.0, log=True))
    return drawn


def tune(
    contender: Contender,
    benchmark: Benchmark,
    trials: int = 12,
    tasks: int | None = None,
    preferences: int = 5,
    memories: Sequence[int] = (50,),
    seed: int = 100,
    progress: Callable[[int, float], Any] | None = None,
) -> Tuned:
    """Find a contender's best settings on a benchmark's validation data.

    The first trial is the settings it has already.

    Parameters
    ----------
    tasks, preferences
        Fewer of them make trials cheaper.
    memories
        Samples a task that a rehearsal method keeps.
    seed
        Of the data's splits, the preferences and the search; not one of those results are
        reported of.
    progress
        Called after every trial with its number and score.
    """
    if trials < 1:
        raise ValueError(f"Tuning needs at least one trial, not {trials}.")
    column = benchmark.metric
    # Where classes are so unequal, every good answer to a dense preference is the majority's.
    family = "sparse" if column == "balanced_accuracy" else "uniform"
    protocol = Protocol(preferences, family, samples=0, part="validation", tasks=tasks)

    def objective(trial: optuna.Trial) -> float:
        chosen = contender.changed(**suggest(trial, contender))
        sizes = memories if chosen.rehearses else (0,)
        tables = [run(chosen, benchmark, seed, size, protocol) for size in sizes]
        values = metrics.average_per_task(pd.concat(tables).assign(label=""), column)
        score = float(metrics.at_last_task(values)["value"].mean())
        if progress:
            progress(trial.number + 1, score)
        return score

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=seed, n_startup_trials=6)
    )
    study.enqueue_trial(
        {"feature_norm": contender.feature_norm}
        | {
            key: contender.options[key]
            for key in ("learning_rate", "prior_std")
            if key in contender.options
        }
    )
    # Settings under which a method diverges are a failed trial, not the end of the search.
    study.optimize(objective, n_trials=trials, catch=(ValueError,))
    best = {key: _rounded(value) for key, value in study.best_params.items()}
    return Tuned(best, float(study.best_value), trials)


def _rounded(value: float) -> float:
    """Two digits are all that so few trials can tell apart."""
    return float(f"{value:.2g}")
