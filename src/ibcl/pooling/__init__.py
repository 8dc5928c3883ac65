r"""Pooling: from knowledge base and preference to q_w (Algorithm 2, first half).

A preference w gives task k the weight w_k, split over its m extreme elements into β_kj with
Σ_j β_kj = w_k, equally unless told otherwise. Each rule is a file of its own: ``mixture``,
``wasserstein``, ``evidence``, ``routed_evidence`` and its first version ``routed``.

To add a rule, write a `PoolingRule` in a file of its own and `register_rule` it: two methods
suffice, and it may have settings, ask for moments, route, and tell what is novel.
"""

from ibcl.knowledge import EvidenceWarning
from ibcl.pooling.barycentre import WassersteinPooling
from ibcl.pooling.evidence import EvidencePooling
from ibcl.pooling.gated import GatedPredictives
from ibcl.pooling.mixture import MixturePooling
from ibcl.pooling.registry import (
    RULES,
    TITLES,
    pool,
    pooling_rule,
    register_rule,
    rule_with,
    with_memory,
)
from ibcl.pooling.routed import Routed
from ibcl.pooling.routed_evidence import RoutedEvidence
from ibcl.pooling.rule import Pooled, PoolingRule, split_weights

register_rule("routed", RoutedEvidence(), title="routed evidence")
register_rule("routed1", Routed(), title="routed evidence, first version")
register_rule("evidence", EvidencePooling(), title="pooled evidence")
register_rule("wasserstein", WassersteinPooling(), title="Wasserstein barycentre")
register_rule("mixture", MixturePooling(), title="mixture of densities")

__all__ = [
    "RULES",
    "TITLES",
    "EvidencePooling",
    "EvidenceWarning",
    "GatedPredictives",
    "MixturePooling",
    "Pooled",
    "PoolingRule",
    "Routed",
    "RoutedEvidence",
    "WassersteinPooling",
    "pool",
    "pooling_rule",
    "register_rule",
    "rule_with",
    "split_weights",
    "with_memory",
]
