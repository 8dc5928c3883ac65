"""The picture of the README, ``docs/images/at-a-glance.png``, from the committed results."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import pandas as pd

from ibcl.experiments.evaluation.names import benchmark_title
from ibcl.experiments.evaluation.style import MARKERS, PALETTE, SETTINGS

HERE = Path(__file__).parent
BENCHMARKS = {
    "20news": "uniform",
    "cifar100": "uniform",
    "tinyimagenet": "uniform",
    "celeba-balanced": "sparse",
}
SHOWN = {
    "routed": "routed evidence: no data, no training",
    "oracle": "retrained on all data for each preference",
    "routed_oracle": "the same, told the tasks while training",
    "rehearsal": "best rehearsal, 500 samples a task",
    "ibcl_evidence": "one head: pooled evidence",
    "ibcl": "the paper's IBCL",
}
REHEARSAL = ("gem", "agem", "der", "derpp", "vcl", "class_rehearsal")


def figures(table: pd.DataFrame, benchmark: str) -> pd.DataFrame:
    """Accuracy and interval of what is shown, by method, in percent."""
    rows = table[
        (table["benchmark"] == benchmark)
        & (table["preferences"] == BENCHMARKS[benchmark])
        & (table["selection"] == "mean")
        & table["label"].isna()
    ]
    kind = "balanced_accuracy" if rows["metric"].iloc[0] == "balanced_accuracy" else "accuracy"
    value, spread = f"average_{kind}", f"average_{kind}_95"
    rehearsed = rows[rows["method"].isin(REHEARSAL) & (rows["memory"] == 500)]
    best = rehearsed.sort_values(value).tail(1).assign(method="rehearsal")
    found = pd.concat([rows[rows["method"].isin(SHOWN)], best]).set_index("method")
    return 100 * found[[value, spread]].set_axis(["value", "spread"], axis=1)


def main() -> None:
    """Draw it."""
    table = pd.read_csv(HERE / "results" / "classification" / "summary.csv")
    plt.rcParams.update(SETTINGS)
    known = [name for name in BENCHMARKS if (table["benchmark"] == name).any()]
    figure, axes = plt.subplots(1, len(known), figsize=(8, 2.3), sharey=True, layout="constrained")
    for axis, benchmark in zip(axes, known, strict=True):
        found = figures(table, benchmark)
        for position, method in enumerate(SHOWN):
            if method not in found.index:
                continue
            row = found.loc[method]
            axis.errorbar(
                row["value"], -position, xerr=row["spread"], fmt=MARKERS[position],
                color=PALETTE[position], markersize=6, capsize=2,
            )  # fmt: skip
            axis.annotate(
                f"{row['value']:.1f}", (row["value"], -position), xytext=(0, 6),
                textcoords="offset points", ha="center", color=PALETTE[position], fontsize=7,
            )  # fmt: skip
        axis.set(title=benchmark_title(benchmark), ylim=(-len(SHOWN) + 0.4, 0.7))
        axis.margins(x=0.15)
    axes[0].set_yticks([-position for position in range(len(SHOWN))], list(SHOWN.values()))
    figure.supxlabel("average per-task accuracy in %, 95 % intervals over seeds", fontsize=8)
    figure.savefig(HERE / "images" / "at-a-glance.png", dpi=200)


if __name__ == "__main__":
    main()
