"""Kill and stop writers at random moments, and let two of them race, with locks and without.

Run as a program of its own.

It imports the library once and forks its victims, so that a kill costs milliseconds. Whatever goes
wrong ends it with an assertion.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import ibcl


def task(number: int) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(number))
    return x, x[:, number % 3] > 0


def new_learner() -> ibcl.IBCL:
    return ibcl.IBCL(
        ibcl.networks.random_features(3, width=8),
        priors=[2.5],
        inference=ibcl.DenseVI(),
        pooling="routed",
    )


def forked(work: Callable[[], None]) -> int:
    """Run work in a child process; it ends with status 0 or 1."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return child


def learn_until_killed(folder: Path, report: int) -> None:
    learner = ibcl.load(folder, autosave=True)
    os.write(report, b"!")
    while True:
        # Every third task replaces an older one, so that kills also hit forgetting.
        number = learner.metadata["next"]
        learner.metadata["next"] = number + 1
        learner.learn(*task(number), task=f"task {number}")
        os.write(report, b".")
        if len(learner.tasks) > 6:
            learner.forget(learner.tasks[0])


def check(folder: Path) -> tuple[int, int]:
    """Open, compare with learning afresh, and return how far learning had come."""
    learner = ibcl.load(folder)
    first = next((int(name.split()[1]) for name in learner.tasks), 0)
    numbers = range(first, learner.metadata["next"])
    assert learner.tasks == tuple(f"task {number}" for number in numbers), learner.tasks
    if learner.tasks:
        number = numbers[-1]
        fresh = new_learner()
        fresh.learn(*task(number), task="only")
        (expected,), (found,) = (
            fresh.knowledge.stored,
            learner.knowledge.extremes(learner.tasks[-1]),
        )
        assert torch.equal(expected.mean, found.mean)
        uniform = [1 / len(numbers)] * len(numbers)
        assert torch.isfinite(learner.model(uniform).predict_proba(task(0)[0])).all()
    return learner.metadata["next"], len(learner.tasks)


def kill_many(folder: Path, kills: int, seed: int, duration: float) -> int:
    """Kill a writer again and again; what it had reported as learnt is always there.

    The moment is random: after none to two tasks, and so much of the time that one takes.
    """
    learner = new_learner()
    learner.metadata["next"] = 0
    learner.save(folder)
    moments = random.Random(seed)
    known = 0
    for _ in range(kills):
        reader, writer = os.pipe()
        child = forked(lambda report=writer: learn_until_killed(folder, report))
        os.close(writer)
        for _ in range(moments.choice([1, 1, 2, 3])):
            assert os.read(reader, 1) in (b"!", b".")
            known += 1
        known -= 1
        time.sleep(moments.uniform(0, duration))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        reported = b""
        while chunk := os.read(reader, 4096):
            reported += chunk
        os.close(reader)
        done, _ = check(folder)
        # Killed after saving but before reporting, one more may be there.
        assert known + len(reported) <= done <= known + len(reported) + 1
        known = done
    return known


def race(folder: Path, tasks: int) -> int:
    """Two writers that reload when the other was faster, and a reader; nothing gets lost."""
    new_learner().save(folder)

    def write(name: str) -> None:
        number = 0
        while number < tasks:
            try:
                ibcl.load(folder, autosave=True).learn(*task(number), task=f"{name}{number}")
                number += 1
            except ibcl.store.ChangedSinceError:
                continue

    children = [forked(lambda name=name: write(name)) for name in ("left", "right")]
    statuses: dict[int, int] = {}
    seen = 0
    while len(statuses) < len(children):
        found = len(ibcl.load(folder).tasks)
        assert found >= seen
        seen = found
        child, status = os.waitpid(-1, os.WNOHANG)
        if child:
            statuses[child] = status
    assert set(statuses.values()) == {0}, statuses
    expected = {f"{name}{number}" for name in ("left", "right") for number in range(tasks)}
    assert set(ibcl.load(folder).tasks) == expected
    return len(expected)


def refuse_locks() -> None:
    """Let this process, and those it forks, work as on a file system without locks."""

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    fcntl.flock = refuse


def stop_many(folder: Path, stops: int, seed: int, duration: float) -> int:
    """Stop a writer again and again, save meanwhile, and let it go on: nothing gets lost."""
    new_learner().save(folder)

    def add(name: str) -> None:
        while True:
            try:
                ibcl.load(folder, autosave=True).learn(*task(0), task=name)
            except ibcl.store.ChangedSinceError:
                continue
            return

    def write(report: int) -> None:
        number = 0
        while True:
            add(f"theirs {number}")
            os.write(report, b".")
            number += 1

    reader, writer = os.pipe()
    child = forked(lambda: write(writer))
    os.close(writer)
    moments = random.Random(seed)
    reported = len(os.read(reader, 1))
    for number in range(stops):
        time.sleep(moments.uniform(0, duration))
        os.kill(child, signal.SIGSTOP)
        os.waitpid(child, os.WUNTRACED)
        add(f"ours {number}")
        os.kill(child, signal.SIGCONT)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while chunk := os.read(reader, 4096):
        reported += len(chunk)
    found = ibcl.load(folder).tasks
    theirs = [name for name in found if name.startswith("theirs")]
    assert {f"ours {number}" for number in range(stops)} == set(found) - set(theirs)
    assert reported <= len(theirs) <= reported + 1
    return len(found)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    # The first time is slow, and would be in every child; the second is how long a task takes.
    learner = new_learner()
    for number in range(2):
        begin = time.perf_counter()
        learner.learn(*task(number))
        learner.save(folder / "first")
        duration = time.perf_counter() - begin
    learnt = kill_many(folder / "killed", kills=25, seed=0, duration=duration)
    print(learnt, race(folder / "raced", tasks=5))
    refuse_locks()
    print(race(folder / "unlocked", tasks=5))
    print(stop_many(folder / "stopped", stops=8, seed=0, duration=2 * duration))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
