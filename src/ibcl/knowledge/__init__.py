"""What is known of the tasks learnt so far, and its revision without any data."""

from ibcl.knowledge.base import (
    EvidenceWarning,
    ForgettingWarning,
    Growth,
    KnowledgeBase,
    TaskRecord,
    scaled,
)
from ibcl.knowledge.distances import DISTANCES, Distance, distance_named
from ibcl.knowledge.parts import PARTS, CommonPart, Part, Parts, register_part, separated
from ibcl.knowledge.revision import adopted, forget, merged, rebase, replace_task, same_gaussians

__all__ = [
    "DISTANCES",
    "PARTS",
    "CommonPart",
    "Distance",
    "EvidenceWarning",
    "ForgettingWarning",
    "Growth",
    "KnowledgeBase",
    "Part",
    "Parts",
    "TaskRecord",
    "adopted",
    "distance_named",
    "forget",
    "merged",
    "rebase",
    "register_part",
    "replace_task",
    "same_gaussians",
    "scaled",
    "separated",
]
