"""What Ray costs and carries: a grid on both engines, scores for users, and a million of them.

Run it by hand: ``python timings/on_ray.py [grid] [scoring] [a_million_users]``; every figure is of
this run and this machine. Both sides take turns. Each is a command of its own, measured from
outside from its first moment to its last: its imports, and Ray's start and own processes, are in
it.

Two ratios are printed. That of wall-clock time is what one waits for, and on a machine that others
use it depends on them. That of processor time is what one pays for: all seconds that any process of
the command was computing. Scores a processor-second are scores a second and core of a machine that
has nothing else to do. The variables ROUNDS, USERS, ITEMS and SCORED_USERS (numbers with commas
between them) change how long it takes; a million users' scores for a thousand items are 9 GB of
Parquet, for a while twice, in FOLDER (one for temporary files by default).
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import ray  # noqa: F401 (it brings psutil along, found once Ray is imported)
import torch

import ibcl

WORKERS = os.cpu_count() or 1
SEEDS = 40
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SCORED_USERS = [int(n) for n in os.environ.get("SCORED_USERS", "100000,1000000").split(",")]
ITEMS = int(os.environ.get("ITEMS", "1000"))
USERS = int(os.environ.get("USERS", "1000000"))
TASKS = 10


class Cost(NamedTuple):
    """What a command took."""

    clock: float
    processor: float
    memory: float
    """Largest peak of any of its processes, in megabytes."""


def cost(*arguments: object) -> Cost:
    """Run ``ibcl`` with some arguments, and measure it with every process it starts."""
    import psutil

    begin = time.perf_counter()
    program = [sys.executable, "-c", "from ibcl.cli import main; main()", *map(str, arguments)]
    command = subprocess.Popen(
        program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    seconds: dict[int, float] = {}
    memory = 0.0
    while command.poll() is None:
        with suppress(psutil.Error):
            root = psutil.Process(command.pid)
            for each in [root, *root.children(recursive=True)]:
                with suppress(psutil.Error, OSError, StopIteration):
                    times = each.cpu_times()
                    seconds[each.pid] = times.user + times.system
                    memory = max(memory, peak(each.pid))
        time.sleep(0.2)
    clock = time.perf_counter() - begin
    if command.returncode:
        raise RuntimeError(command.communicate()[1])
    return Cost(clock, sum(seconds.values()), memory)


def peak(process: int) -> float:
    """Return the most memory a process has had, in megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 2**10 for line in lines if line.startswith("VmHWM"))


def in_turns(*ways: Callable[[int], Cost]) -> list[list[Cost]]:
    """Measure ways of doing the same, one after the other, several times."""
    found: list[list[Cost]] = [[] for _ in ways]
    for number in range(ROUNDS):
        for costs, way in zip(found, ways, strict=True):
            costs.append(way(number))
    return found


def median(costs: list[Cost], what: str) -> float:
    return statistics.median(getattr(each, what) for each in costs)


def grid(folder: Path) -> None:
    """The same cells on as many workers of either engine: a short grid, and a published one."""
    grids = {
        f"{SEEDS} short cells": ("--methods", "oracle", "--seeds", SEEDS, "--samples", 2),
        "all methods on the digits": ("--evaluate-after", "last", "--seeds", 5, "--samples", 5),
    }
    for name, options in grids.items():

        def on(
            engine: str, number: int, name: str = name, options: tuple[object, ...] = options
        ) -> Cost:
            places = ("--processes", WORKERS, "--output", folder / f"{name}-{engine}-{number}")
            return cost("bench", "digits", *options, *places, "--engine", engine)

        local, on_ray = in_turns(partial(on, "local"), partial(on, "ray"))
        print(f"grid, {name}: {WORKERS} workers, median of {ROUNDS} rounds, whole commands")
        for what in ("clock", "processor"):
            one, other = median(local, what), median(on_ray, what)
            print(
                f"  {what}: local {one:.1f} s, ray {other:.1f} s; ratio {other / one:.2f}",
                flush=True,
            )


def knowledge_base(folder: Path) -> None:
    random = np.random.default_rng(0)
    files = []
    for task in range(TASKS):
        x = random.normal(size=(500, 8)) + task
        table = pd.DataFrame(x, columns=[f"x{n}" for n in range(8)])
        table["y"] = np.where(x[:, task % 8] > task, "yes", "no")
        files.append(folder / f"task{task}.csv")
        table.to_csv(files[-1], index=False)
    cost("learn", folder / "kb", *files, "--label", "y", "--width", 64)
    rows = pd.DataFrame(random.normal(size=(ITEMS, 8)), columns=[f"x{n}" for n in range(8)])
    rows.to_parquet(folder / "rows.parquet")


def users(folder: Path, number: int) -> Path:
    weights = np.random.default_rng(1).dirichlet(np.ones(TASKS), number)
    table = pd.DataFrame(weights, columns=[f"task{n}" for n in range(TASKS)])
    table.insert(0, "user", [f"user {n}" for n in range(number)])
    table.to_parquet(folder / f"users-{number}.parquet")
    return folder / f"users-{number}.parquet"


def scoring(folder: Path) -> None:
    """Predictions a second and core, to Parquet, of the loop in one process and of Ray."""
    command = ("predict", folder / "kb", folder / "rows.parquet", "--preferences")
    steady: list[float] = []

    def loop(file: Path) -> Cost:
        found = cost(*command, file, "--output", folder / "loop.parquet")
        (folder / "loop.parquet").unlink()
        return found

    def on_ray(file: Path) -> Cost:
        found = cost(*command, file, "--output", folder / "ray.parquet", "--engine", "ray")
        parts = sorted(p.stat().st_mtime for p in (folder / "ray.parquet").iterdir())
        if len(parts) > 1:
            steady.append((parts[-1] - parts[0]) * len(parts) / (len(parts) - 1))
        shutil.rmtree(folder / "ray.parquet")
        return found

    start = loop(users(folder, 1))
    print(f"the loop's start: {start.clock:.1f} s, {start.processor:.1f} processor-seconds")
    for number in SCORED_USERS:
        file = users(folder, number)
        steady.clear()
        plain, cluster = in_turns(
            lambda _, file=file: loop(file), lambda _, file=file: on_ray(file)
        )
        scores = number * ITEMS
        print(f"{scores:,} scores to Parquet, {WORKERS} workers, median of {ROUNDS} rounds")
        for what, cores in (("processor", 1), ("clock", WORKERS)):
            one, other = median(plain, what), median(cluster, what) * cores
            begun = one - getattr(start, what)
            print(
                f"  {what}, whole commands: loop {one:.1f} s, ray {other / cores:.1f} s;",
                f"a second and core {scores / one:,.0f} and {scores / other:,.0f}: ratio",
                f"{one / other:.2f}; to a loop that has started already {begun / other:.2f}",
            )
        if steady:
            seconds = statistics.median(steady) * WORKERS
            begun = median(plain, "clock") - start.clock
            print(
                f"  clock, first file to last: {scores / seconds:,.0f} a second and core;",
                f"ratio to a loop that has started already {begun / seconds:.2f}",
            )
        memory = median(plain, "memory"), median(cluster, "memory")
        print("  largest process: loop {:,.0f} MB, ray {:,.0f} MB".format(*memory), flush=True)


def a_million_users(folder: Path) -> None:
    """All users' answers to all items, block by block in this process, and the peak of memory."""
    learner = ibcl.load(folder / "kb")
    rows = pd.read_parquet(folder / "rows.parquet")
    random = np.random.default_rng(1)
    weights = random.dirichlet(np.ones(TASKS), USERS)
    for number in (USERS // 10, USERS):
        begin, own, seen = time.perf_counter(), time.process_time(), 0
        for block in learner.predict_blocks(rows, weights[:number], numbers=2**22):
            seen += block.shape[0] * block.shape[1]
        seconds, processor = time.perf_counter() - begin, time.process_time() - own
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(
            f"{number:,} users × {ITEMS:,} items: {seen / seconds:,.0f} answers a second,",
            f"{seen / processor:,.0f} a processor-second, {seconds:.1f} s, peak {most:,.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("IBCL_THREADS", "1")
    with tempfile.TemporaryDirectory(dir=os.environ.get("FOLDER")) as name:
        folder = Path(name)
        knowledge_base(folder)
        wanted = sys.argv[1:] or ["a_million_users", "grid", "scoring"]
        for part in (a_million_users, grid, scoring):
            if part.__name__ in wanted:
                part(folder)
