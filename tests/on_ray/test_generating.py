"""Models generated on Ray are the files that one machine writes, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from predicting_data import make, run

import ibcl
from ibcl.cli import generating_pieces

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = make(tmp_path_factory.mktemp("generating"))
    pd.read_parquet(folder / "users.parquet").head(12).to_parquet(folder / "few.parquet")
    return folder


def generate(folder: Path, out: str, *options: object) -> Path:
    run("generate", folder / "kb", "--preferences", folder / "few.parquet", "--output",
        folder / out, *options)  # fmt: skip
    return folder / out


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.usefixtures("cluster")
def test_files_are_those_of_one_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generating_pieces, "_SLICE", 5)
    local, on_ray = generate(folder, "local"), generate(folder, "ray", "--engine", "ray")
    assert len(contents(local)) == 12
    assert contents(on_ray) == contents(local)
    table = pd.read_parquet(generate(folder, "local.parquet"))
    # A row holds the file of its model, whoever wrote it.
    assert [bytes(data) for data in table["model"]] == [
        data for _, data in sorted(contents(local).items())
    ]
    parts = generate(folder, "ray.parquet", "--engine", "ray")
    assert len(contents(parts)) == 3
    assert pd.read_parquet(parts).to_parquet() == table.to_parquet()


def test_a_row_of_the_table_is_a_model(folder: Path, tmp_path: Path) -> None:
    table = pd.read_parquet(generate(folder, "models.parquet"))
    row = table.iloc[3]
    (tmp_path / "model.safetensors").write_bytes(row["model"])
    model = ibcl.load_model(tmp_path / "model.safetensors")
    assert dict(model.preference) == pytest.approx(row["preference"])
    rows = pd.read_parquet(folder / "rows.parquet")
    theirs = ibcl.load(folder / "kb").model(row["preference"]).predict(rows)
    assert (model.predict(rows) == theirs).all()
