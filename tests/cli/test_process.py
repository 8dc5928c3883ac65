"""The installed command as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from weather_tables import weather

COMMAND = (sys.executable, "-c", "from ibcl.cli import main; main()")


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )


def test_version(tmp_path):
    from importlib.metadata import version

    result = run(tmp_path, "--version")
    assert (result.returncode, result.stdout) == (0, f"ibcl {version('ibcl')}\n")


def test_choices_are_known_before_anything_else_is_imported(tmp_path):
    shown = run(tmp_path, "learn", "--help").stdout
    for name in ("random_features", "mean_field", "wasserstein", "routed", "poisson"):
        assert name in shown


def test_a_mistake_shows_no_traceback(tmp_path):
    result = run(tmp_path, "show", "nowhere")
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr
    assert "nowhere" in result.stderr


def test_a_traceback_where_it_is_asked_for(ibcl, monkeypatch):
    assert isinstance(ibcl("--debug", "show", "nowhere").exception, ValueError)
    monkeypatch.setenv("IBCL_DEBUG", "1")
    assert isinstance(ibcl("show", "nowhere").exception, ValueError)


def test_help_imports_no_heavy_package(tmp_path):
    heavy = ("pandas", "sklearn", "plotly", "datasets", "transformers", "mujoco", "matplotlib")
    script = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from ibcl.cli import app\n"
        "before = set(sys.modules)\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([name for name in {heavy!r} if name in set(sys.modules) - before])"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert result.stdout == "[]\n"


def test_interrupting_leaves_no_half_task(tmp_path):
    weather("sun", 4000).to_csv(tmp_path / "sun.csv", index=False)
    script = (
        "import os, signal, sys, threading\n"
        "import pandas, torch\n"
        "from ibcl.cli import main\n"
        # Whoever started this process may have told it to ignore interrupts.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "sys.argv = ['ibcl', 'learn', 'kb', 'sun.csv', '--label', 'verdict', '--network', 'mlp',\n"
        "            '--epochs', '1000000']\n"
        "main()"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 130
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "kb" / "manifest.json").exists()
