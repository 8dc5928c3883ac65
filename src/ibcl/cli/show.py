"""``ibcl show``: what is in a knowledge base."""

from __future__ import annotations

from ibcl.cli.options import Json, KnowledgeBaseFolder, NetworkName


def show(
    knowledge_base: KnowledgeBaseFolder, network: NetworkName = None, as_json: Json = False
) -> None:
    """Show the tasks, sizes and settings of a knowledge base."""
    from ibcl import cards
    from ibcl.cli.knowledge_bases import load
    from ibcl.cli.output import count, emit, table
    from ibcl.knowledge import DISTANCES
    from ibcl.store import size

    learner = load(knowledge_base, network)
    knowledge = learner.knowledge
    settings = {**cards.settings(learner.state), "storage": learner.storage}
    tasks = [
        {
            "task": record.name,
            "samples": record.samples,
            "updates": record.updates,
            "pointers": sum(record.pointers),
            "distances": growth.distances,
            "stored_posteriors": growth.stored,
            "stored_bytes": growth.nbytes,
        }
        for record, growth in zip(knowledge.records, knowledge.report(), strict=True)
    ]
    result = {
        "knowledge_base": knowledge_base,
        "tasks": tasks,
        "stored_posteriors": len(knowledge.stored),
        "stored_bytes": knowledge.nbytes,
        "bytes_on_disk": size(knowledge_base).total,
        "settings": settings,
    }
    emit(
        result,
        as_json,
        table(
            f"Tasks in {knowledge_base}",
            (
                "task",
                "samples",
                "batch updates",
                "pointers",
                f"distance to nearest stored, {DISTANCES[knowledge.distance].symbol}",
                "posteriors stored",
                "bytes",
            ),
            [tuple(task.values()) for task in tasks],
        ),
        f"{count(len(knowledge.stored), 'posterior')} of {knowledge.dimension:,} parameters take "
        f"{knowledge.nbytes:,} bytes in memory and {result['bytes_on_disk']:,} on disk.",
        table("Settings", ("setting", "value"), list(settings.items())),
    )
