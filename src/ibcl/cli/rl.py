"""``ibcl rl``: policies for any preference between objectives."""

from __future__ import annotations

import os
from ctypes.util import find_library
from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import EngineName, Log


def rl(
    environment: Annotated[
        str,
        typer.Argument(
            help="mo-halfcheetah, mo-ant, mo-hopper-3obj, or the id of a gymnasium or "
            "mo-gymnasium environment with two objectives and continuous actions."
        ),
    ] = "mo-halfcheetah",
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds to run.")] = 9,
    first_seed: Annotated[int, typer.Option(min=0, help="The first of them.")] = 0,
    preferences: Annotated[
        int, typer.Option(min=2, help="How many policies to generate along the front.")
    ] = 200,
    reference: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Point from which the hypervolumes of two objectives are measured."),
    ] = None,
    two_tasks: Annotated[
        bool,
        typer.Option(
            "--two-tasks", help="Learn only the two extreme tasks, the second from the first."
        ),
    ] = False,
    conditioned: Annotated[
        bool,
        typer.Option(
            "--conditioned", help="Learn the baseline instead: one network sees the preference."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints, tables and pictures (rl-results/ENVIRONMENT)."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Seeds run at the same time (one a processor).")
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads a seed's simulator uses; steps/s are printed.")
    ] = 1,
    engine: EngineName = "local",
    log: Log = None,
) -> None:
    """Learn a few tasks, then generate a policy for every preference between the objectives.

    Run the same command again to continue an interrupted run: checkpoints are written on the way.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    if "DISPLAY" not in os.environ and find_library("EGL"):
        # MuJoCo reads this once, when it is imported, and cannot be imported if it is wrong.
        os.environ.setdefault("MUJOCO_GL", "egl")
    from ibcl.callbacks import run_log
    from ibcl.experiments.engine import engine as make_engine
    from ibcl.rl.benchmark import benchmark

    if two_tasks and conditioned:
        raise typer.BadParameter("Give --two-tasks or --conditioned, not both.")
    name = environment.replace("/", "-")
    name += "-two-tasks" if two_tasks else "-conditioned" if conditioned else ""
    folder = output or Path("rl-results") / name
    text = benchmark(
        environment,
        range(first_seed, first_seed + seeds),
        folder,
        preferences=preferences,
        reference=reference,
        workers=workers or os.cpu_count() or 1,
        threads=threads,
        two_tasks=two_tasks,
        conditioned=conditioned,
        log=run_log(log),
        engine=None if engine == "local" else make_engine(engine, workers),
    )
    console = Console()
    console.print(Markdown(text))
    console.print(f"Tables and pictures are in {folder}.")
