"""Independent tasks learnt at the same time are what they are one after another, bit for bit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ibcl.cli import app

pytestmark = pytest.mark.slow

TASKS = ("north", "east", "south")


def run(*arguments: object) -> int:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code


@pytest.fixture
def tables(tmp_path: Path) -> list[Path]:
    random = np.random.default_rng(1)
    paths = []
    for number, task in enumerate(TASKS):
        x = random.normal(size=(50, 3)) + number
        table = pd.DataFrame(x, columns=["a", "b", "c"])
        table["y"] = np.where(x[:, number] > number, "yes", "no")
        paths.append(tmp_path / f"{task}.csv")
        table.to_csv(paths[-1], index=False)
    return paths


def contents(folder: Path) -> dict[str, object]:
    """What a folder holds, whichever save wrote each of its files."""
    found: dict[str, object] = {
        re.sub(
            "-[0-9a-f]{16}(?=.safetensors)", "", str(path.relative_to(folder))
        ): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in (".lock", "manifest.json")
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    return {**found, "manifest": {**manifest, "save": None, "files": None}}


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("engine", "settings"), [("ray", ()), ("local", ("--d", "0.5"))])
def test_at_the_same_time_is_one_after_another(
    engine: str, settings: tuple[str, ...], tables: list[Path], tmp_path: Path
) -> None:
    options = ("--label", "y", "--width", 16, *settings)
    for path in tables:
        assert run("learn", tmp_path / "each", path, *options) == 0
    assert run("learn", tmp_path / "all", *tables, *options, "--engine", engine) == 0
    assert contents(tmp_path / "all") == contents(tmp_path / "each")


def test_a_file_that_cannot_be_learnt_adds_nothing(tables: list[Path], tmp_path: Path) -> None:
    assert run("learn", tmp_path / "kb", tables[0], "--label", "y") == 0
    before = contents(tmp_path / "kb")
    pd.read_csv(tables[2]).drop(columns="b").to_csv(tables[2], index=False)
    assert run("learn", tmp_path / "kb", *tables[1:], "--label", "y") != 0
    assert contents(tmp_path / "kb") == before


def test_sequential_tasks_are_learnt_in_order(tables: list[Path], tmp_path: Path) -> None:
    options = ("--label", "y", "--sequential", "--pooling", "evidence")
    assert run("learn", tmp_path / "all", *tables, *options) == 0
    for path in tables:
        assert run("learn", tmp_path / "each", path, *options) == 0
    assert contents(tmp_path / "all") == contents(tmp_path / "each")
