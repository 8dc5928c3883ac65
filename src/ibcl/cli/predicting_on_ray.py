"""Predictions of many users on Ray: pieces of users × rows, streamed through the cluster.

The knowledge base and the users' preferences are put in the object store once. A piece is a block
of rows and a stretch of users; the worker that gets it computes the same blocks as where this
machine does it alone, and writes them to one Parquet file. The pieces' files, in the order of their
names, are together the table that one machine writes, in a folder that appears when all of them are
there.
"""

from __future__ import annotations

from pathlib import Path

from ibcl.cli import predictions
from ibcl.cli.knowledge_bases import load_tabular, text_columns
from ibcl.cli.output import count, emit
from ibcl.cli.pieces_on_ray import check_folder, new_folder, share, stream, workers
from ibcl.cli.predicting_pieces import Site, pieces, write_predictions
from ibcl.cli.preferences import read_users
from ibcl.cli.tables import read_blocks
from ibcl.engines.ray import connect


def write_predictions_on_ray(
    knowledge_base: Path,
    file: Path,
    preferences: Path,
    output: Path,
    force: bool,
    as_json: bool,
    address: str,
    normalise: bool = False,
) -> None:
    """Write one row per user and row of the file, as a folder of Parquet files."""
    if output.suffix.lower() != ".parquet":
        raise ValueError(f"The output {output} must end in .parquet where Ray writes it")
    check_folder(output, force)
    learner, schema = load_tabular(knowledge_base)
    users = read_users(preferences, learner.tasks, normalise)
    lengths = [len(block) for block in read_blocks(file, text_columns(schema))]
    connect(address)
    numbers = predictions.BLOCK_NUMBERS
    wanted = pieces(schema, lengths, len(users.names), numbers, workers())
    with new_folder(output) as folder:
        site = Site(share(learner, users), file.absolute(), folder, numbers)
        stream(write_predictions, wanted, site, "Predicting", quiet=as_json)
    written = sum(lengths) * len(users.names)
    emit(
        {"users": len(users.names), "rows": sum(lengths), "output": output},
        as_json,
        f"{count(written, 'prediction')} for {count(len(users.names), 'user')} are in {output}, "
        f"in {count(len(wanted), 'Parquet file')}.",
    )
