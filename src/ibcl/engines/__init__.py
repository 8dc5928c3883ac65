"""Engines: where many independent pieces of work run, and how their results come back.

An engine applies a function to items and yields an `Outcome` for each as it ends, in any order. A
piece that raises, or whose process dies, is an outcome with an error, and the others go on. Nothing
else knows which engine runs: a new one is a class with `run` and a line in `ENGINES`.
"""

from __future__ import annotations

from collections.abc import Callable

from ibcl.engines.engine import Engine, Outcome
from ibcl.engines.local import LocalEngine

__all__ = ["ENGINES", "Engine", "LocalEngine", "Outcome", "check_engine", "engine"]


def _local(address: str, processes: int | None) -> Engine:
    if address:
        raise ValueError(f"The local engine has no address: leave out {address!r}.")
    return LocalEngine(processes)


def _ray(address: str, processes: int | None) -> Engine:
    from ibcl.engines.ray import RayEngine

    return RayEngine(address, processes)


ENGINES: dict[str, Callable[[str, int | None], Engine]] = {"local": _local, "ray": _ray}
"""Engines by name, made from an address (what follows a colon) and a number of processes."""


def check_engine(name: str) -> str:
    """Return the name of an engine, with what follows a colon; refuse an unknown one.

    Examples
    --------
    >>> check_engine("ray:auto")
    'ray:auto'
    """
    if name.partition(":")[0] not in ENGINES:
        raise ValueError(f"Unknown engine {name!r}; known are {', '.join(ENGINES)}.")
    return name


def engine(name: str, processes: int | None = None) -> Engine:
    """Make an engine by its name; what follows a colon is the engine's own, such as an address.

    Examples
    --------
    >>> engine("local", 1).processes
    1
    """
    kind, _, address = check_engine(name).partition(":")
    return ENGINES[kind](address, processes)
