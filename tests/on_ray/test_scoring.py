"""Scores for many users on Ray are those of one machine, in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from ibcl.cli import app, predictions


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scoring")
    random = np.random.default_rng(0)
    for task in range(2):
        x = random.normal(size=(60, 3))
        table = pd.DataFrame(x, columns=["a", "b", "c"])
        table["y"] = np.where(x[:, task] > 0, "yes", "no")
        table.to_csv(folder / f"task{task}.csv", index=False)
        run("learn", folder / "kb", folder / f"task{task}.csv", "--label", "y", "--width", 16)
    rows = pd.DataFrame(random.normal(size=(50, 3)), columns=["a", "b", "c"])
    rows.to_parquet(folder / "rows.parquet", row_group_size=20)
    weight = random.uniform(size=300)
    users = pd.DataFrame({"user": [f"u{n}" for n in range(300)], "task0": weight})
    users["task1"] = 1 - weight
    users.to_parquet(folder / "users.parquet")
    return folder


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """As large files would be cut, so are these."""
    monkeypatch.setattr(predictions, "_BLOCK_NUMBERS", 2_000)


def score(folder: Path, out: str, *options: object) -> pd.DataFrame:
    arguments = ["score", folder / "kb", folder / "rows.parquet"]
    users = folder / "users.parquet"
    answer = run(*arguments, "--users", users, "--out", folder / out, "--json", *options)
    assert json.loads(answer.splitlines()[-1])["rows"] == 50
    return pd.read_parquet(folder / out)


@pytest.mark.usefixtures("cluster", "small_pieces")
def test_scores_are_those_of_one_machine(folder: Path) -> None:
    local = score(folder, "local.parquet")
    on_ray = score(folder, "ray.parquet", "--engine", "ray")
    pd.testing.assert_frame_equal(on_ray, local, check_exact=True)
    parts = sorted(part.name for part in (folder / "ray.parquet").iterdir())
    assert parts == [f"part-{number:08}.parquet" for number in range(15)]
    assert not list(folder.glob(".ray*"))


def test_what_is_there_is_not_replaced_unasked(folder: Path) -> None:
    (folder / "precious.parquet").mkdir()
    (folder / "precious.parquet" / "thesis").touch()
    arguments = ["score", folder / "kb", folder / "rows.parquet"]
    users = ["--users", folder / "users.parquet", "--engine", "ray"]
    for force in ([], ["--force"]):
        result = CliRunner().invoke(
            app, [*map(str, [*arguments, *users, "--out", folder / "precious.parquet", *force])]
        )
        assert result.exit_code != 0
    assert (folder / "precious.parquet" / "thesis").exists()
