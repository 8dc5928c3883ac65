"""Run a recipe on several seeds: train, generate policies for many preferences, score them.

Everything is kept in one folder: a checkpoint per task, written after every update, and a result
per seed. Running the same command again continues where the last one stopped.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from threadpoolctl import threadpool_limits

from ibcl.engines import Engine, LocalEngine
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.results import SeedResult, TaskResult
from ibcl.rl.seed_training import say, train
from ibcl.rl.stages import Recipe
from ibcl.run_logs import RunLog


def run_seed(
    recipe: Recipe,
    seed: int,
    folder: Path,
    preferences: int = 200,
    threads: int = 1,
    log: RunLog | None = None,
) -> SeedResult:
    """Train one seed, generate policies for evenly spread preferences, and score them.

    Parameters
    ----------
    log
        Told returns and KL after every iteration, and the hypervolumes at the end.
    """
    file = folder / f"seed-{seed}" / f"result-{preferences}.json"
    if file.exists():
        return SeedResult.load(file)
    ibcrl, given_up = train(recipe, seed, file.parent, threads, log)
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
                ibcrl.task_scores(task).returns[0].tolist(),
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
    work = partial(_run_one, recipe, folder.absolute(), preferences, threads, log)
    if engine is None and (workers == 1 or len(seeds) == 1):
        return [work(seed) for seed in seeds]
    outcomes = list((engine or LocalEngine(workers)).run(work, seeds))
    failed = [f"seed {each.item} ({each.error})" for each in outcomes if each.result is None]
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(seeds)} seeds failed, the others are kept: "
            f"{'; '.join(failed)}. Give the same command again to try these again."
        )
    found = {each.item: each.result for each in outcomes if each.result is not None}
    return [found[seed] for seed in seeds]


def _run_one(
    recipe: Recipe, folder: Path, preferences: int, threads: int, log: RunLog | None, seed: int
) -> SeedResult:
    # Seeds are independent, and networks this small gain nothing from a second arithmetic thread.
    with threadpool_limits(1):
        return run_seed(recipe, seed, folder, preferences, threads, log)
