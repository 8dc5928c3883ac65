"""Knowledge bases that learn from tables: opened, described, and compared with options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ibcl
from ibcl.cli.threads import choose_threads
from ibcl.inference import METHODS
from ibcl.store import exists
from ibcl.tabular import Schema


def require(folder: Path) -> None:
    """Refuse a place without a knowledge base."""
    if not exists(folder):
        raise ValueError(f"{folder} is not a knowledge base; make one with 'ibcl learn'")


def load(folder: Path, network: str | None = None) -> ibcl.IBCL:
    """Load any knowledge base, with the name of its network where ibcl did not build it."""
    require(folder)
    learner = ibcl.load(folder, network=network)
    choose_threads(learner.network.dimension)
    return learner


def load_tabular(folder: Path) -> tuple[ibcl.IBCL, Schema]:
    """Load a knowledge base that knows columns and classes."""
    learner = load(folder)
    return learner, schema_of(learner, folder)


def schema_of(learner: ibcl.IBCL, folder: Path) -> Schema:
    """Return what a learner knows of columns and classes."""
    if not isinstance(learner.encoder, Schema):
        raise ValueError(
            f"{folder} says nothing about columns and classes, as it was not made by 'ibcl learn'; "
            "use it from Python with ibcl.load"
        )
    return learner.encoder


def text_columns(schema: Schema, label: str | None = None) -> list[str]:
    """Name the columns that are read as text, also where they look like numbers."""
    names = [column.name for column in schema.columns if column.kind in ("categorical", "date")]
    if label is not None and any(isinstance(value, str) for value in schema.classes or ()):
        names.append(label)
    return [name for name in names if name is not None]


def settings_of(learner: ibcl.IBCL) -> dict[str, Any]:
    """Return what a learner was made with, by the names of the options of ``ibcl learn``."""
    knowledge, encoder = learner.knowledge, learner.encoder
    specification = learner.network.specification or {"kind": "custom"}
    noise = getattr(learner.likelihood, "noise", None)
    scale = 1.0 if encoder is None else encoder.scale
    return {
        "network": specification["kind"],
        "hidden": _tuple(specification.get("hidden")),
        "width": specification.get("width"),
        "inference": next(
            (name for name, kind in METHODS.items() if type(learner.inference) is kind), "custom"
        ),
        "pooling": _name(learner.pooling),
        "priors": _prior_stds(knowledge),
        "d": knowledge.d,
        "distance": knowledge.distance,
        "alpha": learner.alpha,
        "epochs": getattr(learner.inference, "epochs", None),
        "likelihood": getattr(learner.likelihood, "name", learner.likelihood),
        "noise": None if noise is None else noise * scale,
        "independent": knowledge.independent,
        "calibration": learner.given.calibration,
        "calibration_rows": learner.given.calibration_rows,
        "expert": None if learner.given.expert is None else learner.given.expert.name,
        "memory": getattr(learner.state.rule, "memory", None),
        "regression": encoder is not None and encoder.classes is None,
        "seed": learner.seed,
    }


def check_settings(learner: ibcl.IBCL, given: Mapping[str, Any]) -> None:
    """Refuse options that say otherwise than the knowledge base."""
    fixed = settings_of(learner)
    for name, value in given.items():
        if not _same(fixed[name], value):
            raise ValueError(
                f"The knowledge base was made with {name} = {_text(fixed[name])}, so {name} = "
                f"{_text(value)} cannot be used now; leave the option out, or start another "
                "knowledge base"
            )


def check_columns(schema: Schema, features: list[str] | None, classes: list[str] | None) -> None:
    """Refuse columns or classes that say otherwise than the knowledge base."""
    for what, given, fixed in (
        ("features", features, schema.names or ()),
        ("classes", classes, schema.class_names or ()),
    ):
        if given is not None and tuple(given) != fixed:
            raise ValueError(
                f"The {what} of this knowledge base are {', '.join(fixed) or 'none'}, and cannot "
                f"be {', '.join(given)} now; leave the option out, or start another knowledge base"
            )


def check_same_tables(one: ibcl.IBCL, other: ibcl.IBCL) -> None:
    """Refuse two knowledge bases that mean something else by the same table."""
    if one.encoder == other.encoder:
        return
    if isinstance(one.encoder, Schema) and isinstance(other.encoder, Schema):
        try:
            # Two that only have grown apart can become one.
            one.encoder.united(other.encoder)
        except ValueError:
            pass
        else:
            return
    parts = one.encoder.differences(other.encoder) if isinstance(one.encoder, Schema) else ()
    raise ValueError(
        "The knowledge bases cannot be merged, as they scale or name their columns differently "
        f"({', '.join(parts) or 'columns'}); make the second one with 'ibcl learn --like FIRST'"
    )


def _name(value: Any) -> str:
    return value if isinstance(value, str) else str(getattr(value, "name", value))


def _prior_stds(knowledge: ibcl.KnowledgeBase) -> tuple[float, ...]:
    """Of the priors that all tasks share, or of every task where each has its own."""
    own = [record.scale for record in knowledge.records]
    stds = tuple(_std(prior) for prior in knowledge.priors)
    if not own or None in own:
        return stds
    return tuple(std * scale for scale in own if scale is not None for std in stds)


def _std(prior: Any) -> float:
    """The standard deviation of a prior that is the same for all parameters, or its mean."""
    std = prior.std if hasattr(prior, "std") else prior.dense().covariance.diagonal().sqrt()
    return float(std.double().mean())


def _tuple(value: Any) -> tuple[Any, ...] | None:
    return None if value is None else tuple(value)


def _same(fixed: Any, value: Any) -> bool:
    if isinstance(fixed, tuple) and isinstance(value, tuple):
        return len(fixed) == len(value) and all(map(_same, fixed, value))
    if isinstance(fixed, float) and isinstance(value, float):
        # What is kept in single precision comes back with seven digits.
        return abs(fixed - value) <= 1e-6 * abs(value)
    return bool(fixed == value)


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value).lower()
