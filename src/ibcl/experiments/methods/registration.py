"""What a method declares to take part in comparisons, and the methods that have done so.

A registration is the only place that knows a method's name, what people call it, its network, its
settings before tuning and where tuning searches. Tables, figures, defaults and the command line
derive from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn

from ibcl.experiments.methods.method import Method


class Range(NamedTuple):
    """A setting is searched between two numbers, by its logarithm; whole ones stay whole."""

    low: float
    high: float


Space = Mapping[str, Range | tuple[float | str, ...]]
"""Where tuning searches: a range, or a few values, by setting."""

OURS, ALL_DATA, REHEARSAL = "IBCL", "all data", "rehearsal"
CLOSED_FORM, MERGING, ONE_MODEL = "closed form", "merging", "one model"
GROUPS = (OURS, ALL_DATA, REHEARSAL, CLOSED_FORM, MERGING, ONE_MODEL)
"""Kinds of methods, in the order tables list them."""


@dataclass(frozen=True)
class Registration:
    """A method as it takes part in comparisons.

    Parameters
    ----------
    name, title
        Its name in tables and on the command line, and what people call it.
    method
        The class.
    group
        One of `GROUPS`; ``"all data"`` is never a winner, because it keeps all data.
    network
        ``"linear"``, ``"mlp:64"``, ``"random:512"`` (random ReLU features) or
        ``"linear+random:512"`` (the features and random ones of them), with the width.
    feature_norm
        Features are scaled so that the first task's rows have this length on average.
    settings
        Of the method, before tuning.
    space
        Where tuning searches: settings of the method, and ``"feature_norm"``.
    feature_map
        What features go through before tuning: ``"raw"``, ``"unit"`` or ``"polar"``; see
        `ibcl.experiments.evaluation.feature_maps`.
    """

    name: str
    title: str
    method: type[Any]
    group: str
    network: str
    feature_norm: float = 10.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    space: Space = field(default_factory=dict)
    feature_map: str = "raw"

    @property
    def searched(self) -> Space:
        """Where tuning searches, the feature map included.

        IBCL's own variants map features themselves; every other method may take any map, so that
        none is compared on features that suit somebody else.
        """
        maps = {} if self.group == OURS else {"feature_map": ("raw", "unit", "polar")}
        return {**maps, **self.space}

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the settings the method takes besides its network."""
        found: dict[str, None] = {}
        for base in self.method.__mro__:
            if "__init__" in vars(base):
                for parameter in inspect.signature(vars(base)["__init__"]).parameters.values():
                    if parameter.kind is parameter.KEYWORD_ONLY:
                        found[parameter.name] = None
        return tuple(found)

    @property
    def rehearses(self) -> bool:
        """Whether it keeps samples of earlier tasks, so that the size of its memory matters."""
        return "memory" in self.options

    @property
    def keeps_all_data(self) -> bool:
        """Whether it may look at all data of all tasks at any time."""
        return self.group == ALL_DATA


METHODS: dict[str, Registration] = {}
"""All methods, in the order tables list them."""


def register(registration: Registration) -> Registration:
    """Make a method known to the command line, the tables and the figures."""
    if registration.name in METHODS:
        raise ValueError(f"There is a method {registration.name!r} already; choose another name.")
    if registration.group not in GROUPS:
        raise ValueError(
            f"A method's group is one of {', '.join(GROUPS)}, not {registration.group!r}."
        )
    unknown = {*registration.settings, *registration.space} - {
        *registration.options,
        "feature_norm",
    }
    if unknown:
        raise ValueError(f"{registration.name} has no setting {', '.join(sorted(unknown))}.")
    METHODS[registration.name] = registration
    return registration


def registered(name: str) -> Registration:
    """Return a method's registration.

    Examples
    --------
    >>> registered("gem").title, registered("gem").rehearses
    ('GEM', True)
    """
    if name not in METHODS:
        raise ValueError(f"Unknown method {name!r}; known are {', '.join(METHODS)}.")
    return METHODS[name]


def options(name: str) -> tuple[str, ...]:
    """Names of the settings a method takes besides its network.

    Examples
    --------
    >>> "memory" in options("gem"), "memory" in options("oracle")
    (True, False)
    """
    return registered(name).options


def create(name: str, network: nn.Module, **settings: Any) -> Method:
    """Make a method by its name, with exactly these settings.

    Examples
    --------
    >>> from ibcl import networks
    >>> create("derpp", networks.linear(3), memory=200, learning_rate=1e-2).memory
    200
    """
    known = options(name)
    unknown = [setting for setting in settings if setting not in known]
    if unknown:
        raise ValueError(
            f"{name} has no setting {', '.join(unknown)}; it takes {', '.join(known)}."
        )
    method: Method = METHODS[name].method(network, **settings)
    return method
