"""``ibcl rl``: policies for any preference between objectives, and those of others beside them."""

from __future__ import annotations

import os
from ctypes.util import find_library
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ibcl.cli.commands import Command
from ibcl.cli.options import EngineName, Log

BENCHMARK = "benchmark"


class _BenchmarkUnlessNamed(TyperGroup):
    """``ibcl rl mo-ant`` is ``ibcl rl benchmark mo-ant``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else [BENCHMARK, *args])


rl = typer.Typer(
    cls=_BenchmarkUnlessNamed,
    add_completion=False,
    help="Learn policies for any preference between objectives; 'ibcl rl ENVIRONMENT' is short for "
    "'ibcl rl benchmark ENVIRONMENT'.",
)


@rl.command(BENCHMARK, cls=Command)
def benchmark(
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
        int | None, typer.Option(min=1, help="Seeds run at the same time (one per processor).")
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
    from ibcl.engines import engine as make_engine
    from ibcl.rl.policy_benchmark import benchmark as run_benchmark
    from ibcl.run_logs import run_log

    if two_tasks and conditioned:
        raise typer.BadParameter("Give --two-tasks or --conditioned, not both.")
    name = environment.replace("/", "-")
    name += "-two-tasks" if two_tasks else "-conditioned" if conditioned else ""
    folder = output or Path("rl-results") / name
    text = run_benchmark(
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


@rl.command(cls=Command)
def compare(
    environment: Annotated[
        str, typer.Argument(help="The environment to score in, such as mo-ant.", show_default=False)
    ],
    actor: Annotated[
        list[Path],
        typer.Option(
            help="A released policy: PD-MORL's actor, Hyper-MORL's policy.pt (with its "
            "normalization.pkl beside it), any TorchScript module from a state, or a state and a "
            "preference, to an action; or Hyper-MORL's objs.txt, whose returns are taken as they "
            "are. May be repeated.",
            metavar="FILE",
            show_default=False,
        ),
    ],
    preferences: Annotated[
        int, typer.Option(min=2, help="How many preferences to ask each policy for.")
    ] = 200,
    output: Annotated[
        Path | None, typer.Option(help="File for all returns, as JSON.", show_default=False)
    ] = None,
) -> None:
    """Score policies of others in our environments by our protocol, beside what was printed."""
    import json

    from rich.console import Console
    from rich.markdown import Markdown

    from ibcl.files import write_atomically
    from ibcl.rl.compare import compare as scored
    from ibcl.rl.compare import comparison_table
    from ibcl.rl.recipes import recipe

    compared = scored(environment, actor, preferences)
    reference = recipe(environment).reference
    if len(reference) != compared[0].returns.shape[1]:
        reference = (0.0,) * compared[0].returns.shape[1]
    if output is not None:
        rows = [
            {
                "method": each.method,
                "file": each.file,
                "source": each.source,
                "fell": each.fell,
                "returns": each.returns.tolist(),
            }
            for each in compared
        ]
        write_atomically(output, json.dumps(rows).encode())
    Console().print(Markdown(comparison_table(environment, compared, reference)))
