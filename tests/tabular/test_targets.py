"""Labels of any kind are classes, many numbers are not, and values keep their units."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from ibcl.tabular import ClassTarget, Schema, ValueTarget, sample_weights


def fitted(y, **settings) -> Schema:
    return Schema.fit(np.arange(float(len(y)))[:, None], y, **settings)


@pytest.mark.parametrize(
    "y",
    [
        np.array([True, False, True]),
        np.array([3, -1, 3]),
        np.array([2.0, 1.0, 2.0]),
        np.array(["b", "a", "b"]),
        np.array(["b", 1, "b"], dtype=object),
        pd.Series(["b", "a", "b"], dtype="category"),
        pd.Series([1, 2, 1], dtype="Int64"),
        pd.Series([True, False, True], dtype="boolean"),
        pd.DataFrame({"y": ["b", "a", "b"]}),
        torch.tensor([0, 1, 0]),
        np.array([["b"], ["a"], ["b"]]),
    ],
)
def test_classes_of_any_kind_come_back_as_they_were(y):
    schema = fitted(y)
    again = Schema.from_description(json.loads(json.dumps(schema.description())))
    expected = np.asarray(y).ravel()
    for one in (schema, again):
        numbers = one.labels(y)
        assert sorted(set(numbers.tolist())) == [0, 1]
        decoded = one.decode(numbers)
        assert decoded.tolist() == expected.tolist()
        assert [type(value) for value in one.classes] == [type(v) for v in schema.classes]
    assert list(schema.classes) == sorted(set(expected.tolist()), key=str)


def test_the_same_label_is_the_same_class_in_any_dress():
    schema = fitted(np.array([1, 2, 10]))
    for same in ([1.0, 2.0, 10.0], ["1", "2", "10"], pd.array([1, 2, 10], dtype="Int64")):
        assert schema.labels(same).tolist() == [0, 1, 2]
    assert fitted(["false", "true"]).labels([True, False]).tolist() == [1, 0]


def test_named_classes_keep_their_order_and_are_read_as_what_labels_are():
    assert fitted(["b", "a"], classes=["c", "b", "a"]).classes == ("c", "b", "a")
    assert fitted([0, 1], classes=["1", "0", "2"]).classes == (1, 0, 2)
    assert fitted([True, False], classes=["false", "true"]).classes == (False, True)
    assert fitted([0.5, 1.5], classes=["0.5", "1.5", "2.5"]).classes == (0.5, 1.5, 2.5)


@pytest.mark.parametrize(
    ("y", "words"),
    [
        (["a", ""], "1 missing values, the first in row 2"),
        (["a", None], "1 missing values, the first in row 2"),
        ([0.5, 1.0], "real numbers"),
        (np.ma.masked_array([0, 1, 0], [False, True, False]), "missing values"),
        (np.zeros((3, 2)), "one value per row"),
        (pd.date_range("2020", periods=3), "holds"),
        ([b"a", b"b"], "bytes"),
    ],
)
def test_labels_that_are_no_classes(y, words):
    with pytest.raises(ValueError, match=words):
        fitted(y)


def test_an_unseen_label_is_refused():
    with pytest.raises(ValueError, match="'c' is not one of the classes 'a', 'b'"):
        fitted(["a", "b"]).labels(["a", "c"])


@pytest.mark.parametrize(
    ("distinct", "rows", "refused"),
    [(140, 207, True), (21, 209, True), (21, 210, False), (20, 20, False), (100, 1000, False)],
)
def test_many_different_numbers_are_values(distinct, rows, refused):
    y = np.arange(rows) % distinct
    if refused:
        with pytest.raises(ValueError, match=f"{distinct} different numbers.*regression=True"):
            fitted(y)
    else:
        assert len(fitted(y).classes) == distinct
    assert len(fitted(y, classes=range(distinct)).classes) == distinct
    assert len(fitted(y.astype(str)).classes) == distinct
    assert fitted(y, regression=True).classes is None


def test_values_are_scaled_and_come_back_in_their_own_units():
    y = np.random.default_rng(0).normal(5e4, 2e3, 200)
    schema = fitted(y, regression=True)
    expected = StandardScaler().fit_transform(y[:, None])[:, 0]
    np.testing.assert_allclose(schema.labels(y), expected, atol=1e-9)
    np.testing.assert_allclose(schema.decode(schema.labels(y)), y, rtol=1e-12)
    assert schema.scale == pytest.approx(y.std())
    assert schema.classes is None
    unscaled = fitted(y, regression=True, scale_target=False)
    assert (unscaled.scale, unscaled.labels(y).tolist()) == (1.0, y.tolist())


def test_targets_must_be_finite_numbers():
    for y, words in ((["a", "b"], "must be numbers"), ([1.0, np.inf], "not finite")):
        with pytest.raises(ValueError, match=words):
            fitted(y, regression=True)


def test_weights_by_class_and_by_sample_are_multiplied():
    y = ["a", "b", "b", "b"]
    assert sample_weights(y, [1, 2, 3, 4], {"b": 0.5}).tolist() == [1, 1, 1.5, 2]
    balanced = sample_weights(y, class_weight="balanced")
    assert balanced[0] == pytest.approx(balanced[1:].sum())
    assert sample_weights([0, 1], class_weight={0: 3}).tolist() == [3, 1]


def test_a_weight_for_no_class_is_refused():
    with pytest.raises(ValueError, match=r"class_weight= names 'c', .* 'a', 'b'"):
        sample_weights(["a", "b"], class_weight={"a": 2, "c": 3})
    assert sample_weights(["a"], class_weight={"a": 2, "b": 3}, classes=["a", "b"]).tolist() == [2]
    with pytest.raises(ValueError, match="names 'c'"):
        sample_weights(["a"], class_weight={"c": 3}, classes=["a", "b"])


@pytest.mark.parametrize(
    ("y", "weights"),
    [
        ([1.0, 2.0], {"1": 3}),
        ([1, 2], {1.0: 3}),
        ([True, False], {"true": 3}),
        (["1", "2"], {1: 3}),
    ],
)
def test_weights_find_their_class_however_it_is_written(y, weights):
    assert sample_weights(y, class_weight=weights).tolist() == [3, 1]


def test_true_and_one_are_two_classes():
    y = pd.Series([True, 1, "x", True], dtype=object)
    schema = fitted(y)
    assert len(schema.classes) == 3
    assert schema.labels(y).tolist() == [schema.labels([v]).tolist()[0] for v in y]


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1.0], "one number per sample"),
        ([1.0, -1.0], "not negative"),
        ([1.0, np.nan], "finite"),
        ([0.0, 0.0], "All sample weights are zero"),
        (["a", "b"], "must be numbers"),
    ],
)
def test_weights_that_make_no_sense(weights, words):
    with pytest.raises(ValueError, match=words):
        sample_weights([0, 1], weights)
    for wrong in ("heavy", 5, [1, 2], np.ones(2)):
        with pytest.raises(ValueError, match="class_weight must be 'balanced' or weights by class"):
            sample_weights([0, 1], class_weight=wrong)


def test_targets_take_nothing_but_what_they_are_and_never_change():
    for wrong in ({"classes": ("a", "b"), "more": 1}, {"classes": ["a", "b"]}):
        with pytest.raises(ValueError, match=r"classes|more"):
            ClassTarget(**wrong)
    for wrong in ({"centre": "0", "scale": 1.0}, {"centre": 0.0, "scale": 1.0, "more": 1}):
        with pytest.raises(ValueError, match=r"centre|more"):
            ValueTarget(**wrong)
    target = ClassTarget(classes=("a", "b"))
    with pytest.raises(ValueError, match="frozen"):
        target.classes = ("c", "d")
    with pytest.raises(ValueError, match="frozen"):
        ValueTarget(centre=0.0, scale=1.0).scale = 2.0


def test_labels_of_a_later_task_that_are_values_are_no_new_classes():
    schema = fitted(np.array(["yes", "no", "yes"]))
    rows = np.arange(40.0)[:, None]
    with pytest.raises(ValueError, match="real numbers, so they are no classes"):
        schema.grown(rows, rows[:, 0] / 8)
    with pytest.raises(ValueError, match="look like values and not like classes"):
        schema.grown(rows, np.arange(40))
    assert schema.grown(rows, np.arange(40) % 3).schema.classes == ("no", "yes", "0", "1", "2")
    # Where real numbers were named as classes, others may follow.
    named = fitted(np.array([0.5, 1.5]), classes=[0.5, 1.5])
    assert named.grown(rows, rows[:, 0] // 20 + 0.5).schema.classes == (0.5, 1.5)
    assert named.grown(rows, rows[:, 0] // 20 + 1.5).schema.classes == (0.5, 1.5, 2.5)
