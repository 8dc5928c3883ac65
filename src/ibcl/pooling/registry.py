"""The pooling rules by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ibcl.gaussians import Distribution
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling.rule import PoolingRule, split_weights
from ibcl.preference import Preference

RULES: dict[str, PoolingRule] = {}
"""Rules by name, as `register_rule` made them known; the choices there are."""
TITLES: dict[str, str] = {}
"""What people read for each of them."""


def register_rule(name: str, rule: PoolingRule, *, title: str) -> None:
    """Make a rule known by its name to learners, files and the command line.

    Parameters
    ----------
    title
        A few words for tables and help texts.

    Examples
    --------
    >>> register_rule("mixture", RULES["mixture"], title=TITLES["mixture"])
    >>> TITLES["mixture"]
    'mixture of densities'
    """
    if not name.isidentifier():
        raise ValueError(f"A rule's name must be one plain word, not {name!r}.")
    if RULES.setdefault(name, rule) is not rule:
        raise ValueError(f"There is another rule {name!r} already; give this one its own name.")
    TITLES[name] = title


def pooling_rule(name: str) -> PoolingRule:
    """Return a rule by its name."""
    if name not in RULES:
        raise ValueError(f"pooling must be one of {', '.join(RULES)}, not {name!r}.")
    return RULES[name]


def pool(
    knowledge: KnowledgeBase,
    preference: Any,
    rule: str = "wasserstein",
    split: Mapping[str, Sequence[float]] | None = None,
) -> Distribution:
    """Return q_w, the distribution over parameters that a preference selects.

    Examples
    --------
    >>> from ibcl.gaussians import DiagonalGaussian
    >>> knowledge = KnowledgeBase([DiagonalGaussian([0.0], [1.0])], d=0)
    >>> _ = knowledge.add("a", [DiagonalGaussian([1.0], [0.5])])
    >>> _ = knowledge.add("b", [DiagonalGaussian([3.0], [0.1])])
    >>> q = pool(knowledge, {"a": 0.5, "b": 0.5}, "wasserstein")
    >>> q.mean.item(), round(q.std.item(), 6)
    (2.0, 0.3)
    """
    if not isinstance(knowledge, KnowledgeBase):
        raise ValueError(f"A KnowledgeBase is pooled, not {type(knowledge).__name__}.")
    vector = Preference.parse(preference, knowledge.tasks).vector()
    weights = split_weights(knowledge, torch.as_tensor(vector), split)
    return pooling_rule(rule).pool(knowledge, weights)
