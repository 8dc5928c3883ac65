"""Dynamic batching: what several callers ask for at about the same time is worked on together.

While a batch is being worked on, requests gather for the next one, so that batches grow with the
load by themselves; only the first request of a quiet moment waits for others. Work that is done
sooner than a thread would have taken it up is done on the spot.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, TypeVar

from ibcl.serve.errors import ApiError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Collect items, and have them worked on together in a thread.

    Parameters
    ----------
    work
        From items to their results, in order; an item that fails has its exception as its result.
    size
        Of an item, such as its rows; 1 for every item without it.
    largest
        Size of a batch at most, but for a single item that is larger.
    wait
        Seconds that the first item of a quiet moment waits for others.
    enough
        Size at which nobody waits for others any more.
    quick
        Tells of a batch whether it is done on the spot, and not in a thread.
    waiting
        Size of everything that may wait at most; more is refused as a busy service.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> async def sum_together():
    ...     with ThreadPoolExecutor(1) as executor:
    ...         batcher = Batcher(lambda items: [sum(items)] * len(items), executor)
    ...         return await asyncio.gather(*(batcher.submit(n) for n in (1, 2, 3)))
    >>> asyncio.run(sum_together())
    [6, 6, 6]
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Sequence[Result | Exception]],
        executor: Executor,
        *,
        size: Callable[[Item], int] = lambda _: 1,
        largest: int = 4096,
        wait: float = 0.001,
        enough: int = 32,
        quick: Callable[[Sequence[Item]], bool] = lambda _: False,
        waiting: int = 200_000,
    ) -> None:
        def protected(items: Sequence[Item]) -> Sequence[Result | Exception]:
            try:
                return work(items)
            except Exception as error:
                return [error] * len(items)

        self._work, self._executor, self._size = protected, executor, size
        self._largest, self._wait, self._waiting = largest, wait, waiting
        self._enough, self._quick = min(enough, largest), quick
        self._items: list[tuple[Item, asyncio.Future[Result], int]] = []
        self._total = 0
        self._timer: asyncio.Handle | None = None
        self._running: asyncio.Task[None] | None = None

    async def submit(self, item: Item) -> Result:
        """Hand in an item and wait for its result."""
        size = self._size(item)
        if self._items and self._total + size > self._waiting:
            raise ApiError(503, "The service is busy; try again in a moment.", retry_after=1)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()
        self._items.append((item, future, size))
        self._total += size
        if self._running is None:
            if self._total >= self._enough:
                self._hurry(loop)
            elif self._timer is None:
                self._timer = loop.call_later(self._wait, self._start)
        return await future

    def _hurry(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin as soon as everybody who is about to hand something in has done so."""
        if isinstance(self._timer, asyncio.TimerHandle):
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = loop.call_soon(self._start)

    def _start(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._running is None and self._items:
            if self._quick([item for item, _, _ in self._items]):
                batch = self._next()
                self._finish(batch, self._work([item for item, _ in batch]))
            else:
                self._running = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._items:
                batch = self._next()
                if not batch:
                    continue
                items = [item for item, _ in batch]
                results = await loop.run_in_executor(self._executor, self._work, items)
                self._finish(batch, results)
        finally:
            self._running = None

    def _finish(
        self,
        batch: Sequence[tuple[Item, asyncio.Future[Result]]],
        results: Sequence[Result | Exception],
    ) -> None:
        for (_, future), result in zip(batch, results, strict=True):
            if future.done():
                continue
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _next(self) -> list[tuple[Item, asyncio.Future[Result]]]:
        """Take what fits into one batch, without those whose callers have gone."""
        taken, total = 0, 0
        for _, _, size in self._items:
            if taken and total + size > self._largest:
                break
            taken, total = taken + 1, total + size
        batch, self._items = self._items[:taken], self._items[taken:]
        self._total -= total
        return [(item, future) for item, future, _ in batch if not future.done()]
