"""One reading of values: whatever a row comes in, and whatever rows are beside it."""

from __future__ import annotations

import datetime
import json
import math
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.serve.rows import RowEncoder, rows_frame
from ibcl.tabular import Schema, csv_blocks, read_csv

pytestmark = pytest.mark.filterwarnings("ignore::ibcl.tabular.UnknownCategoriesWarning")

ODD = ["01", "1", "1.0", "1.10", "NA", "None", "null", "nan", "true", "True", "TRUE", "", " ", "é"]
TEXTS = st.sampled_from(ODD) | st.text(st.characters(codec="utf-8", exclude_categories=["C"]))
WHOLE = st.integers(-(2**53), 2**53) | st.sampled_from([0, 1, 2])
REAL = st.floats(-1e6, 1e6) | st.integers(-(10**7), 10**7).map(float)
NUMBERS = REAL | st.integers(-99, 99) | st.booleans() | st.none() | st.just(float("nan"))
CATEGORIES = TEXTS | WHOLE | REAL | st.booleans() | st.none()
DATES = st.none() | st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)).map(
    lambda moment: moment.isoformat(sep=" ")
)
ROWS = st.lists(st.tuples(NUMBERS, CATEGORIES, DATES), min_size=1, max_size=5)
NAMES = ["number", "category", "when"]


def objects(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    return rows_frame(NAMES, rows)


def guessed(rows: list[tuple[object, ...]]) -> pd.DataFrame:
    """The frame that pandas makes, with whatever dtypes it finds for these rows."""
    return pd.DataFrame(dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True)))


def through_csv(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    texts = [column.name for column in schema.columns if column.kind != "numeric"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "t.csv"
        frame.to_csv(path, index=False)
        whole = read_csv(path, texts)
        blocks = pd.concat(list(csv_blocks(path, texts, rows=2)), ignore_index=True)
    assert torch.equal(schema.inputs(blocks), schema.inputs(whole))
    return whole


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    """Schemas whose categories were texts, numbers, truth values, or all of them."""
    kinds = st.sampled_from([TEXTS, WHOLE, REAL, st.booleans(), CATEGORIES])
    found = draw(st.lists(draw(kinds), min_size=1, max_size=7))
    found = [value for value in found if value not in (None, "")] or ["x"]
    if len({*map(type, found)}) > 1:
        found.append("x")
    found += [None] * draw(st.integers(0, 1))
    column = pd.Series(found, dtype=object)
    frame = pd.DataFrame({"number": np.arange(float(len(found)))})
    # Values of one kind are categories where the dtype says so.
    frame["category"] = column if "x" in found else column.astype("category")
    frame["when"] = pd.date_range("2020-01-01", periods=len(found))
    if column.isna().any():
        frame.loc[len(found) - 1, ["number", "when"]] = None
    return Schema.fit(frame, np.arange(len(frame)), classes=range(9))


@settings(deadline=None, max_examples=40)
@given(schemas(), ROWS)
def test_no_row_depends_on_its_batch(schema, rows):
    together = schema.inputs(objects(rows))
    for frame in (objects, guessed):
        alone = torch.cat([schema.inputs(frame([row])) for row in rows])
        assert torch.equal(alone, together)


@settings(deadline=None, max_examples=40)
@given(schemas(), ROWS)
def test_every_front_door_reads_the_same_row(schema, rows):
    expected = schema.inputs(objects(rows))
    frame = objects(rows)
    assert torch.equal(schema.inputs(through_csv(frame, schema)), expected)
    plain = [[None if value != value else value for value in row] for row in rows]
    sent = json.loads(json.dumps(plain))
    assert torch.equal(schema.inputs(objects(sent)), expected)
    direct = RowEncoder(schema)(sent)
    assert direct is None or torch.equal(direct, expected)
    again = Schema.from_description(json.loads(json.dumps(schema.description())))
    assert torch.equal(again.inputs(frame), expected)


@settings(deadline=None, max_examples=30)
@given(schemas(), st.data())
def test_what_was_learnt_is_never_unknown_however_it_is_written(schema, data):
    category = schema.columns[1]
    texts = data.draw(st.lists(st.sampled_from(category.categories), min_size=1, max_size=4))
    frame = objects([(1.0, text, None) for text in texts])
    for other in (frame, through_csv(frame, schema), frame.convert_dtypes()):
        assert schema.unknown(other).columns == {}


@pytest.mark.parametrize(
    ("learnt", "given"),
    [
        ([True, False], ["True", "true", "TRUE", True, np.True_, 1, "1", 1.0]),
        ([1, 2], [1, 1.0, "1", "1.0", "01", np.int8(1), np.float32(1)]),
        ([0.1, 2], [0.1, "0.1", np.float32(0.1), "0.10"]),
        (["1", "x"], [1, 1.0, "1", "1.0"]),
        (["True", "x"], [True, "True", "true", "TRUE"]),
    ],
)
def test_values_that_are_one(learnt, given):
    column = pd.Series(learnt, dtype=object).astype("category")
    schema = Schema.fit(pd.DataFrame({"a": column}), [0, 1])
    rows = [schema.inputs(pd.DataFrame({"a": pd.Series([v], dtype=object)})) for v in given]
    for row in rows:
        assert torch.equal(row, rows[0])
        assert row.sum() == 1


@pytest.mark.parametrize(
    ("learnt", "others"),
    [
        ([True, 1, "x"], [(True, 1), ("true", "1")]),
        (["01", "1"], [("01", "1"), ("01", 1)]),
        (["3.1", "3.10"], [("3.1", "3.10")]),
        (
            ["NA", "None", "null", "nan"],
            [("NA", "None"), ("null", "nan"), ("NA", None), ("NA", "")],
        ),
    ],
)
def test_values_that_are_two(learnt, others):
    frame = pd.DataFrame({"a": pd.Series([*learnt, None], dtype=object)})
    schema = Schema.fit(frame, range(len(frame)))
    for pair in others:
        one, other = schema.inputs(pd.DataFrame({"a": pd.Series(pair, dtype=object)}))
        assert not torch.equal(one, other)
        assert one.sum() == other.sum() == 1


@pytest.mark.parametrize("word", ["NA", "", " ", "None", "null", "nan", "N/A", None, math.nan])
def test_in_a_column_of_numbers_the_words_for_a_missing_one_are_missing(word):
    schema = Schema.fit(pd.DataFrame({"a": [1.0, 3.0, None]}), [0, 1, 0])
    rows = pd.DataFrame({"a": pd.Series([word, 3.0], dtype=object)})
    assert schema.inputs(rows)[:, 1].tolist() == [1, 0]
    assert Schema.fit(rows, [0, 1]).columns[0].kind == "numeric"


def test_dtypes_of_one_meaning_agree():
    plain = pd.DataFrame(
        {
            "whole": [1, 2, 3, 4],
            "real": [0.5, 1.5, 2.5, 3.5],
            "truth": [True, False, True, True],
            "text": ["a", "b", "a", "c"],
            "when": pd.date_range("2024-01-01", periods=4, freq="5h"),
        }
    )
    y = [0, 1, 0, 1]
    schema = Schema.fit(plain, y)
    assert [column.kind for column in schema.columns] == [*["numeric"] * 3, "categorical", "date"]
    dressed = [
        plain.astype(object),
        plain.convert_dtypes(),
        plain.convert_dtypes(dtype_backend="pyarrow"),
        plain.astype({"whole": "Int64", "real": "Float64", "truth": "boolean", "text": "string"}),
        plain.astype({"text": "category", "whole": float, "truth": object}),
        plain.assign(when=plain["when"].dt.tz_localize("UTC")),
        plain.assign(when=plain["when"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")),
        plain.assign(when=plain["when"].astype(str)),
        plain.assign(when=" " + plain["when"].astype(str)),
    ]
    for other in dressed:
        assert Schema.fit(other, y) == schema
        assert torch.equal(schema.inputs(other), schema.inputs(plain))


def test_dates_are_the_calendar_of_pandas():
    when = pd.Series(pd.date_range("1999-12-30 22:10", periods=50, freq="37h"))
    schema = Schema.fit(pd.DataFrame({"when": when}), np.arange(50) % 2, standardise=False)
    oracle = np.column_stack(
        [
            when.dt.year,
            when.dt.month,
            when.dt.day_of_week,
            when.dt.hour,
            (when - when.min()) / pd.Timedelta(days=1),
        ]
    )
    np.testing.assert_allclose(schema.inputs(pd.DataFrame({"when": when})), oracle, rtol=1e-6)
    assert schema.input_names[0] == "when year"
    scaled = Schema.fit(pd.DataFrame({"when": when}), np.arange(50) % 2)
    later = scaled.inputs(pd.DataFrame({"when": ["2150-01-01T00:00:00Z", None, "NA"]}))
    assert later[1:].abs().sum() == 0
    with pytest.raises(ValueError, match=r"'when' must be dates .* row 1 holds 'soon'"):
        scaled.inputs(pd.DataFrame({"when": ["soon"]}))


def test_schemas_stored_before_there_was_one_reading_answer_as_they_did():
    description = {
        "version": 1,
        "columns": [
            {
                "name": "n",
                "indicator": True,
                "kind": "numeric",
                "centre": 0.0,
                "scale": 1.0,
                "fill": 2.0,
            },
            {
                "name": "c",
                "indicator": True,
                "kind": "categorical",
                "categories": ["", "1", "1.0", "True", "true"],
            },
        ],
        "target": {"kind": "classes", "classes": ["a", "b"]},
    }
    schema = Schema.from_description(description)
    given = ["", "1", "1.0", "True", "true", None, 1, True]
    rows = schema.inputs(objects_of("n", "c", given))
    assert rows[:, 2:].argmax(1).tolist() == [0, 1, 2, 3, 4, 5, 1, 4]
    assert rows[:, 2:].sum(1).tolist() == [1] * 8


def objects_of(number: str, category: str, given: list[object]) -> pd.DataFrame:
    return pd.DataFrame({number: 1.0, category: pd.Series(given, dtype=object)})


def test_most_categories_unknown_is_said():
    frame = pd.DataFrame({"a": ["p", "q"], "b": ["x", "y"], "c": ["u", "v"]})
    schema = Schema.fit(frame, [0, 1])
    rows = pd.DataFrame({"a": ["p", "?", "?"], "b": ["x", "y", "?"], "c": ["u", "u", None]})
    found = schema.unknown(rows)
    assert found.columns == {"a": 2, "b": 1}
    assert found.rows.tolist() == [False, False, True]
