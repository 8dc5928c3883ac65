"""A million users' preferences over ten tasks on a block of rows, beside the bare products.

    python timings/users_by_rows.py [--users 1000000] [--rows 10 100 1000]

Answers come from `IBCL.predict_blocks`, as those of ``ibcl predict --preferences`` do: all is
included, from the check of every preference to the last division. The bare side is the two matrix
products alone, W (e ∘ p)ᵀ and W eᵀ, in single precision and in blocks of as many numbers. The two
take turns, the fastest round of each counts in processor time on one thread, and a sample of the
answers is compared with single models.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Callable

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ibcl

TASKS, INPUTS = 10, 16
NUMBERS = 2**22
"""Numbers of a block: 16 MiB of answers in single precision."""


def make_learner() -> ibcl.IBCL:
    """Learn ten tasks, each around a centre of its own."""
    learner = ibcl.IBCL(ibcl.networks.linear(INPUTS), pooling="routed")
    for position in range(TASKS):
        inputs, classes = rows_of(position, 200)
        learner.learn(inputs, classes, task=f"task {position}")
    return learner


def rows_of(position: int, count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows of a task and their classes."""
    generator = np.random.default_rng([seed, position])
    centre, slope = np.random.default_rng(position).normal(size=(2, INPUTS))
    offset = generator.normal(size=(count, INPUTS))
    inputs = torch.as_tensor(offset + 0.5 * centre, dtype=torch.float32)
    return inputs, torch.as_tensor(offset @ slope > 0)


def processor_seconds(work: Callable[[], None]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def largest_memory() -> float:
    """Return the most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def compare(
    learner: ibcl.IBCL, preferences: np.ndarray, rows: int, rounds: int
) -> tuple[float, float, int]:
    """Return the fastest processor times of ours and of the bare products, and the blocks."""
    block = torch.cat([rows_of(k, -(-rows // TASKS), seed=1)[0] for k in range(TASKS)])[:rows]
    blocks = 0

    def ours() -> None:
        nonlocal blocks
        blocks = sum(1 for _ in learner.predict_blocks(block, preferences, numbers=NUMBERS))

    answers = learner.state.predictives.answers(learner.state.features(block))
    scores, members = answers.densities, answers.of_tasks
    shifted = torch.exp(scores - scores.amax(1, keepdim=True)).T
    numerator = (shifted[:, :, None] * members).reshape(TASKS, -1).float()
    denominator = shifted.float().contiguous()
    users = torch.as_tensor(preferences, dtype=torch.float32)
    step = max(1, NUMBERS // numerator.shape[1])

    def bare() -> None:
        for part in torch.split(users, step):
            part @ numerator
            part @ denominator

    check(learner, block, preferences)
    times = [(processor_seconds(ours), processor_seconds(bare)) for _ in range(rounds)]
    return min(a for a, _ in times), min(b for _, b in times), blocks


def check(learner: ibcl.IBCL, block: torch.Tensor, preferences: np.ndarray) -> None:
    """Compare some of the answers with single models."""
    chosen = preferences[:: max(1, len(preferences) // 5)]
    found = learner.predict_many(block, chosen)
    for preference, answers in zip(chosen, found, strict=True):
        expected = learner.model(preference).predict_proba(block)
        assert torch.allclose(answers, torch.as_tensor(expected).float(), atol=1e-5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    learner = make_learner()
    preferences = np.random.default_rng(0).dirichlet(np.ones(TASKS), arguments.users)
    title = f"{arguments.users:,} users, {TASKS} tasks, load {load:.1f}, {os.cpu_count()} cores"
    table = Table("rows", "ours", "bare products", "ratio", "at most", "blocks", "memory more")
    table.title = title
    for rows in arguments.rows:
        before = largest_memory()
        ours, bare, blocks = compare(learner, preferences, rows, arguments.rounds)
        cells = (f"{rows}", f"{ours:.2f} s", f"{bare:.2f} s", f"{ours / bare:.2f}", "1.5")
        table.add_row(*cells, f"{blocks:,}", f"{largest_memory() - before:.0f} MiB")
    Console().print(table)


if __name__ == "__main__":
    main()
