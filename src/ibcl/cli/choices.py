"""Options whose choices are whatever the library's registries hold, also from a plugin."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable


def _networks() -> Iterable[str]:
    from ibcl.tabular import head_names

    return head_names()


def _inferences() -> Iterable[str]:
    from ibcl.inference import METHODS

    return METHODS


def _poolings() -> Iterable[str]:
    from ibcl.pooling import RULES

    return RULES


def _likelihoods() -> Iterable[str]:
    from ibcl.likelihoods import LIKELIHOODS

    return LIKELIHOODS


def _benchmarks() -> Iterable[str]:
    from ibcl.experiments.benchmarks import BENCHMARKS

    return BENCHMARKS


def _methods() -> Iterable[str]:
    from ibcl.experiments.methods import METHODS

    return METHODS


def _preference_families() -> Iterable[str]:
    from ibcl.experiments.evaluation.preference_families import FAMILIES

    return [name for name, family in FAMILIES.items() if family.tasks is None]


def _ablations() -> Iterable[str]:
    from ibcl.experiments.evaluation.ablation import ABLATIONS, STUDY_NAMES

    return [*ABLATIONS, *STUDY_NAMES]


# Called when they are needed, since importing the library takes seconds.
_REGISTRIES: dict[str, Callable[[], Iterable[str]]] = {
    "network": _networks,
    "inference": _inferences,
    "pooling": _poolings,
    "likelihood": _likelihoods,
    "benchmarks": _benchmarks,
    "methods": _methods,
    "preference families": _preference_families,
    "ablations": _ablations,
}


def choose(option: str, value: str | None) -> str | None:
    """Return the name in the registry of an option, or refuse what is none.

    Examples
    --------
    >>> choose("inference", "mean-field")
    'mean_field'
    >>> choose("network", "forest")
    Traceback (most recent call last):
    ...
    ValueError: --network must be one of linear, mlp, random_features, not 'forest'
    """
    if value is None:
        return None
    names = list(_REGISTRIES[option]())
    if option == "likelihood":
        from ibcl.likelihoods import canonical

        value = canonical(value)
    for name in names:
        if value.replace("-", "_") == name.replace("-", "_"):
            return name
    raise ValueError(f"--{option} must be one of {', '.join(names)}, not {value!r}")


def fill_in(help_text: str) -> str:
    """Put the names of a registry where a help text has ``{network}`` and the like."""
    for option, names in _REGISTRIES.items():
        if f"{{{option}}}" in help_text:
            help_text = re.sub(rf"\{{{option}\}}", ", ".join(names()), help_text)
    return help_text
