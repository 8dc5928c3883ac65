"""``ibcl bench``, ``ablate``, ``tune`` and ``report``: the paper's evaluation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from ibcl.cli.options import EngineName, Log

if TYPE_CHECKING:
    from ibcl.engines import Engine, Outcome

Benchmarks = Annotated[
    list[str],
    typer.Argument(
        help="{benchmarks}, or paths of YAML descriptions; or 'tables' alone, the estimators on "
        "twelve tables; or 'sets' alone, prediction sets beside MAPIE's.",
        show_default=False,
    ),
]
Methods = Annotated[
    list[str],
    typer.Option(
        "--methods", "-m", help="'all', or some of these with commas between them: {methods}."
    ),
]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds to run.")]
FirstSeed = Annotated[int, typer.Option(min=0, help="The first of them.")]
Memories = Annotated[
    list[int] | None,
    typer.Option(
        "--memory",
        min=1,
        help="Samples per task that rehearsal methods keep; repeat for several sizes [the "
        "benchmark's own].",
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
        help="Which preferences: {preference families}; repeat for several [the benchmark's own].",
    ),
]
EvaluateAfter = Annotated[
    str,
    typer.Option(
        help="'every': preferences come with every task, and models are tested after each, as in "
        "the paper; 'last': only with the last one, which costs a fraction of it."
    ),
]
Asked = Annotated[
    str | None,
    typer.Option(help="The former name of --evaluate-after.", hidden=True),
]
Output = Annotated[
    Path,
    typer.Option("--output", "-o", help="Folder for the results, or its URL: s3://bucket/name."),
]
Processes = Annotated[
    int | None, typer.Option(min=1, help="Runs at the same time [one per processor].")
]


def bench(
    benchmarks: Benchmarks,
    methods: Methods = ["all"],  # noqa: B006 (typer wants a list)
    seeds: Seeds = 1,
    first_seed: FirstSeed = 0,
    memory: Memories = None,
    backbone: Backbone = None,
    preferences: Families = None,
    evaluate_after: EvaluateAfter = "every",
    samples: Annotated[
        int, typer.Option(min=0, help="Models drawn from each region; 0 tests mean models only.")
    ] = 10,
    uniform_baseline: Annotated[
        bool,
        typer.Option(
            help="Also answer everybody with the uniform preference's model, which shows what a "
            "preference is worth."
        ),
    ] = True,
    rows: Annotated[
        int | None,
        typer.Option(min=100, help="With 'tables': use at most so many rows of each [all]."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Folder of `ibcl tune` whose choices go before the package's own."),
    ] = None,
    output: Output = Path("runs"),
    engine: EngineName = "local",
    processes: Processes = None,
    log: Log = None,
    asked: Asked = None,
) -> None:
    """Run methods on benchmarks by the paper's protocol.

    Run the same command again to continue an interrupted run: what is finished is kept.
    """
    from rich.console import Console

    from ibcl.engines import engine as make_engine
    from ibcl.experiments.evaluation.comparison_tables import summary_table
    from ibcl.experiments.evaluation.protocol import Protocol
    from ibcl.experiments.evaluation.runs import (
        cells_of,
        check_benchmarks,
        read_runs,
        run_with_progress,
        selected_contenders,
    )
    from ibcl.run_logs import run_log

    if benchmarks == ["sets"]:
        _sets(seeds, first_seed, output, make_engine(engine, processes))
        return
    if benchmarks == ["tables"]:
        _tables(seeds, first_seed, rows, output, make_engine(engine, processes))
        return
    if asked is not None:
        warnings.warn("--asked is now called --evaluate-after", DeprecationWarning, stacklevel=2)
        evaluate_after = asked
    check_benchmarks(benchmarks)
    cells = cells_of(
        benchmarks,
        selected_contenders(methods),
        range(first_seed, first_seed + seeds),
        memory,
        backbone,
        preferences,
        Protocol(samples=samples, evaluate_after=evaluate_after, uniform_baseline=uniform_baseline),
        settings,
    )
    run_with_progress(cells, output, make_engine(engine, processes), run_log(log))
    Console().print(summary_table(read_runs(output)))


def _tables(seeds: int, first_seed: int, rows: int | None, output: Path, engine: Engine) -> None:
    from ibcl.experiments.tables.catalogue import TABLES
    from ibcl.experiments.tables.comparison import Cell, read_results, run_all
    from ibcl.experiments.tables.page import write_page

    wanted = range(first_seed, first_seed + seeds)
    cells = [Cell(name, seed, rows) for seed in wanted for name in TABLES]
    done = run_all(cells, output, engine)
    _run_cells(
        "tables", cells, done, output, lambda: write_page(read_results(cells, output), output)
    )


def _sets(seeds: int, first_seed: int, output: Path, engine: Engine) -> None:
    from ibcl.experiments.sets.comparison import Cell, read_results, run_all
    from ibcl.experiments.sets.data import DATA
    from ibcl.experiments.sets.page import write_page

    cells = [Cell(name, seed) for seed in range(first_seed, first_seed + seeds) for name in DATA]
    done = run_all(cells, output, engine)
    _run_cells("sets", cells, done, output, lambda: write_page(read_results(cells, output), output))


class _Cell(Protocol):
    """What is run once, and leaves a file."""

    @property
    def name(self) -> str:
        """What it is run on."""

    @property
    def seed(self) -> int:
        """Seed of everything random."""

    @property
    def file(self) -> str:
        """The name of the file with its results."""


def _run_cells(
    title: str,
    cells: Sequence[_Cell],
    outcomes: Iterator[Outcome[Any, str]],
    output: Path,
    write_page: Callable[[], Path],
) -> None:
    """Run cells with a progress bar, and write the page of those that did not fail.

    Parameters
    ----------
    outcomes
        Of the cells whose files are not there yet.
    """
    from ibcl.progress import progress_bar

    failed = []
    with progress_bar(title, total=len(cells)) as bar:
        bar.reach(sum((output / cell.file).exists() for cell in cells))
        for outcome in outcomes:
            if outcome.error is not None:
                failed.append(f"{outcome.item.name}, seed {outcome.item.seed}: {outcome.error}")
            bar.advance(1)
    if len(failed) < len(cells):
        typer.echo(f"The page is {write_page()}.")
    if failed:
        raise ValueError(f"These {title} failed, the others are kept: " + "; ".join(failed) + ".")


def ablate(
    benchmarks: Benchmarks,
    knobs: Annotated[
        list[str],
        typer.Option(
            "--knob",
            "-k",
            help="'all', or one of these: {ablations}; repeat for several.",
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

    from ibcl.engines import engine as make_engine
    from ibcl.experiments.evaluation.ablation import ablation_cells
    from ibcl.experiments.evaluation.comparison_tables import summary_table
    from ibcl.experiments.evaluation.runs import check_benchmarks, read_runs, run_with_progress

    check_benchmarks(benchmarks)
    cells = ablation_cells(knobs, benchmarks, range(first_seed, first_seed + seeds), backbone)
    run_with_progress(cells, output, make_engine(engine, processes))
    if any(not cell.study for cell in cells):
        Console().print(summary_table(read_runs(output)))


def tune(
    benchmarks: Benchmarks,
    methods: Methods = ["all"],  # noqa: B006
    trials: Annotated[int, typer.Option(min=1, help="Settings each method may try.")] = 30,
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
            help="Folder for the trials and one .toml file per benchmark [print only].",
        ),
    ] = None,
    engine: EngineName = "local",
    processes: Processes = None,
) -> None:
    """Choose every method's settings on validation data, by one rule and with one budget.

    Run the same command again to continue an interrupted search; `ibcl bench --settings` takes what
    it found. The package's own choices are in ibcl/experiments/evaluation/settings.
    """
    from ibcl.engines import engine as make_engine
    from ibcl.experiments.evaluation.result_files import write_bytes
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
