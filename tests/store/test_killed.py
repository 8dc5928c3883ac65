"""Writers that are killed or stopped, and writers that race: the folder is always whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from learners import load

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("killed_writer.py")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_killed_or_racing_writers_lose_and_break_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    learnt, raced, unlocked, stopped = map(int, done.stdout.split())
    assert load(tmp_path / "killed").metadata["next"] == learnt > 0
    assert len(load(tmp_path / "raced").tasks) == raced
    assert len(load(tmp_path / "unlocked").tasks) == unlocked
    assert len(load(tmp_path / "stopped").tasks) == stopped
