"""``ibcl predict``: predictions for a table, by the model of a preference."""

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
    Samples,
    TableFile,
)

_ROWS_SHOWN = 20


def predict(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    preference: Annotated[
        str | None,
        typer.Option(
            help="Weights of all tasks, such as 'a=0.8,b=0.2', '0.8,0.2' in order of learning, or "
            "one task's name.",
            metavar="WEIGHTS",
            show_default=False,
        ),
    ] = None,
    preferences: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file of many users' preferences, with one column per task and "
            "a column 'user'; needs --output.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    normalise: Normalise = False,
    output: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file for the predictions; else they are printed. With "
            "--engine ray a folder of .parquet files, named .parquet itself."
        ),
    ] = None,
    samples: Samples = 0,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds",
            help="Add lower and upper probabilities (or expected values) over the convex hull of "
            "all tasks' predictions and this model's.",
        ),
    ] = False,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty", help="Add total, aleatoric and epistemic uncertainty."),
    ] = False,
    sets: Annotated[
        float | None,
        typer.Option(
            help="Add sets of classes (or intervals of values) that hold the right answer with "
            "this probability, such as 0.9; needs a knowledge base with --calibration.",
            metavar="COVERAGE",
            show_default=False,
        ),
    ] = None,
    engine: EngineName = "local",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Predict with the model of a preference, one row per row of the file.

    With many users' preferences, one row per user and row, written block by block.
    """
    from ibcl import Preference
    from ibcl.cli.knowledge_bases import load_tabular, text_columns
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import predictions
    from ibcl.cli.streaming import write_predictions_of_many
    from ibcl.cli.tables import check_output, read_table, rows_of, table_writer
    from ibcl.engines import check_engine

    if (preference is None) == (preferences is None):
        raise ValueError("Give either a --preference or a file of --preferences")
    if preferences is not None:
        if output is None:
            raise ValueError("A file of --preferences needs an --output for the predictions")
        if samples or bounds or uncertainty or sets is not None:
            raise ValueError(
                "--samples, --bounds, --uncertainty and --sets are for a single --preference only"
            )
        kind, _, address = check_engine(engine).partition(":")
        if kind == "ray":
            from ibcl.cli.predicting_on_ray import write_predictions_on_ray

            write_predictions_on_ray(
                knowledge_base, file, preferences, output, force, as_json, address, normalise
            )
        else:
            write_predictions_of_many(
                knowledge_base, file, preferences, output, force, as_json, normalise
            )
        return
    if engine != "local":
        raise ValueError("--engine only means something with a file of --preferences")
    if output is not None:
        check_output(output, force, inputs=[file])
    learner, schema = load_tabular(knowledge_base)
    model = learner.model(Preference.parse(preference, learner.tasks, normalise=normalise))
    frame = predictions(
        model, schema, read_table(file, text_columns(schema)), samples, bounds, uncertainty, sets
    )
    result = {"preference": dict(model.preference), "rows": len(frame)}
    if output is not None:
        with table_writer(output, force) as write:
            write(frame)
        emit(
            {**result, "output": output},
            as_json,
            f"{count(len(frame), 'prediction')} for {model.preference} are in {output}.",
        )
        return
    rows = rows_of(frame)
    shown = [(number, *row.values()) for number, row in enumerate(rows[:_ROWS_SHOWN], start=1)]
    hidden = len(rows) - len(shown)
    emit(
        {**result, "predictions": rows},
        as_json,
        table(f"Predictions for {model.preference}", ("row", *frame.columns), shown),
        *([f"... and {count(hidden, 'row')} more: use --output to write them."] if hidden else []),
    )
