"""The service as a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from ibcl.serve import Client

COMMAND = [sys.executable, "-c", "from ibcl.cli import main; main()"]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def running(base, *options: str) -> Iterator[tuple[subprocess.Popen, str]]:
    port = free_port()
    command = [*COMMAND, "serve", str(base), "--port", str(port), *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, env=os.environ)
    url = f"http://127.0.0.1:{port}"
    try:
        with Client(url) as client:
            deadline = time.monotonic() + 60
            while not client.ready():
                assert process.poll() is None, process.stderr.read().decode()
                assert time.monotonic() < deadline
                time.sleep(0.05)
        yield process, url
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def resident(process: subprocess.Popen, peak: bool = False) -> int:
    """Return the bytes of memory that a process holds, or held at most."""
    field = "VmHWM:" if peak else "VmRSS:"
    with open(f"/proc/{process.pid}/status") as status:
        line = next(line for line in status if line.startswith(field))
    return int(line.split()[1]) * 1024
