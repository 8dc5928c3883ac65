"""Many runs of the protocol: on an engine, with time left, and resumed where they were stopped.

Each run is a *cell* (benchmark, contender, memory, seed, family of preferences), and each cell's
table is one Parquet file in a folder or below a URL, there when it is complete. What exists is not
run again, unless its settings, the code it was made by or its data have changed since.
"""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from importlib.metadata import version
from io import BytesIO
from pathlib import Path
from typing import Any

import pandas as pd

from ibcl.engines import Engine, LocalEngine, Outcome
from ibcl.errors import StoreError
from ibcl.experiments import benchmarks, methods
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation import result_files
from ibcl.experiments.evaluation.code_version import code_version
from ibcl.experiments.evaluation.contenders import Contender, contender
from ibcl.experiments.evaluation.metrics import RUN, average_per_task
from ibcl.experiments.evaluation.protocol import Protocol, run
from ibcl.progress import progress_bar
from ibcl.run_logs import RunLog

STUDIES_MODULE = "ibcl.experiments.evaluation.studies"

PACKAGES = ("ibcl", "torch", "numpy", "scipy", "scikit-learn", "pandas")


@dataclass(frozen=True)
class Cell:
    """One run of the protocol.

    Parameters
    ----------
    benchmark, backbone
        As in `ibcl.experiments.benchmarks.load`; the run's seed is also that of its held-out data.
    contender
        With the settings chosen for this benchmark.
    memory
        Samples per task that a rehearsal method keeps; 0 for contenders that keep none.
    label
        Tells variants of one contender apart, as in an ablation.
    study
        Name of a study to run instead of the protocol (`ibcl.experiments.evaluation.studies`); its
        table goes to a folder of that name.
    """

    benchmark: str
    contender: Contender
    seed: int
    protocol: Protocol
    memory: int = 0
    backbone: str | None = None
    label: str = ""
    study: str = ""

    @property
    def file(self) -> str:
        """Its file, relative to the folder of results."""
        return f"{self.study}/{self.name}.parquet" if self.study else f"{self.name}.parquet"

    @property
    def name(self) -> str:
        """Name of its file, which holds all that tells cells of one folder apart."""
        parts = [
            Path(self.benchmark).stem,
            self.contender.name,
            *([self.label] if self.label else []),
            f"memory{self.memory}",
            self.protocol.family,
            f"seed{self.seed}",
        ]
        return "--".join(slug(part) for part in parts)

    @property
    def digest(self) -> str:
        """What its result depends on besides the name and the data: settings and code."""
        method = self.contender.registration.method.__module__
        code = code_version(method, STUDIES_MODULE if self.study else Protocol.__module__)
        return json.dumps(
            {"contender": self.contender.digest, "backbone": self.backbone, "code": code}
            | asdict(self.protocol)
            | {"memory": self.memory}
        )

    @property
    def data(self) -> str:
        """Hash of the features, labels and splits it learns from."""
        return _load(self.benchmark, self.backbone, self.seed).provenance.sha256


def cells_of(
    names: Sequence[str],
    contenders: Sequence[str],
    seeds: Sequence[int],
    memories: Sequence[int] | None = None,
    backbone: str | None = None,
    families: Sequence[str] | None = None,
    protocol: Protocol | None = None,
    settings: Path | None = None,
) -> list[Cell]:
    """List the cells of a comparison; contenders without a memory run once whatever the memories.

    Sizes of memory and families of preferences are the benchmark's own where none are given. The
    backbone is for benchmarks that use one; the others keep their own features. A folder of
    `ibcl tune` has settings that go before the package's.

    Examples
    --------
    >>> cells = cells_of(["digits"], ["ibcl", "gem"], seeds=[0], memories=[50, 500])
    >>> [(cell.contender.name, cell.memory) for cell in cells]
    [('ibcl', 0), ('gem', 50), ('gem', 500)]
    """
    base = asdict(protocol or Protocol())
    if settings is not None and not any(settings.glob("*.toml")):
        raise FileNotFoundError(
            f"The folder {settings} has no settings: give one that `ibcl tune` has written."
        )
    found = []
    for seed in seeds:
        for benchmark in names:
            declared = benchmarks.registered(benchmark)
            for name in contenders:
                rehearses = methods.registered(name).rehearses
                for memory in (memories or declared.memories) if rehearses else (0,):
                    for family in families or declared.families:
                        image = backbone if declared.backbone else None
                        who = contender(name, benchmark, memory, settings)
                        asked = Protocol(**{**base, "family": family})
                        found.append(Cell(benchmark, who, seed, asked, memory, image))
    return found


def selected_contenders(names: Sequence[str]) -> tuple[str, ...]:
    """Read a choice of contenders, in which ``all`` is every one of them.

    Examples
    --------
    >>> selected_contenders(["ibcl,gem", "vcl"])
    ('ibcl', 'gem', 'vcl')
    """
    wanted = [name.strip() for text in names for name in text.split(",")]
    if "all" in wanted:
        return tuple(methods.METHODS)
    return tuple(methods.registered(name).name for name in wanted)


def check_benchmarks(names: Sequence[str]) -> None:
    """Refuse a benchmark that is not there before anything is run.

    Examples
    --------
    >>> check_benchmarks(["digits"])
    """
    for name in names:
        if name in benchmarks.BENCHMARKS:
            continue
        if not name.endswith((".yaml", ".yml")):
            raise ValueError(
                f"Unknown benchmark {name!r}: use {', '.join(benchmarks.BENCHMARKS)}, or the path "
                "of a YAML description."
            )
        if not Path(name).is_file():
            raise FileNotFoundError(f"There is no file {name}: give the path of a description.")


def finished(cell: Cell, folder: Path) -> bool:
    """Tell whether the cell's table exists, is whole, and was made as it would be made now."""
    try:
        made = read_part(folder / cell.file).iloc[0]
        return bool(made["settings"] == cell.digest and made["data"] == cell.data)
    except StoreError:
        # A store that cannot be reached is no answer.
        raise
    except (OSError, ValueError, LookupError):
        return False


def read_part(path: Path) -> pd.DataFrame:
    """Read the table of one cell."""
    return pd.read_parquet(BytesIO(result_files.read_bytes(path)))


def run_cell(folder: Path, cell: Cell) -> str:
    """Run one cell in this process, and keep its table; return the cell's name."""
    import torch

    torch.set_num_threads(1)
    benchmark = _load(cell.benchmark, cell.backbone, cell.seed)
    if cell.study:
        from ibcl.experiments.evaluation.studies import STUDIES

        table = STUDIES[cell.study](cell.contender, benchmark, cell.seed)
        table = table.assign(benchmark=benchmark.name, method=cell.contender.name, seed=cell.seed)
    else:
        table = run(cell.contender, benchmark, cell.seed, cell.memory, cell.protocol)
    if cell.label or cell.study:
        table = table.assign(label=cell.label)
    table["settings"], table["data"] = cell.digest, cell.data
    result_files.write_bytes(folder / cell.file, table.to_parquet(index=False))
    return cell.name


@lru_cache(maxsize=1)
def _load(benchmark: str, backbone: str | None, seed: int) -> Benchmark:
    return benchmarks.load(benchmark, backbone=backbone, seed=seed)


def run_all(
    cells: Sequence[Cell], folder: Path, engine: Engine | None = None
) -> Iterator[Outcome[Cell, str]]:
    """Run the cells that are not finished yet; yield the outcome of each as it ends.

    In this process without an engine. A cell that fails is an outcome with an error.
    """
    engine = engine or LocalEngine(1)
    if result_files.of_one_process(folder) and getattr(engine, "processes", None) != 1:
        raise ValueError(
            f"{folder} is in the memory of this process, so no other one can put results there: "
            "use one process, or a folder or s3:// URL."
        )
    waiting = [cell for cell in cells if not finished(cell, folder)]
    yield from engine.run(partial(run_cell, result_files.absolute(folder)), waiting)


def run_with_progress(
    cells: Sequence[Cell], folder: Path, engine: Engine, log: RunLog | None = None
) -> None:
    """Run all cells, showing what is done and the time left; say at the end which ones failed.

    Parameters
    ----------
    log
        Told the accuracy after every task of each run that ends.
    """
    done = sum(finished(cell, folder) for cell in cells)
    write_environment(folder)
    failed = []
    with progress_bar("runs", total=len(cells), done=done) as bar:
        for outcome in run_all(cells, folder, engine):
            if outcome.error is None:
                bar.say(f"done {outcome.item.name}")
                if log is not None and not outcome.item.study:
                    log_accuracies(outcome.item, folder, log)
            else:
                failed.append(outcome.item.name)
                bar.say(f"failed {outcome.item.name}: {outcome.error}")
            bar.advance(1)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(cells)} runs failed, the others are kept: {', '.join(failed)}. "
            "Give the same command again to try these again."
        )


def log_accuracies(cell: Cell, folder: Path, log: RunLog) -> None:
    """Tell a log the average per-task accuracy after every task, by the selection of models."""
    table = read_part(folder / cell.file)
    found = average_per_task(table[table["label"] == cell.label])
    for task in sorted(found["task"].unique().tolist()):
        rows = found[found["task"] == task]
        values = zip(rows["selection"], rows["value"].tolist(), strict=True)
        log.log(cell.name, task, {f"accuracy/{selection}": value for selection, value in values})


def write_environment(folder: Path) -> None:
    """Write down the versions the results were made with."""
    text = json.dumps(environment(), indent=2) + "\n"
    result_files.write_bytes(folder / "environment.json", text.encode())


def environment() -> dict[str, Any]:
    """Versions of what computes, and the machine's kind.

    Examples
    --------
    >>> "torch" in environment()
    True
    """
    found = {package: version(package) for package in PACKAGES}
    return {"python": platform.python_version(), **found, "machine": platform.machine()}


def read_runs(*folders: Path) -> pd.DataFrame:
    """Read all tables in these folders as one."""
    parts = sorted(part for folder in folders for part in result_files.tables(Path(folder)))
    if not parts:
        named = ", ".join(str(folder) for folder in folders)
        raise FileNotFoundError(
            f"There are no results in {named}: run `ibcl bench ... --output` there first."
        )
    try:
        table = pd.concat([read_part(part) for part in parts], ignore_index=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"A result in these folders cannot be read: {error}.") from None
    _refuse_doubles(table)
    return table


def _refuse_doubles(table: pd.DataFrame) -> None:
    """Refuse a table in which a run stands twice: sums over its rows would count it twice."""
    told_by = [*RUN, "task_seen", "preference", "task_tested"]
    if not set(told_by) <= set(table):
        return
    doubles = table[table.duplicated(told_by)]
    if len(doubles):
        one = doubles.iloc[0]
        raise ValueError(
            f"These folders hold two runs of {one['method']} on {one['benchmark']} with seed "
            f"{one['seed']} and {one['preferences']} preferences: leave one of them out."
        )


def read_study(name: str, *folders: Path) -> pd.DataFrame:
    """Read the tables of a study in these folders as one; empty where there are none."""
    inside = [Path(folder) / name for folder in folders]
    return (
        read_runs(*inside) if any(result_files.tables(path) for path in inside) else pd.DataFrame()
    )


def write_compact(table: pd.DataFrame, folder: Path) -> list[Path]:
    """Write all runs as one small file per benchmark, which `read_runs` reads like the parts.

    Numbers are kept as single-precision ones, which loses nothing that is ever shown.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for benchmark, part in table.groupby("benchmark", sort=True):
        small = part.copy()
        for column in small.select_dtypes("float64"):
            small[column] = small[column].astype("float32")
        keys = ["label", "method", "memory", "preferences", "seed", "selection", "task_seen"]
        small = small.sort_values([*keys, "preference", "task_tested"], kind="stable")
        path = folder / f"{slug(str(benchmark))}.parquet"
        small.to_parquet(path, index=False, compression="zstd", compression_level=19)
        written.append(path)
    return written


def slug(name: str) -> str:
    """Turn any name into one of a file.

    Examples
    --------
    >>> slug("films/sci-fi, d=0.1")
    'films-sci-fi-d=0.1'
    """
    return "-".join(part for part in re.split(r"[^\w.=+-]+", name) if part)
