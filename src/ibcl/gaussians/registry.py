"""The families by name: what files say a Gaussian is, and how it comes back."""

from __future__ import annotations

from typing import TypeVar

from ibcl.gaussians.distribution import Gaussian

FAMILIES: dict[str, type[Gaussian]] = {}

Family = TypeVar("Family", bound=type[Gaussian])


def register(family: Family) -> Family:
    """Make a family known by its name, so that it can be stored and loaded; returns it.

    Examples
    --------
    >>> from ibcl.gaussians import DenseGaussian
    >>> register(DenseGaussian) is FAMILIES["dense"]
    True
    """
    name = getattr(family, "family", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(
            f"{family.__name__} needs a class attribute family, a plain word to name it by in "
            f"files, not {name!r}."
        )
    known = FAMILIES.setdefault(name, family)
    if known is not family:
        raise ValueError(
            f"The family {name!r} is {known.__name__} already; give {family.__name__} another name."
        )
    return family


def family_named(name: str) -> type[Gaussian]:
    """Return a family by its name."""
    if name not in FAMILIES:
        raise ValueError(
            f"the family of Gaussians {name!r} is not known; known are {', '.join(FAMILIES)}. "
            "Import the module that registers it."
        )
    return FAMILIES[name]
