"""The wheel holds everything the installed library needs."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory) -> Path:
    pytest.importorskip("build", reason="the wheel is built with the package 'build'")
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "src" / "ibcl", source / "src" / "ibcl")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    wheels = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", wheels]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = wheels.glob("ibcl-*.whl")
    target = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(target)
    return target


def run(unpacked: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(unpacked)}
    result = subprocess.run(
        [sys.executable, *arguments], env=environment, cwd=unpacked, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_every_source_file_is_in_the_wheel(unpacked):
    ignored = {"__pycache__"}
    expected = {
        path.relative_to(ROOT / "src")
        for path in (ROOT / "src" / "ibcl").rglob("*")
        if path.is_file() and not ignored & set(path.parts) and path.suffix != ".pyc"
    }
    held = {path.relative_to(unpacked) for path in unpacked.rglob("*") if path.is_file()}
    assert expected <= held


def test_the_command_line_runs_from_the_wheel(unpacked):
    program = (
        "import ibcl, sys; from ibcl.cli import main; sys.argv = ['ibcl', '--version']; main()"
    )
    where = run(unpacked, "-c", "import ibcl; print(ibcl.__file__)")
    assert Path(where.strip()).is_relative_to(unpacked)
    assert "0.1.0" in run(unpacked, "-c", program)
