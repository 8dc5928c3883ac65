"""A knowledge base that learns from tables: a learner, and what it remembers of the tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import ibcl
from ibcl.cli.schema import Schema
from ibcl.cli.settings import Settings

# Where a learner's metadata holds what is in this file.
_KEY = "tables"


class TabularLearner(NamedTuple):
    """A learner with the settings and the schema it was created with."""

    learner: ibcl.IBCL
    settings: Settings
    schema: Schema


def exists(folder: Path) -> bool:
    """Tell whether there is something in the folder."""
    return folder.is_file() or (folder.is_dir() and any(folder.iterdir()))


def open_learner(folder: Path) -> TabularLearner:
    """Open a knowledge base made by ``ibcl learn``."""
    learner = load(folder)
    try:
        stored = learner.metadata[_KEY]
        settings = Settings.model_validate(stored["settings"])
        schema = Schema.model_validate(stored["schema"])
    except (KeyError, TypeError, ValueError):
        raise ValueError(
            f"{folder} says nothing about columns and classes, as it was not made by 'ibcl learn'; "
            "use it from Python with ibcl.load"
        ) from None
    return TabularLearner(learner, settings, schema)


def load(folder: Path) -> ibcl.IBCL:
    """Load any knowledge base."""
    if not exists(folder):
        raise ValueError(f"{folder} is not a knowledge base; make one with 'ibcl learn'")
    return ibcl.load(folder)


def create(
    frame: pd.DataFrame,
    label: str,
    given: Mapping[str, Any],
    *,
    features: Sequence[str] | None,
    classes: Sequence[str] | None,
    standardise: bool,
) -> TabularLearner:
    """Make a learner for tables like this one."""
    settings = Settings.choose(given)
    schema = Schema.fit(
        frame,
        label,
        features=features,
        classes=classes,
        regression=settings.regression,
        standardise=standardise,
    )
    return _assemble(settings, schema)


def create_like(other: TabularLearner) -> TabularLearner:
    """Make a learner that has learnt nothing, with the settings and schema of another."""
    return _assemble(other.settings, other.schema)


def _assemble(settings: Settings, schema: Schema) -> TabularLearner:
    count = None if schema.classes is None else len(schema.classes)
    learner = settings.learner(len(schema.features), count)
    learner.metadata = {
        _KEY: {
            "settings": settings.model_dump(mode="json"),
            "schema": schema.model_dump(mode="json"),
        }
    }
    return TabularLearner(learner, settings, schema)


def describe(learner: ibcl.IBCL) -> dict[str, Any]:
    """Return the settings of any knowledge base, by name."""
    knowledge = learner.knowledge
    network = learner.network.specification or {"kind": "custom"}
    schema = learner.metadata.get(_KEY, {}).get("schema", {})
    return {
        **{f"network {name}": value for name, value in network.items()},
        "parameters": knowledge.dimension,
        "inference": repr(learner.inference),
        "likelihood": repr(learner.likelihood),
        "pooling": learner.pooling,
        "priors": len(knowledge.priors),
        "tasks learnt": "one after another" if knowledge.continual else "isolated",
        "d": knowledge.d,
        "alpha": learner.alpha,
        "seed": learner.seed,
        "storage": learner.storage,
        **{name: schema[name] for name in ("features", "classes") if schema.get(name)},
    }


def check_same_tables(one: ibcl.IBCL, other: ibcl.IBCL) -> None:
    """Refuse two knowledge bases whose features, classes or standardisation differ."""
    schemas = [learner.metadata.get(_KEY, {}).get("schema") for learner in (one, other)]
    if schemas[0] != schemas[1]:
        parts = [
            name for name in schemas[0] or {} if schemas[0][name] != (schemas[1] or {}).get(name)
        ]
        raise ValueError(
            "The knowledge bases cannot be merged, as they scale or name their columns "
            f"differently ({', '.join(parts) or 'columns'}); make the second one with "
            "'ibcl learn --like FIRST'"
        )
