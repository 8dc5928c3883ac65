"""The picture of the README, ``docs/images/at-a-glance.png``, from the committed results."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import pandas as pd

from ibcl.experiments.evaluation import metrics
from ibcl.experiments.evaluation.runs import read_runs
from ibcl.experiments.evaluation.style import MARKERS, PALETTE, SETTINGS
from ibcl.experiments.evaluation.titles import benchmark_title

HERE = Path(__file__).parent
BENCHMARKS = ("20news", "cifar100", "tinyimagenet", "digits")
SHOWN = {
    "routed": "routed evidence",
    "ibcl_evidence": "one head: pooled evidence",
    "ibcl": "IBCL as in the paper",
    "class_rehearsal": "rehearsal of classes, 500 per task",
    "oracle": "retrained on all data\nfor each preference",
    "routed_oracle": "trained on all data, told the tasks",
}
MEMORY = {"class_rehearsal": 500}


def main(file: Path) -> None:
    """Draw it."""
    table = read_runs(HERE / "results" / "classification" / "tables")
    values = metrics.at_last_task(metrics.average_per_task(table[table["selection"] == "mean"]))
    plt.rcParams.update(SETTINGS)
    figure, axes = plt.subplots(
        1, len(BENCHMARKS), figsize=(8, 2.5), sharey=True, layout="constrained"
    )
    for axis, benchmark in zip(axes, BENCHMARKS, strict=True):
        for position, method in enumerate(SHOWN):
            draw(axis, values[values["benchmark"] == benchmark], method, position)
        axis.set(title=benchmark_title(benchmark), ylim=(-len(SHOWN) + 0.4, 0.8))
        axis.margins(x=0.18)
    axes[0].set_yticks([-position for position in range(len(SHOWN))], list(SHOWN.values()))
    figure.supxlabel(
        "average per-task test accuracy in % after the last task, 95 % intervals over five seeds",
        fontsize=8,
    )
    figure.savefig(file, dpi=200)


def draw(axis: plt.Axes, values: pd.DataFrame, method: str, position: int) -> None:
    """Draw one method's mean and interval."""
    own = values[
        (values["method"] == method)
        & (values["memory"] == MEMORY.get(method, 0))
        & (values["label"] == "")
    ]
    found = metrics.interval((100 * own["value"]).tolist())
    look = {"color": PALETTE[position], "markersize": 6, "capsize": 2}
    axis.errorbar(found.mean, -position, xerr=found.half_width, fmt=MARKERS[position], **look)
    axis.annotate(
        f"{found.mean:.1f}", (found.mean, -position), xytext=(0, 6), ha="center", fontsize=7,
        textcoords="offset points", color=PALETTE[position],
    )  # fmt: skip


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE / "images" / "at-a-glance.png")
