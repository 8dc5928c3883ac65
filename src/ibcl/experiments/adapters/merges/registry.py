"""All merges by their titles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ibcl.adapters import Adapter
from ibcl.experiments.adapters.merges.change import Change
from ibcl.networks import FlatNetwork

Rule = Callable[..., Change]
"""Changes, weights and settings by name to the merged change."""
Learning = Callable[[Adapter, FlatNetwork, Tensor], Mapping[str, Tensor]]
"""An adapter, its network and features of the task's rows to `Change.knowledge`."""


@dataclass(frozen=True)
class Merge:
    """A merge.

    Parameters
    ----------
    choices
        Settings, of which validation rows choose one.
    learning
        How to get what it wants to know of a task, where it wants to know something.
    """

    title: str
    rule: Rule
    choices: tuple[Mapping[str, Any], ...]
    learning: Learning | None = None


MERGES: dict[str, Merge] = {}


def merge(
    title: str, *choices: Mapping[str, Any], learning: Learning | None = None
) -> Callable[[Rule], Rule]:
    """Make a rule known by its title."""

    def add(rule: Rule) -> Rule:
        MERGES[title] = Merge(title, rule, choices or ({},), learning)
        return rule

    return add
