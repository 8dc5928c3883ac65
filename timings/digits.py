"""How good: models from preferences against models retrained for them, on the digits demo.

    python timings/digits.py [SEEDS]

For every seed, 20 random preferences after the last task; the figure is the preference-weighted
test accuracy Σ_k w_k accuracy_k, averaged over preferences, then over seeds.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import ibcl
from ibcl.demo.experiment import WAYS, compare
from ibcl.demo.tasks import digit_tasks

PREFERENCES = 20


def main() -> None:
    torch.set_num_threads(1)
    seeds = range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
    table = Table(
        "way",
        "from preferences",
        "retrained",
        "difference",
        title=f"{len(seeds)} seeds, {PREFERENCES} preferences: mean ± deviation over seeds",
    )
    for way in WAYS:
        scores = []
        for seed in seeds:
            tasks = digit_tasks(seed).tasks
            weights = ibcl.sample_preferences(len(tasks), PREFERENCES, seed)
            result = compare(way, tasks, weights, len(weights), seed)
            scores.append(
                [(weights * part).sum(1).mean() for part in (result.accuracy, result.retrained)]
            )
        ours, retrained = np.array(scores).T
        cells = [
            f"{x.mean():.4f} ± {x.std(ddof=1):.4f}" for x in (ours, retrained, ours - retrained)
        ]
        table.add_row(f"{way.name} ({way.pooling})", *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
