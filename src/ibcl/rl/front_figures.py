"""Pictures of a run: the front, the learning curves and policies at work along the front."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ibcl.intervals import interval
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.frames import SECONDS_A_FRAME, VIEWS, animate, exposed_together, film, rendered
from ibcl.rl.hypervolume import front
from ibcl.rl.hypervolume_tables import hypervolume_unit
from ibcl.rl.ibcrl import IBCRL
from ibcl.rl.policies import Floats
from ibcl.rl.published import PUBLISHED, PUBLISHED_POINTS
from ibcl.rl.results import SeedResult
from ibcl.rl.stages import Recipe

MOMENTS = 32


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_front(
    recipe: Recipe, results: Sequence[SeedResult], objectives: Sequence[str], path: Path
) -> None:
    """Draw all generated policies, coloured by preference, and hypervolumes beside published ones.

    With more than two objectives, the first two are drawn.
    """
    figure = _figure(9, 4)
    axes, beside = figure.subplots(1, 2, width_ratios=(3, 2))
    name, tasks = next(iter(recipe.combinations.items()))
    for index, result in enumerate(results):
        returns = np.array(result.fronts[name])
        weights = even_preferences(len(returns), len(objectives))[:, 0]
        points = axes.scatter(
            returns[:, 0], returns[:, 1], c=weights, s=5, cmap="viridis", vmin=0, vmax=1
        )
        best = returns[front(returns)]
        if len(objectives) == 2:
            axes.plot(best[:, 0], best[:, 1], color="0.6", lw=0.4, zorder=0)
        learnt = np.array([task.returns for task in result.tasks if task.task in tasks])
        marks = "its extremes" if recipe.sees_the_preference else "posteriors combined"
        label = marks if index == 0 else None
        axes.plot(learnt[:, 0], learnt[:, 1], "k+", ms=7, label=label)
    reported = np.array(PUBLISHED_POINTS.get(recipe.environment, []))
    if reported.size:
        axes.plot(reported[:, 0], reported[:, 1], "rx", label="PD-MORL, as printed")
    figure.colorbar(points, ax=axes, label=f"preference for {objectives[0]}")
    axes.set(xlabel=f"return, {objectives[0]}", ylabel=f"return, {objectives[1]}")
    seeds = ", ".join(str(result.seed) for result in results)
    axes.set_title(f"{recipe.environment}, seeds {seeds}", fontsize=9)
    axes.legend(fontsize=7)
    _draw_hypervolumes(beside, recipe, results)
    figure.savefig(path)


def _draw_hypervolumes(axes: Any, recipe: Recipe, results: Sequence[SeedResult]) -> None:
    """Draw one dot per seed and the interval of every combination, published figures as lines."""
    unit, power = hypervolume_unit(len(recipe.reference))
    for index, name in enumerate(recipe.combinations):
        values = [result.hypervolumes[name] / unit for result in results]
        found = interval(values)
        axes.plot([index] * len(values), values, "o", ms=3, color=f"C{index}", alpha=0.6)
        width = None if math.isnan(found.half_width) else found.half_width
        axes.errorbar(index + 0.15, found.mean, width, fmt="_", capsize=3, color=f"C{index}")
    for name, figure in PUBLISHED.get(recipe.environment, {}).items():
        value = figure.hypervolume
        axes.axhline(value / unit, color="0.5", lw=0.7, ls="--")
        axes.text(
            len(recipe.combinations) - 0.4, value / unit, name, fontsize=6, va="bottom", ha="right"
        )
    axes.set_xticks(range(len(recipe.combinations)))
    axes.set_xticklabels([name.replace(" ", "\n") for name in recipe.combinations], fontsize=6)
    axes.set_xlim(-0.6, len(recipe.combinations) - 0.4)
    axes.set_title(f"hypervolume × {power}; dashed: as printed", fontsize=9)


def draw_curves(results: Sequence[SeedResult], objectives: Sequence[str], path: Path) -> None:
    """Draw the mean policies' returns, task after task: mean over seeds and its 95 % interval."""
    figure = _figure(7, 3.5)
    axes: Any = figure.add_subplot()
    start = 0.0
    for group in results[0].learnt_together():
        for task in group:
            curves = np.array([result.tasks[task].curve for result in results])
            steps = (start + curves[:, :, 1].mean(0)) / 1e6
            for k in range(len(objectives)):
                values = curves[:, :, 2 + k]
                axes.plot(steps, values.mean(0), color=f"C{k}", lw=1)
                if len(results) > 1:
                    widths = [interval(column).half_width for column in values.T.tolist()]
                    low, high = values.mean(0) - widths, values.mean(0) + widths
                    axes.fill_between(steps, low, high, color=f"C{k}", alpha=0.25, lw=0)
        start += float(np.mean([result.tasks[group[0]].steps for result in results]))
        names = ", ".join(results[0].tasks[task].task for task in group)
        axes.axvline(start / 1e6, color="0.85", lw=0.8, zorder=0)
        axes.text(
            start / 1e6,
            0.02,
            f"{names} ",
            rotation=90,
            fontsize=6,
            ha="right",
            transform=axes.get_xaxis_transform(),
        )
    for k, objective in enumerate(objectives):
        axes.plot([], [], color=f"C{k}", label=objective)
    axes.set(xlabel="environment steps (millions)", ylabel="return of the mean policy")
    # Above the axes, because names and curves are everywhere below.
    above = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": len(objectives)}
    axes.legend(fontsize=8, frameon=False, **above)
    figure.savefig(path)


def draw_frames(
    recipe: Recipe, ibcrl: IBCRL, preferences: Sequence[Sequence[float]], path: Path
) -> None:
    """Draw moments of a few policies along the front, and beside it an animation of the same.

    Nothing is written where there is no OpenGL.
    """
    means = ibcrl.means(preferences, next(iter(recipe.combinations.values())))
    view, count = VIEWS[recipe.environment], len(means)

    def pictures(mean: Floats, **moments: Any) -> list[NDArray[np.uint8]] | None:
        return rendered(*film(recipe.environment, ibcrl.policy_class, mean, **moments), view)

    rows, columns = (count, 1) if view.is_wide else (1, count)
    width, height = view.size
    figure = _figure(8, 8 * (height / width * rows / columns) + 0.25 * rows)
    strips = []
    shown = zip(means, preferences, ibcrl.returns(means), strict=True)
    for number, (mean, weights, value) in enumerate(shown, start=1):
        still = pictures(mean)
        moving = pictures(mean, first=200, seconds=SECONDS_A_FRAME, count=MOMENTS)
        if still is None or moving is None:
            return
        axes: Any = figure.add_subplot(rows, columns, number)
        axes.imshow(exposed_together(still))
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
        label = ", ".join(f"{weight:.2f}" for weight in weights)
        earned = ", ".join(f"{each:.0f}" for each in value)
        between = ": " if view.is_wide else "\n"
        axes.set_title(f"preference ({label}){between}returns ({earned})", fontsize=7, pad=2)
        strips.append(moving[1:])
    figure.savefig(path)
    animate(strips, path.with_name("policies.gif"), below=view.is_wide)
