"""The README's figures are those of the committed results, worked out again by hand."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs"))

import result_tables  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "classification"


def rows_of(page: Path, name: str) -> list[list[str]]:
    (inside,) = re.findall(
        rf"<!-- table {name} -->\n(.*?)\n<!-- end -->", page.read_text(encoding="utf-8"), re.S
    )
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in inside.split("\n")]


def by_hand(runs: pd.DataFrame, column: str) -> tuple[float, float]:
    """Mean and Student interval over seeds of the average over tasks of weighted accuracies."""
    values = []
    for _, seed in runs.groupby("seed"):
        last = seed[seed["task_seen"] == seed["task_seen"].max()]
        by_task = [
            np.average(task[column], weights=task["weight"])
            for _, task in last.groupby("task_tested")
        ]
        values.append(100 * np.mean(by_task))
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return float(np.mean(values)), float(half)


@pytest.mark.parametrize("benchmark", result_tables.MAIN)
def test_the_readme_says_what_the_runs_say(benchmark):
    table = pd.read_parquet(RESULTS / "tables" / f"{benchmark}.parquet")
    table = table[(table["selection"] == "mean") & (table["label"] == "")]
    head, _, *rows = rows_of(ROOT / "README.md", "readme")
    column = next(
        number
        for number, name in enumerate(head)
        if name.startswith(result_tables.benchmark_title(benchmark))
    )
    shown = {row[0].strip("*"): row[column] for row in rows}
    for method in result_tables.SHORT:
        own = table[table["method"] == method]
        memory = result_tables.SHORT_MEMORY if own["memory"].max() else 0
        own = own[own["memory"] == memory]
        found = by_hand(own, str(own["metric"].iloc[0]))
        said = shown[result_tables.title(method, memory)]
        numbers = [float(number) for number in said.split(" ± ")]
        assert numbers == pytest.approx(found, abs=0.0501)


NUMBER = re.compile(r"[+−-]?\d[\d,]*(?:\.(\d+))?")


def test_pages_are_filled_from_what_is_committed():
    """To one unit of the last digit, as sums are rounded differently elsewhere."""
    for page in result_tables.PAGES:
        said = page.read_text(encoding="utf-8")
        made = result_tables.filled(said)
        assert NUMBER.sub("#", said) == NUMBER.sub("#", made), page
        for left, right in zip(NUMBER.finditer(said), NUMBER.finditer(made), strict=True):
            values = [float(n[0].replace("−", "-").replace(",", "")) for n in (left, right)]
            unit = 10.0 ** -len(left[1] or "")
            assert abs(values[0] - values[1]) < 1.01 * unit, (page, left[0], right[0])


def test_no_run_is_committed_twice():
    assert len(result_tables.runs()) > 0  # reading refuses doubles


def test_every_run_has_its_answers_to_single_test_examples():
    """What has none is from before they were kept, and has no interval over test examples."""
    assert (result_tables.runs()["right"].map(len) > 0).all()


def test_every_place_has_a_table_and_is_filled():
    for page in result_tables.PAGES:
        text = page.read_text(encoding="utf-8")
        for found in result_tables.PLACE.finditer(text):
            assert found[2] in result_tables.TABLES
            assert found[0].count("\n") > 1
