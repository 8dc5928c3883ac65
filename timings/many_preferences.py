"""Ten thousand preferences over ten tasks on a thousand rows, beside what they consist of.

    python timings/many_preferences.py [--features 512] [--preferences 10000] [--rounds 7]

`IBCL.predict_many` of a routed learner, from checked preferences to the last division, gate and
heads included, is compared with the two bare matrix products of those shapes, and with one head per
preference from pooled evidence: the solve alone, and the solve with its predictions on the rows.
All take turns; the fastest round of each counts, in processor time on one thread.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ibcl

TASKS, ROWS, SOLVES = 10, 1_000, 20


def learner(features: int, pooling: str) -> ibcl.IBCL:
    """Learn ten tasks, each around a centre of its own."""
    made = ibcl.IBCL(ibcl.networks.linear(features), pooling=pooling, independent=True)
    for position in range(TASKS):
        generator = np.random.default_rng(position)
        centre, slope = generator.normal(size=(2, features))
        offset = generator.normal(size=(400, features))
        inputs = torch.as_tensor(offset + 0.5 * centre, dtype=torch.float32) / features**0.5
        made.learn(inputs, torch.as_tensor(offset @ slope > 0), task=f"task {position}")
    return made


def processor_seconds(work: Callable[[], object]) -> float:
    """Processor time of one call."""
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", type=int, default=512)
    parser.add_argument("--preferences", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    features = arguments.features
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    routed, one_head = learner(features, "routed"), learner(features, "evidence")
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(ROWS, features, generator=generator) / features**0.5
    preferences = ibcl.sample_preferences(TASKS, arguments.preferences)
    # A learner remembers the models of preferences that come back: no solve meets one again.
    fresh = iter(ibcl.sample_preferences(TASKS, 2 * SOLVES * (arguments.rounds + 1), seed=1))
    weights = torch.as_tensor(preferences, dtype=torch.float32)
    either = torch.randn(TASKS, ROWS, generator=generator)
    work: dict[str, Callable[[], object]] = {
        "predict_many": lambda: routed.predict_many(rows, preferences),
        "two bare products": lambda: (weights @ either, weights @ either),
        "evidence solves": lambda: [one_head.model(w).theta for w in islice(fresh, SOLVES)],
        "evidence solves and predictions": lambda: [
            one_head.model(w).predict_proba(rows) for w in islice(fresh, SOLVES)
        ],
    }
    for each in work.values():
        each()
    rounds = [[processor_seconds(each) for each in work.values()] for _ in range(arguments.rounds)]
    ours, bare, solves, predicted = np.min(rounds, axis=0)
    each = len(preferences) / SOLVES
    table = Table("what", "seconds", "against predict_many", "target")
    table.title = f"{features} features, load {load:.1f}, {os.cpu_count()} cores"
    table.add_row("predict_many", f"{ours:.3f}", "1", "")
    table.add_row("two bare products", f"{bare:.3f}", f"ours is {ours / bare:.2f}", "at most 2")
    table.add_row("a solve each", f"{solves * each:.1f}", f"{solves * each / ours:,.0f}", "1,000")
    table.add_row(
        "a solve and its predictions each",
        f"{predicted * each:.1f}",
        f"{predicted * each / ours:,.0f}",
        "1,000",
    )
    Console().print(table)


if __name__ == "__main__":
    main()
