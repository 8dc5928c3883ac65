"""A call that is refused changes nothing, at any front door and for every kind of task."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

import ibcl
from homes import COLUMNS, KINDS, OPTIONS, estimator, homes
from ibcl.cli import app
from ibcl.serve import Settings, create_app

TASKS = ("north", "south")


class Call(NamedTuple):
    """What a task is learnt from."""

    frame: pd.DataFrame
    y: Any
    weights: Any
    task: Any


def valid(kind: str) -> Call:
    frame = homes(kind, 2, 30)
    return Call(frame[COLUMNS], frame["verdict"], np.ones(30), "east")


def with_value(name: str, value: Any) -> Callable[[Call], Call]:
    """Put a value into the last but one row, behind rows that are good."""

    def change(call: Call) -> Call:
        frame = call.frame.astype({name: object})
        frame.loc[28, name] = value
        return call._replace(frame=frame)

    return change


def with_label(value: Any) -> Callable[[Call], Call]:
    def change(call: Call) -> Call:
        y = call.y.astype(object)
        y[28] = value
        return call._replace(y=y)

    return change


def with_weight(value: float) -> Callable[[Call], Call]:
    return lambda call: call._replace(weights=np.append(call.weights[:-1], value))


FAULTS: dict[str, Callable[[Call], Call]] = {
    "a column is lacking": lambda call: call._replace(frame=call.frame.drop(columns="floor")),
    "an infinite number": with_value("size", np.inf),
    "a number too large": with_value("size", 1e300),
    "no number": with_value("size", "large"),
    "no date": with_value("sold", "soon"),
    "a label is missing": with_label(None),
    "a label of 5,000 characters": with_label("x" * 5000),
    "fewer labels than rows": lambda call: call._replace(y=call.y[:-1]),
    "a negative weight": with_weight(-1),
    "a missing weight": with_weight(np.nan),
    "only weights of zero": lambda call: call._replace(weights=0 * call.weights),
    "no rows": lambda call: call._replace(frame=call.frame[:0], y=call.y[:0], weights=[]),
    "a comma in the name": lambda call: call._replace(task="east, west"),
    "no printable name": lambda call: call._replace(task="\n"),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def learnt(kind):
    found = estimator(kind)
    for number, task in enumerate(TASKS):
        frame = homes(kind, number)
        found.partial_fit(frame[COLUMNS], frame["verdict"], task=task)
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_of_the_library(kind, learnt, fault):
    learner = ibcl.IBCL.from_state(learnt.learner_.state)
    call = FAULTS[fault](valid(kind))
    named = "name" in fault
    for action, task in (
        (learner.learn, call.task),
        (learner.extend, call.task if named else "south"),
        (learner.replace, call.task if named else "south"),
    ):
        before = learner.state
        with pytest.raises(ValueError, match=r"\.$"):
            action(call.frame, call.y, task=task, sample_weight=call.weights)
        assert learner.state is before


def behind(good: Call, call: Call) -> Call:
    """Let a task that could be learnt go before."""
    return Call(
        pd.concat([good.frame.astype(object), call.frame.astype(object)]).infer_objects(),
        pd.concat([good.y.astype(object), call.y], ignore_index=True),
        np.append(good.weights, call.weights),
        ["west"] * len(good.y) + ["east"] * len(call.y),
    )


@pytest.mark.parametrize("fault", FAULTS)
def test_of_the_estimators(kind, learnt, fault):
    found = copy.copy(learnt)
    state, attributes = found.learner_.state, dict(vars(found))
    call = FAULTS[fault](valid(kind))
    calls = [(found.partial_fit, call)]
    if not any(word in fault for word in ("name", "lacking", "fewer", "zero", "no rows")):
        both = behind(valid(kind), call)
        calls += [(found.partial_fit, both), (found.fit, both)]
    for action, (frame, y, weights, task) in calls:
        with pytest.raises(ValueError, match=r"\w"):
            action(frame, y, task=task, sample_weight=weights)
        assert found.learner_.state is state
        assert vars(found) == attributes


@pytest.fixture(scope="module", params=["three classes", "values"])
def base(request, tmp_path_factory) -> Path:
    kind = request.param
    folder = tmp_path_factory.mktemp("refused")
    for number, task in enumerate(TASKS):
        homes(kind, number).to_parquet(folder / f"{task}.parquet")
        words = ["learn", folder / "kb", folder / f"{task}.parquet", "--label", "verdict"]
        words += OPTIONS.get(kind, []) if number == 0 else []
        assert CliRunner().invoke(app, list(map(str, words))).exit_code == 0
    return folder / "kb"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != "fewer labels than rows"])
def test_of_the_command_line(base, fault, tmp_path):
    kind = "three classes" if ibcl.load(base).encoder.classes else "values"
    call = FAULTS[fault](valid(kind))
    frame = call.frame.assign(verdict=call.y, weight=call.weights)
    path = tmp_path / "east.csv"
    frame.to_csv(path, index=False)
    before = contents(base)
    words = ["learn", base, path, "--label", "verdict", "--sample-weight", "weight"]
    attempts: list[list[Any]] = [["--task", call.task]]
    if "name" not in fault:
        # The first of two files could be learnt.
        good = tmp_path / "west.csv"
        valid(kind).frame.assign(verdict=valid(kind).y, weight=1.0).to_csv(good, index=False)
        attempts = [[], ["--task", "south", "--extend"], ["--task", "south", "--replace"]]
        words_of_two = ["learn", base, good, *words[2:]]
        result = CliRunner().invoke(app, list(map(str, words_of_two)))
        assert (result.exit_code, contents(base) == before) == (2, True), result.output
    for options in attempts:
        result = CliRunner().invoke(app, [str(word) for word in (*words, *options)])
        assert result.exit_code == 2, result.output
        assert contents(base) == before


ROW = {"size": 70.0, "floor": 1, "town": "Oslo", "garden": True, "sold": "2021-01-01"}
EVEN = {"north": 0.5, "south": 0.5}
BAD_ROWS = [
    ROW | {"size": "large"},
    ROW | {"size": 1e300},
    ROW | {"sold": "soon"},
    ROW | {"town": ["Oslo"]},
    {"size": 1.0},
]
USER = "/v1/users/ann"
REFUSED: list[tuple[str, str, Any]] = [
    ("PUT", f"{USER}/preference", {"north": 0.5, "south": 0.4}),
    ("PUT", f"{USER}/preference", {"north": -1, "south": 2}),
    ("PUT", f"{USER}/preference", {"north": 0.5, "west": 0.5}),
    ("PUT", f"{USER}/preference", []),
    ("POST", f"{USER}/infer", {"rows": [ROW], "labels": ["never seen", 1]}),
    ("POST", "/v1/versions/0123456789abcdef/activate", None),
    ("DELETE", "/v1/users/nobody", None),
    *(("POST", f"{USER}/infer", {"rows": [ROW, row], "restart": True}) for row in BAD_ROWS),
    *(("POST", "/v1/predict", {"rows": [ROW, row], "user": "ann"}) for row in BAD_ROWS),
]


def test_of_the_service(base, tmp_path):
    settings = Settings(base, data=tmp_path)
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        assert client.put(f"{USER}/preference", json=EVEN).status_code == 200
        assert client.post(f"{USER}/infer", json={"rows": [ROW]}).status_code == 200

        def known() -> list[Any]:
            return [client.get(path).json() for path in (USER, "/v1/tasks", "/v1/versions")]

        before = known()
        for method, path, body in REFUSED:
            headers = {"Content-Type": "application/json"}
            answer = client.request(method, path, json=body, headers=headers)
            assert 400 <= answer.status_code < 500, (method, path, body, answer.text)
            assert known() == before
    assert ibcl.load(base).tasks == TASKS
