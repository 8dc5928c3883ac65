"""Faults at any step of writing: an error, an interruption, or the end of the process."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

STEPS = (
    "open",
    "write",
    "fsync",
    "replace",
    "link",
    "mkdir",
    "unlink",
    "rmdir",
    "rename",
    "scandir",
)


class Killed(BaseException):
    """The process is no more: nothing it does afterwards reaches the disk."""


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def fault(
    step: int, error: Callable[[], BaseException], steps: tuple[str, ...] = STEPS
) -> Iterator[list[str]]:
    """Fail the call of this number among those that change files; yield the calls made.

    After `Killed`, every later call fails too, as it would in a process that has ended.
    """
    calls: list[str] = []

    def wrap(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **settings: Any) -> Any:
            if name == "open" and not arguments[1] & (os.O_CREAT | os.O_RDWR):
                return original(*arguments, **settings)
            calls.append(name)
            problem = error()
            dead = isinstance(problem, Killed) and len(calls) > step
            if dead or len(calls) == step + 1:
                raise problem
            return original(*arguments, **settings)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in steps:
            patch.setattr(os, name, wrap(name, getattr(os, name)))
        yield calls


@contextmanager
def disk(folder: Path, capacity: int) -> Iterator[None]:
    """Let a folder hold so many bytes and no more."""
    write = os.write

    def limited(descriptor: int, data: Any) -> int:
        free = capacity - used(folder)
        if free <= 0:
            raise full()
        return write(descriptor, bytes(data[:free]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", limited)
        yield


def used(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
