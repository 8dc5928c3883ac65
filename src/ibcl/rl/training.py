"""Learn the tasks of a recipe for one seed, from the best of its starts, telling how it goes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ibcl.rl.bayesian_policy_gradient import PolicyInference, PolicyProgress
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.ibcrl import IBCRL
from ibcl.rl.results import Spent
from ibcl.rl.stages import JointStage, Recipe, Stage, SymmetryTransfer
from ibcl.run_logs import RunLog

SECONDS_BETWEEN_LINES = 10.0
Report = Callable[[str], None]


class ProgressLine:
    """Tells at intervals how a seed is doing: return, KL, hypervolume so far and time left."""

    def __init__(
        self, recipe: Recipe, seed: int, report: Report, log: RunLog | None = None
    ) -> None:
        self.recipe = recipe
        self.seed = seed
        self.report = report
        self.log = log
        self.scored: list[tuple[float, ...]] = []
        self._task = ""
        self._finished = 0
        self._fresh = 0
        self._started = time.monotonic()
        self._last = -SECONDS_BETWEEN_LINES

    def begin(self, task: str) -> None:
        """Name the task that the next lines are about."""
        self._task = task

    def end(self, returns: Sequence[Sequence[float]], iterations: int) -> None:
        """Count finished tasks, whose mean policies' returns join the hypervolume."""
        self.scored += [tuple(row) for row in returns]
        self._finished += iterations

    def __call__(self, progress: PolicyProgress) -> None:
        """Report, unless the last line is too recent; a log is told everything."""
        self._fresh += 1
        if self.log is not None:
            figures = {f"return {k}": value for k, value in enumerate(progress.returns, start=1)}
            run = f"seed-{self.seed}/{self._task}"
            self.log.log(run, progress.iteration, {**figures, "KL": progress.kl})
        now = time.monotonic()
        if now - self._last < SECONDS_BETWEEN_LINES or not progress.returns:
            return
        self._last = now
        left = self.recipe.iterations - self._finished - progress.iteration
        seconds = (now - self._started) / self._fresh * left
        points = np.reshape(progress.returns, (-1, len(self.recipe.reference))).tolist()
        volume = hypervolume([*self.scored, *points], self.recipe.reference)
        returns = ", ".join(f"{value:.0f}" for value in progress.returns)
        self.report(
            f"seed {self.seed}  {self._task} {progress.iteration}/{progress.iterations}  "
            f"return ({returns})  KL {progress.kl:.0f}  hypervolume {volume:.4g}  "
            f"{progress.steps_per_second:,.0f} steps/s  "
            f"{progress.updates_per_second:,.0f} updates/s  "
            f"{seconds // 60:.0f} min {seconds % 60:02.0f} s left"
        )


def learner(recipe: Recipe, seed: int, threads: int = 1) -> IBCRL:
    """Build the learner a recipe describes."""
    return IBCRL(
        recipe.environment,
        training_environment=recipe.training_environment,
        hidden=recipe.hidden,
        squashed=recipe.squashed,
        copies=recipe.copies,
        initial_std=recipe.initial_std,
        seed=seed,
        threads=threads,
    )


class Trained(NamedTuple):
    """What was learnt, and what was spent on starts that were given up."""

    ibcrl: IBCRL
    given_up: list[Spent]


def train(
    recipe: Recipe,
    seed: int,
    folder: Path,
    report: Report,
    threads: int = 1,
    log: RunLog | None = None,
) -> Trained:
    """Learn the tasks of a recipe, continuing from the folder's checkpoints.

    With restarts the first task is begun from several starts, and the best of them is learnt on.
    """
    line = ProgressLine(recipe, seed, report, log)
    starts = _starts(recipe, seed, folder)
    best, trials = 0, list[PolicyInference]()
    if recipe.restarts is not None:
        until, first = recipe.restarts.iterations, recipe.trained[0]
        trials = [
            _learn(learner(recipe, start.seed, threads), first, start.folder, line, until)
            for start in starts
        ]
        shown = [trial.objectives[0] for trial in trials]
        best = int(np.argmax(shown))
        told = ", ".join(f"{value:.0f}" for value in shown)
        report(f"seed {seed}  of starts that returned {told} the best goes on")
    given_up = [
        Spent(trial.updates, trial.steps, trial.cpu_seconds)
        for start, trial in enumerate(trials)
        if start != best
    ]
    ibcrl = learner(recipe, starts[best].seed, threads)
    for stage in recipe.stages:
        if isinstance(stage, SymmetryTransfer):
            ibcrl.image(stage.of, stage.task, degrees=stage.degrees)
            continue
        _learn(ibcrl, stage, starts[best].folder, line)
        line.end([mean_returns(ibcrl, task) for task in stage.names], stage.inference.iterations)
    return Trained(ibcrl, given_up)


class _Start(NamedTuple):
    """What a start's random numbers come of, and where its checkpoints are."""

    seed: int
    folder: Path


def _starts(recipe: Recipe, seed: int, folder: Path) -> list[_Start]:
    """Return the starts to try; the first is the seed's own, as it is without others."""
    count = 1 if recipe.restarts is None else recipe.restarts.starts
    others = [
        _Start(
            int(np.random.SeedSequence([seed, start]).generate_state(1)[0]),
            folder / f"start-{start}",
        )
        for start in range(1, count)
    ]
    return [_Start(seed, folder), *others]


def _learn(
    ibcrl: IBCRL,
    stage: Stage | JointStage,
    folder: Path,
    line: ProgressLine,
    until: int | None = None,
) -> PolicyInference:
    line.begin(stage.task)
    checkpoint = folder / f"{stage.task}.safetensors"
    if isinstance(stage, JointStage):
        return ibcrl.learn_together(
            stage.tasks,
            inference=stage.inference,
            priors=stage.priors or None,
            checkpoint=checkpoint,
            progress=line,
        )
    return ibcrl.learn(
        stage.preference,
        stage.task,
        prior=stage.prior,
        inference=stage.inference,
        checkpoint=checkpoint,
        until=until,
        progress=line,
    )


def mean_returns(ibcrl: IBCRL, task: str) -> list[float]:
    """Score the mean policy of a task's posterior."""
    returns: list[float] = ibcrl.task_scores(task).returns.mean(0).tolist()
    return returns
