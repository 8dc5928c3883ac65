"""Merges of adapters into one parameter vector, as rivals in the comparison.

None of them is a pooling rule of the library. A merge is one file with a function and a
`merge(title, ...)` before it, and the file's name in `MODULES`.
"""

from importlib import import_module

from ibcl.experiments.adapters.merges.change import HEAD, Change, as_adapter, change_of
from ibcl.experiments.adapters.merges.registry import MERGES, Merge, merge

MODULES = ("task_arithmetic", "ties", "dare", "fisher", "regmean")
for _name in MODULES:
    import_module(f"{__name__}.{_name}")

__all__ = ["HEAD", "MERGES", "Change", "Merge", "as_adapter", "change_of", "merge"]
