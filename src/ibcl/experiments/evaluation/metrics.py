r"""Metrics: pure functions of the protocol's table.

The paper's quantities, for a fixed contender, seed and selection, with acc^k_ij the accuracy on
task j of the model of preference k after task i:

* preference-weighted accuracy  acc_ij = Σ_k w^k_ij acc^k_ij / Σ_k w^k_ij,
* average per-task accuracy of task i  (1/i) Σ_{j≤i} acc_ij,
* peak per-task accuracy of task i  max_{k≥i} acc_ki,
* backward transfer at task i ≥ 2  (1/(i−1)) Σ_{j<i} (acc_ij − acc_{i−1,j}).

All take the column to look at, ``"accuracy"`` or ``"balanced_accuracy"``.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ibcl.intervals import interval

RUN = ["benchmark", "method", "memory", "preferences", "selection", "label", "seed"]
"""What tells one run's rows from another's."""


def weighted_accuracy(table: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """acc_ij of every run: one row per run, task seen and task tested, in a column ``value``.

    A task that no preference gives any weight counts with equal weights.

    Examples
    --------
    >>> rows = pd.DataFrame({"task_seen": 2, "task_tested": 1, "weight": [0.5, 0.1, 0.8],
    ...                      "accuracy": [0.8, 0.6, 0.9]}).assign(**dict.fromkeys(RUN, ""))
    >>> round(float(weighted_accuracy(rows)["value"].item()), 4)  # (0.4 + 0.06 + 0.72) / 1.4
    0.8429
    """
    _require(table, [*RUN, "task_seen", "task_tested", "weight", column])
    keys = [*RUN, "task_seen", "task_tested"]
    frame = table[keys].assign(total=table["weight"], share=table["weight"] * table[column])
    frame["plain"] = table[column]
    sums = frame.groupby(keys, as_index=False).agg(
        total=("total", "sum"), share=("share", "sum"), plain=("plain", "mean")
    )
    weighted = sums["share"] / sums["total"].where(sums["total"] > 0)
    return sums[keys].assign(value=weighted.fillna(sums["plain"]))


def average_per_task(table: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Average per-task accuracy: one row per run and task, in a column ``value``."""
    accuracies = weighted_accuracy(table, column)
    return _per_task(accuracies, "task_seen", "mean")


def peak_per_task(table: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Peak per-task accuracy: one row per run and task, in a column ``value``."""
    accuracies = weighted_accuracy(table, column)
    return _per_task(accuracies, "task_tested", "max")


def backward_transfer(table: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Backward transfer from task 2 on: one row per run and task, in a column ``value``."""
    now = weighted_accuracy(table, column)
    before = now.assign(task_seen=now["task_seen"] + 1)
    pairs = now.merge(before, on=[*RUN, "task_seen", "task_tested"], suffixes=("", "_before"))
    pairs["value"] = pairs["value"] - pairs["value_before"]
    return _per_task(pairs, "task_seen", "mean")


def asked_at_every_task(table: pd.DataFrame) -> pd.DataFrame:
    """Keep the runs with preferences at every task: those metrics along tasks are defined for."""
    tasks = table.groupby(RUN)["task_seen"]
    return table[
        (tasks.transform("nunique") == tasks.transform("max")) & (tasks.transform("max") > 1)
    ]


def expected_accuracy(table: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Σ_j w_j acc_j of every preference's model: what the user of that preference sees."""
    _require(table, [*RUN, "task_seen", "preference", "weight", column])
    keys = [*RUN, "task_seen", "preference"]
    frame = table[keys].assign(value=table["weight"] * table[column])
    return frame.groupby(keys)["value"].sum().reset_index()


def regret(table: pd.DataFrame, column: str = "accuracy", oracle: str = "oracle") -> pd.DataFrame:
    """Oracle's Σ_j w_j acc_j less the contender's, preference by preference, then averaged.

    Against the oracle of the same benchmark, label and seed, retrained on all data for that
    preference; runs whose label has no oracle are left out. One row per run and task, in a column
    ``value``.
    """
    values = expected_accuracy(table, column)
    match = ["benchmark", "label", "preferences", "seed", "task_seen", "preference"]
    best = values[(values["method"] == oracle) & (values["selection"] == "mean")]
    if best.empty:
        raise ValueError(f"Regret needs runs of {oracle!r} on the same benchmarks: add them.")
    pairs = values.merge(best[[*match, "value"]], on=match, suffixes=("", "_oracle"))
    pairs["value"] = pairs["value_oracle"] - pairs["value"]
    return _per_task(pairs, "task_seen", "mean")


def calibration(table: pd.DataFrame) -> pd.DataFrame:
    """Preference-weighted calibration error, averaged over tasks, in a column ``value``."""
    return average_per_task(table, "calibration_error")


def costs(table: pd.DataFrame) -> pd.DataFrame:
    """Updates at a task and until then, bytes and posteriors kept after it, and CPU seconds."""
    keys = [*RUN, "task_seen"]
    columns = ["updates", "bytes", "posteriors", "seconds", "total_updates", "total_seconds"]
    return (
        table.groupby(keys, as_index=False)[columns].first().rename(columns={"task_seen": "task"})
    )


def along_all_tasks(values: pd.DataFrame) -> pd.DataFrame:
    """Average a metric over the tasks of each run: one row per run."""
    return values.groupby(RUN)["value"].mean().reset_index()


def at_last_task(values: pd.DataFrame) -> pd.DataFrame:
    """A metric after the last task of each run: one row per run."""
    last = values.groupby(RUN)["task"].transform("max")
    return values[values["task"] == last].drop(columns="task").reset_index(drop=True)


def over_seeds(values: pd.DataFrame) -> pd.DataFrame:
    """Mean and 95 % interval over seeds: columns ``mean``, ``half_width`` and ``seeds``."""
    keys = [key for key in values.columns if key not in ("seed", "value")]
    rows = []
    for key, group in values.groupby(keys, sort=False):
        rows.append(dict(zip(keys, key, strict=True)) | interval(group["value"].tolist())._asdict())
    return pd.DataFrame(rows).rename(columns={"n": "seeds"})


def paired_differences(values: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Each contender's value less the reference's of the same seed, with an interval over seeds.

    The reference is its mean model of the same label, with its smallest memory. A seed's data,
    held-out examples and preferences are the same for both, so their difference is known better
    than either.
    """
    chosen = values[(values["method"] == reference) & (values["selection"] == "mean")]
    if chosen.empty:
        raise ValueError(f"There is no run of {reference!r} to compare with.")
    chosen = chosen[chosen["memory"] == chosen["memory"].min()]
    match = ["benchmark", "label", "preferences", "seed"] + (["task"] if "task" in values else [])
    pairs = values.merge(chosen[[*match, "value"]], on=match, suffixes=("", "_reference"))
    pairs["value"] = pairs["value"] - pairs["value_reference"]
    return over_seeds(pairs.drop(columns="value_reference"))


def _per_task(values: pd.DataFrame, task: str, how: str) -> pd.DataFrame:
    """Summarise ``value`` over all but a run and one of its two task columns."""
    summary = values.groupby([*RUN, task])["value"].agg(how).reset_index()
    return summary.rename(columns={task: "task"})


def _require(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"The table of results has no column {', '.join(missing)}.")
