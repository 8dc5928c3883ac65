"""``ibcl bench``, ``ablate``, ``tune`` and ``report``: the paper's evaluation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import EngineName, Log

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
        help="Samples a task that rehearsal methods keep; repeat for several sizes [the "
        "benchmark's: 50 and 500, on celeba 200 and 500].",
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
        help="'uniform' (the paper's) or 'sparse'; repeat for both [the benchmark's: on celeba "
        "both].",
    ),
]
Asked = Annotated[
    str,
    typer.Option(
        help="'every': preferences come with every task, as in the paper; 'last': only with the "
        "last one, which costs a fraction of it."
    ),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="Folder for the results, or its URL: s3://bucket/name."),
]
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
    asked: Asked = "every",
    samples: Annotated[
        int, typer.Option(min=0, help="Models drawn from each region; 0 tests mean models only.")
    ] = 10,
    output: Output = Path("runs"),
    engine: EngineName = "local",
    processes: Processes = None,
    log: Log = None,
) -> None:
    """Run methods on benchmarks by the paper's protocol.

    Run the same command again to continue an interrupted run: what is finished is kept.
    """
    from rich.console import Console

    from ibcl.callbacks import run_log
    from ibcl.experiments.engine import engine as make_engine
    from ibcl.experiments.evaluation.protocol import Protocol
    from ibcl.experiments.evaluation.runs import (
        cells_of,
        check_benchmarks,
        read_runs,
        run_with_progress,
        selected_contenders,
    )
    from ibcl.experiments.evaluation.summary import summary_table

    check_benchmarks(benchmarks)
    cells = cells_of(
        benchmarks,
        selected_contenders(methods),
        range(first_seed, first_seed + seeds),
        memory,
        backbone,
        preferences,
        Protocol(samples=samples, asked=asked),
    )
    run_with_progress(cells, output, make_engine(engine, processes), run_log(log))
    Console().print(summary_table(read_runs(output)))


def ablate(
    benchmarks: Benchmarks,
    knobs: Annotated[
        list[str],
        typer.Option(
            "--knob",
            "-k",
            help="'all', d, alpha, alpha-front, along, prior-size, prior-number, pooling, "
            "preferences, order, memory, front or storage; or a study: detection, bounds, "
            "inferred; repeat for several.",
        ),
    ] = ["all"],  # noqa: B006
    seeds: Seeds = 1,
    first_seed: FirstSeed = 0,
    backbone: Backbone = None,
    output: Output = Path("runs/ablations"),
    engine: EngineName = "local",
    processes: Processes = None,
) -> None:
    """Vary one setting at a time.

    Run the same command again to continue an interrupted run: what is finished is kept.
    """
    from rich.console import Console

    from ibcl.experiments.engine import engine as make_engine
    from ibcl.experiments.evaluation.ablation import ablation_cells
    from ibcl.experiments.evaluation.runs import check_benchmarks, read_runs, run_with_progress
    from ibcl.experiments.evaluation.summary import summary_table

    check_benchmarks(benchmarks)
    cells = ablation_cells(knobs, benchmarks, range(first_seed, first_seed + seeds), backbone)
    run_with_progress(cells, output, make_engine(engine, processes))
    if any(not cell.study for cell in cells):
        Console().print(summary_table(read_runs(output)))


def tune(
    benchmarks: Benchmarks,
    methods: Methods = ["all"],  # noqa: B006
    trials: Annotated[int, typer.Option(min=1, help="Settings each method may try.")] = 12,
    tasks: Annotated[
        int | None, typer.Option(min=1, help="Use the first so many tasks only [all].")
    ] = None,
    memory: Memories = None,
    backbone: Backbone = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the trials and a .toml file a benchmark [print only].",
        ),
    ] = None,
    engine: EngineName = "local",
    processes: Processes = None,
) -> None:
    """Choose every method's settings on validation data, by one rule and with one budget.

    Run the same command again to continue an interrupted search. The package's own choices are in
    ibcl/experiments/evaluation/settings.
    """
    from ibcl.experiments.engine import engine as make_engine
    from ibcl.experiments.evaluation.places import write_bytes
    from ibcl.experiments.evaluation.runs import check_benchmarks, selected_contenders
    from ibcl.experiments.evaluation.tuning import as_toml, searches
    from ibcl.experiments.evaluation.tuning import tune as search
    from ibcl.progress import progress_bar

    chosen = selected_contenders(methods)
    check_benchmarks(benchmarks)
    failed = []
    for benchmark in benchmarks:
        folder = None if output is None else str(output)
        wanted = searches(benchmark, chosen, trials, memory, backbone, tasks=tasks, folder=folder)
        found = {}
        with progress_bar(f"searches on {benchmark}", len(wanted), transient=True) as bar:
            for outcome in make_engine(engine, processes).run(search, wanted):
                if outcome.result is None:
                    failed.append(f"{outcome.item.method} on {benchmark}: {outcome.error}")
                else:
                    found[outcome.item] = outcome.result
                bar.advance(1)
        text = as_toml([found[item] for item in wanted if item in found])
        typer.echo(text)
        if output is not None:
            write_bytes(output / f"{Path(benchmark).stem}.toml", text.encode())
    if failed:
        raise ValueError("These searches failed, the others are kept: " + "; ".join(failed) + ".")


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders or URLs of `ibcl bench` and `ibcl ablate`.")
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for page and figures [the first].")
    ] = None,
) -> None:
    """Make one page with all figures and tables, and each figure as PNG and PDF."""
    from ibcl.experiments.evaluation.ablation import STUDY_NAMES
    from ibcl.experiments.evaluation.report import write_report
    from ibcl.experiments.evaluation.runs import read_runs, read_study
    from ibcl.store import as_url

    folder = output or runs[0]
    if as_url(folder):
        raise ValueError(
            f"The page and its figures are files, so they cannot go to {as_url(folder)}: give an "
            "--output folder"
        )
    studies = {name: read_study(name, *runs) for name in STUDY_NAMES}
    page = write_report(read_runs(*runs), folder, studies)
    typer.echo(f"The page is {page}; the figures are beside it, in {folder / 'figures'}.")
