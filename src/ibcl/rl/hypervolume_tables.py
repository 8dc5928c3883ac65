"""What a run found: tables beside the published figures, and CSV files."""

from __future__ import annotations

import csv
import math
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
from scipy import stats

from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.published import PUBLISHED
from ibcl.rl.results import SeedResult
from ibcl.rl.stages import JointStage, Recipe, SymmetryTransfer


@dataclass(frozen=True)
class Interval:
    """A mean over seeds with the half width of its 95 % Student interval (NaN for one seed)."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Estimate from one value a seed.

        Examples
        --------
        >>> interval = Interval.of([1.0, 2.0, 3.0])
        >>> interval.mean, round(interval.half_width, 3)
        (2.0, 2.484)
        """
        n = len(values)
        if n < 2:
            return cls(float(values[0]), math.nan)
        width = float(stats.t.ppf(0.975, n - 1)) * float(np.std(values, ddof=1)) / math.sqrt(n)
        return cls(float(np.mean(values)), width)

    def times(self, unit: float, digits: int = 3) -> str:
        """Write as a multiple of a unit.

        Examples
        --------
        >>> Interval(5.5e6, 1e5).times(1e6)
        '5.500 ± 0.100'
        >>> Interval(2104.3, 11.2).times(1, digits=0)
        '2104 ± 11'
        """
        spread = "" if math.isnan(self.half_width) else f" ± {self.half_width / unit:.{digits}f}"
        return f"{self.mean / unit:.{digits}f}{spread}"


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
    count = len(results[0].fronts[next(iter(recipe.combinations))])
    lines = [
        f"| method | hypervolume × {power} | expected utility | posteriors trained | combined "
        "| steps × 10⁶ | updates × 10³ | CPU-seconds | policies | fell | source |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, figure in PUBLISHED.get(recipe.environment, {}).items():
        trained = "" if figure.steps is None else f"{figure.steps / 1e6:.2f}"
        lines.append(
            f"| {name} | {figure.hypervolume / unit:.2f} | | | | {trained} | | | 200 | "
            "| as printed |"
        )
    source = "1 seed" if len(results) == 1 else f"{len(results)} seeds, 95 % interval"
    for name, tasks in recipe.combinations.items():
        interval = Interval.of([result.hypervolumes[name] for result in results])
        utility = Interval.of([result.expected_utilities[name] for result in results])
        costs = [result.cost(needed_tasks(recipe, tasks)) for result in results]
        steps = np.mean([cost.steps for cost in costs])
        updates = np.mean([cost.updates for cost in costs])
        seconds = np.mean([cost.cpu_seconds for cost in costs])
        fallen = np.mean([result.fallen[name] for result in results])
        label = f"ours, {name} ({', '.join(tasks)})"
        posteriors = f"{_trained(recipe, tasks)} | {len(tasks)}"
        if recipe.sees_the_preference:
            label, posteriors = f"baseline, {name}", "one network | none"
        lines.append(
            f"| {label} | {interval.times(unit)} | {utility.times(1, digits=0)} | {posteriors} | "
            f"{steps / 1e6:.2f} | {updates / 1e3:.1f} | {seconds:.0f} | {count} | {fallen:.1f} | "
            f"{source} |"
        )
    return "\n".join(lines)


def needed_tasks(recipe: Recipe, tasks: Sequence[str]) -> set[str]:
    """Find the tasks that had to be learnt for a combination, priors of priors included."""
    learnt_by: dict[str, int] = {}
    for index, stage in enumerate(recipe.stages):
        for name in stage.names:
            # A task that is kept by a later stage belongs to the one that learnt it.
            learnt_by.setdefault(name, index)
    needed: set[str] = set()
    waiting = list(tasks)
    while waiting:
        task = waiting.pop()
        if task in needed:
            continue
        stage = recipe.stages[learnt_by[task]]
        if isinstance(stage, JointStage):
            needed |= set(stage.names) - set(stage.kept)
            waiting += [*stage.priors, *stage.kept]
            continue
        needed.add(task)
        if isinstance(stage, SymmetryTransfer):
            waiting.append(stage.of)
        elif stage.priors:
            waiting += stage.priors
        elif learnt_by[task]:
            waiting.append(recipe.stages[learnt_by[task] - 1].names[-1])
    return needed


def trained_tasks(recipe: Recipe, tasks: set[str]) -> set[str]:
    """Leave out the tasks whose posterior is only an image."""
    return tasks & {name for stage in recipe.trained for name in stage.names}


def _trained(recipe: Recipe, tasks: Sequence[str]) -> int:
    """Count the posteriors trained for a combination; the baseline is one network."""
    if recipe.sees_the_preference:
        return 1
    return len(trained_tasks(recipe, needed_tasks(recipe, tasks)))


def _starts(results: Sequence[SeedResult]) -> list[str]:
    given_up = {result.seed: len(result.given_up) for result in results if result.given_up}
    if not given_up:
        return []
    told = ", ".join(f"seed {seed}: {count}" for seed, count in given_up.items())
    return [f"- Best-of-n restarts: starts given up, their cost included: {told}."]


def summary(recipe: Recipe, results: Sequence[SeedResult], command: str) -> str:
    """Markdown page: table, costs, versions."""
    count = len(results[0].fronts[next(iter(recipe.combinations))])
    costs = [result.cost() for result in results]
    steps = np.array([cost.steps for cost in costs])
    cpu = np.array([cost.cpu_seconds for cost in costs])
    seeds = ", ".join(str(result.seed) for result in results)
    packages = ("mujoco", "gymnasium", "moocore", "numpy", "torch")
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
    lines = [
        f"# {title}",
        "",
        f"`{command}`",
        "",
        table(recipe, results),
        "",
        f"- Seeds {seeds}; reference point {recipe.reference}; mean policies, one episode each "
        "(the problems are deterministic).",
        f"- Environment steps a seed: {steps.mean():,.0f} for training and scoring on the way, "
        f"{results[0].generation_steps:,} more to score each set of generated policies.",
        f"- CPU-seconds of training a seed: mean {cpu.mean():.0f}, largest {cpu.max():.0f}; "
        f"{steps.sum() / cpu.sum():,.0f} steps and "
        f"{sum(cost.updates for cost in costs) / cpu.sum():,.0f} updates a CPU-second.",
        f"- {origin}",
        *_starts(results),
        f"- Versions: Python {platform.python_version()}, "
        + ", ".join(f"{package} {version(package)}" for package in packages)
        + ".",
        "",
        "Mean returns over the seeds, and what was learnt together is counted in its first row:"
        if any(isinstance(stage, JointStage) for stage in recipe.trained)
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
    found = []
    for result in results:
        for name, tasks in recipe.combinations.items():
            cost = result.cost(needed_tasks(recipe, tasks))
            figures = (result.hypervolumes[name], result.expected_utilities[name])
            combined = 0 if recipe.sees_the_preference else len(tasks)
            spent = (cost.steps, cost.updates, f"{cost.cpu_seconds:.1f}", len(result.given_up))
            counts = (combined, _trained(recipe, tasks), *spent, result.fallen[name])
            found.append([result.seed, name, *_rounded(figures), *counts])
    columns = "seed,figure,hypervolume,expected_utility,combined,trained,steps,updates,cpu_seconds"
    header = [*columns.split(","), "given_up", "fell"]
    _write(folder / "hypervolumes.csv", header, found)
    front = []
    for result in results:
        returns = result.fronts[next(iter(recipe.combinations))]
        preferences = even_preferences(len(returns), len(recipe.reference))
        for weights, row in zip(preferences, returns, strict=True):
            front.append([result.seed, *(f"{weight:.4f}" for weight in weights), *_rounded(row)])
    header = ["seed", *_columns("preference", recipe), *_columns("return", recipe)]
    _write(folder / "front.csv", header, front)
    curve = [
        [result.seed, task.task, int(iteration), int(steps), *_rounded(returns)]
        for result in results
        for task in result.tasks
        for iteration, steps, *returns in task.curve
    ]
    header = ["seed", "task", "iteration", "steps", *_columns("return", recipe)]
    _write(folder / "curve.csv", header, curve)


def _write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])


def _rounded(values: Sequence[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _columns(name: str, recipe: Recipe) -> list[str]:
    return [f"{name}_{index}" for index in range(len(recipe.reference))]
