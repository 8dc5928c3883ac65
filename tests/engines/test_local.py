"""Engines: every item has an outcome, whatever happens to it, and nothing is left behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ibcl.engines import LocalEngine, engine


def double_or_die(item):
    number, folder = item
    if number == 1:
        raise RuntimeError("poisoned")
    if number == 2 and not (marker := Path(folder) / "died once").exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return 2 * number


@pytest.fixture
def importable(monkeypatch):
    """Fresh interpreters must find this module by its name."""
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    )
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    import test_local

    return test_local


def test_a_poisoned_or_killed_item_does_not_stop_the_others(tmp_path, importable):
    items = [(number, str(tmp_path)) for number in range(6)]
    outcomes = {o.item[0]: o for o in LocalEngine(2).run(importable.double_or_die, items)}
    assert sorted(outcomes) == list(range(6))
    assert {n: o.result for n, o in outcomes.items() if o.error is None} == {
        0: 0,
        2: 4,
        4: 8,
        5: 10,
    }
    assert outcomes[1].error == "RuntimeError: poisoned"
    assert "died again" in outcomes[3].error


def test_one_process_gives_the_same_outcomes_in_order():
    outcomes = list(LocalEngine(1).run(int, ["1", "x", "3"]))
    assert [o.result for o in outcomes] == [1, None, 3]
    assert outcomes[1].error.startswith("ValueError: invalid literal")


def sleep_long(item):
    Path(item).write_text(str(os.getpid()))
    time.sleep(60)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that ended but was not waited for yet is not running any more.
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.usefixtures("importable")
def test_workers_end_when_the_parent_is_killed(tmp_path):
    program = (
        "import test_local, sys\n"
        "from ibcl.engines import LocalEngine\n"
        "if __name__ == '__main__':\n"
        f"    items = [{str(tmp_path / 'a')!r}, {str(tmp_path / 'b')!r}]\n"
        "    list(LocalEngine(2).run(test_local.sleep_long, items))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(program)
    parent = subprocess.Popen([sys.executable, str(script)])
    files = [tmp_path / "a", tmp_path / "b"]
    deadline = time.monotonic() + 60
    while not all(file.is_file() and file.read_text() for file in files):
        assert time.monotonic() < deadline, "the workers did not start"
        assert parent.poll() is None
        time.sleep(0.05)
    workers = [int(file.read_text()) for file in files]
    parent.kill()
    parent.wait()
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def test_locals_by_name():
    assert engine("local", 3).processes == 3
    with pytest.raises(ValueError, match="Unknown engine 'cloud'; known are local"):
        engine("cloud")
    with pytest.raises(ValueError, match="no address"):
        engine("local:8000")
