"""``ibcl serve`` and ``ibcl token``: a knowledge base as a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ibcl.cli.options import EngineName, Json, KnowledgeBaseFolder, NetworkName


def serve(
    knowledge_base: KnowledgeBaseFolder,
    host: Annotated[
        str, typer.Option(help="Address to listen on; others than this machine's need tokens.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 takes a free one.")] = 8000,
    network: NetworkName = None,
    largest_body: Annotated[
        int, typer.Option(min=1024, help="Bytes of the largest body of a request.")
    ] = 4 * 2**20,
    database: Annotated[
        str | None,
        typer.Option(
            help="An SQLite file, or a URL such as postgresql://user@host/name.",
            metavar="URL",
            show_default="in the data folder",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the service's own, for its database and versions.",
            metavar="FOLDER",
            show_default="KB.service",
        ),
    ] = None,
    validation: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled rows to measure models on in the explorer, kept from then on; may be "
            "repeated.",
            metavar="TASK=FILE",
            show_default=False,
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="Column of their labels.", metavar="COLUMN", show_default=False),
    ] = None,
    rate: Annotated[
        float, typer.Option(min=0, help="Requests per second from one caller; 0 for no limit.")
    ] = 0.0,
    receive_seconds: Annotated[
        float, typer.Option(min=0.1, help="Seconds that a request may take to arrive.")
    ] = 30.0,
    drain_seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Seconds for requests under way at shutdown."),
    ] = 10.0,
    largest_request: Annotated[
        int,
        typer.Option(min=1, help="Rows times tasks of one request; its memory grows with them."),
    ] = 1_000_000,
    versions: Annotated[
        int, typer.Option(min=1, help="Versions of the knowledge base to keep.")
    ] = 5,
    share: Annotated[
        float,
        typer.Option(
            min=0, max=0.99, help="Weight of each task that a stored preference does not know yet."
        ),
    ] = 0.0,
    forgetting: Annotated[
        float,
        typer.Option(
            min=0.01, max=1, help="Factor by which feedback counts less with every further example."
        ),
    ] = 0.99,
    engine: EngineName = "local",
    replicas: Annotated[
        int,
        typer.Option(
            min=1, help="Processes behind the one address, with --engine ray and PostgreSQL."
        ),
    ] = 1,
) -> None:
    """Serve a knowledge base: predictions for every user, and a page to explore it.

    New versions of the knowledge base are picked up as they appear. Tokens are made with
    'ibcl token'.
    """
    from ibcl.cli.knowledge_bases import require
    from ibcl.engines import check_engine
    from ibcl.serve.process import run
    from ibcl.serve.settings import Settings

    kind, _, address = check_engine(engine).partition(":")
    if replicas > 1 and kind != "ray":
        raise ValueError("More than one of --replicas needs --engine ray")
    pairs = [text.rpartition("=") for text in validation or ()]
    for task, separator, path in pairs:
        if not separator or not task or not path:
            raise ValueError("Validation rows are given as --validation TASK=FILE")
    settings = Settings(
        knowledge_base,
        network=network,
        data=data,
        database=database,
        body_limit=largest_body,
        rate=rate,
        receive_seconds=receive_seconds,
        drain_seconds=drain_seconds,
        largest_request=largest_request,
        versions=versions,
        share_of_new_tasks=share,
        forgetting=forgetting,
        validation={task: Path(path) for task, _, path in pairs},
        label=label,
    )
    # A data folder holds versions that can be served while the knowledge base is away.
    if not settings.folder.exists():
        require(knowledge_base)
    if kind == "ray":
        from ibcl.serve.replicas import run_replicas

        run_replicas(settings, host, port, replicas, address)
    else:
        run(settings, host, port)


def token(
    knowledge_base: KnowledgeBaseFolder,
    user: Annotated[
        str | None,
        typer.Option(
            help="The only user it is for.", metavar="USER", show_default="an administrator"
        ),
    ] = None,
    revoke: Annotated[
        str | None,
        typer.Option(help="Revoke the token with this id.", metavar="ID", show_default=False),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="List the tokens there are.")] = False,
    database: Annotated[
        str | None, typer.Option(help="As for 'ibcl serve'.", metavar="URL", show_default=False)
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="As for 'ibcl serve'.", metavar="FOLDER", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make, list or revoke the tokens of a service.

    As soon as there is one, every caller needs one. A token is shown once: only a digest is kept.
    """
    from pydantic import TypeAdapter, ValidationError

    from ibcl.cli.output import emit, table
    from ibcl.serve.database import open_database
    from ibcl.serve.messages import User
    from ibcl.serve.settings import Settings
    from ibcl.serve.tokens import Tokens

    settings = Settings(knowledge_base, data=data, database=database)
    tokens = Tokens(open_database(settings.database_url))
    if revoke is not None:
        if not tokens.revoke(revoke):
            raise ValueError(f"There is no token with the id {revoke!r}; --list shows them")
        emit({"revoked": revoke}, as_json, f"Revoked {revoke}.")
    elif show:
        found = [
            {"id": t.id, "user": t.user, "created": t.created.isoformat()} for t in tokens.facts()
        ]
        rows = [tuple(facts.values()) for facts in found]
        emit({"tokens": found}, as_json, table("Tokens", ("id", "user", "created"), rows))
    else:
        try:
            TypeAdapter(User | None).validate_python(user)
        except ValidationError:
            raise ValueError(
                f"A user is up to 128 letters, digits and any of . _ @ : + -, and not dots alone, "
                f"but {user!r} was given"
            ) from None
        made = tokens.issue(user)
        emit({"token": made, "user": user}, as_json, made)
