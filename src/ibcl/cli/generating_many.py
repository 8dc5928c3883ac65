"""Models of a file of preferences: into one Parquet file, or by the workers of a Ray cluster."""

from __future__ import annotations

import time
from pathlib import Path

from ibcl.cli.generating_pieces import Site, is_model, model_tables, pieces, write_models
from ibcl.cli.knowledge_bases import load
from ibcl.cli.output import count, emit
from ibcl.cli.pieces_on_ray import check_folder, is_piece, new_folder, share, stream
from ibcl.cli.preferences import read_users
from ibcl.cli.tables import check_output, table_writer


def generate_as_table(
    knowledge_base: Path,
    preferences: Path,
    output: Path,
    force: bool,
    as_json: bool,
    normalise: bool = False,
) -> None:
    """Write one Parquet file with a row per preference: user, weights and the model's own file."""
    check_output(output, force, inputs=[preferences], endings=[".parquet"])
    learner = load(knowledge_base)
    users = read_users(preferences, learner.tasks, normalise)
    begin = time.perf_counter()
    with table_writer(output, force) as write:
        for table in model_tables(learner, users):
            write(table)
    _say(len(users.names), learner.network.dimension, begin, output, as_json)


def generate_on_ray(
    knowledge_base: Path,
    preferences: Path,
    output: Path,
    force: bool,
    as_json: bool,
    address: str,
    normalise: bool = False,
) -> None:
    """Write a folder of models, or of Parquet files where its name ends in .parquet."""
    from ibcl.engines.ray import connect

    as_table = output.suffix.lower() == ".parquet"
    belongs = is_piece if as_table else is_model
    check_folder(output, force, belongs)
    learner = load(knowledge_base)
    users = read_users(preferences, learner.tasks, normalise)
    connect(address)
    begin = time.perf_counter()
    with new_folder(output, belongs) as folder:
        site = Site(share(learner, users), folder, as_table)
        stream(write_models, pieces(len(users.names)), site, "Generating", quiet=as_json)
    _say(len(users.names), learner.network.dimension, begin, output, as_json)


def _say(models: int, parameters: int, begin: float, output: Path, as_json: bool) -> None:
    seconds = time.perf_counter() - begin
    emit(
        {"models": models, "parameters": parameters, "seconds": seconds, "output": output},
        as_json,
        f"{count(models, 'model')} of {parameters:,} parameters are in {output}, made and written "
        f"in {seconds:.1f} s.",
    )
