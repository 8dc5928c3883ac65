"""Features of many inputs: in batches, with a progress bar, each computed once."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ibcl.experiments.benchmarks.backbones import Backbone
from ibcl.experiments.benchmarks.cache import FeatureCache, FloatArray, content_hash
from ibcl.progress import progress_bar

log = logging.getLogger("ibcl")

BATCH = 64
# A chunk is one file of the cache: an interrupted extraction loses at most this many inputs.
CHUNK = 2048


class Inputs(Protocol):
    """Texts or encoded images that can be taken by row, without holding all in memory."""

    def take(self, rows: NDArray[np.int64]) -> Sequence[Any]:
        """Return the inputs of these rows, in this order."""
        ...


def extract(
    inputs: Inputs, rows: NDArray[np.int64], backbone: Backbone, cache: FeatureCache, title: str
) -> FloatArray:
    """Return the backbone's features of ``rows``, one row each, from the cache where possible.

    Parameters
    ----------
    inputs
        Where the texts or images are.
    rows
        Which of them are wanted.
    backbone
        Feature extractor, ready for use.
    cache
        Where features are kept.
    title
        What the progress bar says.

    Returns
    -------
    array, shape (rows, features)
        Features in float32.
    """
    with progress_bar(f"{title} with {backbone.name}", len(rows), transient=True) as bar:
        chunks = []
        for start in range(0, len(rows), CHUNK):
            items = inputs.take(rows[start : start + CHUNK])
            key = {"data": content_hash(items), "backbone": dict(backbone.settings)}

            def compute(items: Sequence[Any] = items) -> FloatArray:
                batches = []
                for first in range(0, len(items), BATCH):
                    batches.append(backbone.embed(items[first : first + BATCH]))
                    bar.advance(len(batches[-1]))
                return np.concatenate(batches)

            chunks.append(cache.get(key, compute))
            bar.reach(start + len(items))
    log.info("%s: features of %d inputs with %s", title, len(rows), backbone.name)
    return np.concatenate(chunks)
