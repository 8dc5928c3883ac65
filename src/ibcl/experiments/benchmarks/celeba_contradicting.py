"""CelebA, contradicting attributes: ten tasks on the same faces, in five opposite pairs.

Within a pair a face that has one attribute hardly ever has the other (among the first 8,000 images
their correlations are −0.78, −0.50, −0.39, −0.32 and −0.26), so that two tasks ask for opposite
answers to the same input, and only a preference can say which one is wanted. Training data is
redrawn with equal classes, as in ``celeba-balanced``.
"""

from __future__ import annotations

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.celeba import BALANCED, SHARED
from ibcl.experiments.benchmarks.description import TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset

PAIRS = (
    ("Male", "Wearing_Lipstick"),
    ("No_Beard", "5_o_Clock_Shadow"),
    ("Young", "Gray_Hair"),
    ("Straight_Hair", "Wavy_Hair"),
    ("Black_Hair", "Brown_Hair"),
)

DESCRIPTION = BALANCED.model_copy(
    update={
        "name": "celeba-contradicting",
        "tasks": tuple(TaskDescription(name=name, label=name) for pair in PAIRS for name in pair),
    }
)


def load(settings: Settings) -> Benchmark:
    """Load the contradicting attributes of CelebA."""
    tables, source = read_dataset(DESCRIPTION, settings.data, settings.cache)
    return assemble(DESCRIPTION, tables, source, settings)


register(
    BenchmarkRegistration(
        "celeba-contradicting",
        "CelebA, contradicting attributes",
        load,
        **{**SHARED, "families": ("uniform", "sparse", "vertices")},
    )
)
