"""Simulator steps per second, with one thread and with one per processor.

    python timings/rollouts.py [--rounds 5] [--steps 100]

Wall-clock time is what threads are for, but on a busy machine it measures the neighbours too, so
steps per CPU-second and the load are printed beside it.
"""

from __future__ import annotations

import argparse
import os
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from ibcl.rl import make

COPIES = 64


def steps_per_second(name: str, threads: int, rounds: int, steps: int) -> tuple[float, float]:
    """Fastest of several rounds of random actions, a second of wall-clock and of CPU time."""
    environment = make(name, copies=COPIES, threads=threads)
    environment.reset(stagger=True)
    shape = (steps, COPIES, environment.action_size)
    actions = np.random.default_rng(0).uniform(-1, 1, shape)
    wall, cpu = [], []
    for _ in range(rounds):
        started, used = time.perf_counter(), time.process_time()
        for action in actions:
            environment.step(action)
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - used)
    environment.close()
    return steps * COPIES / min(wall), steps * COPIES / min(cpu)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    table = Table(title=f"{COPIES} copies, load average {os.getloadavg()[0]:.1f}")
    for column in ("environment", "threads", "steps per second", "steps per CPU-second"):
        table.add_column(column, justify="right")
    for name in ("mo-halfcheetah", "mo-hopper-3obj", "mo-ant"):
        for threads in sorted({1, os.cpu_count() or 1}):
            wall, cpu = steps_per_second(name, threads, arguments.rounds, arguments.steps)
            table.add_row(name, str(threads), f"{wall:,.0f}", f"{cpu:,.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
