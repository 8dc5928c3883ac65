"""Many runs: parts on disk, resuming, and the commands."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from ibcl.cli import app
from ibcl.engines import LocalEngine
from ibcl.experiments.evaluation import charts, code_version
from ibcl.experiments.evaluation.ablation import ABLATIONS, ablation_cells
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.report import write_report
from ibcl.experiments.evaluation.runs import (
    Cell,
    cells_of,
    finished,
    read_runs,
    run_all,
    write_compact,
)

QUICK = Protocol(preferences=2, samples=2, tasks=2)


def cells(names=("ibcl_evidence", "oracle"), seeds=(0,), protocol=QUICK):
    return [
        Cell(
            "digits",
            contender(name) if name == "ibcl_evidence" else contender(name).changed(epochs=1),
            seed,
            protocol,
        )
        for seed in seeds
        for name in names
    ]


def test_interrupted_runs_resume(tmp_path):
    wanted = cells()
    runs = run_all(wanted, tmp_path)
    first = next(runs)
    runs.close()
    kept = tmp_path / f"{first.result}.parquet"
    before = kept.stat().st_mtime_ns
    assert [outcome.result for outcome in run_all(wanted, tmp_path)] == [wanted[1].name]
    assert kept.stat().st_mtime_ns == before
    assert list(run_all(wanted, tmp_path)) == []
    assert set(read_runs(tmp_path)["method"]) == {"ibcl_evidence", "oracle"}


def test_damaged_or_outdated_parts_run_again(tmp_path):
    (wanted,) = cells(["ibcl_evidence"])
    assert not finished(wanted, tmp_path)
    list(run_all([wanted], tmp_path))
    assert finished(wanted, tmp_path)
    changed = Cell("digits", wanted.contender.changed(prior_std=1.0), 0, QUICK)
    assert changed.name == wanted.name
    assert not finished(changed, tmp_path)
    path = tmp_path / f"{wanted.name}.parquet"
    path.write_bytes(path.read_bytes()[:100])
    assert not finished(wanted, tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_runs(tmp_path)
    assert [outcome.result for outcome in run_all([wanted], tmp_path)] == [wanted.name]


def test_a_run_that_two_folders_hold_is_not_counted_twice(tmp_path):
    for folder in ("one", "two"):
        list(run_all(cells(["ibcl_evidence"]), tmp_path / folder))
    read_runs(tmp_path / "one")
    with pytest.raises(ValueError, match="two runs of ibcl_evidence on digits with seed 0"):
        read_runs(tmp_path / "one", tmp_path / "two")


def test_results_of_other_code_or_data_run_again(tmp_path, monkeypatch):
    (wanted,) = cells(["ibcl_evidence"])
    list(run_all([wanted], tmp_path))
    assert finished(wanted, tmp_path)
    path = tmp_path / f"{wanted.name}.parquet"
    table = pd.read_parquet(path)
    table.assign(data="of another day").to_parquet(path, index=False)
    assert not finished(wanted, tmp_path)
    table.to_parquet(path, index=False)
    assert finished(wanted, tmp_path)
    monkeypatch.setattr("ibcl.experiments.evaluation.runs.code_version", lambda *_: "another")
    assert not finished(wanted, tmp_path)


def test_code_version_covers_what_a_method_is_made_from_and_nothing_else(tmp_path, monkeypatch):
    package = tmp_path / "ibcl"
    package.mkdir()
    files = {"a": "from ibcl import b\n", "b": "import ibcl.c\n", "c": "x = 1\n", "d": "y = 1\n"}
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(
        code_version,
        "_file_of",
        lambda name: p if (p := package / f"{name.rpartition('.')[2]}.py").is_file() else None,
    )
    version = code_version.code_version.__wrapped__
    before = version("ibcl.a")
    (package / "d.py").write_text("y = 2\n")
    assert version("ibcl.a") == before
    (package / "c.py").write_text("x = 2\n")
    assert version("ibcl.a") != before


@pytest.mark.slow
def test_two_processes_give_what_one_gives(tmp_path):
    wanted = cells(seeds=(0, 1), names=("ibcl_evidence",))
    list(run_all(wanted, tmp_path / "one"))
    list(run_all(wanted, tmp_path / "two", LocalEngine(2)))
    times = ["seconds", "total_seconds"]
    one, two = (read_runs(tmp_path / name).drop(columns=times) for name in ("one", "two"))
    pd.testing.assert_frame_equal(one, two)


def test_cells_of_a_comparison_have_names_of_their_own():
    backbone = "efficientnet-lite0"
    found = cells_of(["20news", "celeba"], ["ibcl", "gem"], [0, 1], [50, 500], backbone)
    # CelebA is asked with two families of preferences.
    assert len(found) == 2 * 3 * (1 + 2)
    assert len({cell.name for cell in found}) == len(found)
    assert {cell.backbone for cell in found if cell.benchmark == "20news"} == {None}
    ablations = ablation_cells(["all"], ["digits"], [0])
    assert len({cell.file for cell in ablations}) == len(ablations)


@pytest.mark.slow
def test_report_shows_everything(tmp_path):
    quick = [
        Cell(
            "digits",
            c.contender.changed(epochs=1) if "epochs" in c.contender.options else c.contender,
            0,
            Protocol(samples=0, tasks=2, preferences=2, family=c.protocol.family),
            c.memory,
            label=c.label,
        )
        for c in ablation_cells(["prior-number", "front"], ["digits"], [0])
    ]
    list(run_all(cells() + quick, tmp_path / "runs"))
    table = read_runs(tmp_path / "runs")
    page = write_report(table, tmp_path / "report")
    text = page.read_text()
    names = {chart.name for chart in charts.all_charts(table)}
    assert {"ranking", "metrics-digits-uniform", "selections", "front-digits"} <= names
    for name in names:
        assert (page.parent / "figures" / f"{name}.png").stat().st_size > 1000
        assert (page.parent / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
    assert "Who wins where" in text
    assert "<script src" not in text
    assert "<link" not in text
    summary = pd.read_csv(page.parent / "summary.csv")
    oracle = summary.query("method == 'oracle' and label.isna()", engine="python")
    assert oracle["regret"].item() == 0
    small = write_compact(table, tmp_path / "small")
    again = write_report(read_runs(small[0].parent), tmp_path / "again")
    assert (again.parent / "tables.md").read_text() == (page.parent / "tables.md").read_text()


@pytest.mark.slow
def test_bench_and_report_commands(tmp_path):
    runner = CliRunner()
    folder = str(tmp_path / "runs")
    arguments = ["bench", "digits", "-m", "ibcl_evidence", "--samples", "0", "--processes", "1"]
    result = runner.invoke(app, [*arguments, "--output", folder])
    assert result.exit_code == 0, result.output
    assert "evidence" in result.output
    assert json.loads((tmp_path / "runs" / "environment.json").read_text())["torch"]
    result = runner.invoke(app, ["report", folder, "--output", str(tmp_path / "page")])
    assert result.exit_code == 0, result.output
    assert (tmp_path / "page" / "report.html").is_file()


def test_tune_command_prints_settings(tmp_path):
    file = tmp_path / "digits.toml"
    arguments = ["tune", "digits", "-m", "ibcl_evidence", "--trials", "2", "--tasks", "2"]
    result = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path), "--processes", "1"])
    assert result.exit_code == 0, result.output
    assert "[ibcl_evidence]" in file.read_text()
    assert "prior_std = " in file.read_text()
    trials = tmp_path / "digits--ibcl_evidence--memory0.json"
    before = trials.stat().st_mtime_ns
    CliRunner().invoke(app, [*arguments, "--output", str(tmp_path), "--processes", "1"])
    assert trials.stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["bench", "digit"], "Unknown benchmark 'digit'"),
        (["bench", "mine.yaml"], "There is no file mine.yaml"),
        (["bench", "digits", "-m", "ewc"], "Unknown method 'ewc'"),
        (["bench", "digits", "-m", "ibcl", "--preferences", "odd"], "Preferences are uniform"),
        (["ablate", "digits", "-k", "beta"], "Unknown ablation 'beta'"),
        (["bench", "digits", "--engine", "cloud"], "Unknown engine 'cloud'; known are local"),
        (
            ["bench", "digits", "--evaluate-after", "never"],
            "after 'every' task or the 'last', not",
        ),
        (["report", "nowhere"], "There are no results in nowhere"),
        (["tune", "digits", "-m", "ewc"], "Unknown method 'ewc'"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert list(tmp_path.iterdir()) == []


def test_every_ablation_has_runs():
    for name in ABLATIONS:
        found = ablation_cells([name], ["digits"], [0])
        assert found
        assert all("=" in cell.label for cell in found)
