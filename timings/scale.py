"""How time and memory grow with rows, columns, tasks, classes and users, one factor at a time.

    python timings/scale.py            # minutes
    python timings/scale.py --quick    # seconds, for the code rather than the figures
    python timings/scale.py --factors rows columns --no-compare
    python timings/scale.py --factors --no-compare --wide 2000x5000 20000x5000

Every point is measured in a process of its own, on one thread: processor seconds, and the memory
that the process came to hold at most beyond what it began with. A factor's *exponent* b is fitted
to its measurements, time ~ size^b; 1 is linear. At the end, learning is compared with
`sklearn.linear_model.LogisticRegression` on the same random features of the same rows, as a ratio;
with `--wide` a linear head on tables of these rows and columns, and the estimator's own choice of
one, with it on the columns themselves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import threadpoolctl
import torch
from rich.console import Console
from rich.table import Table
from sklearn.linear_model import LogisticRegression

import ibcl
from ibcl.tabular.heads import make_head, outputs_for

# Memory below this is what any computation leaves behind, and says nothing about growth.
_NOISE_BYTES = 2**20


class Size(NamedTuple):
    """One problem: what is varied, and what stays."""

    rows: int = 2000
    columns: int = 20
    tasks: int = 2
    classes: int = 2
    users: int = 100


FULL = {
    "rows": (5_000, 10_000, 20_000, 40_000, 80_000),
    "columns": (25, 50, 100, 200, 400),
    "tasks": (2, 4, 8, 16, 32),
    "classes": (2, 4, 8, 16),
    "users": (1_000, 4_000, 16_000, 64_000),
}
QUICK = {
    "rows": (200, 400),
    "columns": (5, 10),
    "tasks": (2, 3),
    "classes": (2, 3),
    "users": (50, 100),
}
BASE = {False: Size(), True: Size(rows=200, columns=5)}
COMPARED = {False: Size(100_000, 50, 5), True: Size(200, 5, 2)}


def made_up(size: Size, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Make the tasks: labels that are not linear in the rows, and noisy; rows split evenly."""
    generator = torch.Generator().manual_seed(seed)
    tasks = []
    hidden = torch.randn(size.columns, 20, generator=generator) / size.columns**0.5
    for _ in range(size.tasks):
        x = torch.randn(size.rows // size.tasks, size.columns, generator=generator)
        linear = torch.randn(size.columns, size.classes, generator=generator) / size.columns**0.5
        bent = torch.randn(20, size.classes, generator=generator)
        scores = 2 * x @ linear + torch.relu(x @ hidden) @ bent
        noise = torch.randn(scores.shape, generator=generator)
        tasks.append((x, (scores + noise).argmax(1)))
    return tasks


def head(size: Size) -> torch.nn.Sequential:
    """Return the network that a table gets by default."""
    return make_head("random_features", size.columns, outputs_for(size.classes))


def learn(size: Size) -> ibcl.IBCL:
    """Learn all tasks with the defaults."""
    learner = ibcl.IBCL(head(size))
    for position, (x, y) in enumerate(made_up(size)):
        learner.learn(x, y, task=f"task {position}")
    return learner


def logistic_regression(size: Size) -> None:
    """Fit every task's rows on the same features."""
    features = torch.nn.Sequential(*list(head(size))[:-1])
    for x, y in made_up(size):
        with torch.no_grad():
            LogisticRegression(max_iter=1000).fit(features(x).numpy(), y.numpy())


def wide(text: str) -> dict[str, object]:
    """Learn one task of many columns: with a linear head, and with what the estimator chooses."""
    rows, columns = (int(number) for number in text.split("x"))
    size = Size(rows, columns, tasks=1)

    def data() -> tuple[torch.Tensor, torch.Tensor]:
        return made_up(size)[0]

    linear = cost(lambda known: ibcl.IBCL(ibcl.networks.linear(columns)).learn(*known), data)
    chosen = cost(lambda known: ibcl.IBCLClassifier().fit(*map(np.asarray, known)), data)
    theirs = cost(lambda known: LogisticRegression(max_iter=1000).fit(*known), data)
    return {
        "rows": rows,
        "columns": columns,
        "linear": linear._asdict(),
        "estimator": chosen._asdict(),
        "logistic_regression": theirs._asdict(),
    }


def answer(learner: ibcl.IBCL, size: Size) -> None:
    """Predict a hundred rows for every user."""
    x = torch.randn(100, size.columns, generator=torch.Generator().manual_seed(1))
    learner.predict_many(x, ibcl.sample_preferences(size.tasks, size.users))


class Cost(NamedTuple):
    """Processor seconds, and bytes at most beyond the beginning."""

    seconds: float
    bytes: float


def _held() -> int:
    """Bytes that this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _run(sender: Connection, prepare: Callable[[], object], work: Callable[..., object]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    # Of whatever scikit-learn computes with as well: idle threads that wait count as its time.
    threadpoolctl.threadpool_limits(1)
    prepared = prepare()
    held = _held()
    begin = time.process_time()
    work(prepared)
    seconds = time.process_time() - begin
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sender.send((seconds, max(0, most - held)))


def cost(work: Callable[..., object], prepare: Callable[[], object] = lambda: None) -> Cost:
    """Measure in a process of its own, which begins with everything imported."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    process = context.Process(target=_run, args=(sender, prepare, work))
    process.start()
    # The parent's end is closed so that a process that died is noticed.
    sender.close()
    try:
        return Cost(*receiver.recv())
    except EOFError:
        process.join()
        raise RuntimeError(f"A measurement ended with exit code {process.exitcode}.") from None
    finally:
        process.join()


def measure(factor: str, size: Size) -> Cost:
    """What it costs to learn, or for users to answer all of them."""
    if factor == "users":
        return cost(lambda learner: answer(learner, size), lambda: learn(size))
    return cost(lambda _: learn(size))


def exponent(sizes: tuple[int, ...], values: list[float]) -> float:
    """Fit b of value ~ size^b.

    Examples
    --------
    >>> round(exponent((1, 2, 4), [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(values, 1e-9)), 1)[0])


def growth(factor: str, sizes: tuple[int, ...], base: Size) -> dict[str, object]:
    """Measure one factor at all its sizes, everything else as it is by default."""
    points = []
    for value in sizes:
        size = base._replace(**{factor: value})
        if factor == "tasks":
            # As many rows per task whatever their number, so that one factor varies at a time.
            size = size._replace(rows=value * (base.rows // base.tasks))
        points.append(measure(factor, size))
    held = [max(point.bytes, _NOISE_BYTES) for point in points]
    return {
        "factor": factor,
        "sizes": list(sizes),
        "seconds": [point.seconds for point in points],
        "megabytes": [point.bytes / 2**20 for point in points],
        "time_exponent": exponent(sizes, [point.seconds for point in points]),
        "memory_exponent": exponent(sizes, held),
    }


def compare(quick: bool) -> list[dict[str, object]]:
    """Learning against logistic regression on the same features."""
    rows: list[dict[str, object]] = []
    for classes in (2, 3) if quick else (2, 10):
        size = COMPARED[quick]._replace(classes=classes)
        ours = cost(lambda _, size=size: learn(size))
        theirs = cost(lambda _, size=size: logistic_regression(size))
        rows.append(
            {
                **size._asdict(),
                "seconds": ours.seconds,
                "logistic_regression": theirs.seconds,
                "ratio": ours.seconds / theirs.seconds,
                "kilobytes_per_row": ours.bytes / size.rows / 1024,
            }
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    parser.add_argument("--factors", nargs="*", choices=list(FULL), default=list(FULL))
    parser.add_argument("--compare", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--wide", nargs="*", default=[], metavar="ROWSxCOLUMNS")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = QUICK if arguments.quick else FULL
    before = os.getloadavg()[0]
    base = BASE[arguments.quick]
    grown = [growth(factor, sizes[factor], base) for factor in arguments.factors]
    compared = compare(arguments.quick) if arguments.compare else []
    many = [wide(each) for each in arguments.wide]
    load = f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    if arguments.json:
        found = {"load": load, "growth": grown, "compared": compared, "wide": many}
        json.dump(found, sys.stdout, indent=2)
        return
    # Tables in files are as wide as they need to be.
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("factor", "sizes", "seconds", "MB", "time ~", "memory ~", title=load)
    for row in grown:
        name = str(row["factor"])
        table.add_row(
            name,
            ", ".join(f"{value:,}" for value in sizes[name]),
            ", ".join(f"{value:.2f}" for value in row["seconds"]),  # type: ignore[attr-defined]
            ", ".join(f"{value:.0f}" for value in row["megabytes"]),  # type: ignore[attr-defined]
            f"{name}^{row['time_exponent']:.2f}",
            f"{name}^{row['memory_exponent']:.2f}",
        )
    if grown:
        console.print(table)
    for row in compared:
        console.print(
            f"{row['rows']:,} rows x {row['columns']} columns, {row['tasks']} tasks, "
            f"{row['classes']} classes: {row['seconds']:.2f} s, {row['ratio']:.2f} times logistic "
            f"regression on the same features, {row['kilobytes_per_row']:.2f} KB per row"
        )
    for row in many:
        console.print(f"{row['rows']:,} rows x {row['columns']:,} columns, two classes, {load}")
        for name in ("linear", "estimator", "logistic_regression"):
            seconds, held = row[name].values()  # type: ignore[attr-defined]
            console.print(f"  {name.replace('_', ' ')}: {seconds:.2f} s, {held / 2**20:,.0f} MB")


if __name__ == "__main__":
    main()
