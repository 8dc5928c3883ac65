"""Learn the tasks of a recipe for one seed, from the best of its starts, telling how it goes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ibcl.rl.bayesian_policy_gradient import PolicyInference, PolicyProgress
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.ibcrl import IBCRL
from ibcl.rl.results import Spent
from ibcl.rl.stages import JointStage, Recipe, Restarts, Stage, SymmetryTransfer
from ibcl.run_logs import RunLog

SECONDS_BETWEEN_LINES = 10.0


def say(line: str) -> None:
    """Write one whole line, whichever process it comes from."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


class ProgressLine:
    """Tells at intervals how a seed is doing: return, KL, hypervolume so far and time left."""

    def __init__(self, recipe: Recipe, seed: int, log: RunLog | None = None) -> None:
        self.recipe = recipe
        self.seed = seed
        self.log = log
        self.scored: list[tuple[float, ...]] = []
        self.task = ""
        """What the next lines are about."""
        self._finished = 0
        self._fresh = 0
        self._started = time.monotonic()
        self._last = -SECONDS_BETWEEN_LINES

    def end(self, returns: Sequence[Sequence[float]], iterations: int) -> None:
        """Count finished tasks, whose mean policies' returns join the hypervolume."""
        self.scored += [tuple(row) for row in returns]
        self._finished += iterations

    def __call__(self, progress: PolicyProgress) -> None:
        """Report, unless the last line is too recent; a log is told everything."""
        self._fresh += 1
        if self.log is not None:
            figures = {f"return {k}": value for k, value in enumerate(progress.returns, start=1)}
            run = f"seed-{self.seed}/{self.task}"
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
        say(
            f"seed {self.seed}  {self.task} {progress.iteration}/{progress.iterations}  "
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
    recipe: Recipe, seed: int, folder: Path, threads: int = 1, log: RunLog | None = None
) -> Trained:
    """Learn the tasks of a recipe, continuing from the folder's checkpoints.

    With restarts the first task is begun from several starts, and the best of them is learnt on.
    """
    line = ProgressLine(recipe, seed, log)
    start, given_up = (seed, folder), list[Spent]()
    if recipe.restarts is not None:
        start, given_up = _best_start(recipe, recipe.restarts, seed, folder, threads, line)
    ibcrl = learner(recipe, start[0], threads)
    for stage in recipe.stages:
        if isinstance(stage, SymmetryTransfer):
            ibcrl.image(stage.of, stage.task, degrees=stage.degrees)
            continue
        _learn(ibcrl, stage, start[1], line)
        returns = [ibcrl.task_scores(task).returns[0].tolist() for task in stage.names]
        line.end(returns, stage.inference.iterations)
    return Trained(ibcrl, given_up)


def _best_start(
    recipe: Recipe, restarts: Restarts, seed: int, folder: Path, threads: int, line: ProgressLine
) -> tuple[tuple[int, Path], list[Spent]]:
    """Begin several times; return seed and folder of the best, and what the others cost."""
    first = recipe.stages[0]
    assert isinstance(first, Stage)
    # The first start is the seed's own, as it is without others.
    starts = [(seed, folder)]
    for n in range(1, restarts.starts):
        drawn = int(np.random.SeedSequence([seed, n]).generate_state(1)[0])
        starts.append((drawn, folder / f"start-{n}"))
    shown, spent = [], []
    for number, place in starts:
        ibcrl = learner(recipe, number, threads)
        trial = _learn(ibcrl, first, place, line, restarts.iterations)
        weights, horizon = first.preference, ibcrl.scoring.horizon
        scored = [first.inference.preferred(row[2:], weights, horizon) for row in trial.history]
        shown.append(max(scored))
        spent.append(Spent(trial.updates, trial.steps, trial.cpu_seconds))
    best = int(np.argmax(shown))
    told = ", ".join(f"{value:.0f}" for value in shown)
    say(f"seed {seed}  of starts that returned {told} the best goes on")
    return starts[best], spent[:best] + spent[best + 1 :]


def _learn(
    ibcrl: IBCRL,
    stage: Stage | JointStage,
    folder: Path,
    line: ProgressLine,
    until: int | None = None,
) -> PolicyInference:
    line.task = stage.task
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
