"""From raw tables and a description to tasks: select rows, keep the parts apart, add features."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ibcl.experiments.benchmarks.backbones import Backbone
from ibcl.experiments.benchmarks.backbones import backbone as find_backbone
from ibcl.experiments.benchmarks.balance import equal_classes
from ibcl.experiments.benchmarks.benchmark import (
    PARTS,
    Benchmark,
    BenchmarkTask,
    Part,
    Provenance,
    Split,
)
from ibcl.experiments.benchmarks.cache import FeatureCache, FloatArray, array_hash
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.extraction import Inputs, extract
from ibcl.experiments.benchmarks.projection import orthogonal_projection
from ibcl.experiments.benchmarks.raw_tables import Table, Tables
from ibcl.experiments.benchmarks.row_selection import Selection, hold_out, select


@dataclass(frozen=True)
class Settings:
    """What a caller may choose about a benchmark.

    Parameters
    ----------
    backbone
        Name of the feature extractor, or one, or ``None`` for the benchmark's own.
    data
        Folder with local copies of the data, or ``None`` for the public source.
    cache
        Folder for what is computed or converted once.
    seed
        Seed of the splits.
    dimension
        Widest features to hand out; wider ones are projected. ``None`` for all there are.
    """

    backbone: str | Backbone | None
    data: Path | None
    cache: Path
    seed: int
    dimension: int | None


def assemble(
    description: BenchmarkDescription, tables: Tables, source: str, settings: Settings
) -> Benchmark:
    """Build the benchmark a description speaks of from its raw tables."""
    selections = {
        part: [select(description, task, table, part) for task in description.tasks]
        for part, table in tables.items()
    }
    missing: dict[Part, int | float] = {}
    if "test" not in tables:
        missing["test"] = description.test
    if "validation" not in tables:
        missing["validation"] = description.validation
    # Where each part's rows come from: its own table, or rows held out of the training table.
    origin: dict[Part, Part] = {part: part if part in tables else "train" for part in PARTS}
    chosen: dict[Part, list[Selection]] = {
        **selections,
        **hold_out(description, selections["train"], missing, settings.seed),
    }
    features, name, feature_settings = _features(description, tables, origin, chosen, settings)
    if description.balance:
        chosen["train"] = [
            selection.subset(equal_classes(selection.labels, settings.seed))
            for selection in chosen["train"]
        ]
    tasks = tuple(
        _task(description.tasks[i], {p: chosen[p][i] for p in PARTS}, origin, features)
        for i in range(len(description.tasks))
    )
    digest = hashlib.sha256()
    for part in sorted(features):
        digest.update(array_hash(features[part].matrix).encode())
    for part in PARTS:
        for selection in chosen[part]:
            positions = features[origin[part]].positions(selection.rows)
            digest.update(array_hash(positions).encode())
            digest.update(array_hash(selection.labels).encode())
    provenance = Provenance(
        source=source,
        backbone=name,
        settings=feature_settings,
        seed=settings.seed,
        sizes={t.name: {part: len(split) for part, split in t.parts().items()} for t in tasks},
        sha256=digest.hexdigest(),
    )
    return Benchmark(description.name, tasks, description.metric, provenance=provenance)


@dataclass(frozen=True)
class _Features:
    """Features of the rows of one table that any task needs; ``rows`` is sorted."""

    rows: NDArray[np.int64]
    matrix: FloatArray

    def of(self, rows: NDArray[np.int64]) -> FloatArray:
        if np.array_equal(rows, self.rows):
            return self.matrix
        return self.matrix[self.positions(rows)]

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the rows are in the matrix: the same in a full data set and in a subset."""
        return np.searchsorted(self.rows, rows)


def _features(
    description: BenchmarkDescription,
    tables: Tables,
    origin: Mapping[Part, Part],
    chosen: Mapping[Part, list[Selection]],
    settings: Settings,
) -> tuple[dict[Part, _Features], str, dict[str, Any]]:
    needed = {
        table: np.unique(
            np.concatenate([s.rows for p in PARTS if origin[p] == table for s in chosen[p]])
        )
        for table in tables
    }
    if description.numbers is not None:
        if settings.backbone is not None:
            raise ValueError(
                f"the benchmark {description.name} holds numbers already and takes no backbone, "
                f"but {settings.backbone!r} was given"
            )
        return (
            {part: _Features(rows, _matrix(tables[part])[rows]) for part, rows in needed.items()},
            "none",
            {},
        )
    kind = "image" if description.image is not None else "text"
    default = "resnet18" if kind == "image" else "tfidf"
    chosen_backbone = settings.backbone or description.backbone or default
    extractor = (
        chosen_backbone if isinstance(chosen_backbone, Backbone) else find_backbone(chosen_backbone)
    )
    if extractor.kind != kind:
        raise ValueError(
            f"the backbone {extractor.name} reads {extractor.kind}s, but the inputs of "
            f"{description.name} are {kind}s: choose another backbone"
        )
    extractor = extractor.fitted(lambda: _inputs(tables["train"]).take(chosen["train"][0].rows))
    cache = FeatureCache(settings.cache)
    matrices = {
        part: extract(_inputs(tables[part]), rows, extractor, cache, f"{description.name}, {part}")
        for part, rows in needed.items()
    }
    feature_settings = dict(extractor.settings)
    width = matrices["train"].shape[1]
    if settings.dimension is not None and width > settings.dimension:
        # The projection belongs to the extractor, not to the run: the same for every seed.
        projection = orthogonal_projection(width, settings.dimension)
        matrices = {part: matrix @ projection for part, matrix in matrices.items()}
        feature_settings["projection"] = [width, settings.dimension]
    return (
        {part: _Features(needed[part], matrix) for part, matrix in matrices.items()},
        extractor.name,
        feature_settings,
    )


def _task(
    task: TaskDescription,
    chosen: Mapping[Part, Selection],
    origin: Mapping[Part, Part],
    features: Mapping[Part, _Features],
) -> BenchmarkTask:
    splits = {
        part: Split(features[origin[part]].of(chosen[part].rows), chosen[part].labels)
        for part in PARTS
    }
    for part, split in splits.items():
        if len(split.classes) < 2:
            raise ValueError(
                f"the {part} part of task {task.name!r} has {len(split)} rows of "
                f"{len(split.classes)} class(es): expected rows of at least two classes"
            )
    return BenchmarkTask(task.name, splits["train"], splits["validation"], splits["test"])


def _inputs(table: Table) -> Inputs:
    assert not isinstance(table.inputs, np.ndarray)
    return table.inputs


def _matrix(table: Table) -> FloatArray:
    assert isinstance(table.inputs, np.ndarray)
    return table.inputs
