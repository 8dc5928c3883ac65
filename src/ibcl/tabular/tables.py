"""Anything with rows and columns, as a frame whose columns have a certain meaning."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import sparse
from torch import Tensor

from ibcl.tabular.values import listing, text_of
from ibcl.tasks import dense_tensor


class Table(NamedTuple):
    """A frame, and whether its columns are known by name; if not, they are known by position."""

    frame: pd.DataFrame
    named: bool


def as_table(x: Any) -> Table:
    """Read a table from a frame, an array, a masked array, a sparse matrix or nested lists.

    A frame whose columns are just numbered 0, 1, ... has no names; neither has an array. What a
    masked array masks is missing.

    Examples
    --------
    >>> as_table([[1, 2], [3, 4]]).named, as_table(pd.DataFrame({"a": [1]})).named
    (False, True)
    """
    if not isinstance(x, pd.DataFrame) and hasattr(x, "to_pandas"):
        x = x.to_pandas()
    if isinstance(x, pd.Series):
        raise ValueError("A table has rows and columns, but this is a single column (a Series).")
    if isinstance(x, pd.DataFrame):
        return _from_frame(x)
    x = plain(x)
    if sparse.issparse(x):
        x = _dense(x)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise ValueError(f"x must have rows of the same length: {error}.") from None
    if array.dtype.names is not None:
        return _from_frame(pd.DataFrame(array))
    if array.ndim != 2:
        raise ValueError(
            f"x must have one row per sample and one column per feature, but its shape is "
            f"{array.shape}."
        )
    return Table(pd.DataFrame(array), named=False)


def plain(values: Any) -> Any:
    """Return a tensor or a masked array as an array, in which what is masked is missing.

    Anything else is returned as it is.

    Examples
    --------
    >>> plain(np.ma.masked_array([1, 2], [False, True]))
    array([ 1., nan])
    >>> plain(torch.ones(2, dtype=torch.bfloat16, requires_grad=True)), plain("as it is")
    (array([1., 1.], dtype=float32), 'as it is')
    """
    if isinstance(values, Tensor):
        tensor = dense_tensor(values).cpu()
        return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return _without_mask(values) if isinstance(values, np.ma.MaskedArray) else values


def _from_frame(frame: pd.DataFrame) -> Table:
    if isinstance(frame.columns, pd.MultiIndex):
        raise ValueError(
            "The frame has several levels of column names; give it one name per column."
        )
    if frame.columns.equals(pd.RangeIndex(frame.shape[1])):
        return Table(frame, named=False)
    for name in frame.columns:
        text_of(str(name), "list of columns")
    names = frame.columns.map(str)
    repeated = names[names.duplicated()].unique()
    if len(repeated):
        raise ValueError(
            f"The frame has more than one column named {listing(repeated)}; names must differ."
        )
    return Table(frame.set_axis(names, axis=1), named=True)


def _dense(matrix: Any) -> np.ndarray:
    return np.asarray(matrix.toarray())


def _without_mask(array: Any) -> np.ndarray:
    if array.dtype.names is not None:
        raise ValueError("Masked arrays of records are not understood; give a frame instead.")
    if array.dtype.kind in "biuf":
        return np.asarray(array.astype(np.float64).filled(np.nan))
    # None as a value to fill in would mean the default one, a question mark.
    values = np.array(array.data, dtype=object)
    values[np.ma.getmaskarray(array)] = None
    return values


def as_column(y: Any, what: str) -> pd.Series[Any]:
    """Read one column of labels or targets, of which none may be missing.

    Examples
    --------
    >>> as_column(np.array([[1], [2]]), "labels").tolist()
    [1, 2]
    """
    if isinstance(y, pd.DataFrame):
        if y.shape[1] != 1:
            raise ValueError(f"The {what} must be one column, but there are {y.shape[1]}.")
        y = y.iloc[:, 0]
    y = plain(y)
    if not isinstance(y, pd.Series | pd.Index):
        if hasattr(y, "to_pandas"):
            y = y.to_pandas()
        else:
            array = np.asarray(y)
            if array.ndim == 2 and array.shape[1] == 1:
                array = array[:, 0]
            if array.ndim != 1:
                raise ValueError(
                    f"The {what} must be one value per row, but their shape is {array.shape}."
                )
            y = array
    try:
        column = pd.Series(y).reset_index(drop=True)
    except UnicodeEncodeError:
        # Halves of characters, which the sentence about a single value then names.
        column = pd.Series(np.asarray(y, dtype=object), dtype=object)
    missing = column.isna()
    if missing.any():
        raise ValueError(
            f"The {what} have {int(missing.sum()):,} missing values, the first in row "
            f"{int(np.flatnonzero(missing)[0]) + 1}; leave these rows out."
        )
    return column
