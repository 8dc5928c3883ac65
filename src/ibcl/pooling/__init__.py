r"""Pooling: from knowledge base and preference to q_w (Algorithm 2, first half).

A preference w gives task k the weight w_k, split over its m extreme elements into β_kj with
Σ_j β_kj = w_k, equally unless told otherwise. Each rule is a file of its own: ``mixture``,
``wasserstein``, ``evidence`` and ``routed``.

To add a rule, write a class with the two methods of `PoolingRule` and `register_rule` it.
"""

from ibcl.pooling.barycentre import WassersteinPooling
from ibcl.pooling.evidence import EvidencePooling, EvidenceWarning
from ibcl.pooling.mixture_of_densities import MixturePooling
from ibcl.pooling.registry import RULES, TITLES, pool, pooling_rule, register_rule
from ibcl.pooling.routed import Routed
from ibcl.pooling.rule import Pooled, PoolingRule, pooled, split_weights

register_rule("routed", Routed(), title="routed evidence")
register_rule("evidence", EvidencePooling(), title="pooled evidence")
register_rule("wasserstein", WassersteinPooling(), title="Wasserstein barycentre")
register_rule("mixture", MixturePooling(), title="mixture of densities")

__all__ = [
    "RULES",
    "TITLES",
    "EvidencePooling",
    "EvidenceWarning",
    "MixturePooling",
    "Pooled",
    "PoolingRule",
    "Routed",
    "WassersteinPooling",
    "pool",
    "pooled",
    "pooling_rule",
    "register_rule",
    "split_weights",
]
