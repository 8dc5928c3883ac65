"""How long learning a table takes with boosting beside the heads, in fits of one boosting.

    python timings/experts.py flights mortgages wages

Tables are those of `ibcl bench tables`. Each time is processor time on one thread, the smallest of
several rounds, divided by that of fitting boosting once to all rows.
"""

from __future__ import annotations

import argparse
import time
import warnings

import threadpoolctl
import torch

import ibcl
from ibcl.experiments.tables.catalogue import TABLES, Table
from ibcl.experiments.tables.contenders import Estimator, boosting

SETTINGS = {
    "default": {},
    "boosting beside": {"expert": "auto"},
    "linear, boosting beside": {"network": "linear", "expert": "auto"},
}


def seconds(table: Table, settings: dict[str, str] | None) -> float:
    """Processor seconds of learning a table; without settings, of boosting."""
    begin = time.process_time()
    if settings is None:
        boosting(table.metric == "r2").fit(table.x, table.y)
    else:
        Estimator(**settings).fit(table)
    return time.process_time() - begin


def main() -> None:
    """Print a line per table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--rows", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    print(f"ibcl {ibcl.__version__}, times boosting once")
    with threadpoolctl.threadpool_limits(1):
        for name in given.tables:
            table = TABLES[name]().sample(given.rows, seed=0)
            once = min(seconds(table, None) for _ in range(given.rounds))
            found = {
                label: min(seconds(table, settings) for _ in range(given.rounds)) / once
                for label, settings in SETTINGS.items()
            }
            said = ", ".join(f"{label} {ratio:.1f}" for label, ratio in found.items())
            print(f"{name} ({len(table.x):,} rows, {len(table.tasks)} tasks): {said}", flush=True)


if __name__ == "__main__":
    main()
