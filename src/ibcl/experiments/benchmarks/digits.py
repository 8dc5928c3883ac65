"""Handwritten digits, embedded in scikit-learn: five tasks, even (label 0) or odd (label 1).

The 64 pixels, scaled to [0, 1], are the features: no backbone, no download, a second to run.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import Table

DESCRIPTION = BenchmarkDescription(
    name="digits",
    numbers=tuple(f"pixel_{row}_{column}" for row in range(8) for column in range(8)),
    label="digit",
    validation=0.2,
    test=0.2,
    tasks=tuple(
        TaskDescription(name=f"{even}-vs-{even + 1}", classes=((even,), (even + 1,)))
        for even in range(0, 10, 2)
    ),
)


def load(settings: Settings) -> Benchmark:
    """Load the digits."""
    pixels, digit = load_digits(return_X_y=True)
    table = Table({"digit": digit}, (pixels / 16).astype(np.float32))
    return assemble(DESCRIPTION, {"train": table}, "scikit-learn", settings)


register(BenchmarkRegistration("digits", "digits", load))
