"""What stands between the network and the service: one pass over every request.

It knows the caller by their token, limits how often they ask and how much they send, adds the
headers that keep pages safe, counts, and logs. Whatever goes wrong inside, a caller is told one
sentence and never a stack trace.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from functools import lru_cache
from itertools import count
from typing import Any

from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ibcl.serve.database import away
from ibcl.serve.errors import ApiError, readable
from ibcl.serve.logs import report, report_fault
from ibcl.serve.service import Service
from ibcl.serve.settings import is_loopback
from ibcl.serve.tokens import Caller

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN = frozenset({"/health", "/ready", "/", "/openapi.json"})
"""Paths that need no token, besides those of the page's files."""
_FILES = "/page/"
_BUCKETS = 10_000

_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_FORWARDED = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-real-ip",
        b"x-client-ip",
        b"x-cluster-client-ip",
        b"true-client-ip",
        b"cf-connecting-ip",
    }
)
"""What proxies add, beside all that begins with ``x-forwarded-``: whoever asks through one is
somewhere else, whatever address it has."""
_HOST = re.compile(rb"(\[[^\[\]]*\]|[^:]*)(:[0-9]*)?")
_IN_PROCESS, _ITS_HOST = "testclient", b"testserver"
"""In place of address and host where no network is in between; a network only has numbers."""

_GONE = 499
"""What other servers, too, write down for a caller who did not wait for the answer."""
_NO_GUESSING = (b"x-content-type-options", b"nosniff")
HEADERS = [
    _NO_GUESSING,
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
]
_OF_DATA = [_NO_GUESSING, (b"cache-control", b"no-store")]
"""Data is shown by no browser, so that it needs no more; every header takes time."""


class RateLimit:
    """Token buckets: each caller may make so many requests per second, and twice as many at once.

    Examples
    --------
    >>> limit = RateLimit(1.0, clock=iter([0.0, 0.0, 0.0, 1.0]).__next__)
    >>> [limit.allows("ann") for _ in range(4)]
    [True, True, False, True]
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._clock = rate, clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, caller: str) -> bool:
        """Tell whether a caller may make a request now, and count it."""
        if self._rate <= 0:
            return True
        now = self._clock()
        largest = max(1.0, 2 * self._rate)
        left, seen = self._buckets.pop(caller, (largest, now))
        left = min(largest, left + (now - seen) * self._rate)
        allowed = left >= 1
        self._buckets[caller] = (left - 1 if allowed else left, now)
        while len(self._buckets) > _BUCKETS:
            self._buckets.popitem(last=False)
        return allowed


class Protection:
    """The middleware.

    Parameters
    ----------
    direct
        What answers a method and path without the framework in between, which would take longer.
    """

    def __init__(
        self,
        app: App,
        service: Service,
        body_limit: int,
        rate: float,
        direct: Mapping[tuple[str, str], App],
    ) -> None:
        self._app, self._service, self._direct = app, service, direct
        self._body_limit = body_limit
        self._limit = RateLimit(rate)
        process = secrets.token_hex(4)
        self._identities = (f"{process}-{number}" for number in count(1))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        headers = dict(scope["headers"])
        method = scope["method"]
        answer = _Answer(send, scope["path"], bodyless=method == "HEAD")
        if method == "HEAD":
            # What GET answers, without its body; the server goes by its own scope.
            scope = {**scope, "method": "GET"}
        identity = next(self._identities)
        try:
            scope["caller"] = self._caller(scope, headers)
            if headers.get(b"content-encoding", b"identity") != b"identity":
                raise ApiError(422, "body: It is read as it comes: send it without encoding it.")
            body = _Body(receive, self._body_limit, headers)
            app = self._direct.get((scope["method"], scope["path"]), self._app)
            await app(scope, body, answer)
        except ApiError as error:
            await answer.refuse(error)
        except HTTPException as error:
            await answer.refuse(ApiError(error.status_code, error.detail))
        except (OperationalError, InterfaceError, InternalError, PoolTimeout) as error:
            # Of the database: it is away, full, or a copy that takes no changes; or all connections
            # to it are waiting.
            report_fault(error, request=identity)
            await answer.refuse(away())
        except ClientDisconnect:
            answer.status = _GONE
        except asyncio.CancelledError:
            # Only the server does that, when those under way have had their time to finish.
            await answer.refuse(
                ApiError(503, "The service is stopping; try again in a moment.", retry_after=1)
            )
        except Exception as error:
            report_fault(error, request=identity)
            await answer.refuse(
                ApiError(500, f"Something went wrong inside the service (request {identity}).")
            )
        self._count(scope, method, answer, time.perf_counter() - begin, identity)

    def _caller(self, scope: Scope, headers: dict[bytes, bytes]) -> Caller:
        client = scope.get("client")
        address = client[0] if client else "unknown"
        path = scope["path"]
        tokens = self._service.tokens
        caller: Caller | None
        if not tokens.required():
            _check_this_machine(address, scope["headers"])
            if scope["method"] not in _READING:
                _check_origin(headers)
            caller = Caller(address, None)
        elif path in OPEN or path.startswith(_FILES):
            caller = Caller(address, "")
        else:
            scheme, _, token = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
            caller = tokens.caller(token.strip()) if scheme.lower() == "bearer" else None
        # Also those who guess tokens are limited, by their address.
        if not self._limit.allows(caller.name if caller else address):
            raise ApiError(429, "Too many requests; wait a second.", retry_after=1)
        if caller is None:
            raise ApiError(401, "A valid token is needed: send 'Authorization: Bearer TOKEN'.")
        return caller

    def _count(
        self, scope: Scope, method: str, answer: _Answer, seconds: float, identity: str
    ) -> None:
        route = _route(scope)
        self._service.metrics.count(route, answer.status, seconds)
        caller = scope.get("caller")
        report(
            "request",
            request=identity,
            method=method,
            route=route,
            status=answer.status,
            milliseconds=round(1000 * seconds, 2),
            caller=caller.name if caller else None,
        )


def _route(scope: Scope) -> str:
    """Return the route of a request; its path may hold a user's name, and be anything at all."""
    return str(getattr(scope.get("route"), "path", "other"))


def _check_this_machine(address: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Let in without a token only who asks from this machine, by one of its own names."""
    in_process = address == _IN_PROCESS
    if not in_process and not is_loopback(address):
        raise ApiError(403, "Without tokens the service answers callers of this machine only.")
    for header, value in headers:
        if header in _FORWARDED or header.startswith(b"x-forwarded-"):
            raise ApiError(403, "Without tokens the service answers no caller behind a proxy.")
        # A web page elsewhere may have made its own name point here.
        if header == b"host" and not ((in_process and value == _ITS_HOST) or _is_own_name(value)):
            raise ApiError(403, "Without tokens the service answers to localhost only.")


@lru_cache(1024)
def _is_own_name(host: bytes) -> bool:
    """Tell whether a host, perhaps with a port, can only mean this machine."""
    found = _HOST.fullmatch(host)
    name = found[1].decode("latin-1").lower() if found else "no name"
    return name == "" or is_loopback(name)


def _check_origin(headers: Mapping[bytes, bytes]) -> None:
    """Refuse what a web page of another origin can have a browser send without asking first.

    Such a page cannot send JSON, nor a token, nor say that it is the service's own.
    """
    origin = headers.get(b"origin")
    own = (
        headers.get(b"sec-fetch-site") == b"same-origin"
        if origin is None
        else origin.partition(b"://")[2] == headers.get(b"host")
    )
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if own or (origin is None and kind == b"application/json"):
        return
    raise ApiError(
        403,
        "A change needs the content type application/json, or a token, or to come from a page of "
        "the service itself.",
    )


class _Body:
    """A request's body, up to the limit."""

    def __init__(self, receive: Receive, limit: int, headers: Mapping[bytes, bytes]) -> None:
        self._receive, self._limit, self._seen = receive, limit, 0
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            raise self._too_long()

    def _too_long(self) -> HTTPException:
        # The framework lets no other exception through while it reads a body.
        return HTTPException(413, f"The body of a request has at most {self._limit:,} bytes.")

    async def __call__(self) -> MutableMapping[str, Any]:
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._seen > self._limit:
            raise self._too_long()
        return message


class _Answer:
    """An answer on its way out."""

    def __init__(self, send: Send, path: str, bodyless: bool = False) -> None:
        self._send, self._bodyless = send, bodyless
        self._headers = _OF_DATA if path.startswith("/v1/") else HEADERS
        self.status, self._started = 0, False

    async def __call__(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self._started, self.status = True, message["status"]
            message["headers"] = [*message.get("headers", []), *self._headers]
        elif self._bodyless:
            message = {**message, "body": b""}
        await self._send(message)

    async def refuse(self, error: ApiError) -> None:
        if self._started:
            return
        body = json.dumps({"error": readable(error.sentence)}).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if error.retry_after is not None:
            headers.append((b"retry-after", b"%d" % error.retry_after))
        if error.status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await self({"type": "http.response.start", "status": error.status, "headers": headers})
        await self({"type": "http.response.body", "body": body})
