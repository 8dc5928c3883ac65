"""What one call may take is a setting: blocks of rows stay within it, and the rest is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import ibcl
from ibcl.ram import SETTING, available_memory, check_memory, memory_setting, rows_at_once

TASKS = 6


def rows(count: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, 3, generator=torch.Generator().manual_seed(seed))


def learnt(**settings: Any) -> ibcl.IBCL:
    learner = ibcl.IBCL(ibcl.networks.linear(3), **settings)
    for task in range(TASKS):
        x = rows(40, task)
        learner.learn(x + task, x[:, task % 3] > 0, task=f"task {task}")
    return learner


LEARNERS = {pooling: learnt(pooling=pooling) for pooling in ("routed", "evidence")}
X = rows(300, 99)
SHARES = ibcl.sample_preferences(TASKS, 20)
CALLS: dict[str, Callable[[ibcl.IBCL], Any]] = {
    "predict_many": lambda learner: learner.predict_many(X, SHARES),
    "predict_blocks": lambda learner: torch.cat([*learner.predict_blocks(X, SHARES, numbers=9000)]),
    "infer_preference": lambda learner: torch.tensor([*learner.infer_preference(X).values()]),
    "with labels": lambda learner: torch.tensor(
        [*learner.infer_preference(X, X[:, 0] > 0).values()]
    ),
    "predict_proba": lambda learner: learner.model(SHARES[0]).predict_proba(X),
    "samples": lambda learner: learner.model(SHARES[0]).predict_proba(X, samples=5),
    "credal_bounds": lambda learner: torch.cat([*learner.model(SHARES[0]).credal_bounds(X)]),
    "outputs": lambda learner: learner.model(SHARES[0]).outputs(X, samples=4),
    "uncertainty": lambda learner: torch.stack([*learner.model(SHARES[0]).uncertainty(X)]),
    "learn": lambda learner: _learn(learner),
}
GATED: dict[str, Callable[[ibcl.IBCL], Any]] = {
    "routing": lambda learner: learner.model(SHARES[0]).routing(X),
    "novelty": lambda learner: learner.model(SHARES[0]).novelty(X),
}


def _learn(learner: ibcl.IBCL) -> torch.Tensor:
    another = ibcl.IBCL.from_state(learner.state)
    another.learn(X, X[:, 0] > 0, task="more")
    return another.knowledge.stored[-1].mean


CASES = [
    (pooling, name, call)
    for pooling in LEARNERS
    for name, call in (CALLS | (GATED if pooling == "routed" else {})).items()
]
EXPECTED = {(pooling, name): call(LEARNERS[pooling]) for pooling, name, call in CASES}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 24), st.sampled_from(CASES))
@example(30, CASES[0])
@example(10, CASES[0])
def test_a_call_answers_the_same_within_its_memory_or_is_refused(exponent, case):
    """Whatever the limit, nothing but the rows that are worked on together depends on it."""
    pooling, name, call = case
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SETTING, str(2**exponent))
        try:
            found = call(LEARNERS[pooling])
        except ValueError as error:
            assert f"that {SETTING} allows; " in str(error)  # noqa: PT017
            assert exponent < 24
            return
    torch.testing.assert_close(found, EXPECTED[pooling, name], rtol=1e-5, atol=1e-6)


def test_the_setting_is_bytes_or_names_a_unit(monkeypatch):
    for text, expected in (
        ("1000", 1000),
        ("2GiB", 2**31),
        ("2 gb", 2 * 10**9),
        ("1.5KiB", 1536),
        ("", None),
    ):
        monkeypatch.setenv(SETTING, text)
        assert memory_setting() == expected
    for text in ("much", "-1", "2 TB", "1e9"):
        monkeypatch.setenv(SETTING, text)
        with pytest.raises(ValueError, match="IBCL_MEMORY must be a number of bytes or such as"):
            memory_setting()


def test_more_than_the_setting_is_refused_by_its_name(monkeypatch):
    monkeypatch.setenv(SETTING, "1MiB")
    assert available_memory() == 2**20
    assert rows_at_once(2**10) == 2**8
    check_memory(2**20, "This", "use less")
    with pytest.raises(
        ValueError, match=r"This needs about 2\.0 MiB of memory, more than the 1\.0 MiB that IBCL_M"
    ):
        check_memory(2**21, "This", "use less")


PEAKS = """
import os, torch, ibcl
from pathlib import Path
torch.set_num_threads(1)
learner = ibcl.IBCL(ibcl.networks.linear(3))
for task in range(40):
    x = torch.randn(20, 3) + task % 7
    learner.learn(x, torch.arange(20) % 2, task=f"task {task}")
users = ibcl.sample_preferences(40, 4)
learner.predict_many(x, users), learner.infer_preference(x)
x = torch.randn(20_000, 3)

def peak():
    # Of this process alone; what getrusage tells began as that of the one which started it.
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("VmHWM:")[1].split()[0])

for work in (learner.predict_many, learner.infer_preference):
    for limit in ("", "200MiB"):
        child = os.fork()
        if child:
            assert os.waitpid(child, 0)[1] == 0
            continue
        os.environ["IBCL_MEMORY"], before = limit, peak()
        work(x, users) if work == learner.predict_many else work(x)
        print(peak() - before, flush=True)
        os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="nothing tells a process's peak")
def test_a_process_stays_within_it():
    """20,000 rows of 40 tasks take half a gibibyte at once, and less than a limit in blocks."""
    done = subprocess.run(
        [sys.executable, "-c", PEAKS],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    many, many_bounded, inferred, inferred_bounded = map(int, done.stdout.split())
    for bounded, unbounded in ((many_bounded, many), (inferred_bounded, inferred)):
        assert bounded <= 200 * 2**20
        assert bounded < unbounded
