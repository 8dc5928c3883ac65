"""CelebA: fifteen tasks on the same faces, each with (label 1) or without (label 0) an attribute.

The data's own three splits are used. All tasks share the images and differ only in the labels,
which are far from balanced, so balanced accuracy is the metric to prefer. Trained on as it is, the
best answer to most preferences is the majority's; `load_balanced` has the same validation and test
data, and training data redrawn with equal classes.
"""

from __future__ import annotations

from typing import Any

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset

# The first 15 of the 40 attributes, in the order of the data's attribute list.
ATTRIBUTES = (
    "5_o_Clock_Shadow",
    "Arched_Eyebrows",
    "Attractive",
    "Bags_Under_Eyes",
    "Bald",
    "Bangs",
    "Big_Lips",
    "Big_Nose",
    "Black_Hair",
    "Blond_Hair",
    "Blurry",
    "Brown_Hair",
    "Bushy_Eyebrows",
    "Chubby",
    "Double_Chin",
)

DESCRIPTION = BenchmarkDescription(
    name="celeba",
    hub="flwrlabs/celeba",
    splits={"train": ("train",), "validation": ("valid", "validation"), "test": ("test",)},
    image="image",
    metric="balanced_accuracy",
    tasks=tuple(TaskDescription(name=name, label=name) for name in ATTRIBUTES),
)


BALANCED = DESCRIPTION.model_copy(update={"name": "celeba-balanced", "balance": True})


def load(settings: Settings) -> Benchmark:
    """Load CelebA as it is."""
    return _load(DESCRIPTION, settings)


def load_balanced(settings: Settings) -> Benchmark:
    """Load CelebA with equal classes in the training data."""
    return _load(BALANCED, settings)


def _load(description: BenchmarkDescription, settings: Settings) -> Benchmark:
    tables, source = read_dataset(description, settings.data, settings.cache)
    return assemble(description, tables, source, settings)


# The tasks are ten times larger than other benchmarks', and the classes so unequal that the best
# answer to a dense preference is the majority's: sparse preferences tell methods apart.
SHARED: dict[str, Any] = {
    "backbone": True,
    "memories": (200, 500),
    "families": ("uniform", "sparse"),
    "training": {"epochs": 2, "batch_size": 128},
    "tuned_as": "celeba-balanced",
}

register(BenchmarkRegistration("celeba", "CelebA", load, **SHARED))
register(BenchmarkRegistration("celeba-balanced", "CelebA, equal classes", load_balanced, **SHARED))
