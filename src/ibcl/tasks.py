"""What a task is: labelled samples (x, y), whatever they came in, as tensors."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

# Squares and sums of values up to this still fit into single precision, which ends at 3.4e38.
LARGEST_VALUE = 1e18
# Sparse inputs that would take more bytes than this as a dense matrix are refused.
LARGEST_DENSE = 2**31
# Types that torch has not, or hardly computes with.
_UNKNOWN_TO_TORCH = (np.uint16, np.uint32, np.uint64, np.longdouble)
_KINDS = {"U": "text", "S": "bytes", "T": "text", "M": "dates", "m": "durations", "V": "records"}


class TaskData(NamedTuple):
    """Inputs x of shape (n, ...) in float32, and labels y of shape (n,) or (n, outputs).

    A sample of weight w counts as w samples: its log likelihood is multiplied by w. Without
    weights every sample counts once.
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None = None

    @property
    def size(self) -> int:
        """n, the number of samples."""
        return len(self.x)

    @property
    def total_weight(self) -> float:
        """How many samples these count as: the sum of the weights, or n.

        Examples
        --------
        >>> TaskData(torch.zeros(2, 1), torch.zeros(2), torch.tensor([1.0, 2.5])).total_weight
        3.5
        """
        return float(self.size if self.weights is None else self.weights.double().sum())


def as_inputs(x: Any) -> Tensor:
    """Read inputs from an array, a tensor, a data frame, a sparse matrix or nested lists.

    Examples
    --------
    >>> as_inputs([[1, 2], [3, 4]]).dtype
    torch.float32
    """
    tensor = dense_tensor(x) if isinstance(x, Tensor) else _from_array(_real(x, "x"))
    if tensor.ndim < 2:
        raise ValueError(
            f"x must have one row per sample and at least one column, but its shape is "
            f"{tuple(tensor.shape)}."
        )
    if tensor.is_complex():
        raise ValueError("x must be real, but it holds complex numbers.")
    _check_values(tensor, "x", "scale the inputs, for example to unit variance")
    return tensor.to(torch.float32).contiguous()


def as_task(x: Any, y: Any = None, weights: Any = None) -> TaskData:
    """Read a task from (x, y), or from a torch `Dataset` or `DataLoader` of such pairs.

    Parameters
    ----------
    weights
        One positive number per sample, how often it counts; left out, every sample counts once.

    Examples
    --------
    >>> as_task([[0.0], [1.0]], [0, 1]).size
    2
    >>> as_task([[0.0], [1.0]], [0, 1], weights=[1, 3]).total_weight
    4.0
    """
    if isinstance(x, Dataset | DataLoader):
        if y is not None:
            raise ValueError("A Dataset or DataLoader brings its own labels; leave y out.")
        x, y = _collect(x)
    elif y is None:
        raise ValueError("y is missing: give the labels of x.")
    inputs = as_inputs(x)
    labels = _labels(y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2):
        raise ValueError(f"y must be a vector or a matrix, but its shape is {tuple(labels.shape)}.")
    if len(labels) != len(inputs):
        raise ValueError(f"x has {len(inputs)} samples, but y has {len(labels)}.")
    if len(inputs) == 0:
        raise ValueError("The task has no samples.")
    labels = labels.to(inputs.device)
    return TaskData(inputs, labels, None if weights is None else _weights(weights, inputs))


def _labels(y: Any) -> Tensor:
    labels = dense_tensor(y) if isinstance(y, Tensor) else _from_array(_real(y, "y"))
    if labels.is_complex():
        raise ValueError("y must be real, but it holds complex numbers.")
    _check_values(labels, "y", "scale the targets, for example to unit variance")
    return labels


def _weights(weights: Any, inputs: Tensor) -> Tensor:
    values = (
        dense_tensor(weights)
        if isinstance(weights, Tensor)
        else _from_array(_real(weights, "weights"))
    )
    if values.is_complex():
        raise ValueError("weights must be real, but they hold complex numbers.")
    values = values.to(inputs.device, torch.float64)
    if values.shape != (len(inputs),):
        raise ValueError(
            f"weights must hold one number for each of the {len(inputs)} samples, but their shape "
            f"is {tuple(values.shape)}."
        )
    _check_values(values, "weights", "divide them all by the same number")
    if not bool((values > 0).all()):
        raise ValueError(
            f"Every weight must be positive, but one is {float(values.min()):g}; leave samples "
            "that should not count out."
        )
    return values


def _check_values(tensor: Tensor, name: str, remedy: str) -> None:
    """Refuse what is missing, and what is too large to compute with in single precision."""
    if tensor.numel() == 0 or tensor.dtype == torch.bool:
        return
    low, high = (float(value) for value in tensor.aminmax())
    if not math.isfinite(low + high):
        raise ValueError(f"{name} holds a value that is missing or not finite.")
    largest = high if high > -low else low
    if abs(largest) > LARGEST_VALUE:
        raise ValueError(
            f"The value of {name} furthest from zero is {largest:g}, but squares of values above "
            f"{LARGEST_VALUE:g} in size cannot be computed with in single precision; {remedy}, or "
            "remove outliers."
        )


def dense_tensor(x: Tensor) -> Tensor:
    """Return a tensor of any layout as a dense one of numbers that can be computed with.

    Examples
    --------
    >>> dense_tensor(torch.eye(2).to_sparse()).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if x.is_meta:
        raise ValueError("A tensor on the device 'meta' has a shape, but no values to learn from.")
    tensor = x.detach()
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_floating_point() and tensor.element_size() == 1:
        return tensor.float()
    if tensor.layout is torch.strided:
        return tensor
    _check_dense_size(tuple(tensor.shape), tensor.element_size())
    return tensor.to_dense()


def _from_array(array: np.ndarray) -> Tensor:
    if array.dtype in _UNKNOWN_TO_TORCH:
        array = array.astype(np.float64)
    # Torch cannot wrap what a data frame lends read-only, another machine's byte order, or rows
    # that run backwards.
    return torch.from_numpy(np.require(array, array.dtype.newbyteorder("="), ["C", "W"]))


def _real(values: Any, name: str) -> np.ndarray:
    """Read numbers from whatever holds them, or say in one sentence why they are none."""
    if np.ma.isMaskedArray(values):
        masked = int(np.sum(np.ma.getmaskarray(values)))
        if masked:
            raise ValueError(
                f"{name} is a masked array with {masked} masked values; fill them in or leave "
                "their samples out."
            )
        return _numbers(np.ma.getdata(values), name)
    if isinstance(values, Mapping):
        raise ValueError(
            f"{name} must be numbers in rows, not a mapping of names; of tokens, give what "
            "ibcl.networks.token_ids makes of them."
        )
    # Whoever holds a data frame or a sparse matrix has imported the package it comes from.
    sparse = sys.modules.get("scipy.sparse")
    if sparse is not None and sparse.issparse(values):
        _check_dense_size(values.shape, values.dtype.itemsize)
        return _numbers(values.toarray(), name)
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(values, pandas.DataFrame):
        return _frame(values, name)
    if pandas is not None and isinstance(values, pandas.Series | pandas.Index):
        return _column(pandas.Series(values), name)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be numbers in a rectangular array: {str(error).rstrip('.')}."
        ) from None
    return _numbers(array, name)


def _frame(frame: Any, name: str) -> np.ndarray:
    if frame.shape[1] and all(
        isinstance(dtype, np.dtype) and dtype.kind in "biuf" for dtype in frame.dtypes
    ):
        return _numbers(frame.to_numpy(), name)
    columns = [
        _column(frame.iloc[:, position], f"The column {label!r} of {name}")
        for position, label in enumerate(frame.columns)
    ]
    return np.stack(columns, 1) if columns else np.empty(frame.shape)


def _column(series: Any, name: str) -> np.ndarray:
    missing = int(series.isna().sum())
    if missing:
        raise ValueError(
            f"{name} has {missing} missing values; fill them in or leave their samples out."
        )
    if str(series.dtype) == "category":
        raise ValueError(f"{name} must be numbers, but it is categorical; encode it as numbers.")
    return _numbers(series.to_numpy(), name)


def _numbers(array: np.ndarray, name: str) -> np.ndarray:
    """Return an array of a numeric dtype; an array of objects only where each is a number."""
    if array.dtype.kind in "biufc":
        return array
    if array.dtype.kind != "O":
        kind = _KINDS.get(array.dtype.kind, array.dtype.name)
        raise ValueError(f"{name} must be numbers, but it holds {kind}; {_remedy(name)}.")
    for value in array.flat:
        if value is None or value is getattr(sys.modules.get("pandas"), "NA", None):
            raise ValueError(f"{name} holds a value that is missing or not finite.")
        if not isinstance(value, Real | Decimal | np.bool_):
            raise ValueError(
                f"{name} must be numbers in a rectangular array, but it holds the "
                f"{type(value).__name__} {str(value)[:40]!r}; {_remedy(name)}."
            )
    whole = all(isinstance(value, int | np.integer | np.bool_) for value in array.flat)
    try:
        return array.astype(np.int64 if whole and array.size else np.float64)
    except OverflowError:
        raise ValueError(f"{name} holds a whole number too large to compute with.") from None


def _remedy(name: str) -> str:
    if name == "y":
        return "number the classes 0, 1, ... (ibcl.IBCLClassifier takes labels of any kind)"
    return "encode it as numbers"


def _check_dense_size(shape: tuple[int, ...], itemsize: int) -> None:
    needed = int(np.prod([int(side) for side in shape], dtype=object)) * max(itemsize, 4)
    if needed > LARGEST_DENSE:
        raise ValueError(
            f"A sparse matrix of shape {tuple(shape)} would take {needed / 2**30:.1f} GiB as a "
            f"dense one, above the {LARGEST_DENSE / 2**30:.0f} GiB allowed; choose or project "
            "columns, or learn from fewer samples at a time."
        )


def _collect(source: Dataset[Any] | DataLoader[Any]) -> tuple[Tensor, Tensor]:
    loader: DataLoader[Any] = (
        source if isinstance(source, DataLoader) else DataLoader(source, batch_size=1024)
    )
    batches = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in loader]
    if not batches:
        raise ValueError("The task has no samples.")
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def append_task_id(x: Tensor, task: str | None, tasks: tuple[str, ...], size: int | None) -> Tensor:
    """Append the one-hot id of a task to x, if inputs carry one (size is not None)."""
    if size is None:
        return x
    if x.ndim != 2:
        raise ValueError("Task ids can only be appended to inputs that are plain vectors.")
    if task is None:
        raise ValueError("This learner's inputs carry a task id: say which task= they are from.")
    if task not in tasks:
        raise ValueError(f"Unknown task {task!r}; known tasks are {', '.join(tasks)}.")
    position = tasks.index(task)
    if position >= size:
        raise ValueError(f"The learner was made for {size} tasks and has learnt them all.")
    identity = x.new_zeros(len(x), size)
    identity[:, position] = 1
    return torch.cat([x, identity], 1)
