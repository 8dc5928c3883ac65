"""Models as ONNX files: made one at a time, in a thread of their own, and remembered.

The exporter keeps state of the whole process, so that two exports at once would spoil each other,
and it takes seconds. Those who ask for the same file wait for one export of it; whoever would have
to wait behind too many others is asked to come back later.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor

from ibcl.serve.errors import ApiError

_WAITING = 16
"""Files being made or waited for at most."""
_REMEMBERED = 64 * 2**20
"""Bytes of the files remembered."""
_RETRY_SECONDS = 10


class Exports:
    """Files by what they are made of.

    Examples
    --------
    >>> made = []
    >>> async def twice():
    ...     exports = Exports()
    ...     make = lambda: made.append(1) or b"file"
    ...     return await asyncio.gather(*(exports.get("key", make) for _ in range(2)))
    >>> asyncio.run(twice()), len(made)
    ([b'file', b'file'], 1)
    """

    def __init__(self, waiting: int = _WAITING, remembered: int = _REMEMBERED) -> None:
        self._executor = ThreadPoolExecutor(1)
        self._waiting, self._remembered = waiting, remembered
        self._making: dict[Hashable, asyncio.Future[bytes]] = {}
        self._made: OrderedDict[Hashable, bytes] = OrderedDict()

    def close(self) -> None:
        """Begin no further export."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    async def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Return the file of a key, made if need be."""
        found = self._made.get(key)
        if found is not None:
            self._made.move_to_end(key)
            return found
        making = self._making.get(key)
        if making is None:
            if len(self._making) >= self._waiting:
                raise ApiError(
                    503,
                    "Too many models are being exported; try again later.",
                    retry_after=_RETRY_SECONDS,
                )
            making = asyncio.get_running_loop().run_in_executor(self._executor, make)
            self._making[key] = making
            making.add_done_callback(lambda done: self._keep(key, done))
        # A caller who goes away takes the file from nobody else.
        return await asyncio.shield(making)

    def _keep(self, key: Hashable, done: asyncio.Future[bytes]) -> None:
        del self._making[key]
        if done.cancelled() or done.exception() is not None:
            return
        self._made[key] = done.result()
        while sum(map(len, self._made.values())) > self._remembered:
            self._made.popitem(last=False)
