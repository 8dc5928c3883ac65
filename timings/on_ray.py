"""What Ray costs and carries: a grid on both engines, scores for users, and a million of them.

Run it by hand: ``python timings/on_ray.py [grid] [scoring] [a_million_users]``; every
figure is of this run and this machine.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.experiments.engine import LocalEngine
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import Cell, run_all
from ibcl.experiments.ray_engine import RayEngine, connect

WORKERS = 2
CELLS = 12
SCORED_USERS = 20_000
ITEMS = 1_000
USERS = 1_000_000
TASKS = 10


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
    begin = time.perf_counter()
    assert all(o.error is None for o in run_all(cells, folder / "local", LocalEngine(WORKERS)))
    local = time.perf_counter() - begin
    begin = time.perf_counter()
    connect(processes=WORKERS)
    started = time.perf_counter() - begin
    begin = time.perf_counter()
    assert all(o.error is None for o in run_all(cells, folder / "ray", RayEngine("", WORKERS)))
    on_ray = time.perf_counter() - begin
    print(f"grid of {CELLS} cells, {WORKERS} workers: local {local:.1f} s, ray {on_ray:.1f} s")
    print(f"  ratio {on_ray / local:.2f}; with {started:.1f} s to start Ray", end=" ")
    print(f"{(on_ray + started) / local:.2f}", flush=True)


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
    connect(processes=WORKERS)
    command = ("score", folder / "kb", folder / "rows.parquet", "--users", folder / "users.parquet")
    seconds = {}
    for name, options in (("loop", ()), ("ray", ("--engine", "ray"))):
        begin = time.perf_counter()
        run(*command, "--out", folder / f"{name}.parquet", *options)
        seconds[name] = time.perf_counter() - begin
    numbers = SCORED_USERS * ITEMS
    loop, on_ray = numbers / seconds["loop"], numbers / seconds["ray"] / WORKERS
    print(f"{numbers:,} scores to Parquet: loop {loop:,.0f} a second on one core")
    print(f"  ray {on_ray:,.0f} a second and core on {WORKERS}; ratio {on_ray / loop:.2f}")
    written = sorted(part.stat().st_mtime for part in (folder / "ray.parquet").iterdir())
    parts = len(written)
    steady = numbers * (parts - 1) / parts / (written[-1] - written[0]) / WORKERS
    print(f"  {seconds['loop']:.1f} s and {seconds['ray']:.1f} s; once workers have started, from")
    print(f"  the first file to the last, {steady:,.0f}; ratio {steady / loop:.2f}", flush=True)


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
