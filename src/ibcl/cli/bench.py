"""``ibcl bench``, ``ablate``, ``tune`` and ``report``: the paper's evaluation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

Benchmarks = Annotated[
    list[str],
    typer.Argument(
        help="20news, cifar100, tinyimagenet, celeba, celeba-balanced, digits, or paths of YAML "
        "descriptions.",
        show_default=False,
    ),
]
Methods = Annotated[
    list[str],
    typer.Option("--methods", "-m", help="'all', or methods with commas between them."),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first of them.")]
Memories = Annotated[
    list[int] | None,
    typer.Option(
        "--memory",
        min=1,
        help="Samples a task that rehearsal methods keep; repeat for several sizes [50 and 500, on "
        "celeba 200 and 500].",
    ),
]
Backbone = Annotated[
    str | None,
    typer.Option(help="Feature extractor of images, such as efficientnet-lite0 [the paper's]."),
]
Families = Annotated[
    list[str] | None,
    typer.Option(
        "--preferences",
        help="'uniform' (the paper's) or 'sparse'; repeat for both [on celeba both].",
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder for the results.")]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at the same time [one a processor].")
]


def bench(
    benchmarks: Benchmarks,
    methods: Methods = ["all"],  # noqa: B006 (typer wants a list)
    seeds: Seeds = 1,
    first_seed: FirstSeed = 0,
    memory: Memories = None,
    backbone: Backbone = None,
    preferences: Families = None,
    samples: Annotated[
        int, typer.Option(min=0, help="Models drawn from each region; 0 tests mean models only.")
    ] = 10,
    output: Output = Path("runs"),
    processes: Processes = None,
) -> None:
    """Run methods on benchmarks by the paper's protocol.

    Run the same command again to continue an interrupted run: what is finished is kept.
    """
    from rich.console import Console

    from ibcl.experiments.evaluation.protocol import Protocol
    from ibcl.experiments.evaluation.runs import (
        cells_of,
        check_benchmarks,
        read_runs,
        run_with_progress,
        selected_contenders,
        usual_families,
        usual_memories,
    )
    from ibcl.experiments.evaluation.summary import summary_table

    check_benchmarks(benchmarks)
    cells = []
    for benchmark in benchmarks:
        cells += cells_of(
            [benchmark],
            selected_contenders(methods),
            range(first_seed, first_seed + seeds),
            memory or usual_memories(benchmark),
            backbone,
            preferences or usual_families(benchmark),
            Protocol(samples=samples),
        )
    run_with_progress(cells, output, processes or os.cpu_count() or 1)
    Console().print(summary_table(read_runs(output)))


def ablate(
    benchmarks: Benchmarks,
    knobs: Annotated[
        list[str],
        typer.Option(
            "--knob",
            "-k",
            help="'all', d, alpha, prior-size, prior-number, pooling, preferences, order, memory, "
            "front or storage; repeat for several.",
        ),
    ] = ["all"],  # noqa: B006
    seeds: Seeds = 1,
    first_seed: FirstSeed = 0,
    backbone: Backbone = None,
    output: Output = Path("runs/ablations"),
    processes: Processes = None,
) -> None:
    """Vary one setting at a time.

    Run the same command again to continue an interrupted run: what is finished is kept.
    """
    from rich.console import Console

    from ibcl.experiments.evaluation.ablation import ablation_cells
    from ibcl.experiments.evaluation.runs import check_benchmarks, read_runs, run_with_progress
    from ibcl.experiments.evaluation.summary import summary_table

    check_benchmarks(benchmarks)
    cells = ablation_cells(knobs, benchmarks, range(first_seed, first_seed + seeds), backbone)
    run_with_progress(cells, output, processes or os.cpu_count() or 1)
    Console().print(summary_table(read_runs(output)))


def tune(
    benchmark: Annotated[str, typer.Argument(help="A benchmark, as in `ibcl bench`.")],
    methods: Methods = ["all"],  # noqa: B006
    trials: Annotated[int, typer.Option(min=1, help="Settings each method may try.")] = 12,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Use the first so many tasks only [all].")
    ] = None,
    preferences: Annotated[int, typer.Option(min=1, help="Preferences asked a task.")] = 5,
    memory: Memories = None,
    backbone: Backbone = None,
    seed: Annotated[int, typer.Option(min=0, help="Of data, preferences and search.")] = 100,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A .toml file to add each method's settings to."),
    ] = None,
) -> None:
    """Choose every method's settings on validation data, with the same budget.

    Prints TOML sections; those of the package are in ibcl/experiments/evaluation/settings.
    """
    import torch

    from ibcl.experiments import benchmarks
    from ibcl.experiments.evaluation.contenders import contender
    from ibcl.experiments.evaluation.runs import (
        check_benchmarks,
        selected_contenders,
        usual_memories,
    )
    from ibcl.experiments.evaluation.tuning import tune as search

    chosen = selected_contenders(methods)
    check_benchmarks([benchmark])
    torch.set_num_threads(1)
    data = benchmarks.load(benchmark, backbone=backbone, seed=seed)
    for name in chosen:
        found = search(
            contender(name, benchmark),
            data,
            trials,
            tasks,
            preferences,
            memory or usual_memories(benchmark),
            seed,
        )
        typer.echo(found.toml(name) + "\n")
        if output is not None:
            with output.open("a", encoding="utf-8") as file:
                file.write(found.toml(name) + "\n\n")


def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders of `ibcl bench` and `ibcl ablate`.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for page and figures [the first].")
    ] = None,
) -> None:
    """Make one page with all figures and tables, and each figure as PNG and PDF."""
    from ibcl.experiments.evaluation.report import write_report
    from ibcl.experiments.evaluation.runs import read_runs

    folder = output or runs[0]
    page = write_report(read_runs(*runs), folder)
    typer.echo(f"The page is {page}; the figures are beside it, in {folder / 'figures'}.")
