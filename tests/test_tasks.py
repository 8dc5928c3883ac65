"""Whatever samples come in is read exactly, or refused in one sentence."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from torch.utils.data import DataLoader, TensorDataset

from ibcl.tasks import LARGEST_DENSE, LARGEST_VALUE, TaskData, as_inputs, as_task

EXPECTED = [[1.0, 0.0], [2.0, 1.0]]
NULLABLE = pd.DataFrame(
    {"a": pd.array([1, 2], dtype="Int64"), "b": pd.array([False, True], dtype="boolean")}
)


@pytest.mark.parametrize(
    "x",
    [
        EXPECTED,
        np.array(EXPECTED),
        np.array(EXPECTED, dtype=">f4"),
        np.array(EXPECTED, dtype=np.longdouble),
        np.array(EXPECTED, dtype=np.uint32),
        np.array(EXPECTED, dtype=np.float16),
        np.ma.array(EXPECTED, mask=False),
        np.ma.array(EXPECTED, mask=[[False, False], [False, False]]),
        np.array([[1, False], [Decimal(2), Fraction(1)]], dtype=object),
        np.array([[np.int8(1), np.bool_(False)], [2, 1]], dtype=object),
        torch.tensor(EXPECTED),
        torch.tensor(EXPECTED).to_sparse(),
        scipy.sparse.csr_array(EXPECTED),
        scipy.sparse.coo_matrix(EXPECTED),
        NULLABLE,
        NULLABLE.astype({"a": "Float64"}),
        NULLABLE.astype({"a": "int16", "b": "bool"}),
        NULLABLE.astype({"a": "float32"}),
        np.array(EXPECTED[::-1])[::-1],
        np.array(EXPECTED).T.copy().T,
        NULLABLE.astype(object),
        NULLABLE.set_axis(["same", "same"], axis=1),
    ],
)
def test_numbers_are_read_from_whatever_holds_them(x):
    tensor = as_inputs(x)
    assert tensor.dtype == torch.float32
    assert tensor.is_contiguous()
    assert tensor.tolist() == EXPECTED


@pytest.mark.parametrize(
    ("x", "reason"),
    [
        (np.ma.array(EXPECTED, mask=[[0, 1], [1, 0]]), "masked array with 2 masked values"),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), "'a' of x has 1 missing value"),
        (pd.DataFrame({"a": pd.array([None, True], dtype="boolean")}), "'a' of x has 1 missing"),
        (pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}), "'b' of x must be numbers.* the str 'x'"),
        (pd.DataFrame({"c": pd.Categorical([1, 2])}), "'c' of x must be numbers, .* categorical"),
        (pd.DataFrame({"d": pd.to_datetime(["2020", "2021"])}), "'d' of x .* holds dates"),
        (pd.DataFrame({"a": [1.0, np.nan]}), "missing or not finite"),
        ([["a"]], "holds text"),
        (np.array([[1, None]], dtype=object), "missing or not finite"),
        (np.array([[1, pd.NA]], dtype=object), "missing or not finite"),
        (np.array([[1, "2"]], dtype=object), "holds the str '2'"),
        (np.array([[1, 2j]], dtype=object), "holds the complex"),
        ([[1, 2], [3]], "rectangular array"),
        ([[1j]], "complex numbers"),
        ([[np.nan]], "missing or not finite"),
        ([[np.inf, -np.inf]], "missing or not finite"),
        (torch.tensor([[torch.nan]]), "missing or not finite"),
        ([[0.0, 1e20]], "furthest from zero is 1e\\+20, but .* scale the inputs"),
        ([[0.0, 1.0, -3e300]], "furthest from zero is -3e\\+300"),
        (scipy.sparse.csr_array([[1e300]]), "furthest from zero is 1e\\+300"),
        (torch.tensor([[1e19]]), "furthest from zero is 1e\\+19"),
        ([[2**70]], "whole number too large"),
        ([[-(2**63)]], "furthest from zero is -9.2"),
        (scipy.sparse.coo_array((10**9, 10**9)), "GiB as a dense one"),
        ([1.0, 2.0], "its shape is \\(2,\\)"),
        (3.0, "its shape is \\(\\)"),
        (None, "missing"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_in_one_sentence(x, reason):
    with pytest.raises(ValueError, match=reason) as refused:
        as_inputs(x)
    sentence = str(refused.value)
    assert sentence.endswith(".")
    assert not sentence.endswith("..")
    assert "\n" not in sentence


def test_the_largest_values_are_read_and_the_next_are_not():
    assert float(as_inputs([[LARGEST_VALUE, -LARGEST_VALUE]])[0, 0]) == pytest.approx(1e18)
    with pytest.raises(ValueError, match="furthest from zero"):
        as_inputs([[-LARGEST_VALUE * 1.001]])
    # Their squares are finite in single precision, and so is a sum of a hundred of them.
    assert bool(torch.isfinite(as_inputs([[LARGEST_VALUE] * 100]).square().sum()))


@pytest.mark.parametrize("itemsize", [1, 4, 8])
def test_sparse_matrices_are_bounded_by_the_bytes_they_would_take(itemsize):
    rows = LARGEST_DENSE // max(itemsize, 4) // 2**10 + 1
    matrix = scipy.sparse.coo_array((rows, 2**10), dtype={1: "i1", 4: "f4", 8: "f8"}[itemsize])
    with pytest.raises(ValueError, match=r"would take 2\.0 GiB as a dense one, above the 2 GiB"):
        as_inputs(matrix)


def test_a_sparse_tensor_is_bounded_too():
    empty = torch.sparse_coo_tensor(
        torch.empty(2, 0), torch.empty(0), (2**20, 2**20), check_invariants=True
    )
    with pytest.raises(ValueError, match="GiB as a dense one"):
        as_inputs(empty)


def test_arrays_are_not_changed_and_read_only_ones_are_copied():
    array = np.array(EXPECTED, dtype=np.float32)
    array.setflags(write=False)
    as_inputs(array)[0, 0] = 9
    assert array.tolist() == EXPECTED


@pytest.mark.parametrize(
    "y",
    [
        [1, 0],
        np.array([1, 0], dtype=object),
        pd.Series([1, 0], dtype="Int64"),
        pd.Series([True, False], dtype="boolean"),
        pd.Index([1, 0]),
        np.ma.array([1, 0], mask=[0, 0]),
        torch.tensor([[1], [0]]),
        pd.DataFrame({"y": [1, 0]}),
    ],
)
def test_labels_are_read_from_whatever_holds_them(y):
    data = as_task(EXPECTED, y)
    assert data.y.tolist() == [1, 0]
    assert data.weights is None
    assert data.total_weight == data.size == 2


@pytest.mark.parametrize(
    ("y", "reason"),
    [
        (None, "y is missing"),
        ([0, 1, 1], "x has 2 samples, but y has 3"),
        (["a", "b"], "y must be numbers, but it holds text; number the classes 0, 1"),
        (pd.Series([1, None], dtype="Int64"), "y has 1 missing value"),
        (np.ma.array([1, 0], mask=[0, 1]), "y is a masked array with 1 masked"),
        ([0.5, np.nan], "y holds a value that is missing"),
        ([0.5, 1e300], "The value of y furthest from zero is 1e\\+300"),
        ([0.5, 1j], "y must be real"),
        (np.zeros((2, 1, 1)), "vector or a matrix"),
    ],
)
def test_labels_that_are_none_are_refused(y, reason):
    with pytest.raises(ValueError, match=reason):
        as_task(EXPECTED, y)


def test_a_task_without_samples_is_refused():
    with pytest.raises(ValueError, match="no samples"):
        as_task(np.empty((0, 2)), [])


@pytest.mark.parametrize("weights", [[1, 2.5], torch.tensor([1, 2.5]), pd.Series([1, 2.5])])
def test_weights_count_samples(weights):
    data = as_task(EXPECTED, [0, 1], weights)
    assert data.weights.dtype == torch.float64
    assert data.weights.tolist() == [1.0, 2.5]
    assert data.total_weight == 3.5


@pytest.mark.parametrize(
    ("weights", "reason"),
    [
        ([1, 0], "must be positive, but one is 0; leave samples"),
        ([1, -2.5], "must be positive, but one is -2.5"),
        ([1], "for each of the 2 samples, but their shape is \\(1,\\)"),
        ([[1], [2]], "their shape is \\(2, 1\\)"),
        (3, "their shape is \\(\\)"),
        ([1, np.nan], "weights holds a value that is missing"),
        ([1, np.inf], "weights holds a value that is missing"),
        ([1, 1e200], "weights furthest from zero is 1e\\+200, .* divide them"),
        ([1, 1j], "weights must be real"),
        (["a", "b"], "weights must be numbers, but it holds text"),
        (np.ma.array([1, 2], mask=[1, 0]), "weights is a masked array"),
    ],
)
def test_weights_that_are_none_are_refused(weights, reason):
    with pytest.raises(ValueError, match=reason):
        as_task(EXPECTED, [0, 1], weights)


def test_datasets_and_loaders_bring_their_labels():
    dataset = TensorDataset(torch.tensor(EXPECTED), torch.tensor([0, 1]))
    for source in (dataset, DataLoader(dataset, batch_size=1)):
        data = as_task(source, weights=[1, 2])
        assert (data.x.tolist(), data.y.tolist(), data.total_weight) == (EXPECTED, [0, 1], 3.0)
    with pytest.raises(ValueError, match="brings its own labels"):
        as_task(dataset, [0, 1])


def test_task_data_without_weights_is_what_it_always_was():
    data = TaskData(torch.zeros(3, 1), torch.zeros(3))
    assert data == (data.x, data.y, None)
    assert as_task(*data).size == 3
