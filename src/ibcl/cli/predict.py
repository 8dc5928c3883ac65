"""``ibcl predict``: predictions for a table, by the model of a preference."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import Json, KnowledgeBaseFolder, PreferenceText, Samples, TableFile

_ROWS_SHOWN = 20


def predict(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    preference: PreferenceText,
    output: Annotated[
        Path | None,
        typer.Option(help="A .csv or .parquet file for the predictions; else they are printed."),
    ] = None,
    samples: Samples = 0,
    bounds: Annotated[
        bool,
        typer.Option(
            "--bounds", help="Add lower and upper probabilities over all preferences' models."
        ),
    ] = False,
    uncertainty: Annotated[
        bool,
        typer.Option("--uncertainty", help="Add total, aleatoric and epistemic uncertainty."),
    ] = False,
    as_json: Json = False,
) -> None:
    """Predict with the model of a preference, one row a row of the file."""
    from ibcl.cli.knowledge_base import open_learner
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import predictions
    from ibcl.cli.tables import check_writable, read_table, rows_of, write_table

    if output is not None:
        check_writable(output)
    learner, _, schema = open_learner(knowledge_base)
    model = learner.model(preference)
    frame = predictions(model, schema, read_table(file), samples, bounds, uncertainty)
    result = {"preference": dict(model.preference), "rows": len(frame)}
    if output is not None:
        write_table(frame, output)
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
