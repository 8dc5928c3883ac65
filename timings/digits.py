"""How good: models from preferences against models retrained for them, on the digits.

    python timings/digits.py [SEEDS] [--quick]

As ``ibcl bench digits --evaluate-after last`` with a few of its methods: average per-task test
accuracy after the last task, with 95 % intervals over seeds, and each method's difference from the
oracle of the same kind of network, seed by seed. Linear heads are compared with the exact solution
of the preference-weighted problem on all data, networks with one retrained for every preference.
"""

from __future__ import annotations

import argparse

import pandas as pd
import torch
from rich.console import Console
from rich.table import Table

from ibcl.experiments import benchmarks
from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.comparison_tables import percent
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol, run
from ibcl.experiments.evaluation.titles import title

ORACLES = {
    "routed": "map_oracle",
    "routed1_random": "oracle",
    "ibcl_evidence": "map_oracle",
    "routed_mean_field": "oracle",
    "ibcl": "oracle",
}
"""Which oracle has a method's kind of network; none trains random features, so the network's."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=int, nargs="?", default=5)
    parser.add_argument("--quick", action="store_true", help="one seed of the quickest methods")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(1 if arguments.quick else arguments.seeds)
    names = [*ORACLES, "map_oracle", "oracle"]
    if arguments.quick:
        names = ["routed", "map_oracle"]
    tables = []
    for seed in seeds:
        digits = benchmarks.load("digits", seed=seed)
        for name in names:
            protocol = Protocol(samples=0, evaluate_after="last")
            tables.append(run(contender(name, "digits"), digits, seed, protocol=protocol))
    values = metrics.average_per_task(pd.concat(tables).assign(label=""))
    each = {name: part.set_index("seed")["value"] for name, part in values.groupby("method")}
    shown = Table(
        "method",
        "accuracy",
        "against",
        "points",
        title=f"digits, {len(seeds)} seeds, 10 preferences",
    )
    for name in names:
        found = metrics.interval(each[name].tolist())
        row = [title(name), percent(found.mean, found.half_width)]
        if name in ORACLES:
            lead = metrics.interval((each[name] - each[ORACLES[name]]).tolist())
            row += [title(ORACLES[name]), f"{100 * lead.mean:+.1f} ± {100 * lead.half_width:.1f}"]
        shown.add_row(*row)
    Console(width=100).print(shown)


if __name__ == "__main__":
    main()
