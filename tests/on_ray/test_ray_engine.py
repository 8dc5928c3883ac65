"""The ray engine gives what the local one gives, also when workers and nodes die."""

from __future__ import annotations

import os
import signal
import threading
import time
from functools import partial
from pathlib import Path

import pandas as pd
import psutil
import pytest
from pieces import deadly, first_ends, poisoned, slow, square
from programs import python

from ibcl.engines import LocalEngine, engine
from ibcl.engines.ray import RayEngine
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import Cell, read_runs, run_all

pytestmark = pytest.mark.slow

QUICK = Protocol(preferences=2, samples=2, tasks=2)
# The only columns that differ between two runs of the same cell, on whatever engine.
MEASURED = ("seconds", "total_seconds")


def cells() -> list[Cell]:
    return [
        Cell("digits", contender("ibcl_evidence"), 0, QUICK),
        Cell("digits", contender("oracle").changed(epochs=1), 0, QUICK),
        Cell("digits", contender("ibcl_evidence"), 1, QUICK),
    ]


def unmeasured(folder: Path) -> dict[str, bytes]:
    """Every part as bytes, without the columns of measured time."""
    parts = sorted(folder.glob("*.parquet"))
    assert parts
    return {
        part.name: pd.read_parquet(part).drop(columns=[*MEASURED]).to_parquet() for part in parts
    }


@pytest.mark.usefixtures("cluster")
class TestOnOneMachine:
    def test_every_item_has_one_outcome(self) -> None:
        outcomes = list(RayEngine().run(square, range(20)))
        assert sorted(outcome.item for outcome in outcomes) == list(range(20))
        assert all(outcome.result == outcome.item**2 for outcome in outcomes)
        assert list(RayEngine().run(square, [])) == []

    def test_a_poisoned_piece_is_reported_and_the_others_go_on(self) -> None:
        ours = {o.item: o for o in RayEngine(processes=1).run(poisoned, range(4))}
        assert ours == {o.item: o for o in LocalEngine(1).run(poisoned, range(4))}
        assert "this one is poisoned" in str(ours[1].error)

    def test_a_deadly_piece_is_reported_and_the_others_go_on(self) -> None:
        outcomes = {o.item: o for o in RayEngine().run(deadly, range(4))}
        assert "died" in str(outcomes.pop(1).error)
        assert {item: outcome.result for item, outcome in outcomes.items()} == {0: 0, 2: 2, 3: 3}

    def test_a_worker_killed_from_outside_is_replaced(self, tmp_path: Path) -> None:
        def kill_one() -> None:
            os.kill(first_worker(tmp_path), signal.SIGKILL)

        killer = threading.Thread(target=kill_one)
        killer.start()
        outcomes = list(RayEngine().run(partial(slow, tmp_path), range(3)))
        killer.join()
        assert sorted(outcome.result or 0 for outcome in outcomes) == [0, 1, 2]
        assert len(list(tmp_path.iterdir())) == 4

    def test_a_stopped_run_cancels_what_it_began(self, tmp_path: Path) -> None:
        mixed = RayEngine().run(partial(first_ends, tmp_path), range(2))
        assert next(mixed).item == 0
        worker = first_worker(tmp_path)
        mixed.close()
        assert ended(worker)

    def test_the_table_is_that_of_the_local_engine(self, tmp_path: Path) -> None:
        wanted = cells()
        # Interrupted after the first cell, and resumed on another engine.
        interrupted = run_all(wanted, tmp_path / "ray", RayEngine())
        assert next(interrupted).error is None
        interrupted.close()
        assert all(o.error is None for o in run_all(wanted, tmp_path / "ray", engine("ray")))
        assert list(run_all(wanted, tmp_path / "ray", RayEngine())) == []
        assert all(o.error is None for o in run_all(wanted, tmp_path / "local"))
        assert unmeasured(tmp_path / "ray") == unmeasured(tmp_path / "local")
        assert len(read_runs(tmp_path / "ray")) == len(read_runs(tmp_path / "local"))


def first_worker(folder: Path) -> int:
    """Wait for a piece that says where it runs; return the process."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for begun in folder.iterdir():
            return int(begun.name.split("-")[1])
        time.sleep(0.05)
    raise TimeoutError("no piece has begun")


def ended(process: int, seconds: float = 30) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


KILLED = """
import sys
from functools import partial
from pathlib import Path
from pieces import endless
from ibcl.engines.ray import RayEngine
list(RayEngine(processes=1).run(partial(endless, Path(sys.argv[1])), [0]))
"""


def test_nothing_is_left_when_the_command_is_killed(tmp_path: Path) -> None:
    command = python("-c", KILLED, tmp_path)
    worker = first_worker(tmp_path)
    relatives = descendants(command.pid)
    assert worker in relatives
    command.kill()
    command.wait()
    assert ended(worker)
    # Ray's own agents look for their parent only now and then.
    assert all(ended(process, seconds=120) for process in relatives)


def descendants(process: int) -> set[int]:
    return {child.pid for child in psutil.Process(process).children(recursive=True)}
