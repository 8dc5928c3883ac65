"""What a benchmark declares besides its data: its features, how it is evaluated and trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ibcl.experiments.benchmarks.assembly import Settings
from ibcl.experiments.benchmarks.benchmark import Benchmark


@dataclass(frozen=True)
class BenchmarkRegistration:
    """A benchmark as it takes part in comparisons.

    Parameters
    ----------
    name, title
        Its name on the command line, and what people call it.
    load
        Makes it.
    backbone
        Whether its inputs go through a backbone that the caller may choose (images do).
    memories
        Samples per task that rehearsal methods keep, the sizes to compare: those of the paper's two
        tables.
    families
        Families of preferences to ask.
    training
        Epochs and batches of every method that takes them, where they are not the usual ones.
    tuned_as
        The benchmark whose tuned settings are used; its own name without one.
    """

    name: str
    title: str
    load: Callable[[Settings], Benchmark]
    backbone: bool = False
    memories: tuple[int, ...] = (50, 500)
    families: tuple[str, ...] = ("uniform",)
    training: Mapping[str, int] = field(default_factory=dict)
    tuned_as: str | None = None


BENCHMARKS: dict[str, BenchmarkRegistration] = {}
"""All benchmarks by name."""


def register(registration: BenchmarkRegistration) -> BenchmarkRegistration:
    """Make a benchmark known to the command line, the tables and the figures."""
    if registration.name in BENCHMARKS:
        raise ValueError(f"there is a benchmark {registration.name!r} already: choose another name")
    BENCHMARKS[registration.name] = registration
    return registration
