"""Results below a URL: resumed, read and refused as those in a folder are."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from s3_buckets import new_bucket
from typer.testing import CliRunner

from ibcl.cli import app
from ibcl.engines import LocalEngine
from ibcl.experiments.evaluation import result_files
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import Cell, finished, read_runs, run_all

pytest.importorskip("fsspec", reason="the extra remote is not installed")
pytest.importorskip("obstore", reason="the extra remote is not installed")

MEASURED = ["seconds", "total_seconds"]


def cells() -> list[Cell]:
    quick = Protocol(preferences=2, samples=2, tasks=2)
    return [Cell("digits", contender("ibcl_evidence"), seed, quick) for seed in (0, 1)]


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/runs"
    return new_bucket(request.getfixturevalue("endpoint"), monkeypatch)


def test_interrupted_runs_resume_and_are_those_of_a_folder(url: str, tmp_path: Path) -> None:
    wanted, place = cells(), Path(url)
    interrupted = run_all(wanted, place)
    first = next(interrupted)
    interrupted.close()
    assert [finished(cell, place) for cell in wanted] == [cell is first.item for cell in wanted]
    (second,) = run_all(wanted, place)
    assert second.error is None
    assert list(run_all(wanted, place)) == []
    assert all(outcome.error is None for outcome in run_all(wanted, tmp_path))
    there, here = (read_runs(folder).drop(columns=MEASURED) for folder in (place, tmp_path))
    assert there.to_parquet() == here.to_parquet()
    # What is damaged is run again.
    result_files.write_bytes(place / wanted[0].file, b"half a ta")
    assert not finished(wanted[0], place)


def test_the_command_takes_urls(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    command = [
        "bench",
        "digits",
        "-m",
        "ibcl_evidence",
        "--samples",
        "0",
        "--evaluate-after",
        "last",
    ]
    command += ["--output", url, "--processes", "1"]
    for _ in range(2):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.output
    assert [path.name for path in result_files.tables(Path(url))]
    assert b"torch" in result_files.read_bytes(Path(url) / "environment.json")
    assert list(tmp_path.iterdir()) == []
    refused = CliRunner().invoke(app, ["report", url])
    assert refused.exit_code != 0
    assert "--output" in refused.output


def test_the_memory_of_one_process_is_not_that_of_others() -> None:
    with pytest.raises(ValueError, match="in the memory of this process"):
        list(run_all(cells(), Path("memory://nobody/runs"), LocalEngine(2)))


def test_a_store_out_of_reach_is_said_and_not_run_against(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match="cannot be read"):
        finished(cells()[0], Path("s3://nobody/runs"))
