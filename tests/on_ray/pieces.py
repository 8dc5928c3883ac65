"""Pieces of work that succeed, raise, or kill the process they run in."""

from __future__ import annotations

import os
import time
from pathlib import Path


def square(number: int) -> int:
    return number * number


def poisoned(number: int) -> int:
    if number == 1:
        raise RuntimeError("this one is poisoned")
    return number


def deadly(number: int) -> int:
    if number == 1:
        os._exit(1)
    return number


def slow(folder: Path, number: int, seconds: float = 1.0) -> int:
    """Say where it runs, and take a while."""
    (folder / f"{number}-{os.getpid()}").touch()
    time.sleep(seconds)
    return number


def endless(folder: Path, number: int) -> int:
    (folder / f"{number}-{os.getpid()}").touch()
    time.sleep(600)
    return number


def first_ends(folder: Path, number: int) -> int:
    return number if number == 0 else endless(folder, number)
