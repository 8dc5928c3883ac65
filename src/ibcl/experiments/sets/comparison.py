r"""Measure sets: coverage Σ_k w_k P_k(y ∈ C(x)), size, and how many are single or empty.

For every preference of twenty, with the rows of each task weighted as the preference says. Under a
*wrong* preference the inputs come from another one than was stated: the stated one backwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ibcl.conformal import inside
from ibcl.engines import Engine, LocalEngine, Outcome
from ibcl.experiments.sets.contenders import Numbers, contenders, joined
from ibcl.experiments.sets.data import load
from ibcl.files import write_atomically
from ibcl.preference import sample_preferences

PREFERENCES = 20


@dataclass(frozen=True)
class Cell:
    """One data set, one seed."""

    data: str
    seed: int

    @property
    def name(self) -> str:
        """What it is run on."""
        return self.data

    @property
    def file(self) -> str:
        """The name of the file with its results."""
        return f"sets--{self.data.replace(' ', '-')}--seed{self.seed}.csv"


@dataclass(frozen=True)
class Facts:
    """Of every preference and row: whether the set holds the answer, and how large it is.

    Shape (preferences, rows) each; `single` and `empty` of classes, and of intervals which are one
    or none.
    """

    held: NDArray[np.bool_]
    size: Numbers
    single: NDArray[np.bool_]
    empty: NDArray[np.bool_]


def facts(sets: Numbers, y: NDArray[Any]) -> Facts:
    """Tell what sets of classes, (preferences, rows, classes), or of intervals hold.

    Examples
    --------
    >>> found = facts(np.array([[[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]]), np.array([0, 0, 0]))
    >>> found.held.tolist(), found.size.tolist(), found.empty.tolist()
    ([[True, True, False]], [[1.0, 2.0, 0.0]], [[False, False, True]])
    """
    if sets.ndim == 4:
        parts = ~np.isnan(sets[..., 0])
        number, size = parts.sum(-1), np.nansum(sets[..., 1] - sets[..., 0], -1)
        held = np.stack([inside(each, y) for each in sets])
    else:
        size = sets.sum(-1)
        number = size
        held = np.take_along_axis(sets, y.astype(int)[None, :, None], 2)[:, :, 0] > 0
    return Facts(held, size, number == 1, number == 0)


def run(cell: Cell) -> pd.DataFrame:
    """Measure all contenders on one data set with one seed, one row per contender and α."""
    measured = load(cell.data, cell.seed)
    x = joined([rows for rows, _ in measured.test])
    y = np.concatenate([labels for _, labels in measured.test])
    counts = np.array([len(labels) for _, labels in measured.test])
    task = np.repeat(np.arange(len(counts)), counts)
    weights = sample_preferences(len(counts), PREFERENCES, cell.seed)
    rows, wrong = ((w / counts)[:, task] for w in (weights, weights[:, ::-1]))
    found = []
    for name, sets in contenders(measured, x, weights, cell.seed).items():
        for alpha, each in sets.items():
            known = facts(each, y)
            tasks = [known.held[:, task == k].mean() for k in range(len(counts))]
            found.append(
                {
                    "data": cell.data,
                    "seed": cell.seed,
                    "contender": name,
                    "alpha": alpha,
                    "rows": len(y),
                    "calibration": min(len(labels) for _, labels in measured.calibration),
                    "coverage": (rows * known.held).sum(1).mean(),
                    "size": (rows * known.size).sum(1).mean(),
                    "single": (rows * known.single).sum(1).mean(),
                    "empty": (rows * known.empty).sum(1).mean(),
                    "least task": min(tasks),
                    "wrong preference": (wrong * known.held).sum(1).mean(),
                }
            )
    return pd.DataFrame(found)


def run_all(
    cells: Sequence[Cell], folder: Path, engine: Engine | None = None
) -> Iterator[Outcome[Cell, str]]:
    """Run the cells whose results are not in the folder; each is written when it is complete."""
    waiting = [cell for cell in cells if not (folder / cell.file).exists()]
    yield from (engine or LocalEngine(1)).run(partial(_run_and_write, folder.absolute()), waiting)


def _run_and_write(folder: Path, cell: Cell) -> str:
    text = run(cell).to_csv(index=False, float_format="%.6g")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / cell.file, text.encode(), True)
    return cell.file


def read_results(cells: Sequence[Cell], folder: Path) -> pd.DataFrame:
    """Read the results of cells that are in the folder."""
    files = [folder / cell.file for cell in cells if (folder / cell.file).exists()]
    return pd.concat([pd.read_csv(file) for file in files], ignore_index=True)
