"""Very many small tasks: opening a base, predicting, and saving one more task.

    OMP_NUM_THREADS=1 python timings/many_tasks.py                  # 10,000 tasks, minutes
    OMP_NUM_THREADS=1 python timings/many_tasks.py --tasks 300      # for the code, seconds

So many tasks are learnt as are given with ``--learnt``, with the head and the rule that the command
line gives a table. The others are copies of those with means of their own, so that every task has
its own record, posterior and files. What is measured after that is measured in a new process.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import ibcl
from ibcl.routing import ClassDensities
from ibcl.tabular.heads import make_head, table_pooling

ROWS, COLUMNS = 50, 10


def made_up(task: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a task of two classes, at a place of its own."""
    generator = torch.Generator().manual_seed(task)
    x = torch.randn(ROWS, COLUMNS, generator=generator)
    y = x @ torch.randn(COLUMNS, generator=generator) > 0
    return x + torch.randn(COLUMNS, generator=generator), y


def learnt(tasks: int) -> ibcl.IBCL:
    """Learn so many tasks as the command line would."""
    network = make_head("random_features", COLUMNS, 1)
    learner = ibcl.IBCL(network, pooling=table_pooling(network, COLUMNS, 1))
    for task in range(tasks):
        learner.learn(*made_up(task), task=f"task {task}")
    return learner


def with_copies(learner: ibcl.IBCL, tasks: int) -> None:
    """Add copies of the tasks, with means of their own, until there are so many."""
    known = learner.knowledge
    records, parts, stored = [*known.records], [*known.parts], [*known.stored]
    count = len(records)
    generator = torch.Generator().manual_seed(0)
    for task in range(count, tasks):
        source = task % count
        densities = known.parts[source][ClassDensities.kind]
        assert isinstance(densities, ClassDensities)
        shift = 0.1 * torch.randn(densities.means.shape, generator=generator)
        shifted = replace(densities, means=densities.means + shift * densities.means.std())
        posterior = copy.copy(known.stored[source])
        posterior.mean = posterior.mean + 0.01 * torch.randn(posterior.dimension).to(posterior.mean)
        records.append(replace(records[source], name=f"task {task}", posteriors=(len(stored),)))
        parts.append({ClassDensities.kind: shifted})
        stored.append(posterior)
    knowledge = known.empty()
    knowledge.restore(tuple(stored), tuple(records), None, tuple(parts))
    learner.restore(knowledge, learner.state.likelihood, learner.choices)


def megabytes() -> float:
    """What this process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextmanager
def measured(what: str) -> Iterator[None]:
    """Print processor seconds, seconds by the clock, and the most memory held so far."""
    begun, clock = time.process_time(), time.perf_counter()
    yield
    spent, waited = time.process_time() - begun, time.perf_counter() - clock
    print(f"{what:32} {spent:8.2f} CPU-s {waited:8.2f} s {megabytes():8.0f} MB", flush=True)


def files(folder: Path) -> set[str]:
    """Names of the files that hold tasks."""
    return {path.name for path in folder.rglob("*.safetensors")}


def opened(folder: Path) -> None:
    """Open the base, predict, and save one more task, in this process."""
    with measured("import and an empty learner"):
        ibcl.IBCL(make_head("random_features", COLUMNS, 1))
    with measured("open"):
        learner = ibcl.load(folder)
    x = torch.randn(100, COLUMNS, generator=torch.Generator().manual_seed(1))
    shares = ibcl.sample_preferences(len(learner.tasks), 5)
    with measured("the gate, at the first prediction"):
        learner.predict_many(x[:1], shares)
    with measured("100 rows, 5 preferences"):
        learner.predict_many(x, shares)
    with measured("a model of one preference"):
        model = learner.model(shares[0])
    with measured("100 rows of it"):
        model.predict_proba(x)
    with measured("infer a preference from 100 rows"):
        learner.infer_preference(x)
    with measured("learn one more"):
        learner.learn(*made_up(10**6), task="one more")
    before = files(folder)
    with measured("save one more"):
        learner.save(folder)
    after = files(folder)
    print(f"files written {len(after - before)}, removed {len(before - after)}")


def main() -> None:
    """Make, save and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--learnt", type=int, default=100)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.folder is not None:
        opened(arguments.folder)
        return
    with TemporaryDirectory() as place:
        folder = Path(place) / "tasks.ibcl"
        count = min(arguments.learnt, arguments.tasks)
        with measured(f"learn {count:,} tasks of {ROWS} rows"):
            learner = learnt(count)
        with_copies(learner, arguments.tasks)
        with measured(f"save {arguments.tasks:,} tasks"):
            learner.save(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(f"on disk {size / 2**20:,.0f} MB, {size / arguments.tasks / 2**10:,.0f} KB a task")
        del learner
        subprocess.run([sys.executable, __file__, "--folder", folder], check=True, env=os.environ)


if __name__ == "__main__":
    main()
