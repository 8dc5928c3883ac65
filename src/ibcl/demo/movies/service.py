"""What the service needs to show the movie company: knowledge base, viewers, validation rows."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd

from ibcl.demo.movies.comparison import Comparison
from ibcl.serve.database import open_database
from ibcl.serve.preferences import Change, Preferences, Stored
from ibcl.serve.settings import Settings
from ibcl.serve.validation import keep


def save(comparison: Comparison, folder: Path, overwrite: bool = False) -> Settings:
    """Save the knowledge base, and beside it what its service starts with.

    Every new viewer's inferred preference is stored as theirs. Models are measured on the viewers'
    later ratings, as ratings of the audience that each viewer is closest to.
    """
    comparison.learner.save(folder, overwrite=overwrite)
    settings = Settings(folder)
    columns = [*comparison.ratings.features, "label"]
    closest = {
        name: max(weights, key=weights.__getitem__)
        for name, weights in comparison.preferences.items()
    }
    for task in comparison.learner.tasks:
        own = [v.later for v in comparison.ratings.viewers if closest[v.name] == task]
        if own:
            keep(settings, task, pd.concat(own)[columns], "label")
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
