"""Every script of `timings/`, `docs/` and `.ci/` runs, in its smallest form."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
# Each by its smallest arguments.
HERE: dict[str, tuple[str, ...]] = {
    "timings/digits.py": ("--quick",),
    "timings/experts.py": (*("wine", "--rounds", "1"),),
    "timings/frequentist_coverage.py": ("--repetitions", "1"),
    "timings/many_preferences.py": (*("--features", "4", "--preferences", "40", "--rounds", "1"),),
    "timings/rl_updates.py": ("--turns", "1", "--rounds", "1"),
    "timings/rollouts.py": ("--rounds", "1", "--steps", "2"),
    "timings/speed.py": ("--quick",),
    "timings/users_by_rows.py": ("--users", "100", "--rows", "10", "--rounds", "1"),
    "docs/concept_pictures.py": ("pictures",),
    "docs/readme_picture.py": ("picture.png",),
    "docs/coverage_picture.py": ("picture.png",),
    ".ci/smoke.py": (),
}
# These fork or start processes of their own.
APART: dict[str, tuple[str, ...]] = {
    "timings/mutation.py": (
        *("names", "--tests", "test_names", "--changes", "2", "--minutes", "1"),
    ),
    "timings/many_tasks.py": ("--tasks", "9", "--learnt", "3"),
    "timings/on_ray.py": ("scoring", "a_million_users"),
    "timings/scale.py": ("--quick", "--wide", "60x80"),
    "timings/service_load.py": ("--clients", "2", "--seconds", "2", "--turns", "1"),
}
ELSEWHERE = {
    "docs/result_tables.py": "tests/examples/test_result_tables.py",
    "timings/rl_rivals.py": "needs morl-baselines, in an environment of its own",
    "docs/conf.py": "Sphinx runs it, by `make docs`",
    "docs/check_site.py": "tests/examples/test_site.py",
}
SMALL = {"ROUNDS": "1", "USERS": "100", "ITEMS": "20", "SCORED_USERS": "20"}


@pytest.mark.slow
@pytest.mark.parametrize("script", HERE)
def test_a_script_runs(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [script, *HERE[script]])
    threads = torch.get_num_threads()
    try:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.strip() or list(tmp_path.iterdir()), f"{script} says nothing"


@pytest.mark.slow
@pytest.mark.parametrize("script", APART)
def test_a_script_with_processes_of_its_own_runs(script: str, tmp_path: Path):
    if script == "timings/on_ray.py":
        pytest.importorskip("ray", reason="it compares with Ray, an extra")
    done = subprocess.run(
        [sys.executable, str(ROOT / script), *APART[script]],
        cwd=tmp_path,
        env={**os.environ, **SMALL, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), f"{script} says nothing"


def test_no_script_is_left_out():
    found = {
        str(path.relative_to(ROOT))
        for folder in ("timings", "docs", ".ci")
        for path in (ROOT / folder).glob("*.py")
    }
    assert found == {*HERE, *APART, *ELSEWHERE}


def test_the_oldest_versions_are_those_of_the_project():
    """The lower bound of every dependency, and of the extras that the smoke test needs."""
    loader = importlib.machinery.SourceFileLoader("oldest", str(ROOT / ".ci" / "oldest"))
    spec = importlib.util.spec_from_loader("oldest", loader)
    assert spec is not None
    oldest = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        loader.exec_module(oldest)
    finally:
        sys.dont_write_bytecode = before
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert set(oldest.EXTRAS) <= set(extras)
    count = len(project["dependencies"]) + sum(len(extras[extra]) for extra in oldest.EXTRAS)
    pins = oldest.pinned([])
    assert len(pins) == count
    assert all(pin.count("==") == 1 and ">" not in pin for pin in pins)
    assert len(oldest.pinned(["torch"])) == count - 1


def targets() -> set[str]:
    lines = (ROOT / "Makefile").read_text().splitlines()
    return {
        name
        for line in lines
        if line.startswith(".PHONY:")
        for name in line.removeprefix(".PHONY:").split()
    }


def test_every_script_that_the_makefile_names_is_there():
    words = (ROOT / "Makefile").read_text().split()
    named = {word for word in words if word.endswith(".py") and "/" in word}
    assert named
    assert all((ROOT / word).is_file() for word in named), named
    assert {"test", "check", "docs", "speed", "demo"} <= targets()
