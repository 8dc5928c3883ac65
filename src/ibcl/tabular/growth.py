r"""Where the inputs of a schema are among those of a larger one.

Let a schema with W inputs grow to W' inputs. The positions :math:`\pi: \{1..W\} \to \{1..W'\}` say
where each old input is now. A row that the old schema knew has :math:`x'_{\pi(i)} = x_i` and zeros
elsewhere, so every sum of products of old rows is embedded exactly: :math:`S'_{\pi(i)\pi(j)} =
S_{ij}`, and zeros elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ibcl.tabular.schema import Schema


class Growth(NamedTuple):
    """A larger schema, and where the smaller one's inputs are in it."""

    schema: Schema
    positions: NDArray[np.intp]


def input_positions(old: Schema, new: Schema) -> NDArray[np.intp]:
    """Return the position in a larger schema of each input of the one it grew from.

    Raises
    ------
    ValueError
        If the larger one lacks an input of the other.

    Examples
    --------
    >>> import pandas as pd
    >>> from ibcl.tabular import Schema
    >>> frame = pd.DataFrame({"town": ["Rome", "Oslo"], "trade": ["baker", "smith"]})
    >>> old = Schema.fit(frame, ["yes", "no"])
    >>> new = old.grown(frame.assign(town="Lima")).schema
    >>> input_positions(old, new).tolist()
    [0, 1, 3, 4]
    """
    places = {key: place for place, key in enumerate(new.input_keys)}
    lacking = [key for key in old.input_keys if key not in places]
    if lacking:
        name = old.input_names[old.input_keys.index(lacking[0])]
        raise ValueError(f"The larger schema has no input {name!r}, so it did not grow from this.")
    return np.array([places[key] for key in old.input_keys], dtype=np.intp)
