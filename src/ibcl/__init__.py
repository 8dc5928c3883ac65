"""Imprecise Bayesian Continual Learning.

Learn tasks one by one, and turn any preference between them into a model at once:

>>> import ibcl, torch
>>> x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
>>> learner = ibcl.IBCL(ibcl.networks.linear(4))
>>> record = learner.learn(x, x[:, 0] > 0, task="sci-fi")
>>> record = learner.learn(x, x[:, 1] > 0, task="documentary")

A preference is a probability vector over the tasks; its model needs no data and no training:

>>> model = learner.model({"sci-fi": 0.8, "documentary": 0.2})
>>> model.predict_proba(x).shape
torch.Size([300, 2])

Every model comes with the smallest region of parameters that has the credibility 1 − α:

>>> thetas = model.region.sample(3)
>>> model.region.contains(thetas)
tensor([True, True, True])

What is learnt, chosen, forgotten, saved and opened is logged by Python's `logging` under the name
``"ibcl"``, and shown on request: ``logging.basicConfig(level="INFO")``, or
``ibcl --verbose`` on the command line.
"""

import logging
from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING

# A library is silent unless its user says otherwise.
logging.getLogger("ibcl").addHandler(logging.NullHandler())

if TYPE_CHECKING:
    __version__: str
    from ibcl import adapters, likelihoods, mlflow, networks, pooling, rl, tabular
    from ibcl.gaussians import (
        BlockDiagonalGaussian,
        DenseGaussian,
        DiagonalGaussian,
        LowRankGaussian,
    )
    from ibcl.inference import DenseVI, MeanFieldVI, OneVsRestVI
    from ibcl.knowledge import EvidenceWarning, ForgettingWarning, KnowledgeBase
    from ibcl.learner import IBCL, load
    from ibcl.likelihoods import Bernoulli, Categorical, Normal, OneVsRest, Poisson
    from ibcl.merging import merge
    from ibcl.mixture import Mixture
    from ibcl.model import Model, load_model
    from ibcl.pooling import PoolingRule, Routed, RoutedEvidence, pool
    from ibcl.preference import InferredPreference, Preference, sample_preferences
    from ibcl.pretrained import from_pretrained
    from ibcl.region import HighestDensityRegion
    from ibcl.sklearn import IBCLClassifier, IBCLRegressor
    from ibcl.store import StoreError
    from ibcl.uncertainty import expected_calibration_error
else:
    # Importing torch or scikit-learn takes seconds, which `ibcl --help` need not wait for: every
    # name is imported from its home when it is first asked for.
    _HOMES = {
        "gaussians": (
            "BlockDiagonalGaussian",
            "DenseGaussian",
            "DiagonalGaussian",
            "LowRankGaussian",
        ),
        "mixture": ("Mixture",),
        "inference": ("DenseVI", "MeanFieldVI", "OneVsRestVI"),
        "knowledge": ("EvidenceWarning", "ForgettingWarning", "KnowledgeBase"),
        "learner": ("IBCL", "load"),
        "likelihoods": ("Bernoulli", "Categorical", "Normal", "OneVsRest", "Poisson"),
        "merging": ("merge",),
        "model": ("Model", "load_model"),
        "pooling": ("PoolingRule", "Routed", "RoutedEvidence", "pool"),
        "preference": ("InferredPreference", "Preference", "sample_preferences"),
        "pretrained": ("from_pretrained",),
        "region": ("HighestDensityRegion",),
        "sklearn": ("IBCLClassifier", "IBCLRegressor"),
        "store": ("StoreError",),
        "uncertainty": ("expected_calibration_error",),
    }

    # Packages that documents name, such as ibcl.likelihoods.register.
    _ROOMS = ("adapters", "likelihoods", "mlflow", "networks", "pooling", "rl", "tabular")

    def __getattr__(name: str) -> object:
        if name in _ROOMS:
            return import_module(f"ibcl.{name}")
        if name == "__version__":
            return version("ibcl")
        for home, names in _HOMES.items():
            if name in names:
                value = getattr(import_module(f"ibcl.{home}"), name)
                globals()[name] = value
                return value
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "IBCL",
    "Bernoulli",
    "BlockDiagonalGaussian",
    "Categorical",
    "DenseGaussian",
    "DenseVI",
    "DiagonalGaussian",
    "EvidenceWarning",
    "ForgettingWarning",
    "HighestDensityRegion",
    "IBCLClassifier",
    "IBCLRegressor",
    "InferredPreference",
    "KnowledgeBase",
    "LowRankGaussian",
    "MeanFieldVI",
    "Mixture",
    "Model",
    "Normal",
    "OneVsRest",
    "OneVsRestVI",
    "Poisson",
    "PoolingRule",
    "Preference",
    "Routed",
    "RoutedEvidence",
    "StoreError",
    "adapters",
    "expected_calibration_error",
    "from_pretrained",
    "likelihoods",
    "load",
    "load_model",
    "merge",
    "mlflow",
    "networks",
    "pool",
    "pooling",
    "rl",
    "sample_preferences",
    "tabular",
]
