"""Tiny ImageNet: ten tasks, an animal (label 0) or not an animal (label 1).

The public data has 500 training images per class and 50 in a second, labelled split; the labels of
its third split were never published. So the second split serves as test data, and 50 training
images per class are held out for validation, which leaves 450 to learn from: the three parts stay
apart, at the price of a tenth of the paper's training images.
"""

from __future__ import annotations

from ibcl.experiments.benchmarks.assembly import Settings, assemble
from ibcl.experiments.benchmarks.benchmark import Benchmark
from ibcl.experiments.benchmarks.benchmark_registration import BenchmarkRegistration, register
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import read_dataset

# The data names its classes by WordNet id.
ANIMALS = {
    "goldfish": "n01443537",
    "european_fire_salamander": "n01629819",
    "bullfrog": "n01641577",
    "tailed_frog": "n01644900",
    "american_alligator": "n01698640",
    "boa_constrictor": "n01742172",
    "goose": "n01855672",
    "koala": "n01882714",
    "king_penguin": "n02056570",
    "albatross": "n02058221",
}
OTHERS = {
    "cliff": "n09246464",
    "espresso": "n07920052",
    "potpie": "n07875152",
    "pizza": "n07873807",
    "meatloaf": "n07871810",
    "banana": "n07753592",
    "orange": "n07747607",
    "water_tower": "n04562935",
    "viaduct": "n04532670",
    "tractor": "n04465501",
}

DESCRIPTION = BenchmarkDescription(
    name="tinyimagenet",
    hub="zh-plus/tiny-imagenet",
    splits={"train": ("train",), "test": ("valid", "validation")},
    image="image",
    label="label",
    validation=50,
    tasks=tuple(
        TaskDescription(name=f"{animal}-vs-{other}", classes=((ANIMALS[animal],), (OTHERS[other],)))
        for animal, other in zip(ANIMALS, OTHERS, strict=True)
    ),
)


def load(settings: Settings) -> Benchmark:
    """Load Tiny ImageNet."""
    tables, source = read_dataset(DESCRIPTION, settings.data, settings.cache)
    return assemble(DESCRIPTION, tables, source, settings)


register(BenchmarkRegistration("tinyimagenet", "Tiny ImageNet", load, backbone=True))
