"""Later tasks add categories and classes, and nothing that was there changes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.tabular import ClassTarget, Schema, input_positions

TOWNS = st.lists(st.none() | st.sampled_from("abcdefgh"), min_size=2, max_size=8)


def table(towns: list[str | None], trades: list[str | None]) -> pd.DataFrame:
    size = max(len(towns), len(trades))
    return pd.DataFrame(
        {
            "town": pd.Series([towns[k % len(towns)] for k in range(size)], dtype=object),
            "age": np.arange(float(size)),
            "trade": pd.Series([trades[k % len(trades)] for k in range(size)], dtype=object),
            "when": pd.Timestamp("2024-01-01"),
        }
    )


@settings(deadline=None, max_examples=25)
@given(
    st.lists(
        st.tuples(TOWNS, TOWNS).filter(lambda t: any(t[0]) and any(t[1])), min_size=2, max_size=4
    )
)
def test_old_rows_keep_their_numbers_at_their_positions(tasks):
    frames = [table(*task) for task in tasks]
    schema = Schema.fit(frames[0], np.arange(len(frames[0])) % 2)
    first, position = schema, np.arange(schema.width)
    for number, frame in enumerate(frames[1:], start=2):
        before = schema.inputs(frames[0])
        schema, step = schema.grown(frame, [f"class {number}"] * len(frame))
        after = schema.inputs(frames[0])
        assert torch.equal(after[:, step], before)
        rest = np.setdiff1d(np.arange(schema.width), step)
        assert not after[:, rest].any()
        assert schema.unknown(frame).columns == {}
        assert schema.classes[-1] == f"class {number}"
        position = step[position]
    assert np.array_equal(position, input_positions(first, schema))
    assert schema.classes[:2] == first.classes
    assert Schema.from_description(json.loads(json.dumps(schema.description()))) == schema


def test_where_nothing_is_new_the_schema_stays():
    frame = table(["a", "b"], ["x", None])
    schema = Schema.fit(frame, ["no", "yes"])
    same, positions = schema.grown(frame[:1], ["yes"])
    assert same is schema
    assert positions.tolist() == list(range(schema.width))


def test_a_larger_schema_is_one_of_its_own():
    """What the smaller one computed once is not taken over."""
    frame = table(["a", "b"], ["x", "y"])
    schema = Schema.fit(frame, ["no", "yes"])
    schema.inputs(frame)
    larger = schema.grown(frame.assign(town="new"), ["perhaps", "no"]).schema
    assert larger.width == schema.width + 1
    assert larger.inputs(frame.assign(town="new"))[0, larger.input_names.index("town=new")] == 1
    assert larger.labels(["perhaps", "yes"]).tolist() == [2, 1]
    assert larger.decode(torch.tensor([2])).tolist() == ["perhaps"]
    with pytest.raises(ValueError, match="'perhaps'"):
        schema.labels(["perhaps"])


def test_how_a_value_is_written_makes_no_new_category_or_class():
    frame = pd.DataFrame({"a": pd.Series([1, 2], dtype="category")})
    schema = Schema.fit(frame, [True, False])
    other = pd.DataFrame({"a": ["1.0", "02", ""]})
    assert schema.grown(other, ["true", "False", True]).schema is schema
    assert ClassTarget.fit([1, 2]).grown([1.0, "2"]).classes == (1, 2)
    assert ClassTarget.fit(["1", "x"]).grown([1, 2]).classes == ("1", "x", "2")


def test_a_first_task_may_have_one_class():
    schema = Schema.fit(np.eye(2), ["a", "a"])
    assert schema.classes == ("a",)
    larger, positions = schema.grown(np.eye(2), ["b", "a"])
    assert larger.classes == ("a", "b")
    assert positions.tolist() == [0, 1]


def test_two_that_grew_from_one_become_one():
    frame = table(["a", "b"], ["x", "y"])
    schema = Schema.fit(frame, ["no", "yes"])
    one = schema.grown(frame.assign(town="c"), ["new", "no"]).schema
    other = schema.grown(frame.assign(town="d", trade="z"), ["no", "other"]).schema
    both, positions = one.united(other)
    assert np.array_equal(positions, input_positions(one, both))
    assert both.classes == ("no", "yes", "new", "other")
    rows = frame.assign(town="d", trade="z")
    assert torch.equal(both.inputs(rows)[:, input_positions(other, both)], other.inputs(rows))
    scaled = Schema.fit(frame.assign(age=[0.0, 9.0]), ["no", "yes"])
    with pytest.raises(ValueError, match="'age'"):
        one.united(scaled)
    with pytest.raises(ValueError, match="differ in their columns"):
        one.united(Schema.fit(frame[["age"]], ["no", "yes"]))
    with pytest.raises(ValueError, match="did not grow from this"):
        input_positions(one, other)


def test_more_categories_than_are_learnt_are_refused():
    schema = Schema.fit(pd.DataFrame({"a": ["x", "y"]}), [0, 1])
    with pytest.raises(ValueError, match="'a' would have 1,001 categories"):
        schema.grown(pd.DataFrame({"a": [f"t{k}" for k in range(999)]}))
