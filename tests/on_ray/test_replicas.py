"""Replicas of the service: one may be killed under load, and nothing acknowledged is lost."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import Popen

import psutil
import pytest
from typer.testing import CliRunner

pytest.importorskip("fastapi", reason="the extra serve is not installed")

from databases import postgresql
from programs import python
from served_bases import grown

from ibcl.cli import app
from ibcl.serve import Client, Settings
from ibcl.serve.replicas import Follower
from ibcl.serve.service import Service

pytestmark = pytest.mark.slow

WRITERS = 4


def wait_for(what: Callable[[], object], process: Popen[str], seconds: float = 400) -> None:
    until = time.monotonic() + seconds
    while not what():
        if process.poll() is not None:
            said = process.stderr.read()
            if "did not start on this machine" in said:
                # Ray gives its processes 20 seconds, which cannot be changed.
                pytest.skip("the machine is too busy for Ray to start")
            pytest.fail(said)
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.1)


def replicas(command: Popen[str]) -> set[int]:
    found = set()
    for process in psutil.Process(command.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ServeReplica:ibcl" in " ".join(process.cmdline()):
                found.add(process.pid)
    return found


@contextmanager
def serving(base: Path, database: str) -> Iterator[tuple[Popen[str], str]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--engine", "ray", "--replicas", 2, "--database", database, "--port", port]
    command = python("-c", "from ibcl.cli import main; main()", "serve", base, *options)
    url = f"http://127.0.0.1:{port}"
    try:
        with Client(url) as client:
            wait_for(client.ready, command)
        yield command, url
    finally:
        command.kill()
        command.communicate()


class Writers:
    """Callers that write one preference after another, each with one request at a time."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[str, dict[str, float]] = {}
        self.failed: list[str] = []
        self._url, self._enough = url, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(WRITERS)]

    def _write(self, writer: int) -> None:
        with Client(self._url) as client:
            number = 0
            while not self._enough.is_set():
                user, weight = f"{writer}-{number}", (number % 11) / 10
                preference = {"sci-fi": weight, "horror": 1 - weight}
                try:
                    client.set_preference(user, preference)
                except Exception as error:
                    self.failed.append(f"{user}: {error}")
                else:
                    self.acknowledged[user] = preference
                number += 1

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._enough.set()
        for thread in self._threads:
            thread.join()


def test_a_replica_killed_under_load_loses_nothing_acknowledged(tmp_path: Path) -> None:
    base = grown(tmp_path / "movies.ibcl", 2)
    with postgresql() as database, serving(base, database) as (command, url):
        wait_for(lambda: len(replicas(command)) == 2, command)
        first = replicas(command)
        writers = Writers(url)
        writers.start()
        try:
            wait_for(lambda: len(writers.acknowledged) >= 100, command)
            os.kill(min(first), signal.SIGKILL)
            before = len(writers.acknowledged)
            wait_for(lambda: len(writers.acknowledged) >= before + 200, command)
            # Another one takes its place.
            wait_for(lambda: len(replicas(command) - {min(first)}) == 2, command)
        finally:
            writers.stop()
        # Every caller had one request under way when the replica died, and no other failed.
        assert len(writers.failed) <= WRITERS, writers.failed
        with Client(url) as client:
            for user, preference in writers.acknowledged.items():
                assert client.preference(user).preference == pytest.approx(preference)
        command.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0


def test_a_file_of_one_machine_is_not_shared(tmp_path: Path) -> None:
    base = grown(tmp_path / "movies.ibcl", 1)
    for options, sentence in (
        (["--engine", "ray", "--replicas", "2"], "postgresql://"),
        (["--replicas", "2"], "--engine ray"),
    ):
        result = CliRunner().invoke(app, ["serve", str(base), *options])
        assert result.exit_code != 0
        assert sentence in result.output


def test_replicas_stay_with_the_same_version(tmp_path: Path) -> None:
    base = grown(tmp_path / "movies.ibcl", 1)
    one, other = Service(Settings(base, poll=600)), Service(Settings(base, poll=600))
    try:
        first, follower = one.versions.active.version, Follower(other)
        grown(base, 2)
        assert one.versions.look()
        assert other.versions.look()
        newest = other.versions.active.version
        assert newest != first
        one.activate(first)
        follower.look()
        assert other.versions.active.version == first
        one.activate(None)
        follower.look()
        assert other.versions.active.version == newest
    finally:
        one.close()
        other.close()
