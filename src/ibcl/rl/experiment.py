"""Run a recipe on several seeds: train, generate policies for many preferences, score them.

Everything is kept in one folder: a checkpoint a task, written after every update, and a result a
seed. Running the same command again continues where the last one stopped.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ibcl.callbacks import RunLog
from ibcl.experiments.engine import Engine, LocalEngine, Outcome
from ibcl.files import write_atomically
from ibcl.progress import Bar, progress_bar
from ibcl.rl.bayesian_policy_gradient import PolicyInference, PolicyProgress
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.ibcrl import IBCRL
from ibcl.rl.recipes import Image, Recipe, Stage, Together

SECONDS_BETWEEN_LINES = 10.0
Report = Callable[[str], None]


@dataclass(frozen=True)
class Spent:
    """What some training cost."""

    updates: int
    steps: int
    cpu_seconds: float


@dataclass(frozen=True)
class TaskResult:
    """One learnt task: what its mean policy returns and what it cost."""

    task: str
    preference: list[float]
    returns: list[float]
    updates: int
    steps: int
    cpu_seconds: float
    curve: list[list[float]]


@dataclass(frozen=True)
class SeedResult:
    """One seed: the hypervolume and the returns of every combination of posteriors."""

    seed: int
    tasks: list[TaskResult]
    hypervolumes: dict[str, float]
    fronts: dict[str, list[list[float]]]
    fallen: dict[str, int]
    """How many of the generated policies fell in their episode."""
    generation_steps: int
    given_up: list[Spent] = field(default_factory=list)
    """Starts that were not the best after their trial; their cost is part of the seed's."""

    def cost(self, tasks: set[str] | None = None) -> Spent:
        """Sum up what all tasks cost, or these, with the starts given up before them.

        Steps include the scoring of mean policies.
        """
        chosen = [task for task in self.tasks if tasks is None or task.task in tasks]
        parts: list[TaskResult | Spent] = [*chosen, *self.given_up]
        return Spent(
            sum(part.updates for part in parts),
            sum(part.steps for part in parts),
            sum(part.cpu_seconds for part in parts),
        )

    def save(self, path: Path) -> None:
        """Write as JSON."""
        write_atomically(path, json.dumps(asdict(self)).encode())

    @classmethod
    def load(cls, path: Path) -> SeedResult:
        """Read what `save` wrote."""
        stored = json.loads(path.read_text())
        stored["tasks"] = [TaskResult(**task) for task in stored["tasks"]]
        stored["given_up"] = [Spent(**spent) for spent in stored.get("given_up", [])]
        return cls(**stored)


def even_preferences(n: int, objectives: int = 2) -> NDArray[np.float64]:
    """Spread n preferences evenly: from (0, 1) to (1, 0), or on a lattice of at most n points.

    Examples
    --------
    >>> even_preferences(3).tolist()
    [[0.0, 1.0], [0.5, 0.5], [1.0, 0.0]]
    >>> even_preferences(5, objectives=3).tolist()
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]
    """
    if objectives == 2:
        first = np.linspace(0, 1, n)
        return np.stack([first, 1 - first], axis=1)
    height = 1
    while math.comb(height + objectives, objectives - 1) <= n:
        height += 1
    steps = itertools.product(range(height + 1), repeat=objectives - 1)
    rows = [(*each, height - sum(each)) for each in steps if sum(each) <= height]
    return np.array(rows, dtype=np.float64) / height


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

    With a trial the first task is begun from several starts, and the best of them is learnt on.
    """
    line = ProgressLine(recipe, seed, report, log)
    starts = _starts(recipe, seed, folder)
    best, trials = 0, list[PolicyInference]()
    if recipe.trial is not None:
        until, first = recipe.trial.iterations, recipe.trained[0]
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
        if isinstance(stage, Image):
            ibcrl.image(stage.of, stage.task, degrees=stage.degrees)
            continue
        _learn(ibcrl, stage, starts[best].folder, line)
        learnt = list(stage.tasks) if isinstance(stage, Together) else [stage.task]
        line.end([mean_returns(ibcrl, task) for task in learnt], stage.inference.iterations)
    return Trained(ibcrl, given_up)


class _Start(NamedTuple):
    """What a start's random numbers come of, and where its checkpoints are."""

    seed: int
    folder: Path


def _starts(recipe: Recipe, seed: int, folder: Path) -> list[_Start]:
    """Return the starts to try; the first is the seed's own, as it is without others."""
    count = 1 if recipe.trial is None else recipe.trial.starts
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
    stage: Stage | Together,
    folder: Path,
    line: ProgressLine,
    until: int | None = None,
) -> PolicyInference:
    line.begin(stage.task)
    checkpoint = folder / f"{stage.task}.safetensors"
    if isinstance(stage, Together):
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


def run_seed(
    recipe: Recipe,
    seed: int,
    folder: Path,
    preferences: int = 200,
    threads: int = 1,
    report: Report | None = None,
    log: RunLog | None = None,
) -> SeedResult:
    """Train one seed, generate policies for evenly spread preferences, and score them.

    Parameters
    ----------
    log
        Told returns and KL after every iteration, and the hypervolumes at the end.
    """
    say = report or _print
    file = folder / f"seed-{seed}" / f"result-{preferences}.json"
    if file.exists():
        return SeedResult.load(file)
    ibcrl, given_up = train(recipe, seed, file.parent, say, threads, log)
    wanted = even_preferences(preferences, len(recipe.reference))
    scores = {
        name: ibcrl.scores(ibcrl.means(wanted, tasks))
        for name, tasks in recipe.combinations.items()
    }
    result = SeedResult(
        seed=seed,
        tasks=[
            TaskResult(
                task,
                list(ibcrl.preferences[task]),
                mean_returns(ibcrl, task),
                learnt.updates,
                learnt.steps,
                learnt.cpu_seconds,
                learnt.history.tolist(),
            )
            for task, learnt in ibcrl.results.items()
        ],
        given_up=given_up,
        hypervolumes={
            name: hypervolume(score.returns, recipe.reference) for name, score in scores.items()
        },
        fronts={name: score.returns.tolist() for name, score in scores.items()},
        fallen={name: int(score.fell.sum()) for name, score in scores.items()},
        generation_steps=len(wanted) * ibcrl.scoring.horizon,
    )
    result.save(file)
    cost = result.cost()
    if log is not None:
        volumes = {f"hypervolume/{name}": value for name, value in result.hypervolumes.items()}
        log.log(f"seed-{seed}", cost.steps, volumes)
    figures = ", ".join(f"{name} {value:.4g}" for name, value in result.hypervolumes.items())
    say(
        f"seed {seed}  hypervolume: {figures}  ({cost.steps:,} steps, "
        f"{cost.cpu_seconds:.0f} CPU-seconds)"
    )
    return result


def run(
    recipe: Recipe,
    seeds: Sequence[int],
    folder: Path,
    preferences: int = 200,
    workers: int = 1,
    threads: int = 1,
    log: RunLog | None = None,
    engine: Engine | None = None,
) -> list[SeedResult]:
    """Run all seeds, ``workers`` of them at a time.

    Parameters
    ----------
    engine
        Where they run, instead of in processes of this machine; it must see the folder.
    """
    if preferences < 2:
        raise ValueError(f"A front needs at least two preferences, not {preferences}.")
    folder.mkdir(parents=True, exist_ok=True)
    with progress_bar("seeds", total=len(seeds)) as bar:
        if engine is None and (workers == 1 or len(seeds) == 1):
            results = []
            for seed in seeds:
                results.append(run_seed(recipe, seed, folder, preferences, threads, bar.say, log))
                bar.advance(1)
            return results
        work = partial(_run_one, recipe, folder.absolute(), preferences, threads)
        if engine is not None:
            return _collected(engine.run(partial(work, None, log), seeds), seeds, bar)
        # Processes, one arithmetic thread each: seeds are independent, and a network this small
        # gains nothing from more.
        with _one_arithmetic_thread(), _lines(get_context("spawn"), bar.say) as say:
            outcomes = LocalEngine(workers).run(partial(work, say, log), seeds)
            return _collected(outcomes, seeds, bar)


def _run_one(
    recipe: Recipe,
    folder: Path,
    preferences: int,
    threads: int,
    report: Report | None,
    log: RunLog | None,
    seed: int,
) -> SeedResult:
    return run_seed(recipe, seed, folder, preferences, threads, report, log)


def _collected(
    outcomes: Iterator[Outcome[int, SeedResult]], seeds: Sequence[int], bar: Bar
) -> list[SeedResult]:
    """Return the results in the order of the seeds; say at the end which ones failed."""
    found: dict[int, SeedResult] = {}
    failed = []
    for outcome in outcomes:
        if outcome.result is None:
            failed.append(f"seed {outcome.item} ({outcome.error})")
        else:
            found[outcome.item] = outcome.result
        bar.advance(1)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(seeds)} seeds failed, the others are kept: "
            f"{'; '.join(failed)}. Give the same command again to try these again."
        )
    return [found[seed] for seed in seeds]


@contextmanager
def _lines(context: SpawnContext, say: Report) -> Iterator[Report]:
    """Give a function that says lines in this process, whichever process it is called in."""
    with context.Manager() as manager:
        queue = manager.Queue()

        def listen() -> None:
            for line in iter(queue.get, None):
                say(line)

        listener = threading.Thread(target=listen)
        listener.start()
        try:
            yield queue.put
        finally:
            queue.put(None)
            listener.join()


class _one_arithmetic_thread:  # noqa: N801 - reads as the statement it is
    """Let child processes start with one BLAS thread."""

    def __enter__(self) -> None:
        self._before = os.environ.get("OMP_NUM_THREADS")
        os.environ["OMP_NUM_THREADS"] = "1"

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = self._before


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
