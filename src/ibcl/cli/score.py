"""``ibcl score``: how well the models of preferences predict a labelled table."""

from __future__ import annotations

from typing import Annotated

import typer

from ibcl.cli.options import Json, KnowledgeBaseFolder, LabelColumn, Samples, TableFile


def score(
    knowledge_base: KnowledgeBaseFolder,
    file: TableFile,
    label: LabelColumn,
    preference: Annotated[
        list[str],
        typer.Option(
            help="Weights of all tasks, such as 'a=0.8,b=0.2'; may be repeated.",
            metavar="WEIGHTS",
            show_default=False,
        ),
    ],
    samples: Samples = 0,
    as_json: Json = False,
) -> None:
    """Score models on a labelled file: accuracy and calibration, or R² and error."""
    from ibcl.cli.knowledge_base import open_learner
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import scores
    from ibcl.cli.tables import read_table

    learner, _, schema = open_learner(knowledge_base)
    models = [learner.model(value) for value in preference]
    frame = read_table(file)
    found = [scores(model, schema, frame, label, samples) for model in models]
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
