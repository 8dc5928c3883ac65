"""Tiny ImageNet, similar pairs: ten tasks on the classes of `tinyimagenet`, like against like.

As `cifar100_similar_pairs`: the tasks have no question in common, so that preferences matter.
"""

from __future__ import annotations

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset
from ibcl.experiments.benchmarks.tiny_imagenet import ANIMALS, OTHERS
from ibcl.experiments.benchmarks.tiny_imagenet import DESCRIPTION as PLAIN

PAIRS = (
    ("bullfrog", "tailed_frog"),
    ("goose", "albatross"),
    ("european_fire_salamander", "american_alligator"),
    ("goldfish", "boa_constrictor"),
    ("koala", "king_penguin"),
    ("potpie", "meatloaf"),
    ("banana", "orange"),
    ("espresso", "pizza"),
    ("water_tower", "viaduct"),
    ("cliff", "tractor"),
)
_IDS = {**ANIMALS, **OTHERS}

DESCRIPTION = PLAIN.model_copy(
    update={
        "name": "tinyimagenet-similar",
        "tasks": tuple(
            TaskDescription(name=f"{first}-vs-{second}", classes=((_IDS[first],), (_IDS[second],)))
            for first, second in PAIRS
        ),
    }
)


def load(settings: Settings) -> Benchmark:
    """Load the similar pairs of Tiny ImageNet."""
    tables, source = read_dataset(DESCRIPTION, settings.data, settings.cache)
    return assemble(DESCRIPTION, tables, source, settings)


register(
    BenchmarkRegistration(
        "tinyimagenet-similar",
        "Tiny ImageNet, similar pairs",
        load,
        backbone=True,
        families=("uniform", "sparse", "vertices"),
        tuned_as="tinyimagenet",
    )
)
