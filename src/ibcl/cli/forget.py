"""``ibcl forget``: remove a task from a knowledge base."""

from __future__ import annotations

from typing import Annotated

import typer

from ibcl.cli.options import Approximation, Json, KnowledgeBaseFolder


def forget(
    knowledge_base: KnowledgeBaseFolder,
    task: Annotated[str, typer.Argument(help="Name of the task to forget.", show_default=False)],
    approximation: Approximation = None,
    as_json: Json = False,
) -> None:
    """Forget a task: exact where tasks are independent, refused otherwise."""
    from ibcl.cli.knowledge_bases import load
    from ibcl.cli.output import count, emit
    from ibcl.tabular import Schema, remembered

    learner = load(knowledge_base)
    learner.forget(task, approximation=approximation)
    learner.save(knowledge_base)
    schema = learner.encoder
    stays = remembered(schema) if isinstance(schema, Schema) else ()
    emit(
        {"knowledge_base": knowledge_base, "forgotten": task, "tasks": learner.tasks}
        | {"stays": list(stays)},
        as_json,
        f"Forgot {task!r}. {knowledge_base} holds {count(len(learner.tasks), 'task')}: "
        f"{', '.join(learner.tasks) or 'none'}.",
        *[f"How tables are read stays, with the {', '.join(stays)} it was made of."] * bool(stays),
    )
