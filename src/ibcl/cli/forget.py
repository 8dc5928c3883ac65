"""``ibcl forget``: remove a task from a knowledge base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ibcl.cli.options import Approximation, Json, KnowledgeBaseFolder, NetworkName


def forget(
    knowledge_base: KnowledgeBaseFolder,
    task: Annotated[str, typer.Argument(help="Name of the task to forget.", show_default=False)],
    approximation: Approximation = None,
    rows: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="All rows the task was learnt from, to take it also out of what is kept of all "
            "tasks together (--memory shared).",
        ),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of these rows with the labels.")
    ] = None,
    sample_weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of these rows with their weights.")
    ] = None,
    network: NetworkName = None,
    as_json: Json = False,
) -> None:
    """Forget a task: exact where tasks are independent, refused otherwise."""
    from ibcl.cli.knowledge_bases import load
    from ibcl.cli.output import count, emit
    from ibcl.tabular import Schema, remembered

    learner = load(knowledge_base, network)
    given = {} if rows is None else _read(learner, rows, label, sample_weight)
    learner.forget(task, approximation=approximation, **given)
    learner.save(knowledge_base)
    schema = learner.encoder
    stays = remembered(schema) if isinstance(schema, Schema) else ()
    shared = ("covariance of all tasks",) if learner.knowledge.common and not given else ()
    emit(
        {"knowledge_base": knowledge_base, "forgotten": task, "tasks": learner.tasks}
        | {"stays": [*stays, *shared]},
        as_json,
        f"Forgot {task!r}. {knowledge_base} holds {count(len(learner.tasks), 'task')}: "
        f"{', '.join(learner.tasks) or 'none'}.",
        *[f"How tables are read stays, with the {', '.join(stays)} it was made of."] * bool(stays),
    )


def _read(learner: Any, rows: Path, label: str | None, sample_weight: str | None) -> dict[str, Any]:
    """Read the rows a task was learnt from."""
    from ibcl.cli.knowledge_bases import text_columns
    from ibcl.cli.tables import column, read_table

    if label is None:
        raise ValueError("Say with --label which column of the rows holds the labels.")
    frame = read_table(rows, text_columns(learner.encoder, label))
    weights = None if sample_weight is None else column(frame, sample_weight, rows)
    return {"x": frame, "y": column(frame, label, rows), "sample_weight": weights}
