"""A refused call changes nothing: neither what a learner knows nor a byte of what it saved.

Whatever call changes a learner, whatever is wrong with it, and wherever it fails: in what it was
given, on the way (an interrupted progress bar), or in the last step (a full disk).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pandas as pd
import pytest
import torch
from faults import disk
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import ibcl
from ibcl.errors import StoreError
from ibcl.store.description import describe
from ibcl.store.storage import LOCK

SIZE = 24


class Setting(NamedTuple):
    """How a learner is made, and what its tasks are."""

    make: Callable[[], ibcl.IBCL]
    rows: Callable[[int], tuple[Any, Any]]


def _tensors(seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(SIZE, 2, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, seed % 2] > 0).long()


def _frames(seed: int) -> tuple[pd.DataFrame, pd.Series]:
    x, y = _tensors(seed)
    frame = pd.DataFrame(x.numpy(), columns=["width", "length"])
    return frame.assign(kind=["a", "b"] * (SIZE // 2)), pd.Series(y.numpy()).map({0: "n", 1: "y"})


def _with_encoder() -> ibcl.IBCL:
    from ibcl.tabular import Schema, make_head

    schema = Schema.fit(*_frames(0))
    return ibcl.IBCL(make_head("linear", schema.width, 1), encoder=schema)


SETTINGS = {
    "routed": Setting(lambda: ibcl.IBCL(ibcl.networks.linear(2)), _tensors),
    "calibrated": Setting(lambda: ibcl.IBCL(ibcl.networks.linear(2), calibration=0.25), _tensors),
    "chain": Setting(
        lambda: ibcl.IBCL(
            ibcl.networks.linear(2), priors=[1.0, 2.0], pooling="evidence", independent=False
        ),
        _tensors,
    ),
    "table": Setting(_with_encoder, _frames),
}
TASKS = ("north", "south")


@cache
def learnt(name: str, *more: str) -> ibcl.IBCL:
    """A learner of the tasks and of these, made once; nobody may change it."""
    learner = SETTINGS[name].make()
    for seed, task in enumerate(TASKS):
        learner.learn(*SETTINGS[name].rows(seed), task=task)
    for task in more:
        learner.learn(*SETTINGS[name].rows(9), task=task)
    return learner


def contents(folder: Path) -> dict[str, bytes]:
    """Bytes of all files but the empty one that a first save locks a new folder by."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


class Known(NamedTuple):
    """All of a learner, and all that is on disk."""

    manifest: str
    storage: str
    metadata: dict[str, Any]
    revisions: dict[Any, str]
    given: Any
    files: dict[str, bytes]


def known(learner: ibcl.IBCL, folder: Path) -> Known:
    manifest, _ = describe(learner.state, learner.metadata, "exact")
    return Known(
        manifest.checksum,
        learner.storage,
        copy.deepcopy(learner.metadata),
        dict(learner.revisions),
        learner.given,
        contents(folder),
    )


class Refused(NamedTuple):
    """A call that must fail: what is called, with what, and under which circumstances."""

    method: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] | None = None
    during: Callable[[], Any] = nullcontext


class Interrupted(BaseException):
    """Somebody pressed a key."""


def interrupt(_: Any) -> None:
    raise Interrupted


@st.composite
def bad_rows(draw: st.DrawFn, setting: Setting) -> tuple[tuple[Any, Any], dict[str, Any]]:
    """Draw samples in which something is wrong, with the options that go with them."""
    x, y = setting.rows(draw(st.integers(2, 9)))
    row = draw(st.integers(0, SIZE - 1))
    kind = draw(
        st.sampled_from(
            ["cells", "columns", "rows", "no rows", "labels", "number", "weights", "validation"]
        )
    )
    options: dict[str, Any] = {}
    if kind == "cells":
        bad = draw(st.sampled_from([float("inf"), -float("inf")]))
        x = x.copy() if isinstance(x, pd.DataFrame) else x.clone()
        if isinstance(x, pd.DataFrame):
            x.iloc[row, 0] = bad
        else:
            x[row, 0] = draw(st.sampled_from([bad, float("nan")]))
    elif kind == "columns":
        x = x.iloc[:, :1] if isinstance(x, pd.DataFrame) else x[:, :1]
    elif kind == "rows":
        y = y[:row]
    elif kind == "no rows":
        x, y = x[:0], y[:0]
    elif kind == "labels":
        wrong = draw(st.sampled_from([float("nan"), float("inf"), 0.5, -1.0]))
        y = y.double().index_fill(0, torch.tensor([row]), wrong) if isinstance(y, Tensor) else None
    elif kind == "number":
        x = draw(st.sampled_from([None, "rows", 3, {"a": 1}]))
    elif kind == "weights":
        weights = torch.ones(SIZE)
        weights[row] = draw(st.sampled_from([-1.0, float("nan"), float("inf")]))
        options["sample_weight"] = draw(st.sampled_from([weights, weights[:-1], "weights"]))
    else:
        options["validation"] = draw(st.sampled_from([(1,), (x, y, None, None), x]))
    return (x, y), options


@st.composite
def refused(draw: st.DrawFn, name: str, folder: Path) -> Refused:
    """Draw a call that must fail."""
    setting = SETTINGS[name]
    fresh = setting.rows(draw(st.integers(2, 9)))
    (x, y), options = draw(bad_rows(setting))
    batch = {key: value for key, value in options.items() if key != "validation"}
    # A batch or calibration rows have no validation: there, something else is wrong.
    samples = (x, y) if batch or "validation" not in options else (None, None)
    unknown = draw(st.sampled_from(["east", "", "north,south", "North", None, 3]))
    taken = draw(st.sampled_from([*TASKS, "a,b", " north", "", "\x00", "east\n", 5]))
    full_disk = partial(disk, folder, 0)
    last = TASKS[-1]
    kinds: dict[str, list[Refused]] = {
        "learn": [
            Refused("learn", (x, y, "east"), options),
            Refused("learn", (*fresh, taken)),
            Refused("learn", (*fresh, "east"), {"progress": interrupt}),
            Refused("learn", (*fresh, "east"), during=full_disk),
        ],
        "extend": [
            Refused("extend", (*samples, last), batch),
            Refused("extend", (*fresh, "east")),
            Refused("extend", (*fresh, last), {"progress": interrupt}),
            Refused("extend", (*fresh, last), during=full_disk),
        ],
        "replace": [
            Refused("replace", (x, y, last), options),
            Refused("replace", (*fresh, unknown)),
            Refused("replace", (*fresh, last), {"progress": interrupt}),
            Refused("replace", (*fresh, last), during=full_disk),
        ],
        "forget": [
            Refused("forget", (unknown,)),
            Refused("forget", (last, "roughly")),
            Refused("forget", (last,), during=full_disk),
        ],
        "calibrate": [
            Refused("calibrate", (last, *samples)),
            Refused("calibrate", (unknown, *fresh)),
            Refused("calibrate", (last, *fresh), during=full_disk),
        ],
        "adopt": [
            Refused("adopt", (learnt(name),)),
            Refused("adopt", (draw(st.sampled_from([None, "north", 3])),)),
            Refused("adopt", (ibcl.IBCL(ibcl.networks.linear(5)),)),
        ],
        "save": [
            Refused("save", (folder / "learner.ibcl",), {"storage": "float8"}),
            Refused("save", (folder / "foreign", True)),
            Refused("save", (folder / "other.ibcl",)),
            Refused("save", (folder / "new.ibcl",), during=full_disk),
        ],
        "merge": [
            Refused("merge", (learnt(name),)),
            Refused("merge", (draw(st.sampled_from([None, "north"])),)),
            Refused("merge", (setting.make(), "roughly")),
        ],
    }
    if name == "table":
        frame, labels = _frames(3)
        grown = frame.assign(kind="c")
        kinds["make_room"] = [
            Refused("make_room", (grown, pd.Series([float("nan")] * SIZE))),
            Refused("make_room", (grown, labels), during=full_disk),
        ]
    return draw(st.sampled_from(kinds[draw(st.sampled_from(sorted(kinds)))]))


@contextmanager
def saved(name: str) -> Iterator[tuple[ibcl.IBCL, Path]]:
    """A learner that saves itself, beside a folder of somebody else's and one of another base."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        learner = ibcl.IBCL.from_state(learnt(name).state)
        learner.metadata = {"made": ["by", {"hand": 1}]}
        learner.save(folder / "learner.ibcl")
        learner.autosave = folder / "learner.ibcl"
        SETTINGS[name].make().save(folder / "other.ibcl")
        (folder / "foreign").mkdir()
        (folder / "foreign" / "poem.txt").write_text("mine")
        yield learner, folder


@pytest.mark.parametrize("name", SETTINGS)
@settings(max_examples=10, deadline=None)
@given(st.data())
@pytest.mark.slow
def test_a_refused_call_changes_nothing(name: str, data: st.DataObject) -> None:
    with saved(name) as (learner, folder):
        call = data.draw(refused(name, folder))
        before = known(learner, folder)
        work = getattr(learner, call.method, None)
        if call.method == "merge":
            work = lambda *arguments: ibcl.merge(learner, *arguments)  # noqa: E731
        with (
            pytest.raises((ValueError, TypeError, StoreError, OSError, Interrupted)),
            call.during(),
        ):
            work(*call.arguments, **(call.options or {}))
        after = known(learner, folder)
        assert after._replace(files={}) == before._replace(files={})
        assert after.files == before.files
        # It goes on as if nothing had been tried, and so does whoever opens what it saved.
        x, y = SETTINGS[name].rows(9)
        untouched = learnt(name, "west")
        learner.learn(x, y, task="west")
        opened = ibcl.load(folder / "learner.ibcl")
        rows, _ = SETTINGS[name].rows(0)
        expected = untouched.model([0.2, 0.3, 0.5]).predict_proba(rows)
        for known_to in (learner, opened):
            answer = known_to.model([0.2, 0.3, 0.5]).predict_proba(rows)
            torch.testing.assert_close(answer, expected, rtol=0, atol=0)
