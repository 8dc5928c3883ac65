"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

KnowledgeBaseFolder = Annotated[
    Path,
    typer.Argument(
        metavar="KB",
        help="Folder of the knowledge base, or its URL, such as s3://bucket/name.",
        show_default=False,
    ),
]
NetworkName = Annotated[
    str | None,
    typer.Option(
        "--network",
        help="The network it was learnt with, where ibcl did not build it: a folder that "
        "transformers saved, or module:function of Python.",
        metavar="NETWORK",
        show_default=False,
    ),
]
TableFile = Annotated[
    Path, typer.Argument(metavar="FILE", help="A .csv or .parquet file.", show_default=False)
]
TableFiles = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help=".csv or .parquet files.", show_default=False),
]
LabelColumn = Annotated[
    str, typer.Option(help="Column with the labels.", metavar="COLUMN", show_default=False)
]
PreferenceList = Annotated[
    list[str] | None,
    typer.Option(
        help="Weights of all tasks, such as 'a=0.8,b=0.2', '0.8,0.2' in order of learning, or one "
        "task's name; may be repeated.",
        metavar="WEIGHTS",
        show_default=False,
    ),
]
Normalise = Annotated[
    bool,
    typer.Option(
        "--normalise", help="Divide the weights of every preference by their sum, whatever it is."
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine",
        help="Where the work is done: 'local' (this machine), 'ray', or 'ray:ADDRESS' of a running "
        "cluster that sees the same files.",
    ),
]
Samples = Annotated[
    int, typer.Option(min=0, help="Average so many models of the region; 0 is the mean model.")
]
Approximation = Annotated[
    str | None,
    typer.Option(
        help="Accept a result that is not exact, by its name: 'rebase' for sequential knowledge "
        "bases.",
        metavar="NAME",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there already.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Log = Annotated[
    str | None,
    typer.Option(
        help="Also log figures to 'tensorboard:FOLDER' or 'mlflow:ADDRESS' as they become known.",
        metavar="NAME",
    ),
]
