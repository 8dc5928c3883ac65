"""What one connection may cost a service, and that it stops when it is told to."""

from __future__ import annotations

import json
import re
import signal
import socket
import sys
import time
from contextlib import ExitStack

import pytest
from processes import resident, running

from ibcl.serve import Client

pytestmark = pytest.mark.slow

MEBIBYTE = 2**20


@pytest.fixture(scope="module")
def service(learnt, tmp_path_factory):
    options = ("--data", str(tmp_path_factory.mktemp("data")), "--receive-seconds", "2")
    with running(learnt, *options) as (process, url):
        yield process, url


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=20)


def answer(connection: socket.socket) -> tuple[int | None, dict[str, str]]:
    """Return the status and the body of what is answered until the connection ends."""
    received = b""
    try:
        while more := connection.recv(65536):
            received += more
    except ConnectionResetError:
        pass
    head, _, body = received.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1.1 (\d+)", head)
    return (int(status[1]) if status else None), json.loads(body or b"{}")


def send(connection: socket.socket, parts) -> int:
    """Send until the other end has heard enough; return how many bytes were taken."""
    sent = 0
    try:
        for part in parts:
            connection.sendall(part)
            sent += len(part)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


CHUNKED = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = {
    "a header's value": (b"GET /health HTTP/1.1\r\nX: ", b"x" * 65536),
    "a header's name": (b"GET /health HTTP/1.1\r\n", b"x" * 65536),
    "headers": (b"GET /health HTTP/1.1\r\n", b"x: y\r\n" * 10000),
    "the request line": (b"GET /", b"x" * 65536),
    "the query": (b"GET /health?", b"x" * 65536),
    "empty lines": (b"", b"\r\n" * 32768),
    "a chunk's extension": (CHUNKED + b"1;", b"x" * 65536),
    "a field after the body": (CHUNKED + b"0\r\nx: ", b"x" * 65536),
    "fields after the body": (CHUNKED + b"0\r\n", b"x: y\r\n" * 10000),
}


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.parametrize(("begin", "more"), ENDLESS.values(), ids=ENDLESS)
def test_what_comes_before_a_caller_is_known_is_bounded(service, begin, more):
    process, url = service
    before = resident(process)
    with connect(url) as connection:
        sent = send(connection, [begin, *[more] * 600])
        assert sent < 20 * MEBIBYTE, "the connection was left open"
    assert resident(process) - before < 16 * MEBIBYTE
    with Client(url) as client:
        assert client.ready()


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"x: " + b"y" * 30_000, 200),
        (b"\r\n".join([b"x: y"] * 90), 200),
        (b"x: " + b"y" * 40_000, 431),
        (b"\r\n".join([b"x: y"] * 120), 431),
    ],
)
def test_heads_up_to_the_limit_are_read_and_others_are_told(service, head, status):
    _, url = service
    with connect(url) as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + head + b"\r\n\r\n"
        )
        found, body = answer(connection)
    assert found == status
    assert ("error" in body) == (status != 200)


def test_a_large_body_is_no_large_head(service):
    _, url = service
    body = json.dumps({"rows": [{"mood": "x" * 3000}] * 1000, "preference": {"sci-fi": 1}}).encode()
    head = (
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % len(body)
    )
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(url) as connection:
        # Also where the next request follows at once, on the same connection.
        connection.sendall(head + body + last)
        received = b""
        while more := connection.recv(65536):
            received += more
    assert re.findall(rb"HTTP/1.1 (\d+)", received) == [b"422", b"200"]


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHo",
        b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 100\r\n\r\n{",
    ],
    ids=["nothing", "half a head", "half a body"],
)
def test_requests_that_never_finish_are_ended(service, begun):
    _, url = service
    with connect(url) as connection:
        connection.sendall(begun)
        status, _ = answer(connection)
    assert status in (None, 408)


def test_empty_lines_after_a_request_keep_no_connection(service):
    """They end what counts a connection as idle, and begin no request that could be too slow."""
    _, url = service
    with connect(url) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        received = b""
        while b'"ok"}' not in received:
            received += connection.recv(65536)
        connection.sendall(b"\r\n")
        assert answer(connection)[0] == 408


def test_a_head_that_arrives_drop_by_drop_is_ended(service):
    _, url = service
    with connect(url) as connection:
        begin = time.monotonic()
        connection.sendall(b"GET /health HTTP/1.1\r\n")
        while time.monotonic() < begin + 15:
            time.sleep(0.1)
            if not send(connection, [b"x: y\r\n"]):
                break
        else:
            pytest.fail("the connection was left open")


HALVES = {
    "half a body": b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{",
    "half a head": b"GET /health HTTP/1.1\r\nHo",
}


def test_a_service_told_to_stop_waits_for_nobody_for_long(base):
    with running(base, "--drain-seconds", "1", "--receive-seconds", "600") as (process, url):
        with ExitStack() as connections:
            for begun in HALVES.values():
                connections.enter_context(connect(url)).sendall(begun)
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=20) in (0, -signal.SIGTERM)
        lines = process.stderr.read().decode().splitlines()
        assert all(json.loads(line)["event"] for line in lines)
