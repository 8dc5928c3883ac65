"""Knowledge bases for the service's tests: films by year and minutes, with a mood in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import ibcl
from ibcl.tabular import Schema

TASKS = ("sci-fi", "horror", "romance")
CENTRES = ((-2.0, 0.0), (2.0, 0.0), (0.0, 3.0))
SLOPES = ((0.3, 1.0), (0.3, -1.0), (-1.0, 0.3))
JSON = {"Content-Type": "application/json"}
"""What callers without a token show that no web page elsewhere can."""


def films(task: str, count: int, seed: int = 0) -> tuple[pd.DataFrame, list[str]]:
    """Return films of a genre, and whether they were liked: each genre by its own taste."""
    position = TASKS.index(task)
    generator = np.random.default_rng([seed, position])
    offset = generator.normal(size=(count, 2))
    numbers = offset + CENTRES[position]
    moods = generator.choice(["grim", "merry"], count)
    score = (
        offset @ SLOPES[position] + (moods == "merry") * 0.5 + 0.3 * generator.normal(size=count)
    )
    frame = pd.DataFrame({"year": numbers[:, 0], "minutes": numbers[:, 1], "mood": moods})
    return frame, ["liked" if value > 0 else "not" for value in score]


def learn(learner: ibcl.IBCL, tasks: int) -> ibcl.IBCL:
    """Learn as many of the tasks as are missing."""
    for task in TASKS[len(learner.tasks) : tasks]:
        learner.learn(*films(task, 150), task=task)
    return learner


def grown(folder: Path, tasks: int, pooling: str = "routed") -> Path:
    """Make a knowledge base with so many tasks, or teach the one that is there."""
    if folder.exists():
        learner = ibcl.load(folder)
    else:
        frame, labels = films(TASKS[0], 150)
        schema = Schema.fit(frame, labels)
        # The kind of network that estimators and the command line choose by default.
        network = ibcl.networks.random_features(schema.width, width=16, skip=True)
        learner = ibcl.IBCL(network, pooling=pooling, encoder=schema)
    learn(learner, tasks).save(folder)
    return folder


def rows(task: str, count: int, seed: int = 1) -> list[dict[str, object]]:
    """Return new films as the service takes them."""
    return films(task, count, seed)[0].to_dict("records")
