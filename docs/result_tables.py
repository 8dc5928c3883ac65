"""Fill the tables of the README and the results pages from the committed results.

A page has places for tables, ``<!-- table NAME -->`` up to ``<!-- end -->``; what stands between is
written by this script and by nothing else:

    python docs/result_tables.py            # fill all places, and draw the figures
    python docs/result_tables.py --check    # only say whether a place would change
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Callable, Hashable
from functools import cache, partial
from pathlib import Path
from typing import Any

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import pandas as pd

from ibcl.experiments import methods
from ibcl.experiments.adapters import table as adapters_table
from ibcl.experiments.evaluation import bootstrap, overhead
from ibcl.experiments.evaluation.ablation import STUDY_NAMES
from ibcl.experiments.evaluation.comparison_tables import (
    column_title,
    comparison,
    difference_table,
    markdown,
    percent,
    summarise,
)
from ibcl.experiments.evaluation.protocol import UNIFORM_BASELINE
from ibcl.experiments.evaluation.runs import read_runs, read_study
from ibcl.experiments.evaluation.study_tables import study_tables
from ibcl.experiments.evaluation.style import MARKERS, PALETTE, SETTINGS
from ibcl.experiments.evaluation.titles import benchmark_title, keeps_all_data, place, title
from ibcl.experiments.tables import page as tables_page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results" / "classification"
ADAPTERS = ROOT / "docs" / "results" / "adapters"
PAGES = (ROOT / "README.md", RESULTS / "README.md", ADAPTERS / "README.md")
PLACE = re.compile(r"(<!-- table ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

ADAPTED = {
    "cifar100-similar": "CIFAR-100, similar pairs, all rows",
    "cifar100-similar-400-rows": "the first five of these, 400 rows per task",
    "tinyimagenet-similar-400-rows": "Tiny ImageNet, similar pairs, 400 rows per task",
    "cifar100-400-rows": "CIFAR-100, plain pairs, 400 rows per task",
    "20news-400-rows": "20 Newsgroups, 400 rows per task",
    "20news-160-rows": "20 Newsgroups, 160 rows per task",
}
"""Files of lines, in the order of the page."""
OURS, ORACLE = "routed", "oracle"
SHORT = (OURS, "ibcl", "class_gaussians", "class_rehearsal", "oracle", "routed_oracle")
"""Rows of the README."""
MAIN = ("20news", "cifar100", "tinyimagenet", "digits", "celeba-balanced")
"""Benchmarks of the paper's kind; on the others tasks disagree."""
MAIN_OF_PAPER = ("20news", "cifar100", "tinyimagenet", "celeba")
"""Those of the paper's tables."""
SHORT_MEMORY = 500
EQUAL_BYTES = 150
"""Samples of 512 features per task that take as many bytes as routed evidence keeps of it."""


@cache
def runs() -> pd.DataFrame:
    """All committed runs."""
    return read_runs(RESULTS / "tables")


def main_runs() -> pd.DataFrame:
    """Those on the paper's kind of benchmarks, with one family of preferences each."""
    table = runs()
    return table[table["benchmark"].isin(MAIN)]


@cache
def summary() -> pd.DataFrame:
    """The summary of those on the paper's kind of benchmarks, in their order."""
    found = summarise(main_runs())
    order = found["benchmark"].map(MAIN.index)
    return found.iloc[order.argsort(kind="stable")]


@cache
def replicates() -> pd.DataFrame:
    """Resampled values of every contender."""
    return bootstrap.replicates(runs())


def _less(row: pd.Series[Any], other: pd.Series[Any]) -> bootstrap.Bounds:
    return bootstrap.bounds(row["value"] - other["value"], row["replicates"] - other["replicates"])


def _verdict(found: bootstrap.Bounds) -> str:
    ends = f"{100 * found.value:+.2f} [{100 * found.low:+.2f}, {100 * found.high:+.2f}]"
    words = "above" if found.low > 0 else "below" if found.high < 0 else "level with"
    return f"{words}|{ends}".replace("-", "−")


def claims() -> str:
    """One row per benchmark: routed evidence less the oracle, and less the best rivals."""
    rows = []
    known = replicates()
    for (benchmark, family), part in known[known["label"] == ""].groupby(
        ["benchmark", "preferences"], sort=False
    ):
        if benchmark not in MAIN:
            continue
        own = part[part["method"] == OURS].iloc[0]
        others = part[~part["method"].str.startswith("routed")]
        fair = others[
            ~others["method"].map(keeps_all_data) & ~others["method"].str.startswith("ibcl")
        ]
        allowed = part[part["method"].map(keeps_all_data) & (part["method"] != ORACLE)]
        alike = (part["method"] == "class_rehearsal") & (part["memory"] == EQUAL_BYTES)
        row = {"benchmark": column_title(str(benchmark), str(family))}
        oracle = part[part["method"] == ORACLE].iloc[0]
        row["against the oracle"] = " ".join(_verdict(_less(own, oracle)).split("|"))
        for name, rivals in (
            ("against the best that keeps no or few samples", fair),
            ("against the best of the others with all data", allowed),
            (f"against {EQUAL_BYTES} samples per task, as many bytes", part[alike]),
        ):
            if rivals.empty:
                row[name] = "more than all data" if _keeps_more_than_all(benchmark) else "not run"
                continue
            best = rivals.loc[rivals["value"].idxmax()]
            words, ends = _verdict(_less(own, best)).split("|")
            row[name] = f"{words} {title(best['method'], best['memory'])} {ends}"
        rows.append((MAIN.index(str(benchmark)), row))
    return markdown(pd.DataFrame([row for _, row in sorted(rows, key=lambda pair: pair[0])]))


def _keeps_more_than_all(benchmark: Hashable) -> bool:
    """Tell whether routed evidence takes more bytes than the training data itself."""
    found = summary()
    found = found[(found["benchmark"] == benchmark) & (found["label"] == "")]
    kept = found.groupby("method")["kilobytes"].first()
    return bool(kept[OURS] > kept[ORACLE])


def accuracy() -> str:
    """Everybody on every benchmark."""
    return _values(summary())


def short() -> str:
    """The README's rows."""
    found = summary()
    rows = found["method"].isin(SHORT) & found["memory"].isin([0, SHORT_MEMORY])
    return _values(found[rows & (found["label"] == "")])


def _values(found: pd.DataFrame) -> str:
    """Accuracies with intervals over seeds."""
    rows: dict[tuple[int, int, str], dict[str, str]] = {}
    mine = found[(found["selection"] == "mean")]
    shown = mine[(mine["label"] == "") | (mine["method"] == OURS)]
    for row in shown.to_dict("records"):
        metric = f"average_{row['metric']}"
        column = column_title(row["benchmark"], row["preferences"])
        who = (place(row["method"]), row["memory"], row["label"])
        name = title(row["method"], row["memory"]) + (f", {row['label']}" if row["label"] else "")
        name = f"*{name}*" if keeps_all_data(row["method"]) else name
        cells = rows.setdefault(who, {"method": name})
        cells[column] = percent(row[metric], row[f"{metric}_95"])
    return markdown(pd.DataFrame([rows[who] for who in sorted(rows)]).fillna("–"))


def from_ours() -> str:
    """Points of everybody more or less than routed evidence."""
    rows = []
    known = replicates()
    main = known[(known["label"] == "") & known["benchmark"].isin(MAIN)]
    for _, part in main.groupby(["benchmark", "preferences"], sort=False):
        own = part[part["method"] == OURS].iloc[0]
        for _, row in part[part["method"] != OURS].iterrows():
            rows.append([*row[bootstrap.CONTENDER], *_less(row, own)])
    columns = [*bootstrap.CONTENDER, *bootstrap.Bounds._fields]
    return markdown(difference_table(_ordered(pd.DataFrame(rows, columns=columns))))


def _ordered(found: pd.DataFrame) -> pd.DataFrame:
    known = [*MAIN, *sorted(set(found["benchmark"]) - set(MAIN))]
    return found.iloc[found["benchmark"].map(known.index).argsort(kind="stable")]


def worth(disagree: bool) -> str:
    """What a preference is worth, on the paper's kind of benchmarks or where tasks disagree."""
    known = replicates()
    known = known[known["benchmark"].isin(MAIN) != disagree]
    same = ["benchmark", "preferences", "method", "memory"]
    uniform = known[known["label"] == UNIFORM_BASELINE].set_index(same)
    rows = [
        [*row[same], *_less(row, uniform.loc[tuple(row[same])])]
        for _, row in known[known["label"] == ""].iterrows()
        if tuple(row[same]) in uniform.index
    ]
    columns = [*same, *bootstrap.Bounds._fields]
    return markdown(difference_table(_ordered(pd.DataFrame(rows, columns=columns))))


def disagreeing() -> str:
    """Benchmarks whose tasks disagree, near-vertex preferences: own and uniform."""
    known = replicates()
    known = known[~known["benchmark"].isin(MAIN) & (known["preferences"] == "vertices")]
    rows: dict[tuple[int, str, str], dict[str, str]] = {}
    for _, row in known.iterrows():
        who = (place(row["method"]), title(row["method"], row["memory"]), row["label"])
        found = bootstrap.bounds(row["value"], row["replicates"])
        text = f"{100 * found.value:.1f} [{100 * found.low:.1f}, {100 * found.high:.1f}]"
        named = f"{benchmark_title(row['benchmark'])}, {row['preferences']}"
        rows.setdefault(who, {})[named] = text
    named = [
        {"method": name + (f", {label}" if label else ""), **rows[(order, name, label)]}
        for order, name, label in sorted(rows)
    ]
    return markdown(pd.DataFrame(named).fillna("–"))


def _measure(column: str) -> Callable[[], str]:
    def table() -> str:
        return markdown(comparison(summary(), column).replace(r"\*", "", regex=True))

    return table


def kilobytes() -> str:
    """What is kept after the last task, and the training data beside it."""
    found = summary()
    found = found[(found["selection"] == "mean") & (found["label"] == "")]
    rows: dict[tuple[int, str], dict[str, str]] = {}
    for row in found.to_dict("records"):
        if keeps_all_data(row["method"]) and row["method"] != ORACLE:
            continue
        name = (
            "*the training data*"
            if row["method"] == ORACLE
            else title(row["method"], row["memory"])
        )
        who = (-1 if row["method"] == ORACLE else place(row["method"]), name)
        rows.setdefault(who, {})[benchmark_title(row["benchmark"])] = f"{row['kilobytes']:,.0f}"
    named = [{"kilobytes kept": name, **rows[(order, name)]} for order, name in sorted(rows)]
    return markdown(pd.DataFrame(named).fillna("–"))


def seconds() -> str:
    """CPU seconds of learning all tasks and making the models of the preferences after them."""
    found = summary()
    found = found[(found["selection"] == "mean") & (found["label"] == "")]
    rows: dict[str, dict[str, str]] = {}
    for row in sorted(found.to_dict("records"), key=lambda row: place(row["method"])):
        name = title(row["method"], row["memory"])
        rows.setdefault(name, {})[benchmark_title(row["benchmark"])] = f"{row['seconds']:.1f}"
    return markdown(pd.DataFrame([{"method": n, **r} for n, r in rows.items()]).fillna("–"))


def _paper(found: pd.DataFrame) -> str:
    """A table of the paper: as printed, by its formula, and as counted here."""
    rows = []
    order = {name: place(name) for name in found["method"].unique()}
    for row in found.sort_values(["benchmark", "method"]).to_dict("records"):
        if math.isnan(row["formula"]) or row["memory"] not in (0, SHORT_MEMORY):
            continue
        numbers = {name: f"{row[name]:,.0f}" for name in ("printed", "formula", "counted")}
        who = (MAIN_OF_PAPER.index(row["benchmark"]), order[row["method"]])
        named = {
            "benchmark": benchmark_title(row["benchmark"]),
            "method": title(row["method"], row["memory"]),
        }
        rows.append((who, {**named, **numbers}))
    return markdown(pd.DataFrame([row for _, row in sorted(rows, key=lambda pair: pair[0])]))


def paper_updates() -> str:
    """The paper's Table 1."""
    return _paper(overhead.training_table(_papers_runs()))


def paper_kilobytes() -> str:
    """The paper's Table 2."""
    return _paper(overhead.memory_table(_papers_runs()))


def _papers_runs() -> pd.DataFrame:
    """The paper's methods on its benchmarks; CelebA with equal classes stands for CelebA."""
    table = main_runs()
    table = table[(table["label"] == "") & table["method"].isin(overhead.METHODS)]
    table = table.assign(benchmark=table["benchmark"].replace("celeba-balanced", "celeba"))
    return table[table["benchmark"].isin(MAIN_OF_PAPER)]


def along() -> str:
    """Peak accuracy and backward transfer of those asked after every task."""
    found = summarise(read_runs(RESULTS / "tables" / "along"))
    rows: dict[str, dict[str, str]] = {}
    for row in sorted(found.to_dict("records"), key=lambda row: place(row["method"])):
        name = title(row["method"], row["memory"])
        benchmark = benchmark_title(row["benchmark"])
        cells = rows.setdefault(f"*{name}*" if keeps_all_data(row["method"]) else name, {})
        cells[f"{benchmark}: peak"] = percent(row["peak_accuracy"], row["peak_accuracy_95"])
        transfer = [row["backward_transfer"], row["backward_transfer_95"]]
        cells[f"{benchmark}: backward transfer"] = _signed(transfer)
    return markdown(pd.DataFrame([{"method": n, **r} for n, r in rows.items()]).fillna("–"))


def trials() -> str:
    """How many settings each method tried, and in brackets how many were run on every seed."""
    known = pd.read_parquet(RESULTS / "tuning.parquet")
    rows: dict[tuple[int, str], dict[str, str]] = {}
    for (benchmark, method, memory), part in known.groupby(["benchmark", "method", "memory"]):
        who = (place(str(method)), title(str(method), int(str(memory))))
        rows.setdefault(who, {})[benchmark_title(str(benchmark))] = (
            f"{len(part)} ({int(part['finished'].sum())})"
            + (" †" if (part["version"] == "0.2").all() else "")
        )
    named = [{"method": name, **rows[(order, name)]} for order, name in sorted(rows)]
    return markdown(pd.DataFrame(named).fillna("–"))


def movies() -> str:
    """New viewers' accuracy and ranking by how many of their ratings are known."""
    known = json.loads((RESULTS / "movies.json").read_text())
    counts = list(next(iter(known["contenders"].values())))
    rows = []
    for measure, words in (
        ("accuracy", "accuracy"),
        ("ndcg_at_10", "NDCG@10"),
        ("recall_at_20", "recall@20"),
    ):
        for name, by_count in known["contenders"].items():
            cells = {f"{count} ratings": percent(*by_count[count][measure]) for count in counts}
            rows.append({"measure": words, "method": name, **cells})
        own = known["contenders"][next(iter(known["contenders"]))]
        cells = {
            f"{count} ratings": _signed(own[count][f"{measure}_difference"]) for count in counts
        }
        rows.append({"measure": words, "method": f"*personal less {known['reference']}*", **cells})
    return markdown(pd.DataFrame(rows))


def _signed(found: list[float]) -> str:
    return f"{100 * found[0]:+.1f} ± {100 * found[1]:.1f}".replace("-", "−")


def _table_results() -> pd.DataFrame:
    return pd.DataFrame(json.loads((RESULTS / "tables.json").read_text())["results"])


def _study(name: str) -> str:
    """A study beside the protocol."""
    (table,) = study_tables({name: read_study(name, RESULTS / "tables")}).values()
    return markdown(table)


def _adapters(file: Path) -> str:
    """Adapters against heads, merges and retraining, on one benchmark."""
    return adapters_table.table(adapters_table.read(file))


def adapters() -> str:
    """What is routed, merges and retraining, on all benchmarks."""
    parts = {label: ADAPTERS / f"{stem}.jsonl" for stem, label in ADAPTED.items()}
    return adapters_table.overview({k: adapters_table.read(file) for k, file in parts.items()})


TABLES: dict[str, Callable[[], str]] = {
    "claims": claims,
    "accuracy": accuracy,
    "readme": short,
    "from-ours": from_ours,
    "worth": partial(worth, disagree=False),
    "worth-disagreeing": partial(worth, disagree=True),
    "disagreeing": disagreeing,
    "calibration": _measure("calibration_error"),
    "log-loss": _measure("log_loss"),
    "classes": _measure("class_accuracy"),
    "regret": _measure("regret"),
    "kilobytes": kilobytes,
    "seconds": seconds,
    "trials": trials,
    "paper-updates": paper_updates,
    "paper-kilobytes": paper_kilobytes,
    "along": along,
    "movies": movies,
    **{f"study-{name}": partial(_study, name) for name in STUDY_NAMES},
    "tables-sentence": lambda: tables_page.sentence(_table_results()),
    "tables-scores": lambda: markdown(tables_page.scores(_table_results())),
    "adapters": adapters,
    **{
        f"adapters-{file.stem}": partial(_adapters, file)
        for file in sorted(ADAPTERS.glob("*.jsonl"))
    },
    "tables-differences": lambda: markdown(tables_page.differences(_table_results())),
}


def filled(text: str) -> str:
    """Return a page with all its places filled."""
    return PLACE.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}\n{found[3]}", text)


def draw_bytes(file: Path) -> None:
    """Accuracy against the bytes that are kept, one panel per benchmark."""
    found = summary()
    found = found[(found["selection"] == "mean") & (found["label"] == "")]
    plt.rcParams.update(SETTINGS)
    shown = [name for name in MAIN if name in set(found["benchmark"])]
    figure, axes = plt.subplots(
        1, len(shown), figsize=(2.3 * len(shown), 3.4), layout="constrained"
    )
    groups = list(dict.fromkeys(entry.group for entry in methods.METHODS.values()))
    for axis, benchmark in zip(axes, shown, strict=True):
        part = found[found["benchmark"] == benchmark]
        metric = f"average_{part['metric'].iloc[0]}"
        for row in part.sort_values("method").to_dict("records"):
            number = groups.index(methods.METHODS[row["method"]].group)
            axis.plot(
                row["kilobytes"] / 1000,
                100 * row[metric],
                MARKERS[number],
                color=PALETTE[number],
                markersize=8 if row["method"] == OURS else 4,
                label=groups[number],
            )
        data = part.loc[part["method"] == ORACLE, "kilobytes"].iloc[0] / 1000
        axis.axvline(data, color="grey", linewidth=0.8, linestyle=":")
        best = 100 * part[metric].max()
        axis.set(title=benchmark_title(benchmark), xscale="log", ylim=(best - 6, best + 0.5))
        axis.set_xlabel("megabytes kept")
    axes[0].set_ylabel("accuracy (%)")
    handles = {
        h.get_label(): h for axis in axes for h in axis.get_lines() if h.get_label()[0] != "_"
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles))
    figure.savefig(file, dpi=160)
    plt.close(figure)


def main(arguments: list[str]) -> int:
    """Fill or check all pages."""
    changed = []
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = filled(before)
        if after != before:
            changed.append(page.relative_to(ROOT))
        if "--check" not in arguments:
            page.write_text(after, encoding="utf-8")
    if "--check" in arguments:
        for page in changed:
            print(f"{page}: its tables are not those of the committed results")
        return int(bool(changed))
    draw_bytes(RESULTS / "figures" / "bytes.png")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
