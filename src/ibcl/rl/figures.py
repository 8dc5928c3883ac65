"""Pictures of a run: the front, the learning curves and policies at work along the front."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from ibcl.rl.experiment import SeedResult
from ibcl.rl.frames import draw_strip, film
from ibcl.rl.hypervolume import front
from ibcl.rl.ibcrl import IBCRL
from ibcl.rl.recipes import Recipe


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def draw_front(
    recipe: Recipe, results: Sequence[SeedResult], objectives: Sequence[str], path: Path
) -> None:
    """Draw the returns of all generated policies, one line a seed, and the trained posteriors."""
    figure = _figure(5.5, 4)
    axes: Any = figure.add_subplot()
    name, tasks = next(iter(recipe.combinations.items()))
    for index, result in enumerate(results):
        returns = np.array(result.fronts[name])
        best = returns[front(returns)]
        axes.plot(
            best[:, 0], best[:, 1], ".-", ms=3, lw=0.8, alpha=0.7, label=f"seed {result.seed}"
        )
        trained = np.array([task.returns for task in result.tasks if task.task in tasks])
        label = "trained posteriors" if index == len(results) - 1 else None
        axes.plot(trained[:, 0], trained[:, 1], "k+", ms=7, label=label)
    axes.set(xlabel=f"return, {objectives[0]}", ylabel=f"return, {objectives[1]}")
    axes.set_title(f"{recipe.environment}: policies on the front")
    axes.legend(fontsize=7)
    figure.savefig(path)


def draw_curves(results: Sequence[SeedResult], objectives: Sequence[str], path: Path) -> None:
    """Draw the mean policy's returns over all environment steps, task after task."""
    figure = _figure(7, 3.5)
    axes: Any = figure.add_subplot()
    for result in results:
        start = 0
        for task in result.tasks:
            if not task.curve:
                continue
            curve = np.array(task.curve)
            for k in range(len(objectives)):
                axes.plot((start + curve[:, 1]) / 1e6, curve[:, 2 + k], color=f"C{k}", lw=0.7)
            start += task.steps
            if result is results[0]:
                axes.axvline(start / 1e6, color="0.85", lw=0.8, zorder=0)
                axes.text(
                    start / 1e6,
                    0.02,
                    f"{task.task} ",
                    rotation=90,
                    fontsize=6,
                    ha="right",
                    transform=axes.get_xaxis_transform(),
                )
    for k, objective in enumerate(objectives):
        axes.plot([], [], color=f"C{k}", label=objective)
    axes.set(xlabel="environment steps (millions)", ylabel="return of the mean policy")
    axes.legend(fontsize=8)
    figure.savefig(path)


def draw_frames(
    recipe: Recipe,
    ibcrl: IBCRL,
    preferences: Sequence[Sequence[float]],
    path: Path,
) -> None:
    """Draw a strip of frames for each of a few policies along the front, one row a preference."""
    tasks = next(iter(recipe.combinations.values()))
    policies = [ibcrl.policy(preference, tasks) for preference in preferences]
    means = np.stack([policy.q.mean.numpy() for policy in policies])
    returns = ibcrl.returns(means)
    figure = _figure(8, 1.0 * len(policies))
    for row, (mean, weights, value) in enumerate(zip(means, preferences, returns, strict=True)):
        model, positions = film(recipe.environment, ibcrl.policy_class, mean)
        axes: Any = figure.add_subplot(len(policies), 1, row + 1)
        if not draw_strip(axes, model, positions):
            figure.suptitle("No OpenGL driver here: drawn as stick figures.", fontsize=7)
        label = ", ".join(f"{weight:.2f}" for weight in weights)
        axes.set_title(
            f"preference ({label}): returns ({value[0]:.0f}, {value[1]:.0f})", fontsize=7, pad=2
        )
    figure.savefig(path)
