"""Rows become the same inputs as a frame, to the last bit, or are left to the schema."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.serve.rows import RowEncoder
from ibcl.tabular import Schema

FIRST = pd.DataFrame(
    {
        "a": [1.0, 2.5, None, -7.0],
        "kind": ["p", None, "q", "p"],
        "b": [10, 20, 30, 1000],
        "c": [0.1, 0.1, 0.1, 0.1],
        "mood": ["x", "y", "x", "y"],
    }
)
NUMBERS = st.none() | st.integers(-(10**6), 10**6) | st.floats(-1e6, 1e6)
WORDS = st.none() | st.sampled_from(["p", "q", "x", "y", "new", ""])


@pytest.mark.filterwarnings("ignore::ibcl.tabular.UnknownCategoriesWarning")
@settings(deadline=None)
@given(st.lists(st.tuples(NUMBERS, WORDS, NUMBERS, NUMBERS, WORDS), min_size=1, max_size=5))
def test_rows_are_encoded_as_the_schema_encodes_a_frame(rows):
    schema = Schema.fit(FIRST, ["n", "y", "n", "y"])
    columns = dict(zip(FIRST.columns, zip(*rows, strict=True), strict=True))
    kinds = {name: object if name in ("kind", "mood") else float for name in columns}
    frame = pd.DataFrame({k: pd.Series(list(v), dtype=kinds[k]) for k, v in columns.items()})
    assert torch.equal(RowEncoder(schema)(rows), schema.inputs(frame))


def test_what_is_not_certain_is_left_to_the_schema():
    encode = RowEncoder(Schema.fit(FIRST, ["n", "y", "n", "y"]))
    good = (1.0, "p", 2.0, 3.0, "x")
    assert encode([good]) is not None
    for position, odd in (
        (0, "1"),
        (0, True),
        (0, 1e300),
        (0, float("inf")),
        (0, 10**400),
        (1, float("inf")),
    ):
        row = list(good)
        row[position] = odd
        assert encode([good, row]) is None


@pytest.mark.filterwarnings("error")
def test_a_number_too_large_to_scale_warns_nobody():
    frame = pd.DataFrame({"a": [1e-3, 2e-3, 4e-3]})
    assert RowEncoder(Schema.fit(frame, ["n", "y", "n"]))([(1.7e308,)]) is None
