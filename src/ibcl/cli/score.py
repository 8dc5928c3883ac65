"""``ibcl score``: how well models predict a labelled table, or a table's scores for many users."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import (
    EngineName,
    Force,
    Json,
    KnowledgeBaseFolder,
    Normalise,
    PreferenceList,
    Samples,
    TableFile,
)


def score(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the labels.", metavar="COLUMN", show_default=False),
    ] = None,
    preference: PreferenceList = None,
    users: Annotated[
        Path | None,
        typer.Option(
            help="Score every row for every user instead: a .csv or .parquet file with a column a "
            "task and a column 'user'.",
            metavar="PREFERENCES",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file for the users' scores; with --engine ray a folder of "
            ".parquet files, named .parquet itself.",
            show_default=False,
        ),
    ] = None,
    normalise: Normalise = False,
    samples: Samples = 0,
    engine: EngineName = "local",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Score models on a labelled file: accuracy and calibration, or R² and error.

    With --users, write instead what every user's model says of every row, in one pass over the
    file.
    """
    from ibcl import Preference
    from ibcl.cli.knowledge_bases import load_tabular, text_columns
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import scores
    from ibcl.cli.streaming import write_predictions_of_many
    from ibcl.cli.tables import column, read_table
    from ibcl.engines import check_engine

    if users is not None:
        if out is None or label is not None or preference or samples:
            raise ValueError("--users needs --out, and takes no --label, --preference or --samples")
        kind, _, address = check_engine(engine).partition(":")
        if kind == "ray":
            from ibcl.cli.scoring_on_ray import write_predictions_on_ray

            write_predictions_on_ray(
                knowledge_base, file, users, out, force, as_json, address, normalise
            )
        else:
            write_predictions_of_many(knowledge_base, file, users, out, force, as_json, normalise)
        return
    if engine != "local":
        raise ValueError("--engine only means something with --users")
    if label is None or not preference or out is not None:
        raise ValueError(
            "Give a --label and at least one --preference; or --users and --out for the scores of "
            "many users"
        )
    learner, schema = load_tabular(knowledge_base)
    models = [
        learner.model(Preference.parse(value, learner.tasks, normalise=normalise))
        for value in preference
    ]
    frame = read_table(file, text_columns(schema, label))
    labels = column(frame, label, file)
    found = [scores(model, schema, frame, labels, samples) for model in models]
    emit(
        {
            "rows": len(frame),
            "scores": [
                {"preference": dict(model.preference), **row}
                for model, row in zip(models, found, strict=True)
            ],
        },
        as_json,
        table(
            f"Scores on {count(len(frame), 'row')} of {file}",
            ("preference", *(name.replace("_", " ") for name in found[0])),
            [
                (str(model.preference), *row.values())
                for model, row in zip(models, found, strict=True)
            ],
        ),
    )
