"""Train all contenders on a table, ask them for preferences, and score what they answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import accuracy_score, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split

from ibcl.engines import Engine, LocalEngine, Outcome
from ibcl.experiments.tables.catalogue import TABLES, Table
from ibcl.experiments.tables.contenders import CONTENDERS, Answers
from ibcl.files import write_atomically
from ibcl.preference import sample_preferences

TEST = 0.3
"""The share of each task that is tested on."""
PREFERENCES = 5
"""Random preferences; besides them one near each vertex is used, with 0.9 on one task."""


@dataclass(frozen=True)
class Cell:
    """One table, one seed.

    Parameters
    ----------
    rows
        At most so many rows are used; all without a number.
    """

    table: str
    seed: int
    rows: int | None = None

    @property
    def name(self) -> str:
        """What it is run on."""
        return self.table

    @property
    def file(self) -> str:
        """The name of the file with its results."""
        size = "" if self.rows is None else f"--rows{self.rows}"
        return f"{self.table.replace(' ', '-')}{size}--seed{self.seed}.json"


def preferences_of(tasks: Sequence[str], seed: int) -> list[dict[str, float]]:
    """Return random preferences, and one near each vertex.

    Examples
    --------
    >>> len(preferences_of(["a", "b"], seed=0))
    7
    """
    drawn = sample_preferences(len(tasks), PREFERENCES, seed)
    near = np.full((len(tasks), len(tasks)), 0.1 / max(1, len(tasks) - 1))
    np.fill_diagonal(near, 0.9 if len(tasks) > 1 else 1.0)
    return [dict(zip(tasks, row / row.sum(), strict=True)) for row in np.concatenate([drawn, near])]


def score(table: Table, answers: Answers, rows: np.ndarray[Any, Any]) -> float:
    """The table's metric on some of its rows, given the answers to those."""
    truth = table.y[rows].to_numpy()
    if table.metric == "r2":
        return float(r2_score(truth, answers))
    classes = np.unique(table.y)
    if table.metric == "auc":
        return float(roc_auc_score(truth == classes[1], answers[:, 1]))
    return float(accuracy_score(truth, classes[answers.argmax(1)]))


def run(cell: Cell) -> list[dict[str, Any]]:
    """Compare all contenders on one table with one seed.

    A row of the result is a contender: its score Σ_k w_k score_k averaged over preferences, with
    preferences of either kind apart, and the seconds of learning and of all answers.
    """
    whole = TABLES[cell.table]()
    if cell.rows is not None:
        whole = whole.sample(cell.rows, cell.seed)
    strata = whole.task if whole.metric == "r2" else whole.task + "|" + whole.y.astype(str)
    counts = strata.value_counts()
    strata = strata.where(strata.map(counts) >= 2, whole.task)
    learnt, tested = train_test_split(
        np.arange(len(whole.x)), test_size=TEST, random_state=cell.seed, stratify=strata
    )
    train, test = whole.take(learnt), whole.take(tested)
    wanted = preferences_of(whole.tasks, cell.seed)
    found = []
    for name, make in CONTENDERS.items():
        if "balanced" in name and whole.metric != "auc":
            continue
        contender = make()
        begin = time.perf_counter()
        contender.fit(train)
        fitted = time.perf_counter()
        values = []
        for preference in wanted:
            answers = contender.predict(test.x, preference)
            total = 0.0
            for task, weight in preference.items():
                rows = (test.task == task).to_numpy()
                total += weight * score(test, answers[rows], rows)
            values.append(total)
        found.append(
            {
                "table": cell.table,
                "seed": cell.seed,
                "metric": whole.metric,
                "rows": len(whole.x),
                "columns": whole.x.shape[1],
                "tasks": len(whole.tasks),
                "contender": name,
                "score": float(np.mean(values)),
                "random preferences": float(np.mean(values[:PREFERENCES])),
                "near vertices": float(np.mean(values[PREFERENCES:])),
                "learning seconds": fitted - begin,
                "answering seconds": time.perf_counter() - fitted,
            }
        )
    return found


def run_all(
    cells: Sequence[Cell], folder: Path, engine: Engine | None = None
) -> Iterator[Outcome[Cell, str]]:
    """Run the cells whose results are not in the folder; each is written when it is complete."""
    waiting = [cell for cell in cells if not (folder / cell.file).exists()]
    yield from (engine or LocalEngine(1)).run(partial(_run_and_write, folder.absolute()), waiting)


def _run_and_write(folder: Path, cell: Cell) -> str:
    text = json.dumps(run(cell), indent=1) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / cell.file, text.encode(), True)
    return cell.file


def read_results(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """Read the results of cells that are in the folder, one row per contender, table and seed."""
    files = [folder / cell.file for cell in cells if (folder / cell.file).exists()]
    return pd.DataFrame([row for file in files for row in json.loads(file.read_text())])
