"""Writers that take turns: each stops before every step it takes on files or objects."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ibcl.store import objects, remote

STEPS = ("open", "rename", "replace", "unlink", "rmdir", "mkdir", "scandir", "listdir")
_WRITER = threading.local()


class Killed(BaseException):
    """The process is no more: nothing it does afterwards reaches the disk."""


class Writer:
    """One writer in a thread of its own, which goes one step at a time."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stopped: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self.error: BaseException | None = None
        self.running = True
        self._killed = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._stopped.get(timeout=60)

    def _run(self, work: Callable[[], None]) -> None:
        _WRITER.it = self
        try:
            self.stop()
            work()
        except BaseException as error:
            self.error = error
        self.running = False
        self._stopped.put(True)

    def stop(self) -> None:
        """Stop before a step, in the writer's own thread, until it is to go on."""
        if not self._killed:
            self._stopped.put(True)
            self._killed = not self._go.get(timeout=60)
        if self._killed:
            raise Killed

    def step(self, alive: bool = True) -> None:
        """Let it take one step, or end it here."""
        self._go.put(alive)
        self._stopped.get(timeout=60)

    def finish(self) -> None:
        while self.running:
            self.step()


def take_turns(works: Iterable[Callable[[], None]], turns: Iterable[int]) -> None:
    """Run writers in the order of the turns, and then each to its end; raise what one raised."""
    writers = [Writer(work) for work in works]
    for turn in turns:
        writer = writers[turn % len(writers)]
        if writer.running:
            writer.step()
    for writer in writers:
        writer.finish()
        if writer.error is not None:
            raise writer.error


class _SteppedObjects:
    """Objects whose requests are steps of the writer that connected."""

    def __init__(self, url: str) -> None:
        self._objects, self._writer = objects.connect(url), getattr(_WRITER, "it", None)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._objects, name)
        if self._writer is None:
            return call

        def stepped(*arguments: Any) -> Any:
            self._writer.stop()
            return call(*arguments)

        return stepped


def _stepped(original: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **settings: Any) -> Any:
        writer = getattr(_WRITER, "it", None)
        if writer is not None:
            writer.stop()
        return original(*arguments, **settings)

    return call


@contextmanager
def stepping() -> Iterator[None]:
    """Make every request to objects, and every call that finds or changes files, a step."""
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, _stepped(getattr(os, name)))
        patch.setattr(remote, "connect", _SteppedObjects)
        patch.setattr(remote, "REQUESTS", 1)
        yield
