"""``ibcl learn``: learn one task from a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import (
    Inference,
    Json,
    KnowledgeBaseFolder,
    LabelColumn,
    Network,
    Pooling,
    TableFile,
)

_SETTINGS = "Settings, fixed by the first task"
_COLUMNS = "Columns, fixed by the first task"


def learn(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    label: LabelColumn,
    task: Annotated[
        str | None, typer.Option(help="Name of the task.", show_default="the file's name")
    ] = None,
    validation: Annotated[
        Path | None, typer.Option(help="Table for early stopping (mean-field only).")
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(
            help="Feature columns, a,b,c.",
            show_default="all numeric ones",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(
            help="All classes, a,b,c, if the first task lacks some.",
            show_default="those of the first task",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    standardise: Annotated[
        bool,
        typer.Option(
            help="Scale features (and a regression's target) to mean 0 and standard deviation 1 "
            "over the first task; later tasks use the same numbers.",
            rich_help_panel=_COLUMNS,
        ),
    ] = True,
    like: Annotated[
        Path | None,
        typer.Option(
            help="Take all settings, columns and the standardisation from this other knowledge "
            "base, so that the two can be merged.",
            metavar="KB",
            rich_help_panel=_COLUMNS,
        ),
    ] = None,
    regression: Annotated[
        bool, typer.Option("--regression", help="Predict a value.", rich_help_panel=_SETTINGS)
    ] = False,
    network: Annotated[
        Network | None,
        typer.Option(show_default="random_features", rich_help_panel=_SETTINGS),
    ] = None,
    hidden: Annotated[
        str | None,
        typer.Option(
            help="Hidden units of an mlp; 64,32 for two layers.",
            show_default="64",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of random features.",
            show_default="256",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    inference: Annotated[
        Inference | None,
        typer.Option(show_default="dense; mean-field for an mlp", rich_help_panel=_SETTINGS),
    ] = None,
    pooling: Annotated[
        Pooling | None,
        typer.Option(
            show_default="evidence with dense, wasserstein with mean-field",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    priors: Annotated[
        str | None,
        typer.Option(
            help="Standard deviations of the priors, 2,2.5,3.",
            show_default="2.5",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    d: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Posteriors closer than this to a stored one are not stored again.",
            show_default="0 with evidence, else 0.012",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help="The region holds the right model with probability 1 − alpha.",
            show_default="0.01",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Passes over the data (mean-field only).",
            show_default="20",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of a regression's noise, in units of the scaled target.",
            show_default="0.3",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    isolated: Annotated[
        bool | None,
        typer.Option(
            "--isolated/--chained",
            help="Learn every task from the priors, or from the task before.",
            show_default="isolated with dense, chained with mean-field",
            rich_help_panel=_SETTINGS,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Fixes everything random.", show_default="0", rich_help_panel=_SETTINGS),
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(
            help="How full covariances are kept on disk: exact, float16 or eigenvectors:64.",
            show_default="exact",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Learn one task from a CSV or Parquet file.

    The first task creates the knowledge base with the settings given; later tasks add to it, and
    need no settings.
    """
    from ibcl.cli import knowledge_base as knowledge_bases
    from ibcl.cli.output import count, emit, progress_bar
    from ibcl.cli.tables import read_table

    options = {
        "network": network,
        "hidden": _numbers(hidden, int, "hidden"),
        "width": width,
        "inference": inference,
        "pooling": pooling,
        "priors": _numbers(priors, float, "priors"),
        "d": d,
        "alpha": alpha,
        "epochs": epochs,
        "noise": noise,
        "isolated": isolated,
        "regression": regression or None,
        "seed": seed,
    }
    given = {name: value for name, value in options.items() if value is not None}
    frame = read_table(file)
    created = not knowledge_bases.exists(knowledge_base)
    if created and like is None:
        tabular = knowledge_bases.create(
            frame,
            label,
            given,
            features=_names(features),
            classes=_names(classes),
            standardise=standardise,
        )
    else:
        source = knowledge_bases.open_learner(like if created and like else knowledge_base)
        tabular = knowledge_bases.create_like(source) if created else source
        tabular.settings.check(given)
        tabular.schema.check(_names(features), _names(classes))
    learner, _, schema = tabular
    name = file.stem if task is None else task
    learner.knowledge.check_new(name)
    held_out = None
    if validation is not None:
        other = read_table(validation)
        held_out = (schema.x(other), schema.y(other, label))
    with progress_bar(f"Learning {name}", hidden=as_json) as progress:
        record = learner.learn(
            schema.x(frame), schema.y(frame, label), name, validation=held_out, progress=progress
        )
    learner.save(knowledge_base, storage=storage)
    stored = len(learner.knowledge.stored)
    left_out = [
        column for column in frame.columns if column not in schema.features and column != label
    ]
    result = {
        "knowledge_base": knowledge_base,
        "created": created,
        "task": name,
        "samples": record.samples,
        "updates": record.updates,
        "features": schema.features,
        "columns_left_out": left_out,
        "classes": schema.classes,
        "pointers": record.pointers,
        "stored_posteriors": stored,
        "stored_bytes": learner.knowledge.nbytes,
        "tasks": learner.tasks,
    }
    lines = [
        f"Learnt task {name!r} from {count(record.samples, 'sample')} and "
        f"{count(len(schema.features), 'feature')}"
        + (f" with {count(record.updates, 'batch update')}." if record.updates else "."),
        f"{knowledge_base} holds {count(len(learner.tasks), 'task')} in "
        f"{count(stored, 'posterior')} ({count(learner.knowledge.nbytes, 'byte')}).",
    ]
    if left_out:
        lines.append(f"Columns not used: {', '.join(left_out)}.")
    emit(result, as_json, *lines)


def _names(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _numbers(
    text: str | None, kind: type[int] | type[float], option: str
) -> tuple[int | float, ...] | None:
    if text is None:
        return None
    try:
        return tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise ValueError(f"--{option} must be numbers separated by commas, not {text!r}") from None
