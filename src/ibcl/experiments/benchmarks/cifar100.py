"""Split CIFAR-100: ten tasks, an animal (label 0) or not an animal (label 1).

500 training images per class, of which 100 are held out for validation, and 100 test images.
"""

from __future__ import annotations

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset

ANIMALS = (
    "aquarium_fish",
    "beaver",
    "dolphin",
    "flatfish",
    "otter",
    "ray",
    "seal",
    "shark",
    "trout",
    "whale",
)
OTHERS = (
    "bicycle",
    "bus",
    "lawn_mower",
    "motorcycle",
    "pickup_truck",
    "rocket",
    "streetcar",
    "tank",
    "tractor",
    "train",
)

DESCRIPTION = BenchmarkDescription(
    name="cifar100",
    hub="uoft-cs/cifar100",
    splits={"train": ("train",), "test": ("test",)},
    image="img",
    label="fine_label",
    validation=100,
    tasks=tuple(
        TaskDescription(name=f"{animal}-vs-{other}", classes=((animal,), (other,)))
        for animal, other in zip(ANIMALS, OTHERS, strict=True)
    ),
)


def load(settings: Settings) -> Benchmark:
    """Load Split CIFAR-100."""
    tables, source = read_dataset(DESCRIPTION, settings.data, settings.cache)
    return assemble(DESCRIPTION, tables, source, settings)


register(BenchmarkRegistration("cifar100", "CIFAR-100", load, backbone=True))
