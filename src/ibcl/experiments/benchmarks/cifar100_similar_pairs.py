"""CIFAR-100, similar pairs: ten tasks on the classes of `cifar100`, like against like.

A dolphin or a whale, a bus or a streetcar: the tasks have no question in common, so that what one
task calls 1 tells nothing about another, and a model of all tasks at once must find out the task.
Preferences matter here, because tasks disagree about what the labels mean.
"""

from __future__ import annotations

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.cifar100 import DESCRIPTION as PLAIN
from ibcl.experiments.benchmarks.description import TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset

PAIRS = (
    ("aquarium_fish", "trout"),
    ("beaver", "otter"),
    ("dolphin", "whale"),
    ("flatfish", "ray"),
    ("seal", "shark"),
    ("bicycle", "motorcycle"),
    ("bus", "streetcar"),
    ("lawn_mower", "tractor"),
    ("pickup_truck", "tank"),
    ("rocket", "train"),
)

DESCRIPTION = PLAIN.model_copy(
    update={
        "name": "cifar100-similar",
        "tasks": tuple(
            TaskDescription(name=f"{first}-vs-{second}", classes=((first,), (second,)))
            for first, second in PAIRS
        ),
    }
)


def load(settings: Settings) -> Benchmark:
    """Load the similar pairs of CIFAR-100."""
    tables, source = read_dataset(DESCRIPTION, settings.data, settings.cache)
    return assemble(DESCRIPTION, tables, source, settings)


register(
    BenchmarkRegistration(
        "cifar100-similar",
        "CIFAR-100, similar pairs",
        load,
        backbone=True,
        families=("uniform", "sparse", "vertices"),
        tuned_as="cifar100",
    )
)
