"""What people call methods and benchmarks, and their order in tables, by registration."""

from __future__ import annotations

from collections.abc import Iterable

from ibcl.experiments import benchmarks, methods
from ibcl.experiments.methods.registration import GROUPS


def title(method: str, memory: int = 0) -> str:
    """Name a contender in a figure or table; a method unknown here keeps its own name.

    Examples
    --------
    >>> title("gem", 50)
    'GEM, 50 per task'
    """
    known = methods.METHODS.get(method)
    name = known.title if known else method
    return f"{name}, {memory} per task" if memory else name


def benchmark_title(benchmark: str) -> str:
    """Name a benchmark in a figure or table.

    Examples
    --------
    >>> benchmark_title("20news"), benchmark_title("films/sci-fi")
    ('20 Newsgroups', 'films/sci-fi')
    """
    known = benchmarks.BENCHMARKS.get(benchmark)
    return known.title if known else benchmark


def group_of(method: str) -> str:
    """Return the kind of a method; one unknown here is a model like any other.

    Examples
    --------
    >>> group_of("gem")
    'rehearsal'
    """
    known = methods.METHODS.get(method)
    return known.group if known else GROUPS[-1]


def keeps_all_data(method: str) -> bool:
    """Whether a method may look at all data of all tasks, so that it is no winner.

    Examples
    --------
    >>> keeps_all_data("oracle"), keeps_all_data("gem")
    (True, False)
    """
    known = methods.METHODS.get(method)
    return known is not None and known.keeps_all_data


def place(method: str) -> int:
    """Position of a method in tables: registered ones first, in the order of registration.

    Examples
    --------
    >>> place("gem") < place("agem") < place("unheard of")
    True
    """
    known = list(methods.METHODS)
    return known.index(method) if method in known else len(known)


def in_order(names: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Put (method, memory) pairs in the order of tables.

    Examples
    --------
    >>> in_order([("agem", 50), ("gem", 500), ("gem", 50)])
    [('gem', 50), ('gem', 500), ('agem', 50)]
    """
    return sorted(names, key=lambda pair: (place(pair[0]), pair[0], pair[1]))
