"""Contenders: a registered method with the settings chosen for a benchmark.

The choices are the TOML files in the folder ``settings``, one per benchmark, made on validation
data by ``ibcl tune``: a section per method, and in it one per size of memory where it rehearses.
What was not tuned comes from the method's registration. A folder that ``ibcl tune --output`` has
written goes before them.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from torch import nn

from ibcl import networks
from ibcl.experiments import benchmarks, methods
from ibcl.experiments.evaluation.feature_maps import FeatureMap, Rows
from ibcl.experiments.methods import Method, Registration

_OWN = ("network", "feature_norm", "feature_map")
"""Settings of a contender itself; the others are its method's."""


@dataclass(frozen=True)
class Contender:
    """What takes part in a comparison.

    Parameters
    ----------
    name
        Name of a method of `ibcl.experiments.methods`.
    network, feature_norm, feature_map
        As in the method's registration.
    options
        The method's settings.
    """

    name: str
    network: str
    feature_norm: float
    options: Mapping[str, Any]
    feature_map: str = "raw"

    def fit_map(self, rows: Rows) -> FeatureMap:
        """Fit its feature map on the first task's training rows."""
        return FeatureMap.fit(rows, self.feature_map, self.feature_norm)

    @property
    def registration(self) -> Registration:
        """The method as registered."""
        return methods.registered(self.name)

    @property
    def rehearses(self) -> bool:
        """Whether it keeps samples of earlier tasks, so that the size of its memory matters."""
        return self.registration.rehearses

    def create(self, features: int, memory: int, seed: int) -> Method:
        """Make the method, ready for its first task."""
        sizes = {"memory": memory} if self.rehearses else {}
        network = build_network(self.network, features)
        return methods.create(self.name, network, **self.options, **sizes, seed=seed)

    def changed(self, **settings: Any) -> Contender:
        """Return the same contender with other settings, of its own or of its method."""
        own = {key: settings.pop(key) for key in _OWN if key in settings}
        return replace(self, **own, options={**self.options, **settings})

    @property
    def digest(self) -> str:
        """Short hash of all its settings: a result made with others is not this one's."""
        text = json.dumps(
            [
                self.name,
                self.network,
                self.feature_norm,
                self.feature_map,
                dict(sorted(self.options.items())),
            ]
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
def _settings(name: str, folder: Path | None = None) -> dict[str, dict[str, Any]]:
    file = (folder or resources.files("ibcl.experiments.evaluation") / "settings") / f"{name}.toml"
    return tomllib.loads(file.read_text()) if file.is_file() else {}


def _chosen(name: str, benchmark: str, folder: Path | None = None) -> dict[str, Any]:
    """What a benchmark's settings say of a method, its sizes of memory among it."""
    declared = benchmarks.registered(benchmark)
    own = {} if folder is None else _settings(Path(benchmark).stem, folder)
    return own.get(name) or _settings(declared.tuned_as or declared.name).get(name, {})


def not_searched(name: str, benchmark: str) -> dict[str, Any]:
    """Return what a benchmark's settings say of a method that its search does not vary.

    Examples
    --------
    >>> not_searched("ranpac", "celeba-balanced")
    {'width': 1000}
    """
    space = methods.registered(name).space
    said = _chosen(name, benchmark).items()
    return {key: value for key, value in said if key not in space and not isinstance(value, dict)}


def contender(
    name: str, benchmark: str | None = None, memory: int = 0, folder: Path | None = None
) -> Contender:
    """Return a contender with the settings chosen for a benchmark and a size of memory.

    A size that was not tuned uses the choice of the nearest one that was.

    Parameters
    ----------
    folder
        Of ``ibcl tune``: its choices are taken where it has some.

    Examples
    --------
    >>> contender("gem", "20news", memory=50).rehearses
    True
    >>> contender("gen")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: Unknown method 'gen'; known are ...
    """
    registration = methods.registered(name)
    settings: dict[str, Any] = {
        "network": registration.network,
        "feature_norm": registration.feature_norm,
        "feature_map": registration.feature_map,
        **registration.settings,
    }
    if benchmark is not None:
        training = benchmarks.registered(benchmark).training
        settings |= {key: value for key, value in training.items() if key in registration.options}
        chosen = _chosen(name, benchmark, folder)
        sizes = {int(key): value for key, value in chosen.items() if isinstance(value, dict)}
        settings |= {key: value for key, value in chosen.items() if not isinstance(value, dict)}
        if sizes:
            settings |= sizes[min(sizes, key=lambda size: abs(size - memory))]
    return Contender(
        name,
        network=settings.pop("network"),
        feature_norm=float(settings.pop("feature_norm")),
        feature_map=settings.pop("feature_map"),
        options=settings,
    )
