import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl import Preference, sample_preferences
from ibcl.preference import preference_grid, preference_matrix

TASKS = ["sci-fi", "documentary"]


@pytest.mark.parametrize(
    "value",
    [
        {"sci-fi": 0.8, "documentary": 0.2},
        {"documentary": 0.2, "sci-fi": 0.8},
        [0.8, 0.2],
        (0.8, 0.2),
        np.array([0.8, 0.2]),
        np.array([0.8, 0.2], dtype=np.float32),
        "sci-fi=0.8,documentary=0.2",
        " documentary = 0.2 , sci-fi = 0.8 ",
        "0.8, 0.2",
        Preference({"sci-fi": 0.8, "documentary": 0.2}),
        torch.tensor([0.8, 0.2], requires_grad=True),
        pd.Series([0.8, 0.2]),
        pd.Series({"documentary": 0.2, "sci-fi": 0.8}),
        pd.Series({"documentary": 0.2, "sci-fi": 0.8}, dtype="Float64"),
    ],
)
def test_every_way_to_write_a_preference_means_the_same(value):
    preference = Preference.parse(value, TASKS)
    assert list(preference) == TASKS
    np.testing.assert_allclose(preference.vector(), [0.8, 0.2], atol=1e-7)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([0.8, 0.3], "sum to 1.1"),
        ([1.2, -0.2], "not negative"),
        ([math.nan, 1.0], "finite"),
        ([math.inf, 0.0], "finite"),
        ([1.0], "1 weights, but there are 2 tasks"),
        ([[0.5, 0.5]], r"one vector of weights, but these have the shape \(1, 2\)"),
        ({"sci-fi": 1.0}, "leaves out documentary"),
        ({"sci-fi": 0.5, "documentary": 0.5, "drama": 0.0}, "Unknown task drama"),
        ({"sci-fi": "much", "documentary": 0.2}, "must be a number"),
        ("sci-fi=0.5,sci-fi=0.5", "more than once"),
        ("sci-fi:0.8", "Cannot read the preference"),
        ("", "0 weights"),
        (None, "weights|preference"),
        (pd.Series([0.5, 0.5], index=["sci-fi", "sci-fi"]), "more than once"),
        (pd.Series({"sci-fi": 0.5, "drama": 0.5}), "Unknown task drama"),
        ("sci-fi=0.8,documentary=abc", "must be a number"),
    ],
)
def test_what_is_no_preference_is_refused_in_a_sentence(value, message):
    with pytest.raises(ValueError, match=message):
        Preference.parse(value, TASKS)


@pytest.mark.parametrize(
    "value",
    [
        {2021: 0.2, 2020: 0.8},
        {np.int64(2020): 0.8, "2021": 0.2},
        pd.Series([0.2, 0.8], index=[2021, 2020]),
        pd.Series([0.8, 0.2]),
    ],
)
def test_tasks_that_are_called_by_numbers_are_found_by_them(value):
    assert dict(Preference.parse(value, ["2020", "2021"])) == {"2020": 0.8, "2021": 0.2}


def test_numbers_are_names_where_tasks_are_called_so():
    counted = pd.Series([0.8, 0.2])
    assert dict(Preference.parse(counted, ["1", "0"])) == {"1": 0.2, "0": 0.8}
    table = pd.DataFrame([[0.75, 0.25]], columns=[2021, 2020])
    assert preference_matrix(table, ["2020", "2021"]).tolist() == [[0.25, 0.75]]
    with pytest.raises(ValueError, match="more than once"):
        Preference.parse({1: 0.5, "1": 0.5}, ["1"])
    with pytest.raises(ValueError, match="Unknown task 5, 6; known tasks are a, b"):
        Preference.parse(pd.Series([0.8, 0.2], index=[5, 6]), ["a", "b"])


def test_a_preference_needs_tasks():
    with pytest.raises(ValueError, match="no task yet"):
        Preference.parse([1.0], [])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.integers(0, 99))
def test_text_and_back(weights, seed):
    tasks = [f"t{i}" for i in range(len(weights))]
    vector = sample_preferences(len(weights), 1, seed)[0]
    text = ",".join(f"{t}={w!r}" for t, w in zip(tasks, vector.tolist(), strict=True))
    assert np.array_equal(Preference.parse(text, tasks).vector(), vector)


@given(st.integers(1, 6), st.integers(0, 20), st.sampled_from([None, 0.2, 5.0]))
def test_sampled_preferences_lie_on_the_simplex_and_follow_the_seed(tasks, n, concentration):
    draws = sample_preferences(tasks, n, seed=3, concentration=concentration)
    assert draws.shape == (n, tasks)
    assert (draws >= 0).all()
    np.testing.assert_allclose(draws.sum(1), 1)
    assert np.array_equal(draws, sample_preferences(tasks, n, 3, concentration))


@given(st.integers(1, 4), st.integers(1, 5))
def test_a_grid_holds_every_multiple_once(tasks, steps):
    grid = preference_grid(tasks, steps)
    assert len(grid) == math.comb(steps + tasks - 1, tasks - 1)
    assert len({tuple(row) for row in grid.round(9)}) == len(grid)
    np.testing.assert_allclose(grid.sum(1), 1)


def test_many_preferences_are_checked_one_by_one():
    assert preference_matrix([[0.5, 0.5], "sci-fi"], TASKS).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    for bad in (np.array([[0.5, 0.6]]), np.array([[1.5, -0.5]]), np.array([[math.nan, 1.0]])):
        with pytest.raises(ValueError, match=r"sum to|negative|finite"):
            preference_matrix(bad, TASKS)


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([[0.75, 0.25], [0.0, 1.0]], dtype=torch.bfloat16),
        pd.DataFrame([[0.75, 0.25], [0.0, 1.0]]),
        pd.DataFrame([[0.25, 0.75], [1.0, 0.0]], columns=TASKS[::-1]),
        iter([[0.75, 0.25], "documentary"]),
    ],
)
def test_a_matrix_with_names_is_read_by_them(values):
    assert preference_matrix(values, TASKS).tolist() == [[0.75, 0.25], [0.0, 1.0]]


@pytest.mark.parametrize(
    "one",
    [
        {"sci-fi": 0.8, "documentary": 0.2},
        pd.Series({"sci-fi": 0.8, "documentary": 0.2}),
        "sci-fi",
        None,
        1.0,
        np.array(1.0),
    ],
)
def test_one_preference_is_not_taken_for_many(one):
    """Going through a mapping gives its keys, which are the names of vertices."""
    with pytest.raises(ValueError, match="as a list or a matrix"):
        preference_matrix(one, TASKS)


def test_a_table_of_other_tasks_is_refused():
    with pytest.raises(ValueError, match="Unknown task drama"):
        preference_matrix(pd.DataFrame([[0.5, 0.5]], columns=["sci-fi", "drama"]), TASKS)


def test_zero_has_no_sign():
    assert str(Preference({"a": -0.0, "b": 1.0})) == "a=0,b=1"


def test_no_preferences_are_a_matrix_without_rows():
    for none in ([], (), np.zeros((0, 2))):
        assert preference_matrix(none, TASKS).shape == (0, 2)


READERS = [
    lambda weights, **settings: Preference.parse(weights, TASKS, **settings).vector(),
    lambda weights, **settings: preference_matrix(np.array([weights]), TASKS, **settings)[0],
    lambda weights, **settings: preference_matrix([weights], TASKS, **settings)[0],
]


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("off", [9e-7, -9e-7])
def test_what_single_precision_does_to_a_sum_is_kept(read, off):
    assert np.array_equal(read([0.5, 0.5 + off]), [0.5, 0.5 + off])


@pytest.mark.parametrize("read", READERS)
@given(st.floats(0, 1), st.floats(-1e-4, 1e-4))
def test_rounding_to_four_digits_is_undone_and_nothing_else(read, first, off):
    weights = [first, max(0.0, 1 + off - first)]
    found = read(weights)
    assert abs(found.sum() - 1) <= 1e-6
    np.testing.assert_allclose(found, np.array(weights) / sum(weights), atol=1e-6)
    for worse in ([first, 1 - first + 1.2e-4], [0.6 * (1 - 1.2e-4), 0.4 * (1 - 1.2e-4)]):
        with pytest.raises(ValueError, match="sum to 1"):
            read(worse)


@pytest.mark.parametrize("weights", [[0.5, 0.4999], [0.5, 0.5001], [1.0001, 0.0]])
def test_the_bounds_of_rounding_themselves_are_accepted(weights):
    for read in READERS:
        assert read(weights).sum() == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("read", READERS)
def test_weights_are_divided_by_their_sum_where_that_is_wanted(read):
    assert read([3, 1], normalise=True).tolist() == [0.75, 0.25]
    assert read([1e308, 1e308], normalise=True).tolist() == [0.5, 0.5]
    assert read([0.2, 0.0], normalise=True).tolist() == [1.0, 0.0]
    for bad, words in (([0, 0], "all zero"), ([2, -1], "negative"), ([math.inf, 1], "finite")):
        with pytest.raises(ValueError, match=words):
            read(bad, normalise=True)


def test_the_row_and_the_user_of_a_wrong_preference_are_named():
    rows = [[0.5, 0.5], [0.5, 0.6]]
    for values in (rows, np.array(rows), pd.DataFrame(rows, columns=TASKS)):
        with pytest.raises(ValueError, match=r"Row 2, user 'NA': .* sum to 1\.1"):
            preference_matrix(values, TASKS, users=["ann", "NA"])
        with pytest.raises(ValueError, match="Row 2: "):
            preference_matrix(values, TASKS)


def test_a_weight_of_exactly_zero_is_none_of_the_mistakes():
    assert preference_matrix(np.array([[1.0, 0.0], [0.0, 1.0]]), TASKS).tolist() == [[1, 0], [0, 1]]
    assert Preference.parse([0.0, 1.0], TASKS)["sci-fi"] == 0
    with pytest.raises(ValueError, match="not negative"):
        preference_matrix(np.array([[1.0, 0.0], [1 + 1e-9, -1e-9]]), TASKS)


def test_matrices_are_read_as_they_are():
    matrix = np.array([[0.25, 0.75]], dtype=np.float32)
    read = preference_matrix(matrix, TASKS)
    assert read.dtype == np.float64
    assert read.tolist() == [[0.25, 0.75]]
    with pytest.raises(ValueError, match="1 weights, but there are 2 tasks"):
        preference_matrix(np.array([[1.0]]), TASKS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seed": "a"}, "seed must be a whole number"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"concentration": "sparse"}, "concentration must be positive"),
        ({"concentration": 0}, "concentration must be positive"),
        ({"concentration": float("nan")}, "concentration must be positive"),
        ({"concentration": float("inf")}, "concentration must be positive"),
    ],
)
def test_seeds_and_concentrations_that_mean_nothing_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        sample_preferences(2, 3, **settings)


@pytest.mark.parametrize(("tasks", "n"), [(0, 1), (2, -1), (2, 1.5), (1.5, 2)])
def test_what_cannot_be_drawn_is_refused(tasks, n):
    with pytest.raises(ValueError, match="Cannot draw"):
        sample_preferences(tasks, n)
    with pytest.raises(ValueError, match="Cannot lay a grid"):
        preference_grid(tasks, n)
    with pytest.raises(ValueError, match="Cannot lay a grid"):
        preference_grid(2, 0)
    assert preference_grid(1, 3).tolist() == [[1.0]]
    assert preference_grid(3, 1).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]


def test_a_preference_is_a_mapping_that_can_be_a_key():
    one, same = (Preference({"a": 0.5, "b": 0.5}) for _ in range(2))
    assert one == same
    assert hash(one) == hash(same)
    assert len(one) == 2
    assert repr(one) == "Preference({'a': 0.5, 'b': 0.5})"
    assert Preference.parse("a=b=0.25,c=0.75", ["a=b", "c"]).vector().tolist() == [0.25, 0.75]
