"""Many runs of the protocol: in parallel, with time left, and resumed where they were stopped.

Each run is a *cell* (benchmark, contender, memory, seed, family of preferences), and each cell's
table is one Parquet file, written under another name and renamed when complete. What exists is
not run again, unless its contender's settings have changed since.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pandas as pd

from ibcl.experiments import benchmarks
from ibcl.experiments.benchmarks import Benchmark
from ibcl.experiments.evaluation.contenders import Contender, contender, contender_names
from ibcl.experiments.evaluation.protocol import Protocol, run

PACKAGES = ("ibcl", "torch", "numpy", "scipy", "scikit-learn", "pandas")


@dataclass(frozen=True)
class Cell:
    """One run of the protocol.

    Parameters
    ----------
    benchmark, backbone
        As in `ibcl.experiments.benchmarks.load`; the seed of the run is also that of its held-out data.
    contender
        With the settings chosen for this benchmark.
    memory
        Samples a task a rehearsal method keeps; 0 for contenders that keep none.
    label
        Tells variants of one contender apart, as in an ablation.
    """

    benchmark: str
    contender: Contender
    seed: int
    protocol: Protocol
    memory: int = 0
    backbone: str | None = None
    label: str = ""

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
        return "--".join(part.replace("/", "-").replace(" ", "-") for part in parts)

    @property
    def digest(self) -> str:
        """What its result depends on besides the name."""
        return json.dumps(
            {"contender": self.contender.digest, "backbone": self.backbone}
            | asdict(self.protocol)
            | {"memory": self.memory}
        )


def cells_of(
    names: Sequence[str],
    contenders: Sequence[str],
    seeds: Sequence[int],
    memories: Sequence[int],
    backbone: str | None = None,
    families: Sequence[str] = ("uniform",),
    protocol: Protocol | None = None,
) -> list[Cell]:
    """List the cells of a comparison; contenders without a memory run once whatever the memories.

    The backbone is for benchmarks of images; 20 Newsgroups and the digits keep their own features.

    Examples
    --------
    >>> cells = cells_of(["digits"], ["ibcl", "gem"], seeds=[0], memories=[50, 500])
    >>> [(cell.contender.name, cell.memory) for cell in cells]
    [('ibcl', 0), ('gem', 50), ('gem', 500)]
    """
    base = asdict(protocol or Protocol())
    found = []
    for seed in seeds:
        for benchmark in names:
            for name in contenders:
                chosen = contender(name, benchmark)
                for memory in memories if chosen.rehearses else (0,):
                    for family in families:
                        found.append(
                            Cell(
                                benchmark,
                                chosen,
                                seed,
                                Protocol(**{**base, "family": family}),
                                memory,
                                None if benchmark in ("20news", "digits") else backbone,
                            )
                        )
    return found


def usual_memories(benchmark: str) -> tuple[int, ...]:
    """Sizes of the memories of the paper's two tables: samples a task that rehearsal keeps.

    Examples
    --------
    >>> usual_memories("20news"), usual_memories("celeba")
    ((50, 500), (200, 500))
    """
    return (200, 500) if benchmark.startswith("celeba") else (50, 500)


def usual_families(benchmark: str) -> tuple[str, ...]:
    """Families of preferences to ask; on CelebA sparse ones too, where methods differ.

    Examples
    --------
    >>> usual_families("20news"), usual_families("celeba")
    (('uniform',), ('uniform', 'sparse'))
    """
    return ("uniform", "sparse") if benchmark.startswith("celeba") else ("uniform",)


def selected_contenders(names: Sequence[str]) -> tuple[str, ...]:
    """Read a choice of contenders, in which ``all`` is every one of them.

    Examples
    --------
    >>> selected_contenders(["ibcl,gem", "vcl"])
    ('ibcl', 'gem', 'vcl')
    """
    wanted = [name.strip() for text in names for name in text.split(",")]
    if "all" in wanted:
        return contender_names()
    return tuple(contender(name).name for name in wanted)


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
    """Tell whether the cell's table exists, is whole, and was made with its present settings."""
    try:
        return bool(read_part(folder / f"{cell.name}.parquet")["settings"].iloc[0] == cell.digest)
    except (OSError, ValueError, LookupError):
        return False


def read_part(path: Path) -> pd.DataFrame:
    """Read the table of one cell."""
    return pd.read_parquet(path)


def run_cell(cell: Cell, folder: Path) -> str:
    """Run one cell in this process, and keep its table; return the cell's name."""
    import torch

    torch.set_num_threads(1)
    table = run(
        cell.contender,
        _load(cell.benchmark, cell.backbone, cell.seed),
        cell.seed,
        cell.memory,
        cell.protocol,
    )
    table.insert(0, "label", cell.label)
    table["settings"] = cell.digest
    write_atomically(table, folder / f"{cell.name}.parquet")
    return cell.name


@lru_cache(maxsize=1)
def _load(benchmark: str, backbone: str | None, seed: int) -> Benchmark:
    return benchmarks.load(benchmark, backbone=backbone, seed=seed)


def write_atomically(table: pd.DataFrame, path: Path) -> None:
    """Write a Parquet file that is either whole or not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    waiting = path.with_suffix(f".{os.getpid()}.waiting")
    try:
        table.to_parquet(waiting, index=False)
        os.replace(waiting, path)
    finally:
        waiting.unlink(missing_ok=True)


def run_all(cells: Sequence[Cell], folder: Path, processes: int = 1) -> Iterator[str]:
    """Run the cells that are not finished yet; yield the name of each as it ends.

    With one process they run in this one. The first failure stops the rest.
    """
    waiting = [cell for cell in cells if not finished(cell, folder)]
    if processes == 1 or len(waiting) <= 1:
        for cell in waiting:
            yield run_cell(cell, folder)
        return
    # A forked torch can hang; a fresh interpreter cannot.
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(run_cell, cell, folder) for cell in waiting]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def run_with_progress(cells: Sequence[Cell], folder: Path, processes: int = 1) -> None:
    """Run all cells, showing what is done and the time left."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    done = sum(finished(cell, folder) for cell in cells)
    write_environment(folder)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    ) as progress:
        bar = progress.add_task("runs", total=len(cells), completed=done)
        for name in run_all(cells, folder, processes):
            progress.console.print(f"done {name}", highlight=False)
            progress.advance(bar)


def write_environment(folder: Path) -> None:
    """Write down the versions the results were made with."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "environment.json").write_text(json.dumps(environment(), indent=2) + "\n")


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
    parts = sorted(part for folder in folders for part in Path(folder).glob("*.parquet"))
    if not parts:
        named = ", ".join(str(folder) for folder in folders)
        raise FileNotFoundError(
            f"There are no results in {named}: run `ibcl bench ... --output` there first."
        )
    try:
        return pd.concat([read_part(part) for part in parts], ignore_index=True)
    except (OSError, ValueError) as error:
        raise ValueError(f"A result in these folders cannot be read: {error}.") from None
