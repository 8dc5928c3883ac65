"""``ibcl merge``: unite two knowledge bases of independent tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import Approximation, Json, NetworkName


def merge(
    first: Annotated[Path, typer.Argument(help="A knowledge base.", show_default=False)],
    second: Annotated[
        Path,
        typer.Argument(help="Another, made with 'ibcl learn --like FIRST'.", show_default=False),
    ],
    output: Annotated[Path, typer.Argument(help="New folder for the union.", show_default=False)],
    approximation: Approximation = None,
    network: NetworkName = None,
    as_json: Json = False,
) -> None:
    """Unite two knowledge bases without their data: exact where tasks are independent."""
    import ibcl
    from ibcl.cli.knowledge_bases import check_same_tables, load
    from ibcl.cli.output import count, emit
    from ibcl.store import exists

    if exists(output):
        raise ValueError(f"The output {output} exists already; give a new folder")
    one, other = load(first, network), load(second, network)
    check_same_tables(one, other)
    union = ibcl.merge(one, other, approximation=approximation)
    union.save(output)
    emit(
        {"knowledge_base": output, "tasks": union.tasks},
        as_json,
        f"{output} holds {count(len(union.tasks), 'task')}: {', '.join(union.tasks)}.",
    )
