"""The pooling rules by name."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError

from ibcl.gaussians import Distribution
from ibcl.knowledge import KnowledgeBase
from ibcl.pooling.rule import PoolingRule, TwoMethods, split_weights
from ibcl.preference import Preference

RULES: dict[str, PoolingRule] = {}
"""Rules by name with their default settings, as `register_rule` made them known."""
TITLES: dict[str, str] = {}
"""What people read for each of them."""


def register_rule(name: str, rule: Any, *, title: str) -> None:
    """Make a rule known by its name to learners, files and the command line.

    Parameters
    ----------
    rule
        A `PoolingRule`, or any object with the two methods `pool` and `means`.
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
    known = _called(name, rule) if isinstance(rule, PoolingRule) else TwoMethods(name, rule)
    if RULES.setdefault(name, known) != known:
        raise ValueError(f"There is another rule {name!r} already; give this one its own name.")
    TITLES[name] = title


def _called(name: str, rule: PoolingRule) -> PoolingRule:
    """Return a rule that goes by this name, such as a variant of another one's class."""
    if rule.name == name:
        return rule
    renamed = copy.copy(rule)
    object.__setattr__(renamed, "name", name)
    return renamed


def pooling_rule(rule: str | PoolingRule) -> PoolingRule:
    """Return a rule by its name, or the rule itself."""
    if isinstance(rule, PoolingRule):
        return rule
    if not isinstance(rule, str) or rule not in RULES:
        raise ValueError(f"pooling must be one of {', '.join(RULES)}, or a rule, not {rule!r}.")
    return RULES[rule]


def rule_with(name: str, settings: Mapping[str, Any]) -> PoolingRule:
    """Return a rule by its name, with settings other than its defaults, each of its right type.

    Examples
    --------
    >>> rule_with("routed", {"temperature": 2.0}).settings()
    {'temperature': 2.0}
    """
    rule = pooling_rule(name)
    if not settings:
        return rule
    fields: set[str] = set()
    if dataclasses.is_dataclass(rule):
        fields = {field.name for field in dataclasses.fields(rule)}
    hints = get_type_hints(type(rule))
    for key, value in settings.items():
        if key not in fields:
            raise ValueError(f"The pooling rule {name!r} has no setting {key!r}.")
        try:
            TypeAdapter(hints[key]).validate_python(value, strict=True)
        except ValidationError:
            raise ValueError(f"The setting {key} of the pooling rule is not valid.") from None
    changed: PoolingRule = dataclasses.replace(rule, **settings)  # type: ignore[type-var]
    return _called(name, changed)


def with_memory(rule: str | PoolingRule | None, memory: str | int) -> PoolingRule:
    """Return a rule with its setting ``memory``; routed evidence where the rule was left open.

    Examples
    --------
    >>> with_memory(None, "exact").settings()
    {'memory': 'exact'}
    """
    chosen = pooling_rule("routed" if rule is None else rule)
    if not hasattr(chosen, "memory"):
        raise ValueError(
            f"memory={memory!r} is a setting of pooling='routed', and not of {chosen.name!r}."
        )
    changed: PoolingRule = dataclasses.replace(chosen, memory=memory)  # type: ignore[type-var]
    return changed


def pool(
    knowledge: KnowledgeBase,
    preference: Any,
    rule: str | PoolingRule = "wasserstein",
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
