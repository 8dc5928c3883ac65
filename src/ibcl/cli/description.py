"""What ``ibcl show`` says of a knowledge base, whoever made it."""

from __future__ import annotations

from typing import Any

import ibcl
from ibcl.tabular import Schema


def describe(learner: ibcl.IBCL) -> dict[str, Any]:
    """Return the settings of any knowledge base, by name."""
    knowledge, encoder = learner.knowledge, learner.encoder
    network = learner.network.specification or {"kind": "custom"}
    facts = {
        **{f"network {name}": value for name, value in network.items()},
        "parameters": knowledge.dimension,
        "inference": repr(learner.inference),
        "likelihood": repr(learner.likelihood),
        "pooling": learner.pooling,
        "priors": len(knowledge.priors),
        "tasks learnt": "one after another" if knowledge.continual else "isolated",
        "d": knowledge.d,
        "alpha": learner.alpha,
        "seed": learner.seed,
        "storage": learner.storage,
    }
    if isinstance(encoder, Schema):
        facts["features"] = encoder.names or len(encoder.columns)
        facts["inputs"] = encoder.width
        if encoder.classes is not None:
            facts["classes"] = encoder.classes
    return facts
