"""The methods by name. A new one is a file of its own and a line in the list here."""

from __future__ import annotations

import inspect
from typing import Any

from torch import nn

from ibcl.experiments.methods.agem import AGEM
from ibcl.experiments.methods.baseline import Baseline
from ibcl.experiments.methods.convex_combination import (
    ConvexCombination,
    ConvexCombinationSharedStart,
)
from ibcl.experiments.methods.der import DER
from ibcl.experiments.methods.derpp import DERPlusPlus
from ibcl.experiments.methods.fine_tuning import FineTuning
from ibcl.experiments.methods.gem import GEM
from ibcl.experiments.methods.ibcl_methods import (
    IBCLEvidence,
    IBCLMethod,
    IBCLMixture,
    IBCLWasserstein,
)
from ibcl.experiments.methods.l2p import L2P
from ibcl.experiments.methods.method import Method
from ibcl.experiments.methods.oracle import Oracle
from ibcl.experiments.methods.vcl import VCL

BASELINES: dict[str, type[Baseline]] = {
    method.name: method
    for method in (
        FineTuning,
        Oracle,
        ConvexCombination,
        ConvexCombinationSharedStart,
        GEM,
        AGEM,
        DER,
        DERPlusPlus,
        VCL,
        L2P,
    )
}

IBCL_VARIANTS: dict[str, type[IBCLMethod]] = {
    method.name: method for method in (IBCLWasserstein, IBCLMixture, IBCLEvidence)
}

METHODS: dict[str, type[Any]] = {**IBCL_VARIANTS, **BASELINES}


def options(name: str) -> tuple[str, ...]:
    """Names of the settings a method takes besides its network.

    Examples
    --------
    >>> "memory" in options("gem"), "memory" in options("oracle")
    (True, False)
    """
    if name not in METHODS:
        raise ValueError(f"Unknown method {name!r}; known are {', '.join(METHODS)}.")
    found: dict[str, None] = {}
    for base in METHODS[name].__mro__:
        if "__init__" in vars(base):
            for parameter in inspect.signature(vars(base)["__init__"]).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    found[parameter.name] = None
    return tuple(found)


def create(name: str, network: nn.Module, **settings: Any) -> Method:
    """Make a method by its name.

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
    method: Method = METHODS[name](network, **settings)
    return method
