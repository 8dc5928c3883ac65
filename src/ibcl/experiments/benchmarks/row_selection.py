"""Which rows belong to which task, and which of them are held out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ibcl.experiments.benchmarks.benchmark import Part
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import Table


@dataclass(frozen=True)
class Selection:
    """Rows of a table that belong to a task, in increasing order.

    Parameters
    ----------
    rows
        Row numbers.
    labels
        Label of each row.
    groups
        What to stratify by: the class in the data, of which several may share a label.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    groups: NDArray[np.str_]

    def subset(self, chosen: NDArray[np.bool_] | NDArray[np.int64]) -> Selection:
        """Return the rows where a mask is true, or those at these positions."""
        return Selection(self.rows[chosen], self.labels[chosen], self.groups[chosen])


def select(
    description: BenchmarkDescription, task: TaskDescription, table: Table, part: Part
) -> Selection:
    """Return the rows of ``table`` that belong to ``task``, with their labels."""
    column = description.label_of(task)
    values = table.columns[column]
    names: NDArray[np.str_] = values.astype(str)
    keep = np.ones(len(values), dtype=bool)
    for condition, wanted in task.where.items():
        keep &= np.isin(table.columns[condition].astype(str), [str(value) for value in wanted])
    if not keep.any():
        raise ValueError(f"no row of the {part} part meets the conditions of task {task.name!r}")
    if task.classes is None:
        labels = _numeric_labels(values[keep], column, task.name)
        rows = np.flatnonzero(keep)
        return Selection(rows, labels, names[rows])
    labels = np.full(len(values), -1, dtype=np.int64)
    for label, members in enumerate(task.classes):
        for member in members:
            matches = keep & (names == str(member))
            if not matches.any():
                known = sorted(set(names[keep].tolist()))
                shown = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
                raise ValueError(
                    f"class {str(member)!r} of task {task.name!r} is not in column {column!r} of "
                    f"the {part} part, which has {shown}"
                )
            labels[matches] = label
    rows = np.flatnonzero(labels >= 0)
    return Selection(rows, labels[rows], names[rows])


def hold_out(
    description: BenchmarkDescription,
    train: Sequence[Selection],
    missing: Mapping[Part, int | float],
    seed: int,
) -> dict[Part, list[Selection]]:
    """Divide the tasks' training rows into training rows and the parts that are missing.

    Rows are drawn class by class. A row that several tasks share is assigned once, by the first
    task that has it, and keeps its part in all later ones: otherwise one task could train on what
    another is tested on. A later task then only draws what its classes still lack.

    Parameters
    ----------
    description
        The benchmark, for the names of its tasks.
    train
        Training rows of each task.
    missing
        Parts to make, each with a fraction or a number of rows of each class.
    seed
        Seed of the draw.
    """
    generator = np.random.default_rng(seed)
    part_of: dict[int, Part] = {}
    for task, selection in zip(description.tasks, train, strict=True):
        for group in np.unique(selection.groups):
            members = selection.rows[selection.groups == group].tolist()
            targets = {
                part: amount if isinstance(amount, int) else round(amount * len(members))
                for part, amount in missing.items()
            }
            if sum(targets.values()) >= len(members):
                raise ValueError(
                    f"class {str(group)!r} of task {task.name!r} has {len(members)} rows, too few "
                    f"to hold out {' and '.join(f'{n} for {p}' for p, n in targets.items())}"
                )
            already = Counter(part_of[row] for row in members if row in part_of)
            free = generator.permutation([row for row in members if row not in part_of]).tolist()
            for part, target in targets.items():
                count = max(0, target - already[part])
                part_of.update(dict.fromkeys(free[:count], part))
                free = free[count:]
            part_of.update(dict.fromkeys(free, "train"))
    parts: tuple[Part, ...] = ("train", *missing)
    return {
        part: [
            selection.subset(np.array([part_of[row] == part for row in selection.rows.tolist()]))
            for selection in train
        ]
        for part in parts
    }


def _numeric_labels(values: NDArray[np.generic], column: str, task: str) -> NDArray[np.int64]:
    try:
        numbers = values.astype(np.float64)
    except (ValueError, TypeError):
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all() or (numbers < 0).any() or (numbers != np.rint(numbers)).any():
        raise ValueError(
            f"column {column!r} of task {task!r} must hold 0, 1, ... or true and false; for other "
            "labels, list the classes of the task"
        )
    return numbers.astype(np.int64)
