"""Files of very many rows are learnt from block by block."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import ibcl as library
from ibcl.cli import long_files, tables


@pytest.fixture
def blocks(monkeypatch) -> list[int]:
    """Small blocks, and how many rows were ever held at once."""
    monkeypatch.setattr(long_files, "LONG_ROWS", 100)
    monkeypatch.setattr(long_files, "BLOCK_ROWS", 60)
    held: list[int] = []
    checked = tables._checked

    def counted(frame, path):
        held.append(len(frame))
        return checked(frame, path)

    monkeypatch.setattr(tables, "_checked", counted)
    return held


def table(rows: int = 400) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(rows, 3)), columns=["a", "b", "c"])
    frame["town"] = generator.choice(["Oslo", "NA", "01"], rows)
    frame["y"] = np.where(frame["a"] + frame["b"] + (frame["town"] == "NA") > 0, "yes", "no")
    return frame


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_long_file_is_learnt_in_blocks_and_as_well_as_at_once(succeed, blocks, ending):
    frame = table()
    if ending == "csv":
        frame.to_csv("t.csv", index=False)
    else:
        frame.to_parquet("t.parquet")
    said = succeed("learn", "kb", f"t.{ending}", "--label", "y", "--network", "linear")
    assert said["samples"] == 400
    assert max(blocks) <= 60
    whole = library.IBCLClassifier("linear").fit(frame.drop(columns="y"), frame["y"], task="t")
    model = library.load("kb").model("t")
    assert np.mean(model.predict(frame) == whole.predict(frame.drop(columns="y"))) > 0.97


@pytest.mark.usefixtures("blocks")
def test_classes_that_the_first_block_lacks_are_classes(succeed):
    table().sort_values("y").to_parquet("t.parquet")
    said = succeed("learn", "kb", "t.parquet", "--label", "y", "--network", "linear")
    assert said["classes"] == ["no", "yes"]


@pytest.mark.usefixtures("blocks")
def test_a_later_block_that_is_refused_leaves_no_knowledge_base(refuse):
    frame = table()
    frame["c"] = frame["c"].astype(object)
    frame.loc[390, "c"] = "x"
    frame.to_csv("t.csv", index=False)
    assert "'c' must be numbers" in refuse("learn", "kb", "t.csv", "--label", "y")
    assert not Path("kb").exists()
