"""The comparison of sets: what is measured, and what the page says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from ibcl.experiments.sets.comparison import Cell, facts, read_results
from ibcl.experiments.sets.data import divided
from ibcl.experiments.sets.page import averages, page_text, table


def test_rows_that_calibrate_are_not_tested() -> None:
    for n in (3, 100, 1000):
        calibration, test = divided(n, 0)
        assert not {*calibration} & {*test}
        assert len(calibration) >= 1
        assert len(test) >= 1


def test_intervals_are_measured_as_unions() -> None:
    sets = np.array([[[[0.0, 1.0], [2.0, 4.0]], [[0.0, 1.0], [np.nan, np.nan]]]])
    found = facts(sets, np.array([3.0, 3.0]))
    assert found.held.tolist() == [[True, False]]
    assert found.size.tolist() == [[3.0, 1.0]]
    assert found.single.tolist() == [[False, True]]


def results(coverage: float, size: float) -> pd.DataFrame:
    line = {"data": "x", "alpha": 0.1, "rows": 1000, "single": 1.0, "empty": 0.0}
    shared = {"least task": 0.9, "wrong preference": 0.9}
    return pd.DataFrame(
        [
            {**line, **shared, "seed": seed, "contender": name, "coverage": c, "size": s}
            for seed in (0, 1)
            for name, c, s in (("rows kept", coverage, size), ("MAPIE LAC", 0.9, 1.0))
        ]
    )


def test_the_page_says_where_coverage_is_too_small_and_how_large_sets_are() -> None:
    good, bad = page_text(results(0.9, 1.02)), page_text(results(0.8, 1.02))
    assert "in 0 of 1 cases" in good
    assert "x +2%" in good
    assert "in 1 of 1 cases of this library: x, rows kept, 90%: 0.800" in bad
    assert len(table(averages(results(0.9, 1.0)), 0.1)) == 2


def test_results_are_read_back(tmp_path: Path) -> None:
    cell = Cell("x", 0)
    results(0.9, 1.0).to_csv(tmp_path / cell.file, index=False)
    assert len(read_results([cell, Cell("x", 1)], tmp_path)) == 4
