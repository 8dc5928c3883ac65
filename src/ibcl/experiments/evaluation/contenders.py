"""Contenders: a method of `ibcl.experiments.methods` with its network and its chosen hyperparameters.

The choices are the TOML files in the folder ``settings``: ``default.toml`` lists the contenders,
and a file named after a benchmark changes what was tuned there. They were made on validation data
(``ibcl tune``).
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from torch import nn

from ibcl import networks
from ibcl.experiments import methods
from ibcl.experiments.methods import Method


@dataclass(frozen=True)
class Contender:
    """What takes part in a comparison.

    Parameters
    ----------
    name
        Its name in tables.
    method
        Name of a method of `ibcl.experiments.methods`.
    network
        ``"linear"``, ``"mlp:64"``, ``"random:512"`` (random ReLU features) or
        ``"linear+random:512"`` (the features and random ones of them), with the width.
    feature_norm
        Features are scaled so that the first task's rows have this length on average.
    options
        The method's settings.
    """

    name: str
    method: str
    network: str
    feature_norm: float
    options: Mapping[str, Any]

    @property
    def rehearses(self) -> bool:
        """Whether it keeps samples of earlier tasks, so that the size of its memory matters."""
        return "memory" in methods.options(self.method)

    def create(self, features: int, memory: int, seed: int) -> Method:
        """Make the method, ready for its first task."""
        sizes = {"memory": memory} if self.rehearses else {}
        network = build_network(self.network, features)
        return methods.create(self.method, network, **self.options, **sizes, seed=seed)

    def changed(self, **settings: Any) -> Contender:
        """Return the same contender with other settings, of its own or of its method."""
        own = {key: settings.pop(key) for key in ("network", "feature_norm") if key in settings}
        return replace(self, **own, options={**self.options, **settings})

    @property
    def digest(self) -> str:
        """Short hash of all its settings: a result made with others is not this one's."""
        text = json.dumps(
            [self.method, self.network, self.feature_norm, dict(sorted(self.options.items()))]
        )
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def build_network(description: str, features: int) -> nn.Module:
    """Build the network a contender's settings describe.

    Examples
    --------
    >>> build_network("mlp:64", 512).specification["hidden"]
    [64]
    """
    kind, _, width = description.partition(":")
    if kind == "linear" and not width:
        return networks.linear(features)
    if width.isdecimal() and int(width) > 0:
        if kind == "mlp":
            return networks.mlp(features, hidden=int(width))
        if kind in ("random", "linear+random"):
            return networks.random_features(features, int(width), skip=kind != "random")
    raise ValueError(
        f"A network is 'linear', 'mlp:WIDTH', 'random:WIDTH' or 'linear+random:WIDTH', not "
        f"{description!r}; correct the contender's settings."
    )


@cache
def _settings(name: str) -> dict[str, dict[str, Any]]:
    file = resources.files("ibcl.experiments.evaluation") / "settings" / f"{name}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def contender_names() -> tuple[str, ...]:
    """Names of all contenders.

    Examples
    --------
    >>> "ibcl_evidence" in contender_names()
    True
    """
    return tuple(_settings("default"))


def contender(name: str, benchmark: str = "default") -> Contender:
    """Return a contender with the settings chosen for a benchmark.

    Examples
    --------
    >>> contender("gem", "20news").rehearses
    True
    >>> contender("gen")
    Traceback (most recent call last):
    ...
    ValueError: Unknown method 'gen'; known are ibcl, ibcl_mixture, ibcl_evidence, \
ibcl_evidence_apart, ibcl_evidence_random, oracle, oracle_linear, fine_tuning, \
convex_combination, convex_combination_shared_start, gem, agem, der, derpp, vcl, l2p.
    """
    if name not in contender_names():
        raise ValueError(f"Unknown method {name!r}; known are {', '.join(contender_names())}.")
    settings = {**_settings("default")[name], **_settings(benchmark).get(name, {})}
    return Contender(
        name,
        method=settings.pop("method", name),
        network=settings.pop("network"),
        feature_norm=float(settings.pop("feature_norm")),
        options=settings,
    )
