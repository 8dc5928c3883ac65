"""What a task is: labelled samples (x, y), whatever they came in, as two tensors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class TaskData(NamedTuple):
    """Inputs x of shape (n, ...) in float32, and labels y of shape (n,) or (n, outputs)."""

    x: Tensor
    y: Tensor

    @property
    def size(self) -> int:
        """n, the number of samples."""
        return len(self.x)


def as_inputs(x: Any) -> Tensor:
    """Read inputs from an array, a tensor, a data frame or nested lists.

    Examples
    --------
    >>> as_inputs([[1, 2], [3, 4]]).dtype
    torch.float32
    """
    if isinstance(x, Tensor):
        tensor = x.detach()
    else:
        try:
            tensor = torch.as_tensor(_writable(np.asarray(x)))
        except (TypeError, ValueError) as error:
            raise ValueError(f"x must be numbers in a rectangular array: {error}.") from None
    if tensor.ndim < 2:
        raise ValueError(
            f"x must have one row a sample and at least one column, but its shape is "
            f"{tuple(tensor.shape)}."
        )
    if tensor.is_complex():
        raise ValueError("x must be real, but it holds complex numbers.")
    tensor = tensor.to(torch.float32).contiguous()
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError("x holds a value that is missing or not finite.")
    return tensor


def as_task(x: Any, y: Any = None) -> TaskData:
    """Read a task from (x, y), or from a torch `Dataset` or `DataLoader` of such pairs.

    Examples
    --------
    >>> as_task([[0.0], [1.0]], [0, 1]).size
    2
    """
    if isinstance(x, Dataset | DataLoader):
        if y is not None:
            raise ValueError("A Dataset or DataLoader brings its own labels; leave y out.")
        x, y = _collect(x)
    elif y is None:
        raise ValueError("y is missing: give the labels of x.")
    inputs = as_inputs(x)
    labels = y.detach() if isinstance(y, Tensor) else torch.as_tensor(_numeric(y))
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim not in (1, 2):
        raise ValueError(f"y must be a vector or a matrix, but its shape is {tuple(labels.shape)}.")
    if len(labels) != len(inputs):
        raise ValueError(f"x has {len(inputs)} samples, but y has {len(labels)}.")
    if len(inputs) == 0:
        raise ValueError("The task has no samples.")
    if labels.is_floating_point() and not bool(torch.isfinite(labels).all()):
        raise ValueError("y holds a value that is missing or not finite.")
    return TaskData(inputs, labels)


def _numeric(y: Any) -> np.ndarray:
    array = np.asarray(y)
    if array.dtype.kind not in "biuf":
        raise ValueError(
            "y must be numbers: 0, 1, ... for classes, real values for regression "
            "(ibcl.IBCLClassifier takes labels of any kind)."
        )
    return _writable(array)


def _writable(array: np.ndarray) -> np.ndarray:
    """Copy what a data frame lends read-only, which torch cannot wrap."""
    return array if array.flags.writeable else array.copy()


def _collect(source: Dataset[Any] | DataLoader[Any]) -> tuple[Tensor, Tensor]:
    loader: DataLoader[Any] = (
        source if isinstance(source, DataLoader) else DataLoader(source, batch_size=1024)
    )
    batches = [(torch.as_tensor(x), torch.as_tensor(y)) for x, y in loader]
    if not batches:
        raise ValueError("The task has no samples.")
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])
