"""``ibcl generate``: preferences in, model files out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import EngineName, Force, Json, KnowledgeBaseFolder, Normalise, PreferenceList

_MODELS_SHOWN = 10
_ENDINGS = [".safetensors", ".onnx"]


def generate(
    knowledge_base: KnowledgeBaseFolder,
    output: Annotated[
        Path,
        typer.Option(
            help="File for the model, .safetensors or .onnx; a folder for several; or .parquet for "
            "a file of --preferences: one table with a row per model.",
            show_default=False,
        ),
    ],
    preference: PreferenceList = None,
    preferences: Annotated[
        Path | None,
        typer.Option(
            help="A .csv or .parquet file with a column per task and a row per preference.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    normalise: Normalise = False,
    engine: EngineName = "local",
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Turn preferences into models, with no data and no training."""
    import time

    from ibcl import Preference
    from ibcl.cli.knowledge_bases import load
    from ibcl.cli.output import count, emit, table
    from ibcl.cli.predictions import region_facts
    from ibcl.cli.preferences import read_users
    from ibcl.cli.tables import check_output
    from ibcl.engines import check_engine

    if not preference and preferences is None:
        raise ValueError("Give a --preference or a file of --preferences")
    kind, _, address = check_engine(engine).partition(":")
    if kind == "ray" or output.suffix.lower() == ".parquet":
        from ibcl.cli.generating_many import generate_as_table, generate_on_ray

        if preferences is None or preference:
            raise ValueError(
                "--engine ray and an output that ends in .parquet are for a file of --preferences, "
                "and take no --preference"
            )
        if kind == "ray":
            generate_on_ray(knowledge_base, preferences, output, force, as_json, address, normalise)
        else:
            generate_as_table(knowledge_base, preferences, output, force, as_json, normalise)
        return
    single = len(preference or ()) == 1 and preferences is None
    if single:
        check_output(output, force, endings=_ENDINGS)
    else:
        _check_folder(output, force)
    learner = load(knowledge_base)
    wanted: list[object] = [
        Preference.parse(value, learner.tasks, normalise=normalise) for value in preference or ()
    ]
    if preferences is not None:
        wanted += list(read_users(preferences, learner.tasks, normalise).preferences)
    digits = len(str(len(wanted)))
    paths = (
        [output]
        if single
        else [output / f"model-{n:0{digits}}.safetensors" for n in range(1, len(wanted) + 1)]
    )
    # All are made before the first is written: a bad preference leaves no half-filled folder.
    begin = time.perf_counter()
    models = [learner.model(value) for value in wanted]
    seconds = time.perf_counter() - begin
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    for model, path in zip(models, paths, strict=True):
        check_output(path, force, endings=_ENDINGS)
        write = model.export if path.suffix.lower() == ".onnx" else model.save
        write(path)
    described = models if as_json else models[:_MODELS_SHOWN]
    rows = [
        {"file": path, "preference": dict(model.preference), **region_facts(model)}
        for model, path in zip(described, paths, strict=False)
    ]
    hidden = len(models) - len(rows)
    emit(
        {"models": rows, "parameters": learner.network.dimension, "seconds": seconds},
        as_json,
        table(
            f"{count(len(models), 'model')} of {learner.network.dimension:,} parameters in "
            f"{1000 * seconds:.1f} ms",
            ("file", "preference", "alpha", "log volume of the region", "log density at its edge"),
            [
                (
                    path.name,
                    str(model.preference),
                    model.alpha,
                    row["log_volume"],
                    row["threshold"],
                )
                for model, path, row in zip(models, paths, rows, strict=False)
            ],
        ),
        *([f"... and {count(hidden, 'model')} more in {output}."] if hidden else []),
    )


def _check_folder(folder: Path, force: bool) -> None:
    """Refuse a folder that something else is in, and any place inside a knowledge base."""
    from ibcl.errors import ExistsError
    from ibcl.files import refuse_inside_knowledge_base

    refuse_inside_knowledge_base(folder / "model.safetensors")
    if folder.exists() and not folder.is_dir():
        raise ValueError(
            f"The output {folder} exists already and is a file; several models need a folder"
        )
    if not force and folder.exists() and any(folder.iterdir()):
        raise ExistsError(f"The output {folder} exists already; several models need a new folder")
