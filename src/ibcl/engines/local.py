"""The engine on this machine: its processes, or this process alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from typing import Any

from ibcl.engines.engine import Item, Outcome, Result, attempt
from ibcl.plugins import import_plugin, imported_plugins

# A process that dies takes its item with it; one more try tells bad luck from a deadly item.
_TRIES = 2


class LocalEngine:
    """Processes of this machine, or this process alone where there is only one to use.

    Processes are fresh interpreters, because a forked torch can hang. They end when this process
    does, however it ends. A process that dies is replaced, and its item tried once more.

    Parameters
    ----------
    processes
        How many run at the same time; all processors without a number.

    Examples
    --------
    >>> [outcome.result for outcome in LocalEngine(1).run(abs, [-1, 2])]
    [1, 2]
    >>> [outcome.error for outcome in LocalEngine(1).run(int, ["one"])]
    ["ValueError: invalid literal for int() with base 10: 'one'"]
    """

    def __init__(self, processes: int | None = None) -> None:
        self.processes = processes or os.cpu_count() or 1
        if self.processes < 1:
            raise ValueError(f"An engine needs at least one process, not {processes}.")

    def run(
        self, function: Callable[[Item], Result], items: Sequence[Item]
    ) -> Iterator[Outcome[Item, Result]]:
        """Yield an outcome for every item, in the order they end."""
        if self.processes == 1 or len(items) <= 1:
            for item in items:
                result, error = attempt(function, item)
                yield Outcome(item, result, error)
            return
        waiting = list(reversed(range(len(items))))
        tries = dict.fromkeys(range(len(items)), 0)
        workers = [_Worker(function) for _ in range(min(self.processes, len(items)))]
        try:
            while waiting or any(worker.position is not None for worker in workers):
                for place, worker in enumerate(workers):
                    if waiting and worker.position is None:
                        if not worker.process.is_alive():
                            worker.stop()
                            workers[place] = worker = _Worker(function)
                        worker.give(waiting.pop(), items)
                for worker in _ready(workers):
                    position, answer = worker.take()
                    if answer is None:
                        tries[position] += 1
                        if tries[position] < _TRIES:
                            waiting.append(position)
                            continue
                        answer = (None, "Its process died, and died again when it was tried again.")
                    yield Outcome(items[position], *answer)
        finally:
            for worker in workers:
                worker.stop()


class _Worker:
    """One process, and the item it is at."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        context = get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=_serve, args=(theirs, function, imported_plugins()), daemon=True
        )
        self.process.start()
        theirs.close()
        self.position: int | None = None

    def give(self, position: int, items: Sequence[Any]) -> None:
        """Send the process an item; if it is dead already, `take` will say so."""
        self.position = position
        try:
            self.connection.send(items[position])
        except (BrokenPipeError, OSError):
            self.process.kill()

    def take(self) -> tuple[int, tuple[Any, str | None] | None]:
        """Return the position of the item that ended, and its result and error; None if it died."""
        position, self.position = self.position, None
        assert position is not None
        try:
            return position, self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            return position, None

    def stop(self) -> None:
        """End the process at once."""
        self.process.kill()
        self.process.join()
        self.connection.close()


def _ready(workers: Sequence[_Worker]) -> list[_Worker]:
    busy = {worker.connection: worker for worker in workers if worker.position is not None}
    return [busy[connection] for connection in wait(list(busy))]  # type: ignore[index]


def _serve(
    connection: Connection[Any, Any], function: Callable[[Any], Any], plugins: Mapping[str, str]
) -> None:
    """Answer items until the connection or the parent is gone."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name, folder in plugins.items():
        import_plugin(name, folder)
    while True:
        try:
            item = connection.recv()
        except (EOFError, OSError):
            return
        connection.send(attempt(function, item))


def _end_with_parent() -> None:
    """Wait for the parent's end, even if it was killed, and end as well."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
