"""The wheel holds everything the installed library needs."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


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
    assert run(unpacked, "-c", program).strip() == f"ibcl {PROJECT['version']}"
    assert run(unpacked, "-c", "import ibcl; print(ibcl.__version__)").strip() == PROJECT["version"]


def test_what_is_shown_is_read_from_the_wheel(unpacked):
    """Whatever is no Python is found where the program looks for it."""
    program = """
from importlib.resources import files
from ibcl.experiments import benchmarks, methods
from ibcl.experiments.evaluation.contenders import contender

for name in benchmarks.BENCHMARKS:
    contender("ibcl", name, 0)
print(sorted(
    path.name for package in ("ibcl.demo", "ibcl.serve", "ibcl.experiments")
    for path in files(package).rglob("*") if path.suffix in (".html", ".css", ".js", ".toml")
))
"""
    shown = run(unpacked, "-c", program)
    for name in (
        "page.html",
        "page.css",
        "explorer.js",
        "embedded.js",
        "index.html",
        "simplex.js",
        "digits.toml",
    ):
        assert repr(name) in shown


def test_the_wheel_brings_the_services_database_up_to_date(unpacked, tmp_path):
    pytest.importorskip("alembic", reason="the service's database needs the extra 'serve'")
    program = f"""
from ibcl.serve.database import open_database
import sqlalchemy
engine = open_database("sqlite:///{tmp_path}/service.db")
print(sqlalchemy.inspect(engine).get_table_names())
"""
    assert "alembic_version" in run(unpacked, "-c", program)


def test_the_version_is_the_same_everywhere():
    yaml = pytest.importorskip("yaml", reason="the citation is a YAML file")
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"]
    assert f"## {PROJECT['version']}" in (ROOT / "CHANGELOG.md").read_text()


def test_pre_commit_checks_what_make_checks():
    yaml = pytest.importorskip("yaml", reason="the configuration is a YAML file")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    recipe = (ROOT / "Makefile").read_text().partition("\ncheck:")[2].partition("\n\n")[0]
    checked = [
        line.strip().replace("$(BIN)", ".venv/bin").removesuffix(" .")
        for line in recipe.splitlines()[1:]
    ]
    assert [hook["entry"] for hook in hooks] == checked
