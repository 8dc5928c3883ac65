r"""Rows straight into a network's inputs, for tables whose meaning is certain.

`ibcl.tabular.Schema` reads whole frames of any kind, and takes milliseconds for a frame of one row.
What a service is asked for most, finite numbers and known kinds of text, needs a subtraction and a
division a number: z = (x − c) / s, with the schema's own statistics and in its own order, so that
the inputs are the same to the last bit. Whatever else a row holds is left to the schema, in a frame
whose values keep the types they came with: `rows_frame`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from ibcl.tabular import CategoricalColumn, DateColumn, NumericColumn, Schema, scaled_numbers

# Far below what the schema refuses, in a sentence of its own.
_LARGEST_INPUT = 1e6
_NUMBERS = frozenset({int, float, type(None)})
_WORDS = frozenset({str, int, float, bool, type(None)})


def rows_frame(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> pd.DataFrame:
    """Return rows of plain values as a frame in which no value changes by those beside it.

    Examples
    --------
    >>> rows_frame(["a"], [(2**53 + 1,), (None,)]).loc[0, "a"] == 2**53 + 1
    True
    """
    columns = zip(*rows, strict=True)
    return pd.DataFrame(
        {name: pd.Series(list(v), dtype=object) for name, v in zip(names, columns, strict=True)}
    )


class RowEncoder:
    """Encode rows of plain values, given in the order of a schema's columns.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"age": [20.0, None, 40.0], "town": ["Rome", "Oslo", "Rome"]})
    >>> schema = Schema.fit(frame, ["yes", "no", "yes"])
    >>> encode = RowEncoder(schema)
    >>> row = pd.DataFrame({"age": [30.0], "town": ["Oslo"]})
    >>> torch.equal(encode([(30, "Oslo")]), schema.inputs(row))
    True
    >>> encode([("thirty", "Oslo")]) is None
    True
    """

    def __init__(self, schema: Schema) -> None:
        columns = list(enumerate(schema.columns))
        numeric = [(k, column) for k, column in columns if isinstance(column, NumericColumn)]
        self._numeric = [k for k, _ in numeric]
        self._centre = np.array([column.centre for _, column in numeric])
        self._scale = np.array([column.scale for _, column in numeric])
        self._fill = np.array([column.fill for _, column in numeric])
        self._logarithmic = np.array([column.logarithmic for _, column in numeric], dtype=bool)
        self._indicated = np.array([column.indicator for _, column in numeric], dtype=bool)
        self._categorical = [
            (k, column) for k, column in columns if isinstance(column, CategoricalColumn)
        ]
        self._dates = [(k, column) for k, column in columns if isinstance(column, DateColumn)]

    def __call__(self, rows: Sequence[Sequence[Any]]) -> Tensor | None:
        """Return the inputs, None where it is better to ask the schema."""
        numbers = [[row[k] for k in self._numeric] for row in rows]
        if any(type(value) not in _NUMBERS for row in numbers for value in row):
            return None
        try:
            values = np.array(numbers, dtype=np.float64).reshape(len(rows), len(self._numeric))
        except OverflowError:
            return None
        missing = np.isnan(values)
        # What overflows is too large below, and a sentence of the schema's.
        with np.errstate(over="ignore"):
            filled = np.where(missing, self._fill, values)
            scaled = scaled_numbers(filled, self._centre, self._scale, self._logarithmic)
        if not (np.abs(scaled) <= _LARGEST_INPUT).all():
            return None
        blocks = [scaled, missing[:, self._indicated]]
        for k, column in self._categorical:
            places = self._places(k, column, rows)
            if places is None:
                return None
            encoded = np.zeros((len(rows), column.width))
            column.write(places, encoded)
            blocks.append(encoded)
        for k, dates in self._dates:
            try:
                blocks.append(dates.encode(pd.Series([row[k] for row in rows], dtype=object)))
            except ValueError:
                return None
        return torch.as_tensor(np.concatenate(blocks, axis=1, dtype=np.float32))

    @staticmethod
    def _places(
        k: int, column: CategoricalColumn, rows: Sequence[Sequence[Any]]
    ) -> NDArray[np.intp] | None:
        """Return where the values of a column stand among its categories, None where in doubt."""
        words = [row[k] for row in rows]
        if any(type(word) not in _WORDS for word in words):
            return None
        find = column.vocabulary.find
        try:
            places = [find(None if word != word else word, "column") for word in words]
        except ValueError:
            return None
        return np.array(places, dtype=np.intp)
