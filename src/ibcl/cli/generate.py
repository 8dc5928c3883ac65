"""``ibcl generate``: preferences in, model files out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import Json, KnowledgeBaseFolder


def generate(
    knowledge_base: KnowledgeBaseFolder,
    output: Annotated[
        Path,
        typer.Option(
            help="File for the model, .safetensors; a folder for several.", show_default=False
        ),
    ],
    preference: Annotated[
        list[str] | None,
        typer.Option(
            help="Weights of all tasks, such as 'a=0.8,b=0.2'; may be repeated.",
            metavar="WEIGHTS",
            show_default=False,
        ),
    ] = None,
    preferences: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file with a column a task and a row a preference.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Turn preferences into models, with no data and no training."""
    import time

    from ibcl.cli.knowledge_base import load
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import region_facts
    from ibcl.cli.tables import read_table, rows_of

    wanted: list[object] = list(preference or [])
    if preferences is not None:
        wanted += rows_of(read_table(preferences))
    if not wanted:
        raise ValueError("Give a --preference or a file of --preferences")
    learner = load(knowledge_base)
    single = preference is not None and len(wanted) == 1 and preferences is None
    if single:
        if output.suffix != ".safetensors":
            raise ValueError(f"The output {output} must end in .safetensors")
        paths = [output]
    else:
        if output.exists() and (not output.is_dir() or any(output.iterdir())):
            raise ValueError(
                f"The output {output} exists already; several models need a new folder"
            )
        digits = len(str(len(wanted)))
        paths = [output / f"model-{n:0{digits}}.safetensors" for n in range(1, len(wanted) + 1)]
    # All are made before the first is written: a bad preference leaves no half-filled folder.
    begin = time.perf_counter()
    models = [learner.model(value) for value in wanted]
    seconds = time.perf_counter() - begin
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    rows = []
    for model, path in zip(models, paths, strict=True):
        model.save(path)
        rows.append({"file": path, "preference": dict(model.preference), **region_facts(model)})
    result = {"models": rows, "parameters": learner.network.dimension, "seconds": seconds}
    emit(
        result,
        as_json,
        table(
            f"{count(len(models), 'model')} of {learner.network.dimension:,} parameters in "
            f"{1000 * seconds:.1f} ms",
            ("file", "preference", "alpha", "log volume of the region", "log density at its edge"),
            [
                (
                    row["file"],
                    str(model.preference),
                    model.alpha,
                    row["log_volume"],
                    row["threshold"],
                )
                for model, row in zip(models, rows, strict=True)
            ],
        ),
    )
