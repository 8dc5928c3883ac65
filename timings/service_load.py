"""Held load on the service, beside a bare FastAPI echo in the same run.

    python timings/service_load.py [--clients 200] [--seconds 60]

All on loopback with the servers in processes of their own. First an echo and predictions of one row
take turns, both with the same bodies, answers of about the same size, and every answer read and
compared; of each are printed the requests per second and the processor time that the server takes
for one, which other work on the machine disturbs less. Then a mixture of predictions, reads,
feedback and preference changes, during which the knowledge base learns a task and the server is
killed (SIGKILL) and started again. Every prediction is compared with the library's own, every
acknowledged write is looked up again in the end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pandas as pd

import ibcl
from ibcl.tabular import Schema

COLUMNS = [f"x{n}" for n in range(10)]
TASKS = [f"task {n}" for n in range(5)]
ROWS, PREFERENCES = 40, 30
ECHO = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
class Body(BaseModel):
    rows: list[dict[str, float]]
    preference: dict[str, float]
app = FastAPI()
@app.post("/echo")
async def echo(body: Body) -> Body:
    return body
uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False)
"""


def table(position: int, count: int, seed: int) -> tuple[pd.DataFrame, np.ndarray]:
    """Return rows of a task around a centre of its own, and their classes."""
    generator = np.random.default_rng([seed, position])
    centre, slope = np.random.default_rng(position).normal(size=(2, len(COLUMNS)))
    offset = generator.normal(size=(count, len(COLUMNS)))
    return pd.DataFrame(offset + 2 * centre, columns=COLUMNS), (offset @ slope > 0).astype(int)


def make_base(folder: Path) -> None:
    """Learn all tasks but the last."""
    frame, labels = table(0, 300, 0)
    schema = Schema.fit(frame, labels)
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), pooling="routed", encoder=schema)
    for position, task in enumerate(TASKS[:-1]):
        learner.learn(*table(position, 300, 0), task=task)
    learner.save(folder)


def grow(folder: Path) -> None:
    """Learn the last task."""
    learner = ibcl.load(folder)
    learner.learn(*table(len(TASKS) - 1, 300, 0), task=TASKS[-1])
    learner.save(folder)


@dataclass
class Truth:
    """What the library answers: by version, for the rows and preferences that are asked for."""

    rows: pd.DataFrame
    preferences: np.ndarray
    by_version: dict[str, list[list[list[float]]]] = field(default_factory=dict)

    def learn(self, folder: Path) -> None:
        """Compute the answers of the version in a folder."""
        version = json.loads((folder / "manifest.json").read_text())["checksum"]
        learner = ibcl.load(folder)
        missing = len(learner.tasks) - self.preferences.shape[1]
        padded = np.pad(self.preferences, ((0, 0), (0, missing)))
        answers = [learner.model(w).predict_proba(self.rows) for w in padded]
        self.by_version[version] = [table.tolist() for table in answers]


def near(one: list[float], other: list[float]) -> bool:
    """Tell whether probabilities agree; numpy takes longer to say so than the server to answer."""
    return all(abs(a - b) < 1e-9 for a, b in zip(one, other, strict=True))


class Connection:
    """One client's connection; as little work as HTTP allows, to leave the machine to others."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send a request and return status and body; a broken connection raises OSError."""
        try:
            if self._streams is None:
                self._streams = await asyncio.open_connection("127.0.0.1", self._port)
            reader, writer = self._streams
            if not isinstance(body, bytes):
                body = b"" if body is None else json.dumps(body).encode()
            writer.write(
                f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = (
                int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                if (b"content-length" in head.lower())
                else 0
            )
            return int(head[9:12]), await reader.readexactly(length)
        except (OSError, asyncio.IncompleteReadError) as error:
            self._streams = None
            raise OSError(str(error)) from None


@dataclass
class Tally:
    """What happened."""

    seconds: list[float] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    broken: int = 0
    wrong: list[str] = field(default_factory=list)
    checked: int = 0

    def line(self, name: str, duration: float) -> str:
        """Describe it."""
        times = np.array(self.seconds) * 1000
        p50, p99 = np.percentile(times, [50, 99])
        rate = len(times) / duration
        return f"{name:24s} {rate:8.0f} requests/s   p50 {p50:7.1f} ms   p99 {p99:7.1f} ms"


async def repeat(port: int, clients: int, seconds: float, make: object, check: object) -> Tally:
    """Have every client ask again and again."""
    tally = Tally()
    end = time.perf_counter() + seconds

    async def client(number: int) -> None:
        connection, generator = Connection(port), random.Random(number)
        while time.perf_counter() < end:
            method, path, body, expected = make(generator)
            begin = time.perf_counter()
            status, answer = await connection.ask(method, path, body)
            tally.seconds.append(time.perf_counter() - begin)
            check(tally, status, answer, expected)

    await asyncio.gather(*(client(number) for number in range(clients)))
    return tally


class Mixture:
    """Clients that each own a few users, and remember what they were promised."""

    def __init__(self, port: int, truth: Truth) -> None:
        self.port, self.truth, self.tally = port, truth, Tally()
        self.promised: dict[str, list[dict[str, float]]] = {}
        """By user, the preferences that may be stored: one, or two where an answer got lost."""
        self.chosen: dict[str, int] = {}

    async def client(self, number: int, end: float) -> None:
        """Ask until the end."""
        connection, generator = Connection(self.port), random.Random(number)
        users = [f"user-{number}-{k}" for k in range(3)]
        taught = f"taught-{number}"
        while time.perf_counter() < end:
            kind = generator.choices(
                ("predict", "predict user", "read", "change", "feedback"), (40, 25, 15, 10, 10)
            )[0]
            user = generator.choice(users)
            begin = time.perf_counter()
            try:
                await self._one(connection, generator, kind, user, taught)
            except OSError:
                self.tally.broken += 1
                await asyncio.sleep(0.05)
                continue
            self.tally.seconds.append(time.perf_counter() - begin)
            self.tally.kinds[kind] += 1

    async def _one(
        self, connection: Connection, generator: random.Random, kind: str, user: str, taught: str
    ) -> None:
        row = generator.randrange(ROWS)
        rows = [self.truth.rows.iloc[row].to_dict()]
        which = generator.randrange(PREFERENCES)
        if kind == "predict":
            body = {"rows": rows, "preference": self._named(which)}
            status, answer = await connection.ask("POST", "/v1/predict", body)
            self._check(status, answer, row, which)
        elif kind == "change" or (kind in ("predict user", "read") and user not in self.promised):
            wanted = self._named(which)
            self.promised.setdefault(user, []).append(wanted)
            self.chosen.pop(user, None)
            status, _ = await connection.ask("PUT", f"/v1/users/{user}/preference", wanted)
            if self._expect(status, 200):
                self.promised[user], self.chosen[user] = [wanted], which
        elif kind == "predict user":
            chosen = self.chosen.get(user)
            body = {"rows": rows, "user": user}
            status, answer = await connection.ask("POST", "/v1/predict", body)
            if chosen is not None:
                self._check(status, answer, row, chosen)
        elif kind == "read":
            status, answer = await connection.ask("GET", f"/v1/users/{user}/preference")
            if status == 200:
                self._same(user, json.loads(answer)["preference"])
            elif user in self.chosen:
                self.tally.wrong.append(f"a read gave {status}")
        else:
            # Feedback whose answer got lost may or may not count.
            self.promised.pop(taught, None)
            status, answer = await connection.ask(
                "POST", f"/v1/users/{taught}/infer", {"rows": rows}
            )
            if self._expect(status, 200):
                self.promised[taught] = [json.loads(answer)["preference"]]

    def _named(self, which: int) -> dict[str, float]:
        return dict(zip(TASKS, self.truth.preferences[which].tolist(), strict=False))

    def _expect(self, status: int, wanted: int) -> bool:
        if status != wanted:
            self.tally.wrong.append(f"status {status}")
        return status == wanted

    def _check(self, status: int, answer: bytes, row: int, which: int) -> None:
        if not self._expect(status, 200):
            return
        said = json.loads(answer)
        expected = self.truth.by_version.get(said["version"])
        if expected is None:
            self.tally.wrong.append("an unknown version answered")
            return
        self.tally.checked += 1
        if not near(said["probabilities"][0], expected[which][row]):
            self.tally.wrong.append("a prediction differs from the library's")

    def _same(self, user: str, found: dict[str, float]) -> None:
        self.tally.checked += 1
        tasks = set(found)
        for promised in self.promised[user]:
            if all(abs(found[t] - promised.get(t, 0.0)) < 1e-9 for t in tasks):
                return
        self.tally.wrong.append("a stored preference is not the one acknowledged")

    async def look_up_everything(self) -> int:
        """Compare every acknowledged write with what is stored in the end."""
        connection = Connection(self.port)
        for user in self.promised:
            status, answer = await connection.ask("GET", f"/v1/users/{user}/preference")
            if status == 200:
                self._same(user, json.loads(answer)["preference"])
            elif len(self.promised[user]) == 1 and (user in self.chosen or "taught" in user):
                self.tally.wrong.append(f"an acknowledged write is gone ({status})")
        return len(self.promised)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(command: list[str], port: int) -> subprocess.Popen[bytes]:
    """Start a server and wait until it answers; it listens a little earlier."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while True:
        try:
            urlopen(f"http://127.0.0.1:{port}/openapi.json", timeout=60).close()
            return process
        except OSError:
            if process.poll() is not None:
                raise RuntimeError("The server did not start.") from None
            time.sleep(0.02)


def small_bodies(truth: Truth) -> list[dict[str, object]]:
    """Make bodies with one row and a preference."""
    return [
        {
            "rows": [truth.rows.iloc[row].to_dict()],
            "preference": dict(zip(TASKS, truth.preferences[which].tolist(), strict=False)),
        }
        for row in range(ROWS)
        for which in range(PREFERENCES)
    ]


def processor_seconds(process: subprocess.Popen[bytes]) -> float:
    """Return the processor time that a server has taken so far."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Turns:
    """What a server did in all of its turns."""

    server: subprocess.Popen[bytes]
    port: int
    path: str
    right: Callable[[int, object], bool]
    """Of the number of a body and the answer."""
    requests: int = 0
    seconds: float = 0.0
    processor: float = 0.0

    async def take(self, name: str, clients: int, seconds: float, contents: list[bytes]) -> None:
        """Answer all clients for a while."""

        def make(generator: random.Random) -> tuple[str, str, bytes, int]:
            number = generator.randrange(len(contents))
            return "POST", self.path, contents[number], number

        def check(tally: Tally, status: int, answer: bytes, number: int) -> None:
            if status != 200 or not self.right(number, json.loads(answer)):
                tally.wrong.append(f"status {status}")

        begin, before = time.perf_counter(), processor_seconds(self.server)
        tally = await repeat(self.port, clients, seconds, make, check)
        duration = time.perf_counter() - begin
        processor = processor_seconds(self.server) - before
        self.requests += len(tally.seconds)
        self.seconds += duration
        self.processor += processor
        each = 1e6 * processor / len(tally.seconds)
        print(
            tally.line(f"{name}, one row", duration),
            f"  processor {each:4.0f} µs   wrong {len(tally.wrong)}",
        )


async def compare(
    echo: Turns, predict: Turns, arguments: argparse.Namespace, contents: list[bytes]
) -> None:
    """Have the two take turns, and print how they compare."""
    for number in range(arguments.turns):
        pair = [("echo", echo), ("predict", predict)]
        for name, turns in pair if number % 2 == 0 else pair[::-1]:
            seconds = max(1.0, arguments.seconds / (2 * arguments.turns))
            await turns.take(name, arguments.clients, seconds, contents)
    throughput = (predict.requests / predict.seconds) / (echo.requests / echo.seconds)
    processor = (echo.processor / echo.requests) / (predict.processor / predict.requests)
    print(
        f"predictions reach {throughput:.2f} of the bare echo's throughput; by the servers' "
        f"processor time a request {processor:.2f}"
    )


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    base = folder / "movies.ibcl"
    make_base(base)
    generator = np.random.default_rng(0)
    frame = pd.concat([table(k % len(TASKS), 1, 100 + k)[0] for k in range(ROWS)])
    preferences = generator.dirichlet(np.ones(len(TASKS) - 1), PREFERENCES)
    truth = Truth(frame.reset_index(drop=True), preferences)
    truth.learn(base)

    bodies = small_bodies(truth)
    (answers,) = truth.by_version.values()

    def same(number: int, answer: object) -> bool:
        return answer == bodies[number]

    def predicted(number: int, answer: dict[str, list[list[float]]]) -> bool:
        expected = answers[number % PREFERENCES][number // PREFERENCES]
        return near(answer["probabilities"][0], expected)

    echo_port, port = free_port(), free_port()
    serve = [sys.executable, "-c", "from ibcl.cli import main; main()", "serve", str(base)]
    serve += ["--port", str(port)]
    echo = start([sys.executable, "-c", ECHO, str(echo_port)], echo_port)
    server = start(serve, port)
    await compare(
        Turns(echo, echo_port, "/echo", same),
        Turns(server, port, "/v1/predict", predicted),
        arguments,
        [json.dumps(body).encode() for body in bodies],
    )
    os.kill(echo.pid, signal.SIGTERM)
    if arguments.small:
        server.terminate()
        return

    mixture = Mixture(port, truth)
    begin = time.perf_counter()
    end = begin + arguments.seconds
    events: list[str] = []

    def disturb() -> None:
        nonlocal server
        time.sleep(arguments.seconds / 3)
        grown = folder / "grown.ibcl"
        ibcl.load(base).save(grown)
        grow(grown)
        truth.learn(grown)
        grow(base)
        events.append(f"learnt {TASKS[-1]} after {time.perf_counter() - begin:.0f} s")
        time.sleep(arguments.seconds / 4)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server = start(serve, port)
        events.append(f"killed and started again after {time.perf_counter() - begin:.0f} s")

    disturbing = threading.Thread(target=disturb)
    disturbing.start()
    await asyncio.gather(*(mixture.client(n, end) for n in range(arguments.clients)))
    duration = time.perf_counter() - begin
    await asyncio.to_thread(disturbing.join)
    print(mixture.tally.line("mixed", duration))
    kept = await mixture.look_up_everything()
    print(f"  {dict(mixture.tally.kinds)}")
    print(f"  {'; '.join(events)}; {mixture.tally.broken} connections broken by the kill")
    print(f"  {mixture.tally.checked} answers checked, {kept} users' writes looked up in the end")
    print(
        f"  wrong answers and lost writes: {len(mixture.tally.wrong)}", Counter(mixture.tally.wrong)
    )
    server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--turns", type=int, default=6)
    parser.add_argument("--small", action="store_true", help="only the small predictions")
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
