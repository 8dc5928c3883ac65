"""What the service needs to show the movie company: knowledge base, viewers, validation rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from ibcl.demo.movies.experiment import Comparison
from ibcl.serve.database import open_database
from ibcl.serve.preferences import Change, Preferences, Stored
from ibcl.serve.settings import Settings
from ibcl.serve.validation import Validation


def save(comparison: Comparison, folder: Path, overwrite: bool = False) -> Settings:
    """Save the knowledge base, and beside it what its service starts with.

    Every viewer's inferred preference is stored as theirs; ratings after the part that was learnt
    from are kept to measure models on.
    """
    comparison.learner.save(folder, overwrite=overwrite)
    settings = Settings(folder)
    ratings = comparison.ratings
    later = ratings.frame[ratings.frame["time"] >= ratings.split]
    validation = Validation(settings)
    for task in ratings.tasks:
        rows = later[later["task"] == task]
        if len(rows):
            validation.keep(task, rows[[*ratings.features, "label"]], "label")
    engine = open_database(settings.database_url)
    changes = [
        Change(name, partial(_replaced, Stored(weights)), "inferred")
        for name, weights in comparison.preferences.items()
    ]
    Preferences(engine).change(changes)
    engine.dispose()
    return settings


def _replaced(new: Stored, _: Stored | None) -> Stored:
    return new
