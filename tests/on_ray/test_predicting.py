"""Predictions for many users on Ray are those of one machine, in files, also when a worker dies."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import psutil
import pytest
from killing import caught_at_work
from predicting_data import make, predict
from typer.testing import CliRunner

from ibcl.cli import app, predictions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("predicting"))


@pytest.mark.usefixtures("cluster")
def test_predictions_are_those_of_one_machine(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As large files would be cut, so are these.
    monkeypatch.setattr(predictions, "BLOCK_NUMBERS", 2_000)
    local = predict(folder, "local.parquet")
    on_ray = predict(folder, "ray.parquet", "--engine", "ray")
    pd.testing.assert_frame_equal(on_ray, local, check_exact=True)
    parts = sorted(part.name for part in (folder / "ray.parquet").iterdir())
    assert parts == [f"part-{number:08}.parquet" for number in range(15)]
    assert not list(folder.glob(".ray*"))


@pytest.mark.usefixtures("cluster")
def test_a_worker_killed_while_it_predicts_costs_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predictions, "BLOCK_NUMBERS", 200_000)
    local = predict(folder, "all.parquet", users="many")

    def kill_one() -> psutil.Process:
        worker = caught_at_work(os.getpid(), folder, "killed.parquet")
        worker.kill()
        return worker

    with ThreadPoolExecutor(1) as beside:
        killing = beside.submit(kill_one)
        on_ray = predict(folder, "killed.parquet", "--engine", "ray", users="many")
        worker = killing.result()
    assert not worker.is_running()
    assert on_ray.to_parquet() == local.to_parquet()
    parts = sorted(part.name for part in (folder / "killed.parquet").iterdir())
    assert parts == [f"part-{number:08}.parquet" for number in range(9)]


def test_what_is_there_is_not_replaced_unasked(folder: Path) -> None:
    (folder / "precious.parquet").mkdir()
    (folder / "precious.parquet" / "thesis").touch()
    arguments = ["predict", folder / "kb", folder / "rows.parquet"]
    users = ["--preferences", folder / "users.parquet", "--engine", "ray"]
    for force in ([], ["--force"]):
        result = CliRunner().invoke(
            app, [*map(str, [*arguments, *users, "--output", folder / "precious.parquet", *force])]
        )
        assert result.exit_code != 0
    assert (folder / "precious.parquet" / "thesis").exists()
