"""Preferences: probability vectors over tasks, stated, inferred from examples, or followed."""

from ibcl.preference.feedback import (
    SAID_COUNT,
    FollowedPreference,
    follow,
    from_counts,
    said,
)
from ibcl.preference.inferred import InferredPreference, infer_proportions
from ibcl.preference.preference import (
    TOLERANCE,
    Preference,
    preference_grid,
    preference_matrix,
    sample_preferences,
)

__all__ = [
    "SAID_COUNT",
    "TOLERANCE",
    "FollowedPreference",
    "InferredPreference",
    "Preference",
    "follow",
    "from_counts",
    "infer_proportions",
    "preference_grid",
    "preference_matrix",
    "said",
    "sample_preferences",
]
