"""Run a recipe on several seeds: train, generate policies for many preferences, score them.

Everything is kept in one folder: a checkpoint a task, written after every update, and a result a
seed. Running the same command again continues where the last one stopped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from multiprocessing.context import SpawnContext
from pathlib import Path

from threadpoolctl import threadpool_limits

from ibcl.engines import Engine, LocalEngine, Outcome
from ibcl.progress import Bar, progress_bar
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.results import SeedResult, TaskResult
from ibcl.rl.stages import Recipe
from ibcl.rl.training import Report, mean_returns, train
from ibcl.run_logs import RunLog


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
        utilities = {
            f"expected utility/{name}": value for name, value in result.expected_utilities.items()
        }
        log.log(f"seed-{seed}", cost.steps, volumes | utilities)
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
        with _lines(get_context("spawn"), bar.say) as say:
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
    # Seeds are independent, and networks this small gain nothing from a second arithmetic thread.
    with threadpool_limits(1):
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


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
