"""Snapshots: all that is kept of a learner on disk, at one moment."""

from __future__ import annotations

from typing import Any, NamedTuple

from ibcl.choices import Given
from ibcl.inference import Inference
from ibcl.view import View


class Snapshot(NamedTuple):
    """All that is kept of a learner on disk, at one moment."""

    view: View
    given: Given
    inference: Inference | None
    metadata: dict[str, Any]
    choices: dict[str, str]
    """What was chosen for what was left open, and why."""

    def provenance(self) -> dict[str, Any]:
        """Say where a model made from this comes from."""
        from ibcl import cards, store

        return {
            "pooling": self.view.pooling_name,
            "task_incremental": self.view.task_incremental,
            "knowledge": store.digest(self),
            "metadata": self.metadata,
            "samples": {record.name: record.samples for record in self.view.knowledge.records},
            "settings": {name: cards.text(it) for name, it in cards.settings(self).items()},
            "choices": self.choices,
        }
