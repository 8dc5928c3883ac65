"""What Ray costs and carries: a grid on both engines, scores for users, and a million of them.

Run it by hand: ``python timings/on_ray.py [grid] [scoring] [a_million_users]``; every figure is of
this run and this machine. Both sides take turns, and every round of Ray starts a cluster of its
own, which is part of what is counted.

Two ratios are printed. That of the clock is what one waits for, and on a machine that others use it
depends on them. That of processor time is what one pays for: all seconds that any process of the
work was computing, Ray's own processes included. Scores a processor-second are scores a second and
core of a machine that has nothing else to do. The variables ROUNDS and SCORED_USERS shorten it.
"""

from __future__ import annotations

import os
import resource
import statistics
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
import ray
import torch
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.experiments.engine import Engine, LocalEngine
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import Cell, run_all
from ibcl.experiments.ray_engine import RayEngine, connect

WORKERS = 2
CELLS = 12
ROUNDS = int(os.environ.get("ROUNDS", "3"))
SCORED_USERS = int(os.environ.get("SCORED_USERS", "100000"))
ITEMS = 1_000
USERS = 1_000_000
TASKS = 10


class Cost(NamedTuple):
    """What a piece of work took."""

    clock: float
    processor: float
    memory: float
    """Largest peak of any process it started, in megabytes; zero without any."""


def cost(work: Callable[[], object]) -> Cost:
    """Measure work and every process it starts; on Ray, a cluster started and ended for it."""
    import psutil  # Comes with Ray, and is found once that is imported.

    ray.shutdown()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin, own = time.perf_counter(), time.process_time()
    work()
    clock, processor = time.perf_counter() - begin, time.process_time() - own
    memory = 0.0
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            times = child.cpu_times()
            processor += times.user + times.system
            peak = next(
                int(line.split()[1])
                for line in Path(f"/proc/{child.pid}/status").read_text().splitlines()
                if line.startswith("VmHWM")
            )
            memory = max(memory, peak / 2**10)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    processor += now.ru_utime + now.ru_stime - ended.ru_utime - ended.ru_stime
    ray.shutdown()
    return Cost(clock, processor, memory)


def in_turns(one: Callable[[int], object], other: Callable[[int], object]) -> list[list[Cost]]:
    """Measure two ways of doing the same, one after the other, several times."""
    found: list[list[Cost]] = [[], []]
    for number in range(ROUNDS):
        for costs, way in zip(found, (one, other), strict=True):
            costs.append(cost(partial(way, number)))
    return found


def median(costs: list[Cost], what: str) -> float:
    return statistics.median(getattr(each, what) for each in costs)


def run(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exit_code:
        raise RuntimeError(result.output)


def grid(folder: Path) -> None:
    """The same cells on two workers of either engine, fresh processes both times."""
    cells = [
        Cell("digits", contender("oracle"), seed, Protocol(preferences=5, samples=2))
        for seed in range(CELLS)
    ]

    def on(name: str, engine: Engine, number: int) -> None:
        outcomes = run_all(cells, folder / f"{name}-{number}", engine)
        assert all(outcome.error is None for outcome in outcomes)

    local, on_ray = in_turns(
        partial(on, "local", LocalEngine(WORKERS)), partial(on, "ray", RayEngine("", WORKERS))
    )
    print(f"grid of {CELLS} cells, {WORKERS} workers, median of {ROUNDS} rounds, Ray's start in it")
    for what in ("clock", "processor"):
        one, other = median(local, what), median(on_ray, what)
        print(
            f"  {what}: local {one:.1f} s, ray {other:.1f} s; ratio {other / one:.2f}", flush=True
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
    run("learn", folder / "kb", *files, "--label", "y", "--width", 64)
    rows = pd.DataFrame(random.normal(size=(ITEMS, 8)), columns=[f"x{n}" for n in range(8)])
    rows.to_parquet(folder / "rows.parquet")
    weights = random.dirichlet(np.ones(TASKS), SCORED_USERS)
    users = pd.DataFrame(weights, columns=[f"task{n}" for n in range(TASKS)])
    users.insert(0, "user", [f"user {n}" for n in range(SCORED_USERS)])
    users.to_parquet(folder / "users.parquet")


def scoring(folder: Path) -> None:
    """Predictions a second and core, to Parquet, of the loop in this process and of Ray."""
    command = ("score", folder / "kb", folder / "rows.parquet", "--users", folder / "users.parquet")

    def loop(_: int) -> None:
        run(*command, "--out", folder / "loop.parquet", "--force")

    def on_ray(_: int) -> None:
        connect(processes=WORKERS)
        run(*command, "--out", folder / "ray.parquet", "--force", "--engine", "ray")
        written.append(sorted(p.stat().st_mtime for p in (folder / "ray.parquet").iterdir()))

    written: list[list[float]] = []
    plain, cluster = in_turns(loop, on_ray)
    numbers = SCORED_USERS * ITEMS
    print(f"{numbers:,} scores to Parquet, {WORKERS} workers, median of {ROUNDS} rounds")
    one, other = numbers / median(plain, "processor"), numbers / median(cluster, "processor")
    print(f"  a processor-second: loop {one:,.0f}, ray {other:,.0f} with its start", end=" ")
    print(f"and its own processes; ratio {other / one:.2f}")
    one, other = numbers / median(plain, "clock"), numbers / median(cluster, "clock") / WORKERS
    print(f"  a second and core by the clock: loop {one:,.0f}, ray {other:,.0f}", end=" ")
    print(f"with its start; ratio {other / one:.2f}")
    steady = statistics.median(
        numbers * (len(parts) - 1) / len(parts) / (parts[-1] - parts[0]) / WORKERS
        for parts in written
    )
    print(f"  from the first file to the last: ray {steady:,.0f}; ratio {steady / one:.2f}")
    print(f"  largest process: {median(cluster, 'memory'):,.0f} MB", flush=True)


def a_million_users(folder: Path) -> None:
    """All users' answers to all items, block by block in this process, and the peak of memory."""
    learner = ibcl.load(folder / "kb")
    rows = pd.read_parquet(folder / "rows.parquet")
    random = np.random.default_rng(1)
    weights = random.dirichlet(np.ones(TASKS), USERS)
    for users in (USERS // 10, USERS):
        begin, seen = time.perf_counter(), 0
        for block in learner.predict_blocks(rows, weights[:users], numbers=2**22):
            seen += block.shape[0] * block.shape[1]
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        print(
            f"{users:,} users × {ITEMS:,} items: {seen / seconds:,.0f} answers a second", end=", "
        )
        print(f"{seconds:.1f} s, peak {peak:,.0f} MB", flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("IBCL_THREADS", "1")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        knowledge_base(folder)
        wanted = sys.argv[1:] or ["a_million_users", "grid", "scoring"]
        for part in (a_million_users, grid, scoring):
            if part.__name__ in wanted:
                part(folder)
