"""The same row gets the same answer at every front door, whatever rows are beside it.

On what the defaults make: two tasks of ``ibcl learn`` and of the estimators, of every kind.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ibcl
from homes import COLUMNS, KINDS, OPTIONS, TOWNS, estimator, homes
from ibcl.cli import app
from ibcl.serve import Settings, create_app
from ibcl.serve.rows import rows_frame
from ibcl.tabular import text_of

pytestmark = pytest.mark.filterwarnings("ignore::ibcl.tabular.UnknownCategoriesWarning")

WEIGHTS = {"north": 0.3, "south": 0.7}

Row = tuple[Any, ...]
Door = Callable[[list[Row]], "np.ndarray | None"]
"""What makes one line of numbers of each row, or None where it refuses the rows."""


def numbers(model: Any, rows: Any) -> np.ndarray:
    """Return probabilities, or values as one column."""
    if isinstance(model, ibcl.IBCLRegressor) or not (
        isinstance(model, ibcl.IBCLClassifier) or model.likelihood.classification
    ):
        return np.asarray(model.predict(rows)).reshape(-1, 1)
    return np.asarray(model.predict_proba(rows))


def as_objects(rows: list[Row]) -> pd.DataFrame:
    return rows_frame(COLUMNS, rows)


def as_guessed(rows: list[Row]) -> pd.DataFrame:
    """The frame that pandas makes, with whatever dtypes it finds for these rows."""
    return pd.DataFrame(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))


def as_texts(rows: list[Row]) -> pd.DataFrame:
    """A frame of what a person would write down."""
    return as_objects(
        [tuple(None if missing(value) else text_of(value, "row") for value in row) for row in rows]
    )


def missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def refused(door: Callable[[list[Row]], np.ndarray]) -> Door:
    def ask(rows: list[Row]) -> np.ndarray | None:
        try:
            return door(rows)
        except ValueError:
            return None

    return ask


def doors_of(kind: str, folder: Path) -> Iterator[dict[str, Door]]:
    own = estimator(kind)
    for number, task in enumerate(WEIGHTS):
        frame = homes(kind, number)
        path = folder / f"{task}.{['csv', 'parquet'][number]}"
        frame.to_csv(path, index=False) if number == 0 else frame.to_parquet(path)
        options = OPTIONS.get(kind, []) if number == 0 else []
        run("learn", folder / "kb", path, "--label", "verdict", *options)
        own.partial_fit(frame[COLUMNS], frame["verdict"], task=task)
    file = folder / "model.safetensors"
    run("generate", folder / "kb", "--preference", spoken(), "--output", file)
    learner = ibcl.load(folder / "kb")
    model = learner.model(WEIGHTS)

    def of_file(ending: str) -> Door:
        def ask(rows: list[Row]) -> np.ndarray | None:
            path, output = folder / f"rows{ending}", folder / "out.parquet"
            output.unlink(missing_ok=True)
            if ending == ".csv":
                as_objects(rows).to_csv(path, index=False)
            else:
                as_texts(rows).to_parquet(path)
            words = ["predict", folder / "kb", path, "--preference", spoken(), "--output", output]
            result = CliRunner().invoke(app, [str(word) for word in words])
            if result.exit_code:
                assert result.exit_code == 2, result.output
                return None
            found = pd.read_parquet(output)
            told = [name for name in found if name.startswith("probability_")]
            return found[told or ["prediction"]].to_numpy()

        return ask

    def of_users(rows: list[Row]) -> np.ndarray:
        weights = ibcl.Preference(WEIGHTS)
        return np.asarray(learner.predict_many(as_objects(rows), [weights, weights]))[1]

    with TestClient(create_app(Settings(folder / "kb", data=folder / "data"))) as client:

        def of_service(rows: list[Row]) -> np.ndarray | None:
            plain = [[None if missing(value) else value for value in row] for row in rows]
            named = [dict(zip(COLUMNS, row, strict=True)) for row in json.loads(json.dumps(plain))]
            answer = client.post("/v1/predict", json={"rows": named, "preference": WEIGHTS})
            if answer.status_code != 200:
                assert answer.status_code in (409, 422), answer.text
                return None
            said = answer.json()
            return np.array(said["probabilities"] or said["predictions"]).reshape(len(rows), -1)

        exported = ibcl.load_model(file)
        yield {
            "library, objects": refused(lambda rows: numbers(model, as_objects(rows))),
            "library, guessed": refused(lambda rows: numbers(model, as_guessed(rows))),
            "library, one by one": refused(
                lambda rows: np.concatenate([numbers(model, as_objects([row])) for row in rows])
            ),
            "library, many users": refused(of_users),
            "model file": refused(lambda rows: numbers(exported, as_objects(rows))),
            "estimator": refused(
                lambda rows: numbers(own.set_preference(WEIGHTS), as_objects(rows))
            ),
            "command line, CSV": of_file(".csv"),
            "command line, Parquet": of_file(".parquet"),
            "service": of_service,
        }


def spoken() -> str:
    return ",".join(f"{name}={weight}" for name, weight in WEIGHTS.items())


def run(*words: object) -> None:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module", params=KINDS)
def doors(request, tmp_path_factory) -> Iterator[dict[str, Door]]:
    yield from doors_of(request.param, tmp_path_factory.mktemp("doors"))


SIZES = st.floats(0, 300) | st.integers(0, 300) | st.booleans() | st.sampled_from([1e300, -0.0])
WORDS = st.sampled_from(["12", " 12 ", "1e2", "NA", "nan", "", "true", "x", "1_0", "inf"])
CELLS = (
    SIZES | WORDS,
    st.integers(0, 9) | st.sampled_from([1.0, 1.5, True, "1", "01", "NA"]),
    st.sampled_from([*TOWNS, 1, 1.0, True, "True", "Lima", "", "nan", 2**60, 2**60 + 1, 0.1])
    | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=4),
    st.booleans() | st.sampled_from([0, 1, "true", "FALSE", "0", 1.0, "None"]),
    st.dates().map(str) | st.datetimes().map(str) | st.sampled_from(["NA", "", "soon", "2024"]),
)
GOOD = (
    st.floats(0, 300) | st.integers(0, 300),
    st.integers(0, 4),
    st.sampled_from([*TOWNS, 2**60 + 1]),
    st.booleans(),
    st.dates().map(str),
)
ROW = st.tuples(*(good | odd | st.none() for good, odd in zip(GOOD, CELLS, strict=True)))
ROWS = st.lists(ROW, min_size=1, max_size=3)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=5)
@given(ROWS)
@example([(80.0, 1, 2**60 + 1, True, None), (80.0, 1, 2**60, True, None)])
@example([(True, 1.0, True, 1, None), ("1", "1", "true", "1", None), (1, True, 1, True, "")])
def test_every_front_door_gives_every_row_the_same_answer(doors, rows):
    answers = {name: door(rows) for name, door in doors.items()}
    expected = answers["library, one by one"]
    for name, answer in answers.items():
        assert (answer is None) == (expected is None), (name, answers)
        if expected is not None:
            # Values are answered in single precision, and are millions.
            slack = 2e-7 * max(1.0, 1e6 * (np.abs(expected).max() > 100))
            np.testing.assert_allclose(answer, expected, rtol=2e-6, atol=slack, err_msg=name)
