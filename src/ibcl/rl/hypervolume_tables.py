"""What a run found: tables beside the published figures, and CSV files."""

from __future__ import annotations

import csv
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from ibcl.intervals import interval
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.published import PUBLISHED
from ibcl.rl.results import SeedResult
from ibcl.rl.stages import JointStage, Recipe

PACKAGES = ("mujoco", "gymnasium", "moocore", "numpy", "torch")


def hypervolume_unit(objectives: int) -> tuple[float, str]:
    """Return the unit in which hypervolumes are told, and how it is written.

    It is made of a return of a thousand in every objective.

    Examples
    --------
    >>> hypervolume_unit(2)
    (1000000.0, '10⁶')
    """
    return (1e6, "10⁶") if objectives == 2 else (1e9, "10⁹")


def table(recipe: Recipe, results: Sequence[SeedResult]) -> str:
    """Markdown: hypervolumes of ours and of the published methods, and what ours cost."""
    unit, power = hypervolume_unit(len(recipe.reference))
    lines = [
        f"| method | hypervolume × {power} | expected utility | posteriors trained | combined "
        "| steps × 10⁶ | updates × 10³ | CPU-seconds | policies | fell | source |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, figure in PUBLISHED.get(recipe.environment, {}).items():
        trained = "" if figure.steps is None else f"{figure.steps / 1e6:.2f} "
        lines.append(
            f"| {name} | {figure.hypervolume / unit:.2f} | | | | {trained}| | | 200 | "
            "| as printed |"
        )
    source = "1 seed" if len(results) == 1 else f"{len(results)} seeds, 95 % interval"
    for name, tasks in recipe.combinations.items():
        volume = interval([result.hypervolumes[name] for result in results])
        utility = interval([result.expected_utilities[name] for result in results])
        costs = [result.cost(recipe.needed(tasks)) for result in results]
        steps = np.mean([cost.steps for cost in costs])
        updates = np.mean([cost.updates for cost in costs])
        seconds = np.mean([cost.cpu_seconds for cost in costs])
        fallen = np.mean([result.fallen[name] for result in results])
        label = f"ours, {name} ({', '.join(tasks)})"
        posteriors = f"{recipe.posteriors(tasks)} | {len(tasks)}"
        if recipe.sees_the_preference:
            label, posteriors = f"baseline, {name}", "one network | none"
        lines.append(
            f"| {label} | {volume.times(unit)} | {utility.times(1, digits=0)} | {posteriors} | "
            f"{steps / 1e6:.2f} | {updates / 1e3:.1f} | {seconds:.0f} | "
            f"{len(results[0].fronts[name])} | {fallen:.1f} | {source} |"
        )
    return "\n".join(lines)


def summary(recipe: Recipe, results: Sequence[SeedResult], command: str) -> str:
    """Markdown page: table, costs, versions."""
    count = len(results[0].fronts[next(iter(recipe.combinations))])
    costs = [result.cost() for result in results]
    steps = np.array([cost.steps for cost in costs])
    cpu = np.array([cost.cpu_seconds for cost in costs])
    updates = sum(cost.updates for cost in costs)
    weights: dict[str, str] = {}
    for stage in recipe.trained:
        for name in stage.names:
            weights.setdefault(name, f"{stage.inference.kl_weight:g}")
    title, kind = recipe.environment, "task"
    origin = (
        f"Posteriors trained: {len(weights)}; "
        f"policies generated from them without training: {count}."
    )
    if recipe.sees_the_preference:
        title, kind = f"{title}, the baseline", "preferred objective"
        origin = f"One network trained, which sees the preference; asked for {count} of them."
    given_up = [f"seed {each.seed}: {len(each.given_up)}" for each in results if each.given_up]
    restarts = f"- Best-of-n restarts: starts given up, their cost included: {', '.join(given_up)}."
    together = any(isinstance(stage, JointStage) for stage in recipe.trained)
    lines = [
        f"# {title}",
        "",
        f"`{command}`",
        "",
        table(recipe, results),
        "",
        f"- Seeds {', '.join(str(result.seed) for result in results)}; reference point "
        f"{recipe.reference}; mean policies, one episode each (the problems are deterministic).",
        f"- Environment steps per seed: {steps.mean():,.0f} for training and scoring on the way, "
        f"{results[0].generation_steps:,} more to score each set of generated policies.",
        f"- CPU-seconds of training per seed: mean {cpu.mean():.0f}, largest {cpu.max():.0f}; "
        f"{steps.sum() / cpu.sum():,.0f} steps and {updates / cpu.sum():,.0f} updates "
        "per CPU-second.",
        f"- {origin}",
        *([restarts] if given_up else []),
        f"- Versions: Python {platform.python_version()}, "
        + ", ".join(f"{package} {version(package)}" for package in PACKAGES)
        + ".",
        "",
        "Mean returns over the seeds, and what was learnt together is counted in its first row:"
        if together
        else "Mean returns of the tasks' mean policies over the seeds:",
        "",
        f"| {kind} | preference | updates | weight β of the KL | return |",
        "|---|---|---|---|---|",
    ]
    for index, task in enumerate(results[0].tasks):
        returns = np.mean([result.tasks[index].returns for result in results], axis=0)
        lines.append(
            f"| {task.task} | ({', '.join(f'{weight:.3g}' for weight in task.preference)}) | "
            f"{task.updates} | {weights.get(task.task, '')} | "
            f"({', '.join(f'{value:.0f}' for value in returns)}) |"
        )
    return "\n".join(lines) + "\n"


def write_tables(recipe: Recipe, results: Sequence[SeedResult], folder: Path) -> None:
    """Write hypervolumes.csv, front.csv (main figure) and curve.csv."""
    columns = "figure,hypervolume,expected_utility,combined,trained,steps,updates,cpu_seconds"
    header = ["seed", *columns.split(","), "given_up", "fell"]
    found, front, curve = [], [], []
    for result in results:
        for name, tasks in recipe.combinations.items():
            cost = result.cost(recipe.needed(tasks))
            figures = (result.hypervolumes[name], result.expected_utilities[name])
            combined = 0 if recipe.sees_the_preference else len(tasks)
            spent = (cost.steps, cost.updates, f"{cost.cpu_seconds:.1f}", len(result.given_up))
            counts = (combined, recipe.posteriors(tasks), *spent, result.fallen[name])
            found.append([result.seed, name, *_rounded(figures), *counts])
        returns = result.fronts[next(iter(recipe.combinations))]
        preferences = even_preferences(len(returns), len(recipe.reference))
        for weights, row in zip(preferences, returns, strict=True):
            front.append([result.seed, *(f"{weight:.4f}" for weight in weights), *_rounded(row)])
        for task in result.tasks:
            for iteration, steps, *row in task.curve:
                curve.append([result.seed, task.task, int(iteration), int(steps), *_rounded(row)])
    objectives = range(len(recipe.reference))
    earned = [f"return_{index}" for index in objectives]
    wanted = [f"preference_{index}" for index in objectives]
    _write(folder / "hypervolumes.csv", header, found)
    _write(folder / "front.csv", ["seed", *wanted, *earned], front)
    _write(folder / "curve.csv", ["seed", "task", "iteration", "steps", *earned], curve)


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def _rounded(values: Sequence[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]
