"""The whole benchmark: train, generate, score, and write tables and pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ibcl.engines import Engine
from ibcl.rl.environments import make
from ibcl.rl.expected_utility import even_preferences
from ibcl.rl.front_figures import draw_curves, draw_frames, draw_front
from ibcl.rl.hypervolume_tables import summary, write_tables
from ibcl.rl.locomotion import DEFINITIONS
from ibcl.rl.recipes import recipe
from ibcl.rl.seed_training import train
from ibcl.rl.seeds import run
from ibcl.run_logs import RunLog

ROWS_OF_FRAMES = 5


def benchmark(
    environment: str,
    seeds: Sequence[int],
    folder: Path,
    *,
    preferences: int = 200,
    reference: tuple[float, ...] | None = None,
    workers: int = 1,
    threads: int = 1,
    two_tasks: bool = False,
    conditioned: bool = False,
    log: RunLog | None = None,
    engine: Engine | None = None,
) -> str:
    """Run or continue a benchmark and return its summary in Markdown.

    The folder receives ``summary.md``, the CSV files, ``front.png``, ``curves.png`` and, for
    MuJoCo problems and where there is OpenGL, ``frames.png`` with a few policies along the front
    and ``policies.gif`` with the same in motion.
    """
    if not seeds:
        raise ValueError("Give at least one seed.")
    objectives = make(environment, copies=1).objectives
    plan = recipe(environment, two_tasks=two_tasks, conditioned=conditioned)
    if reference is not None:
        plan = replace(plan, reference=reference)
    if len(objectives) != len(plan.reference):
        raise ValueError(
            f"{environment} has {len(objectives)} objectives, but this plan is for "
            f"{len(plan.reference)}; use ibcl.rl.IBCRL directly."
        )
    results = run(plan, seeds, folder / "seeds", preferences, workers, threads, log, engine)
    command = f"ibcl rl {environment} --seeds {len(seeds)}"
    if seeds[0]:
        command += f" --first-seed {seeds[0]}"
    if two_tasks:
        command += " --two-tasks"
    if conditioned:
        command += " --conditioned"
    text = summary(plan, results, command)
    (folder / "summary.md").write_text(text)
    write_tables(plan, results, folder)
    draw_front(plan, results, objectives, folder / "front.png")
    draw_curves(results, objectives, folder / "curves.png")
    if environment in DEFINITIONS:
        ibcrl = train(plan, seeds[0], folder / "seeds" / f"seed-{seeds[0]}", threads).ibcrl
        shown = even_preferences(ROWS_OF_FRAMES, len(objectives))
        draw_frames(plan, ibcrl, shown.tolist(), folder / "frames.png")
    return text
