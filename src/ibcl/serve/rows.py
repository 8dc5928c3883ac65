r"""Rows straight into a network's inputs, for tables whose meaning is certain.

`ibcl.tabular.Schema` reads whole frames of any kind, and takes milliseconds for a frame of one row.
What a service is asked for most, finite numbers and known kinds of text, needs a subtraction and a
division a number: z = (x − c) / s, with the schema's own statistics and in its own order, so that
the inputs are the same to the last bit. Whatever else a row holds is left to the schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ibcl.tabular import CategoricalColumn, NumericColumn, Schema

# Far below what the schema refuses, in a sentence of its own.
_LARGEST_INPUT = 1e6
_NUMBERS = frozenset({int, float, type(None)})
_WORDS = frozenset({str, type(None)})


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
        self._indicated = np.array([column.indicator for _, column in numeric], dtype=bool)
        self._categorical = [
            (k, {text: place for place, text in enumerate(column.categories)}, column)
            for k, column in columns
            if isinstance(column, CategoricalColumn)
        ]

    def __call__(self, rows: Sequence[Sequence[Any]]) -> Tensor | None:
        """Return the inputs, None where it is better to ask the schema."""
        numbers = [[row[k] for k in self._numeric] for row in rows]
        if any(type(value) not in _NUMBERS for row in numbers for value in row):
            return None
        values = np.array(numbers, dtype=np.float64).reshape(len(rows), len(self._numeric))
        missing = np.isnan(values)
        scaled = (np.where(missing, self._fill, values) - self._centre) / self._scale
        if not (np.abs(scaled) <= _LARGEST_INPUT).all():
            return None
        blocks = [scaled, missing[:, self._indicated]]
        for k, places, column in self._categorical:
            words = [row[k] for row in rows]
            if any(type(word) not in _WORDS for word in words):
                return None
            encoded = np.zeros((len(rows), column.width))
            for row, word in enumerate(words):
                place = places.get(word, -1) if word is not None else column.width - 1
                if place >= 0 and (word is not None or column.indicator):
                    encoded[row, place] = 1
            blocks.append(encoded)
        return torch.as_tensor(np.concatenate(blocks, axis=1, dtype=np.float32))
