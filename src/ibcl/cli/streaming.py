"""Predictions of many users for a table of any length, in one pass and bounded memory."""

from __future__ import annotations

from pathlib import Path

from ibcl.cli import predictions
from ibcl.cli.knowledge_bases import load_tabular, text_columns
from ibcl.cli.output import count, emit
from ibcl.cli.preferences import read_users
from ibcl.cli.tables import check_output, read_blocks, table_writer


def write_predictions_of_many(
    knowledge_base: Path,
    file: Path,
    preferences: Path,
    output: Path,
    force: bool,
    as_json: bool,
    normalise: bool = False,
) -> None:
    """Write one row per user and row of the file."""
    check_output(output, force, inputs=[file, preferences])
    learner, schema = load_tabular(knowledge_base)
    users = read_users(preferences, learner.tasks, normalise)
    blocks = read_blocks(file, text_columns(schema))
    written = 0
    with table_writer(output, force) as write:
        tables = predictions.predictions_of_many(
            learner, schema, blocks, users, predictions.BLOCK_NUMBERS
        )
        for block in tables:
            write(block)
            written += len(block)
    emit(
        {"users": len(users.names), "rows": written // len(users.names), "output": output},
        as_json,
        f"{count(written, 'prediction')} for {count(len(users.names), 'user')} are in {output}.",
    )
