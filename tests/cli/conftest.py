from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result
from weather_tables import weather

from ibcl.cli import app


@pytest.fixture
def ibcl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Result]:
    """Run a command in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("IBCL_DEBUG", raising=False)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def succeed(ibcl: Callable[..., Result]) -> Callable[..., dict[str, Any]]:
    """Run a command that must work, and return its JSON."""

    def run(*arguments: object) -> dict[str, Any]:
        result = ibcl(*arguments, "--json")
        assert result.exit_code == 0, result.stderr
        parsed: dict[str, Any] = json.loads(result.stdout)
        return parsed

    return run


@pytest.fixture
def refuse(ibcl: Callable[..., Result]) -> Callable[..., str]:
    """Run a command that must be refused, and return the one sentence it says."""

    def run(*arguments: object) -> str:
        result = ibcl(*arguments)
        assert result.exit_code == 2, (result.stdout, result.stderr)
        assert result.stdout == ""
        assert isinstance(result.exception, SystemExit)
        sentence = result.stderr
        assert sentence.startswith("Error: ")
        assert sentence.endswith(".\n")
        assert sentence.count("\n") == 1
        return sentence

    return run


@pytest.fixture
def sun(tmp_path: Path) -> Path:
    path = tmp_path / "sun.csv"
    weather("sun").to_csv(path, index=False)
    return path


@pytest.fixture
def rain(tmp_path: Path) -> Path:
    path = tmp_path / "rain.parquet"
    weather("rain").to_parquet(path)
    return path


@pytest.fixture(scope="session")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, one from a CSV and one from a Parquet file."""
    folder = tmp_path_factory.mktemp("learnt")
    weather("sun").to_csv(folder / "sun.csv", index=False)
    weather("rain").to_parquet(folder / "rain.parquet")
    for file, options in (("sun.csv", ["--network", "linear"]), ("rain.parquet", [])):
        arguments = ["learn", str(folder / "kb"), str(folder / file), "--label", "verdict"]
        assert CliRunner().invoke(app, [*arguments, *options]).exit_code == 0
    return folder / "kb"


@pytest.fixture
def knowledge_base(learnt: Path, tmp_path: Path) -> Path:
    """A copy of its own for each test."""
    shutil.copytree(learnt, tmp_path / "kb")
    return tmp_path / "kb"
