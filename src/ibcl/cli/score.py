"""``ibcl score``: how well models predict a labelled table."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import (
    Json,
    KnowledgeBaseFolder,
    Normalise,
    PreferenceList,
    Samples,
    TableFile,
)

# Options of version 0.2 that belong to `predict` now.
_Old = Annotated[Path | None, typer.Option(hidden=True)]
_OldName = Annotated[str, typer.Option(hidden=True)]
_OldFlag = Annotated[bool, typer.Option("--force", hidden=True)]


def score(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    label: Annotated[
        str | None,
        typer.Option(help="Column with the labels.", metavar="COLUMN", show_default=False),
    ] = None,
    preference: PreferenceList = None,
    normalise: Normalise = False,
    samples: Samples = 0,
    as_json: Json = False,
    users: _Old = None,
    out: _Old = None,
    engine: _OldName = "local",
    force: _OldFlag = False,
) -> None:
    """Score models on a labelled file: accuracy and calibration, or R² and error."""
    from ibcl import Preference
    from ibcl.cli.knowledge_bases import load_tabular, text_columns
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import scores
    from ibcl.cli.tables import column, read_table

    if users is not None and out is not None:
        from ibcl.cli.predict import predict

        warnings.warn(
            "score --users --out is called predict --preferences --output now; the old names go "
            "with version 0.4",
            DeprecationWarning,
            stacklevel=2,
        )
        predict(
            knowledge_base,
            file,
            preferences=users,
            output=out,
            normalise=normalise,
            engine=engine,
            force=force,
            as_json=as_json,
        )
        return
    if label is None or not preference:
        raise ValueError(
            "Give a --label and at least one --preference; predictions of many users are made by "
            "'ibcl predict'"
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
