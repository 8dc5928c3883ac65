"""HTTP/1.1 with bounds on what a connection may hold before anybody knows who is asking.

The parser keeps the request line and every header until it is complete, however long they are and
however long they take; these bounds are below the application, which sees complete heads only.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ibcl.serve.settings import Settings

_REASONS = {400: "Bad Request", 408: "Request Timeout", 431: "Request Header Fields Too Large"}


def bounded(settings: Settings) -> type[HttpToolsProtocol]:
    """Return the protocol with the bounds of a service.

    Examples
    --------
    >>> from pathlib import Path
    >>> bounded(Settings(Path("movies.ibcl"), head_limit=1000)).head_limit
    1000
    """
    bounds = {
        "head_limit": settings.head_limit,
        "header_count": settings.header_count,
        "receive_seconds": settings.receive_seconds,
    }
    return type("BoundedProtocol", (BoundedProtocol,), bounds)


class BoundedProtocol(HttpToolsProtocol):
    """Close connections whose request line or headers are too long, too many or too slow.

    What is complete is counted as the parser reports it; bytes about which it says nothing, such as
    the beginning of an endless header, are counted as they arrive.
    """

    head_limit: int
    header_count: int
    receive_seconds: float

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head = self._headers = self._unreported = 0
        self._too_large = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what arrives, unless it is more than may be held."""
        if self.transport.is_closing():
            return
        self._unreported += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unreported > self.head_limit:
            self._close(431)
        elif self._unreported and self._timer is None and not self._answering:
            # Empty lines between two requests, at which the server no longer counts it as idle.
            self._wait()

    def on_message_begin(self) -> None:
        """Count anew for every request."""
        super().on_message_begin()
        self._head = self._headers = self._unreported = 0
        self._wait()

    def on_url(self, url: bytes) -> None:
        """Take a part of the request line."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a field after the body."""
        self._headers += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, whose size the application limits."""
        self._unreported = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Wait no longer: the request is there."""
        self._unreported = 0
        self._wait_no_longer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Say in JSON why a request cannot be read."""
        self._close(431 if self._too_large else 400)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, size: int) -> None:
        self._unreported = 0
        self._head += size
        if self._head > self.head_limit or self._headers > self.header_count:
            self._too_large = True
            raise ValueError("The head of a request is too large.")

    def _wait(self) -> None:
        self._wait_no_longer()
        self._timer = self.loop.call_later(self.receive_seconds, self._too_slow)

    def _wait_no_longer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            self._close(408)

    def _close(self, status: int) -> None:
        """Answer for a request that never reaches the application, unless one was begun."""
        self._wait_no_longer()
        sentence = {
            400: "The request is not HTTP.",
            408: f"A request must arrive within {self.receive_seconds:g} seconds.",
            431: f"The request line and headers have at most {self.head_limit:,} bytes and "
            f"{self.header_count} headers.",
        }[status]
        if not self._answering:
            body = b'{"error":"%s"}' % sentence.encode()
            self.transport.write(
                b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
                b"connection: close\r\n\r\n%s"
                % (status, _REASONS[status].encode(), len(body), body)
            )
        self.transport.close()
