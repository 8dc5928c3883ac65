"""Known texts, and which of them a value is, however it was written down.

A value is looked up by itself, never by the column or the batch it came in: first as the text it
is, then by its canonical text (`ibcl.tabular.values.canonical`). Where all known values were
numbers, every text that is a number is one (``"01"`` is 1); where all were truth values, 1 and 0
are such, since nothing else can be meant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ibcl.tabular.values import canonical, distinct, number_in, text_of

ValueKind = Literal["texts", "numbers", "booleans"]

UNKNOWN, MISSING = -1, -2
_TRUTH_OF = {1.0: "true", 0.0: "false"}


def kind_of(values: Iterable[Any]) -> ValueKind:
    """Say whether values are all numbers, all truth values, or to be taken as texts.

    Examples
    --------
    >>> kind_of([1, 2.5]), kind_of([True]), kind_of([True, 1]), kind_of(["1"])
    ('numbers', 'booleans', 'texts', 'texts')
    """
    kinds = {_kind(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else "texts"


def _kind(value: Any) -> ValueKind:
    if isinstance(value, bool | np.bool_):
        return "booleans"
    return "numbers" if isinstance(value, Real | Decimal) else "texts"


def known_text(text: str, kind: ValueKind) -> str:
    """Return the text by which a value is known among values of a kind.

    Examples
    --------
    >>> known_text("01", "numbers"), known_text("01", "texts"), known_text("1.0", "booleans")
    ('1', '01', 'true')
    """
    if kind != "texts":
        number = number_in(text)
        if number is not None and np.isfinite(number):
            if kind == "booleans" and number in _TRUTH_OF:
                return _TRUTH_OF[number]
            try:
                # Whole numbers beyond double precision differ by their digits.
                return str(int(text))
            except ValueError:
                return text_of(number, "value")
    return canonical(text)


class Vocabulary:
    """Known texts in their order, and how to find a value among them.

    Examples
    --------
    >>> towns = Vocabulary(["1", "true", "NA"])
    >>> [towns.find(value, "column") for value in (1.0, "1.0", True, "NA", "", None, "01")]
    [0, 0, 1, 2, -2, -2, -1]
    """

    def __init__(self, texts: Sequence[str], kind: ValueKind = "texts") -> None:
        self._kind = kind
        self._exact = {text: place for place, text in enumerate(texts)}
        names = [known_text(text, kind) for text in texts]
        often = Counter(names)
        # Two texts of one meaning, from before there was one reading, are told apart by themselves.
        self._known = {name: place for place, name in enumerate(names) if often[name] == 1}

    def find(self, value: Any, what: str) -> int:
        """Return the place of a value that may be missing; `UNKNOWN` or `MISSING` if it has none.

        Parameters
        ----------
        what : how a sentence calls where the value stands, such as ``"column 'town'"``.
        """
        if value is None:
            return MISSING
        text = value if type(value) is str else text_of(value, what)
        place = self._exact.get(text)
        if place is None:
            place = self._known.get(known_text(text, self._kind))
        if place is None:
            return UNKNOWN if text else MISSING
        return place

    def places(self, column: pd.Series[Any], what: str) -> NDArray[np.intp]:
        """Return the place of every value of a column."""
        found = distinct(column)
        each = [self.find(text_of(value, what), what) for value in found.values]
        result: NDArray[np.intp] = np.array([*each, MISSING], dtype=np.intp)[found.codes]
        return result

    def new(self, values: Iterable[Any], what: str) -> list[str]:
        """Return the texts of values that are not known, sorted.

        Parameters
        ----------
        values : none of them missing.
        """
        texts = (text_of(value, what) for value in values)
        unknown = [text for text in texts if self.find(text, what) == UNKNOWN]
        return sorted({known_text(text, self._kind) for text in unknown})
