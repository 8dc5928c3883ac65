"""What a table means: by name, alike wherever it is read from, and exactly kept."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from ibcl.encoding import Encoder, encoder_of
from ibcl.serve.rows import RowEncoder
from ibcl.tabular import Schema, UnknownCategoriesWarning, ValueTarget, make_head, usable_columns

YES_NO = ["no", "yes", "no", "yes", "no", "yes"]


def homes(seed: int = 0, n: int = 40) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": generator.normal(80, 20, n),
            "rooms": generator.integers(1, 6, n),
            "garden": generator.random(n) < 0.5,
            "town": generator.choice(["Oslo", "Rome", "Lima"], n),
        }
    )
    frame.loc[::7, "area"] = np.nan
    frame.loc[::11, "town"] = None
    return frame


def labels(n: int = 40) -> np.ndarray:
    return np.where(np.arange(n) % 2 == 0, "cheap", "dear")


@pytest.fixture
def schema() -> Schema:
    return Schema.fit(homes(), labels())


def test_it_is_an_encoder_that_is_found_again(schema):
    assert isinstance(schema, Encoder)
    assert encoder_of("tabular", schema.description()) == schema


def test_numbers_are_what_imputer_and_scaler_of_scikit_learn_make_of_them(schema):
    frame, numeric = homes(), ["area", "rooms", "garden"]
    oracle = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    oracle.fit(frame[numeric].astype(float))
    later = homes(1)
    later.loc[3, "rooms"] = np.nan
    expected = oracle.transform(later[numeric].astype(float))
    np.testing.assert_allclose(schema.inputs(later)[:, :3], expected, atol=1e-6)


def test_missing_values_are_indicated_where_the_first_task_had_some(schema):
    frame = homes()
    oracle = MissingIndicator(error_on_new=False).fit(frame[["area", "rooms", "garden"]])
    later = homes(1)
    later.loc[3, "rooms"] = np.nan
    expected = oracle.transform(later[["area", "rooms", "garden"]])
    np.testing.assert_array_equal(schema.inputs(later)[:, 3:4], expected)


def test_categories_are_one_hot_and_unseen_ones_all_zeros(schema):
    frame = homes()
    oracle = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    # For scikit-learn a missing category is one more category, the last.
    oracle.fit(frame[["town"]].fillna("~"))
    later = homes(1)
    later.loc[5, "town"] = "Atlantis"
    expected = oracle.transform(later[["town"]].fillna("~"))
    with pytest.warns(UnknownCategoriesWarning, match=r"1 of 40 rows .* 'town' \(1\)"):
        found = schema.inputs(later)[:, 4:]
    np.testing.assert_array_equal(found, expected)
    assert found[5].sum() == 0


def test_a_category_missing_later_but_never_in_the_first_task_is_all_zeros():
    schema = Schema.fit(pd.DataFrame({"town": ["a", "b"]}), [0, 1])
    assert schema.inputs(pd.DataFrame({"town": [None, "b"]})).tolist() == [[0, 0], [0, 1]]


def test_names_and_not_positions_decide(schema):
    frame = homes(2)
    shuffled = frame[["town", "garden", "rooms", "area"]].assign(colour="red", extra=1.0)
    assert torch.equal(schema.inputs(shuffled), schema.inputs(frame))


def test_the_same_rows_from_csv_parquet_arrow_and_other_dtypes_are_the_same_inputs(
    schema, tmp_path
):
    frame = homes(3)
    expected = schema.inputs(frame)
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    others = [
        pd.read_csv(tmp_path / "t.csv"),
        pd.read_parquet(tmp_path / "t.parquet"),
        pd.read_parquet(tmp_path / "t.parquet", dtype_backend="pyarrow"),
        frame.convert_dtypes(),
        frame.astype(object),
        frame.astype({"town": "category"}),
    ]
    for other in others:
        torch.testing.assert_close(schema.inputs(other), expected, rtol=0, atol=1e-6)
        assert Schema.fit(other, labels()).differences(schema) in ((), ("scaling or categories",))


@pytest.mark.parametrize(
    "column",
    [
        pd.array([1, None, 3, 3], dtype="Int64"),
        np.array([1, None, 3, 3], dtype=object),
        [Decimal(1), None, Decimal(3), Decimal(3)],
        pd.array([1, None, 3, 3], dtype="float32[pyarrow]"),
        np.ma.masked_array([1, 7, 3, 3], [False, True, False, False]),
    ],
)
def test_numbers_in_any_dress(column):
    frame = pd.DataFrame({"a": column})
    if isinstance(column, np.ma.MaskedArray):
        frame = np.ma.masked_array(column.data[:, None], column.mask[:, None])
    inputs = Schema.fit(frame, [0, 1, 0, 1]).inputs(frame)
    plain = np.array([1.0, 3.0, 3.0, 3.0])
    np.testing.assert_allclose(inputs[:, 0], (plain - plain.mean()) / plain.std(), rtol=1e-6)
    assert inputs[:, 1].tolist() == [0, 1, 0, 0]


def test_truth_values_are_numbers_also_where_some_are_missing():
    frame = pd.DataFrame({"a": pd.array([True, None, False, True], dtype="boolean")})
    as_object = pd.DataFrame({"a": np.array([True, None, False, True], dtype=object)})
    schema = Schema.fit(frame, [0, 1, 0, 1])
    assert schema == Schema.fit(as_object, [0, 1, 0, 1])
    assert schema.input_names == ("a", "a is missing")


def test_arrays_and_sparse_matrices_are_known_by_position():
    array = np.random.default_rng(0).normal(size=(20, 3)) * (np.arange(3) > 0)
    schema = Schema.fit(array, np.arange(20) % 2)
    assert schema.names is None
    expected = StandardScaler().fit_transform(array)
    np.testing.assert_allclose(schema.inputs(array), expected, atol=1e-6)
    for same in (sparse.csr_matrix(array), sparse.coo_array(array), pd.DataFrame(array)):
        assert torch.equal(schema.inputs(same), schema.inputs(array))
        assert Schema.fit(same, np.arange(20) % 2) == schema


def test_an_array_is_refused_where_its_meaning_is_not_certain(schema):
    with pytest.raises(ValueError, match="not certain"):
        schema.inputs(homes().to_numpy())
    nameless = Schema.fit(np.eye(3), [0, 1, 0])
    with pytest.raises(ValueError, match="has 2 columns, but 3"):
        nameless.inputs(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="could mean something else"):
        nameless.inputs(pd.DataFrame(np.eye(3), columns=["a", "b", "c"]))


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (homes().drop(columns="rooms"), "no column 'rooms'"),
        (homes().rename(columns={"rooms": "area"}), "more than one column named 'area'"),
        (homes().assign(rooms="many"), "'rooms' must be numbers, but row 1 holds 'many'"),
        (homes().assign(rooms=np.inf), "'rooms' holds a value that is not finite in row 1"),
        (homes().assign(rooms=1e20), "'rooms' holds 1e\\+20 in row 1"),
        (homes().assign(rooms=[[1]] * 40), "'rooms' must be numbers"),
        (homes().assign(rooms=1j), "complex"),
        (homes().assign(rooms=pd.Timestamp(0)), "'rooms' must be numbers"),
        (homes().assign(town=pd.Timestamp(0)), "'town' holds"),
        (homes()["area"], "single column"),
    ],
)
def test_what_cannot_be_applied_is_refused_with_its_reason(schema, frame, words):
    with pytest.raises(ValueError, match=words):
        schema.inputs(frame)


@pytest.mark.parametrize(
    ("column", "words"),
    [
        (pd.to_timedelta(range(6)), "of kind Timedelta"),
        ([pd.Timestamp(0), "x"] * 3, "dates beside other values"),
        ([{"a": 1}] * 6, "of kind dict"),
        ([[1]] * 6, r"'a' holds \[1\]"),
        ([None] * 6, "no value at all"),
        (["\udc80"] * 6, "not valid text"),
        ([b"x"] * 6, "kind bytes"),
        ([f"name {i}" for i in range(6)], None),
    ],
)
def test_columns_that_are_refused_in_the_first_task(column, words):
    frame = pd.DataFrame({"a": pd.Series(column, dtype=getattr(column, "dtype", object))})
    if words is None:
        assert Schema.fit(frame, YES_NO).width == 6
        return
    with pytest.raises(ValueError, match=words):
        Schema.fit(frame, YES_NO)


def test_prose_is_no_category():
    frame = pd.DataFrame({"a": [f"text {i}" for i in range(1001)]})
    with pytest.raises(ValueError, match="1,001 different texts"):
        Schema.fit(frame, np.arange(1001) % 2)


def test_columns_are_chosen_by_themselves_where_nobody_names_them():
    frame = homes().assign(
        when=pd.Timestamp(0), name=[f"home {i}" for i in range(40)], empty=np.nan, same="x"
    )
    frame["tags"] = [["a"]] * 40
    frame["Unnamed: 0"] = range(40)
    used, left_out = usable_columns(frame)
    assert used == ["area", "rooms", "garden", "town", "when", "same"]
    assert left_out == {
        "name": "40 different texts such as 'home 0'",
        "empty": "no values",
        "tags": "values of kind list",
        "Unnamed: 0": "no name, like a written index",
    }
    assert Schema.fit(frame, labels(), features=used).names == tuple(used)
    with pytest.raises(ValueError, match=r"no column beside .*\(tags: values of kind list; name:"):
        usable_columns(frame[["tags", "name"]])


def test_texts_are_categories_where_most_rows_to_come_would_hold_a_known_one():
    generator = np.random.default_rng(0)
    # Drawn from 100 countries, 92 rows hold some 60 of them, of which most stand there again.
    drawn = [f"country {place}" for place in generator.integers(100, size=92)]
    assert len(set(drawn)) > len(drawn) / 2
    assert usable_columns(pd.DataFrame({"a": drawn}))[0] == ["a"]
    mostly_once = [f"ticket {min(row, 60)}" for row in range(92)]
    frame = pd.DataFrame({"a": mostly_once, "b": 1.0})
    assert usable_columns(frame)[1] == {"a": "61 different texts such as 'ticket 0'"}


def test_a_thousand_texts_that_repeat_are_left_out_as_well():
    frame = pd.DataFrame({"a": [f"text {i % 1001}" for i in range(4004)], "b": 1.0})
    assert usable_columns(frame)[1] == {"a": "1,001 different texts such as 'text 0'"}


@pytest.mark.parametrize(
    ("features", "words"),
    [(["area", "area"], "more than once"), (["cellar"], "'cellar'"), ([], "no features")],
)
def test_features_that_make_no_sense(features, words):
    with pytest.raises(ValueError, match=words):
        Schema.fit(homes(), labels(), features=features)


def test_features_are_used_in_the_order_given():
    assert Schema.fit(homes(), labels(), features=["rooms", "area"]).names == ("rooms", "area")


def test_statistics_hold_for_the_largest_and_smallest_numbers():
    for values in ([1e300, -1e308, 1e308, 0.0], [1e-300, 3e-300, 2e-300, 5e-300], [1, 2, 3, 1e20]):
        schema = Schema.fit(np.array(values)[:, None], [0, 1, 0, 1])
        inputs = schema.inputs(np.array(values)[:, None]).double()
        assert float(inputs.mean()) == pytest.approx(0, abs=1e-6)
        assert float(inputs.std(correction=0)) == pytest.approx(1, rel=1e-6)


def test_the_smallest_numbers_there_are_have_a_scale():
    schema = Schema.fit(pd.DataFrame({"a": [5e-324, 0.0] * 20}), YES_NO)
    assert torch.isfinite(schema.inputs(pd.DataFrame({"a": [5e-324, 0.0, 1.0]}))).all()
    assert ValueTarget.fit([5e-324, 0.0], np.ones(2)).scale > 0


def test_a_column_that_does_not_vary_keeps_its_scale():
    schema = Schema.fit(np.full((5, 1), 0.1), [0, 1, 0, 1, 0])
    assert schema.inputs([[0.1], [1.1]]).tolist() == [[0.0], [pytest.approx(1.0)]]


def test_without_standardisation_numbers_stay_as_they_are():
    frame = homes()
    inputs = Schema.fit(frame, labels(), standardise=False).inputs(frame)
    np.testing.assert_array_equal(inputs[:, 1], frame["rooms"])


def test_a_sample_of_weight_two_counts_as_two():
    frame = homes()
    weights = np.random.default_rng(0).integers(1, 4, len(frame))
    repeated = frame.loc[np.repeat(frame.index, weights)]
    values = np.arange(40.0)
    weighted = Schema.fit(frame, values, regression=True, sample_weight=weights.astype(float))
    plain = Schema.fit(repeated, np.repeat(values, weights), regression=True)
    for one, other in zip(
        (*weighted.columns[:3], weighted.target), (*plain.columns[:3], plain.target), strict=True
    ):
        assert one.centre == pytest.approx(other.centre, rel=1e-12)
        assert one.scale == pytest.approx(other.scale, rel=1e-12)
    assert [c.fill for c in weighted.columns[:3]] == [c.fill for c in plain.columns[:3]]


def test_later_tasks_do_not_change_the_schema(schema):
    before = schema.description()
    schema.inputs(homes(4).assign(area=1e6))
    assert schema.description() == before
    with pytest.raises(ValueError, match="frozen"):
        schema.columns = ()


text = st.text(st.characters(codec="utf-8"), max_size=20)
cells = st.one_of(st.floats(allow_nan=False, allow_infinity=False, width=64), st.none())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(text, min_size=1, max_size=3, unique=True),
    st.data(),
    st.booleans(),
)
def test_a_description_comes_back_exactly(names, data, regression):
    columns = {}
    for name in names:
        kind = data.draw(st.sampled_from([cells, st.one_of(text, st.none())]))
        columns[name] = data.draw(st.lists(kind, min_size=6, max_size=6).filter(any_value))
    frame = pd.DataFrame(
        {name: pd.Series(column, dtype=object) for name, column in columns.items()}
    )
    y = [0.1, 2.0, 3.0, 1e300, -5.0, 1e-300] if regression else YES_NO
    schema = Schema.fit(frame, y, regression=regression)
    again = Schema.from_description(json.loads(json.dumps(schema.description())))
    assert again == schema
    assert torch.equal(again.inputs(frame), schema.inputs(frame))
    assert torch.equal(again.labels(y), schema.labels(y))


def any_value(column: list[object]) -> bool:
    return any(value not in (None, "") for value in column)


def spoilt(schema: Schema, *path: object, value: object) -> dict[str, object]:
    description = schema.description()
    place = description
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return description


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("columns", 0, "scale"), 0.0),
        (("columns", 0, "scale"), -1.0),
        (("columns", 0, "scale"), "1"),
        (("columns", 0, "centre"), float("nan")),
        (("columns", 0, "centre"), 10**400),
        (("columns", 0, "centre"), True),
        (("columns", 0, "name"), None),
        (("columns", 0, "name"), "rooms"),
        (("columns", 0, "name"), "x" * 4097),
        (("columns", 0, "kind"), "pickled"),
        (("columns", 0, "more"), 1),
        (("columns", 0, "indicator"), 1),
        (("columns", 3, "categories"), []),
        (("columns", 3, "categories"), ["a", "a"]),
        (("columns", 3, "categories"), ["a", 1]),
        (("columns", 3, "categories"), [str(i) for i in range(1001)]),
        (("columns",), []),
        (("columns",), None),
        (("target", "classes"), []),
        (("target", "classes"), ["one", "one"]),
        (("target", "classes"), [1, "1"]),
        (("target", "classes"), [["a"], ["b"]]),
        (("target", "kind"), "values"),
        (("version",), 2),
        (("version",), object()),
    ],
)
def test_hostile_descriptions_are_refused(schema, path, value):
    with pytest.raises(ValueError, match="describes no schema"):
        Schema.from_description(spoilt(schema, *path, value=value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("columns", 0, "name"), "x" * 4096),
        (("columns", 0, "scale"), 1e-300),
        (("columns", 3, "categories"), [str(i) for i in range(1000)]),
        (("columns", 3, "categories"), ["a"]),
        (("target", "classes"), [-(2**63), 2**64 - 1]),
    ],
)
def test_descriptions_up_to_the_bounds_come_back(schema, path, value):
    description = spoilt(schema, *path, value=value)
    assert repr(Schema.from_description(description).description()) == repr(description)


@pytest.mark.parametrize("description", [None, [], "x", 1, {}, {"columns": {}}])
def test_what_is_no_description_is_refused(description):
    with pytest.raises(ValueError, match="describes no schema"):
        Schema.from_description(description)


def test_a_description_nested_too_deep_is_refused():
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ValueError, match="describes no schema"):
        Schema.from_description({"columns": deep})


def test_what_another_schema_reads_otherwise_is_named(schema):
    frame = homes()
    assert schema.differences(schema) == ()
    assert schema.differences("a schema") == ("columns",)
    assert schema.differences(Schema.fit(frame[["area"]], labels())) == ("columns",)
    assert schema.differences(Schema.fit(frame[3:], labels()[3:])) == ("scaling or categories",)
    other = np.where(labels() == "cheap", "small", "large")
    assert schema.differences(Schema.fit(frame, other)) == ("classes",)
    prices, doubled = (
        Schema.fit(frame, scale * np.arange(40.0), regression=True) for scale in (1, 2)
    )
    assert prices.differences(doubled) == ("scaling of the target",)
    assert prices.differences(schema) == ("classes",)


class OfAnotherLibrary:
    """A table that knows how to become one of pandas."""

    def __init__(self, frame: pd.DataFrame | pd.Series) -> None:
        self.frame = frame

    def to_pandas(self) -> pd.DataFrame | pd.Series:
        return self.frame


def test_tables_of_other_libraries_are_the_same_tables():
    frame = homes()[["rooms", "area"]].dropna()
    of_pandas = Schema.fit(frame, labels()[: len(frame)])
    foreign = OfAnotherLibrary(frame)
    read = Schema.fit(foreign, OfAnotherLibrary(pd.Series(labels()[: len(frame)])))
    assert read == of_pandas
    records = frame.to_records(index=False)
    expected = of_pandas.inputs(frame)
    assert torch.equal(of_pandas.inputs(foreign), expected)
    assert torch.equal(of_pandas.inputs(records), expected)
    grouped = frame.astype({"rooms": "category"})
    assert torch.equal(of_pandas.inputs(grouped), expected)


def test_tensors_and_masked_arrays_are_tables_by_position():
    numbers = homes()[["rooms", "area"]].to_numpy(dtype=np.float64)
    complete = np.nan_to_num(numbers, nan=50.0)
    plain = Schema.fit(complete, labels())
    tensor = torch.tensor(complete, requires_grad=True)
    assert torch.equal(plain.inputs(tensor), plain.inputs(complete))
    masked = np.ma.masked_array(complete, np.isnan(numbers))
    assert Schema.fit(masked, labels()) == Schema.fit(numbers, labels())
    towns = np.ma.masked_array([["Rome"], ["Oslo"], ["Rome"]], [[False], [True], [False]])
    (column,) = Schema.fit(towns, ["a", "b", "a"]).columns
    assert column.categories == ("Rome",)


@pytest.mark.parametrize(
    "dress",
    [
        lambda rows: rows.to(torch.bfloat16),
        lambda rows: rows.to(torch.float8_e4m3fn),
        lambda rows: rows.clone().requires_grad_(),
        lambda rows: rows.to_sparse(),
        lambda rows: rows.to(torch.int8),
    ],
)
def test_tensors_of_any_dtype_and_layout_are_tables_of_their_numbers(dress):
    rows = torch.tensor([[0.0, 1.0], [2.0, 4.0], [8.0, 0.0]])
    expected = Schema.fit(rows.numpy(), [0, 1, 1])
    schema = Schema.fit(dress(rows), dress(torch.tensor([0.0, 1.0, 1.0])))
    assert schema.columns == expected.columns
    assert torch.equal(schema.inputs(dress(rows)), expected.inputs(rows.numpy()))


def test_a_tensor_without_values_is_refused():
    with pytest.raises(ValueError, match="device 'meta'"):
        Schema.fit(torch.empty(3, 2, device="meta"), [0, 1, 1])


def test_a_table_needs_rows_and_names_of_whole_characters():
    with pytest.raises(ValueError, match="no rows"):
        Schema.fit(homes()[:0], [])
    with pytest.raises(ValueError, match="no columns"):
        Schema.fit(homes()[[]], labels())
    with pytest.raises(ValueError, match="character"):
        Schema.fit(pd.DataFrame({"a\ud800": [1, 2]}), [0, 1])


@pytest.mark.parametrize(("outputs", "width"), [(1, 2000), (3, 490)])
def test_the_default_head_is_as_wide_as_asked_where_it_has_one_output(outputs, width):
    """With more, classes times parameters stay below 1500: 500 each, of which 1 bias, 9 inputs."""
    head = make_head("random_features", 9, outputs, width=2000)
    assert head.specification["width"] == width
    assert head.specification["skip"] is True


def test_schemas_are_equal_whatever_they_were_used_for():
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 5.0], "c": ["p", "q"]})
    used, other = Schema.fit(frame, [0, 1]), Schema.fit(frame, [0, 1])
    used.inputs(frame)
    assert used == other
    other.inputs(frame)
    assert used == other
    assert used != Schema.fit(frame, [0, 2])


@given(st.lists(st.floats(-1e9, 1e9), min_size=2, max_size=30))
def test_numbers_that_were_all_the_same_in_the_first_task_stay_in_order_and_small(later):
    schema = Schema.fit(pd.DataFrame({"hours": [3.0, 3.0], "age": [1.0, 5.0]}), ["no", "yes"])
    found = schema.inputs(pd.DataFrame({"hours": later, "age": 2.0})).double().numpy()
    order = np.argsort(later, kind="stable")
    assert (np.diff(found[order, 0]) >= 0).all()
    assert np.abs(found[:, 0]).max() <= 1.001 + np.log(1e9 + 3)
    near = np.abs(np.array(later) - 3) <= 1
    np.testing.assert_allclose(found[near, 0], np.array(later)[near] - 3, atol=1e-6)
    np.testing.assert_allclose(found[:, 1], -0.5)


def test_such_numbers_are_read_alike_in_a_graph_and_row_by_row():
    schema = Schema.fit(pd.DataFrame({"hours": [3.0, 3.0], "age": [1.0, 5.0]}), ["no", "yes"])
    later = pd.DataFrame({"hours": [3.0, 4000.0, np.nan, -1e5], "age": [2.0, 3.0, 1e4, np.nan]})
    wanted = schema.inputs(later)
    torch.testing.assert_close(schema.reader()(torch.tensor(later.to_numpy())), wanted)
    assert torch.equal(RowEncoder(schema)(later.to_numpy().tolist()), wanted)
