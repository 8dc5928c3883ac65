"""The results of sets as one CSV file and one page of Markdown."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from scipy.stats import binomtest

from ibcl.experiments.evaluation.comparison_tables import markdown
from ibcl.files import write_atomically

_FIGURES = ("coverage", "size", "single", "empty", "least task", "wrong preference")


def write_page(results: pd.DataFrame, folder: Path) -> Path:
    """Write ``sets.csv`` and ``sets.md``; return the path of the page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = results.to_csv(index=False, float_format="%.6g")
    write_atomically(folder / "sets.csv", text.encode(), True)
    page = folder / "sets.md"
    write_atomically(page, page_text(results).encode(), True)
    return page


def page_text(results: pd.DataFrame) -> str:
    """The page: what was found in sentences, one table per α, and how it was made."""
    means = averages(results)
    seeds = results.groupby("data", sort=False)["seed"].nunique()
    listed = ", ".join(f"{name} {number}" for name, number in seeds.items())
    parts = ["# Prediction sets", "", *sentences(means), ""]
    for alpha in sorted(results["alpha"].unique(), reverse=True):
        parts += [f"## {1 - alpha:.0%} asked for", "", markdown(table(means, alpha)), ""]
    parts += [
        "Coverage and size are averages over twenty preferences drawn evenly from the simplex, "
        "with rows weighted as each preference says, and over seeds; size is a number of classes, "
        "or a "
        "length in units of the target. The interval is the exact binomial one (95 %) of so many "
        "different test rows as there were in all seeds; that calibration rows were drawn too is "
        "not in it. *Least task* is the average coverage of the task that has least of it; *wrong "
        "preference* is coverage where inputs come from the stated preference read backwards. A "
        "line that is missing is an α that the calibration rows cannot prove, which is refused. "
        "At most 200 rows of each task calibrate and 300 test, both drawn from the parts for "
        "validation and testing together; at most 2,000 rows are learnt from (1,000 of a table). "
        "Images are seen through EfficientNet-lite0. MAPIE calibrates the same model's answers "
        "for each preference anew, on rows of all tasks drawn with replacement as the preference "
        "says; it has APS for more than two classes only, and its RAPS refuses draws in which a "
        "class has a single row, as some preferences' are. The two constants of the score that "
        "is kept without rows were compared on one further seed of the digits and of CIFAR-100, "
        "by sizes on test rows, so its sizes there are a little optimistic. "
        f"Number of seeds: {listed}. Made by `ibcl bench sets --seeds 5`.",
        "",
    ]
    return "\n".join(parts)


def averages(results: pd.DataFrame) -> pd.DataFrame:
    """Means over seeds, with how many rows were tested in all of them."""
    grouped = results.groupby(["data", "contender", "alpha"], sort=False)
    found = grouped[[*_FIGURES]].mean()
    found["rows"] = grouped["rows"].sum()
    return found.reset_index()


def sentences(means: pd.DataFrame) -> list[str]:
    """Say whether coverage is nominal, and how sizes stand against MAPIE's smallest."""
    own = means[~means["contender"].str.startswith("MAPIE")]
    below = [row for _, row in own.iterrows() if _interval(row)[1] < 1 - row["alpha"]]
    lines = [
        f"- Coverage is below what was asked for beyond its interval in {len(below)} of "
        f"{len(own)} cases of this library"
        + ("." if not below else ": " + "; ".join(_case(row) for row in below) + ".")
    ]
    for way in ("rows kept", "scores only"):
        ratios = size_ratios(means, way)
        if len(ratios):
            said = ", ".join(f"{name} {ratio - 1:+.0%}" for name, ratio in ratios.items())
            lines.append(f"- Size against MAPIE's smallest, *{way}*, averaged over α: {said}.")
    return lines


def size_ratios(means: pd.DataFrame, way: str) -> pd.Series[float]:
    """By data set, how many times as large as MAPIE's smallest the sets of one way are.

    Examples
    --------
    >>> lines = [("x", "rows kept", 0.1, 1.1), ("x", "MAPIE LAC", 0.1, 1.0)]
    >>> means = pd.DataFrame(lines, columns=["data", "contender", "alpha", "size"])
    >>> round(float(size_ratios(means, "rows kept")["x"]), 2)
    1.1
    """
    theirs = means[means["contender"].str.startswith("MAPIE")]
    best = theirs.groupby(["data", "alpha"], sort=False)["size"].min()
    ours = means[means["contender"] == way].set_index(["data", "alpha"])["size"]
    return (ours / best).dropna().groupby("data", sort=False).mean()


def table(means: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """One row per data set and contender."""
    rows = []
    for _, row in means[means["alpha"] == alpha].iterrows():
        lower, upper = _interval(row)
        rows.append(
            {
                "data": row["data"],
                "sets": row["contender"],
                "coverage": f"{row['coverage']:.3f} ({lower:.3f}–{upper:.3f})",
                "size": f"{row['size']:.3f}",
                "single": f"{row['single']:.1%}",
                "empty": f"{row['empty']:.1%}",
                "least task": f"{row['least task']:.3f}",
                "wrong preference": f"{row['wrong preference']:.3f}",
            }
        )
    return pd.DataFrame(rows)


def _interval(row: pd.Series[float]) -> tuple[float, float]:
    hits = round(float(row["coverage"]) * int(row["rows"]))
    found = binomtest(hits, int(row["rows"])).proportion_ci(0.95)
    return float(found.low), float(found.high)


def _case(row: pd.Series[float]) -> str:
    return f"{row['data']}, {row['contender']}, {1 - row['alpha']:.0%}: {row['coverage']:.3f}"
