"""Catch a worker that is, at that moment, writing the predictions of a piece."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import psutil


def caught_at_work(root: int, folder: Path, out: str, seconds: float = 120) -> psutil.Process:
    """Return a worker among a process's descendants, stopped while it holds half a file open.

    Workers are stopped and looked at one by one, and go on if they are between two files. So what
    is returned is provably scoring, and the caller decides how it dies.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if list(folder.glob(f".{out}-*/part-*")):
            for process in psutil.Process(root).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if "write_predictions" in " ".join(process.cmdline()):
                        process.suspend()
                        if _writes(process, out):
                            return process
                        process.resume()
        time.sleep(0.005)
    raise TimeoutError("no worker was caught at work")


def _writes(process: psutil.Process, out: str) -> bool:
    paths = [Path(file.path) for file in process.open_files()]
    return any(p.parent.match(f".{out}-*") and p.suffix != ".parquet" for p in paths)
