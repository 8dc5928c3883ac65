"""The likelihoods known by name, and the choice between them."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Mapping
from typing import Any, TypeVar

from torch import Tensor

from ibcl.likelihoods.likelihood import Likelihood

# Earlier names, which older knowledge bases and programs use.
_ALIASES: dict[str, str] = {}


class _Registry(UserDict[str, type[Likelihood]]):
    """Likelihoods by their names; an earlier name is found too, but not listed."""

    def __getitem__(self, name: str) -> type[Likelihood]:
        return super().__getitem__(canonical(name))

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(canonical(name))


LIKELIHOODS = _Registry()

_Class = TypeVar("_Class", bound=type[Likelihood])


def register(likelihood: _Class) -> _Class:
    """Make a likelihood known by its name, so that it can be chosen and stored by it.

    Examples
    --------
    >>> from ibcl.likelihoods import Poisson
    >>> register(Poisson) is LIKELIHOODS["poisson"]
    True
    """
    name = getattr(likelihood, "name", None)
    if not isinstance(name, str) or not name or name == "auto":
        raise ValueError(
            f"The likelihood {likelihood.__name__} needs a name of its own other than 'auto', "
            f"not {name!r}."
        )
    if LIKELIHOODS.setdefault(name, likelihood) is not likelihood:
        raise ValueError(
            f"The name {name!r} belongs to the likelihood {LIKELIHOODS[name].__name__} already; "
            f"give {likelihood.__name__} another one."
        )
    _ALIASES.update(dict.fromkeys(likelihood.aliases, name))
    return likelihood


def canonical(name: str) -> str:
    """Return the present name of a likelihood, which may have had another one.

    Examples
    --------
    >>> canonical("gaussian"), canonical("poisson")
    ('normal', 'poisson')
    """
    return _ALIASES.get(name, name)


def choose(name: str | Likelihood, y: Tensor, outputs: int) -> Likelihood:
    """Choose the likelihood that fits the labels and the network's number of outputs.

    Left to ``"auto"``, whole-number labels mean classification and real-valued ones regression;
    counts are whole numbers too, so ``"poisson"`` is only chosen by its name.

    Examples
    --------
    >>> import torch
    >>> choose("auto", torch.tensor([0, 1, 1]), outputs=1).name
    'bernoulli'
    >>> choose("auto", torch.tensor([0.3, -1.2]), outputs=1).name
    'normal'
    >>> choose("poisson", torch.tensor([0, 7, 1]), outputs=1).name
    'poisson'
    """
    if not isinstance(name, str):
        return name
    if name == "auto":
        real = y.is_floating_point() and not bool((y == y.round()).all())
        matrix = y.ndim == 2 and y.shape[1] > 1
        name = "normal" if real or matrix else "bernoulli" if outputs == 1 else "categorical"
    return _known(name)()


def from_description(description: Mapping[str, Any]) -> Likelihood:
    """Rebuild a likelihood from its `description`, exactly or not at all.

    Examples
    --------
    >>> from_description({"name": "normal", "noise": 0.5})
    Normal(noise=0.5)
    """
    settings = dict(description)
    likelihood = _known(settings.pop("name", None))
    expected = likelihood.settings()
    if settings.keys() != expected.keys():
        raise ValueError(
            f"The likelihood {likelihood.name!r} has the settings {sorted(expected)}, but the "
            f"description has {sorted(map(str, settings))}."
        )
    for name, value in settings.items():
        if type(value) is not expected[name]:
            raise ValueError(
                f"The setting {name!r} of the likelihood {likelihood.name!r} must be of type "
                f"{expected[name].__name__}, not {value!r}."
            )
    return likelihood(**settings)


def _known(name: Any) -> type[Likelihood]:
    if name not in LIKELIHOODS:
        raise ValueError(
            f"likelihood must be 'auto' or one of {', '.join(LIKELIHOODS)}, not {name!r}."
        )
    return LIKELIHOODS[name]
