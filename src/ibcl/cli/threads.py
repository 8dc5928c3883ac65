"""How many threads to compute with."""

from __future__ import annotations

import os

# Below so many parameters the work of a matrix is less than that of sharing it between threads.
_LARGE = 1000


def choose_threads(parameters: int) -> None:
    """Use one thread for small matrices, and all processors for large ones.

    ``ibcl --threads``, or the environment variables IBCL_THREADS and OMP_NUM_THREADS, decide
    otherwise.
    """
    import torch

    asked = os.environ.get("IBCL_THREADS")
    if asked is not None:
        torch.set_num_threads(int(asked))
    elif "OMP_NUM_THREADS" not in os.environ and parameters < _LARGE:
        torch.set_num_threads(1)
