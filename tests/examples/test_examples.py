"""Every example runs from beginning to end, without a warning and without a window."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import matplotlib
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_draws(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: None)
    plt.close("all")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        runpy.run_path(str(example), run_name="__main__")
    assert plt.get_fignums(), f"{example.name} draws nothing"
    plt.close("all")
    assert not list(tmp_path.iterdir()), f"{example.name} leaves files behind"


def test_there_are_examples():
    assert len(EXAMPLES) >= 10
