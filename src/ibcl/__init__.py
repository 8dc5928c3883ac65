"""Imprecise Bayesian Continual Learning.

Learn tasks one by one, and turn any preference between them into a model at once:

>>> import ibcl, torch
>>> x = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
>>> learner = ibcl.IBCL(ibcl.networks.linear(4), inference=ibcl.DenseVI(), pooling="evidence")
>>> record = learner.learn(x, x[:, 0] > 0, task="sci-fi")
>>> record = learner.learn(x, x[:, 1] > 0, task="documentary")

A preference is a probability vector over the tasks; its model needs no data and no training:

>>> model = learner.model({"sci-fi": 0.8, "documentary": 0.2})
>>> model.predict_proba(x).shape
torch.Size([300, 2])

Every model comes with the smallest region of parameters that holds the right one with probability
1 − α:

>>> thetas = model.region.sample(3)
>>> model.region.contains(thetas)
tensor([True, True, True])
"""

from typing import TYPE_CHECKING

from ibcl import networks
from ibcl.gaussians import DenseGaussian, DiagonalGaussian, Mixture
from ibcl.inference import DenseVI, MeanFieldVI, OneVsRestVI
from ibcl.knowledge import KnowledgeBase
from ibcl.learner import IBCL
from ibcl.likelihoods import Bernoulli, Categorical, Normal, OneVsRest
from ibcl.model import Model
from ibcl.pooling import EvidenceWarning, pool
from ibcl.preference import Preference, sample_preferences
from ibcl.region import HighestDensityRegion
from ibcl.revision import merge
from ibcl.store import StoreError, load, load_model
from ibcl.uncertainty import expected_calibration_error

if TYPE_CHECKING:
    from ibcl.estimator import IBCLClassifier, IBCLRegressor
else:

    def __getattr__(name: str) -> type:
        """Import scikit-learn and the estimators when one is asked for, not before."""
        if name in ("IBCLClassifier", "IBCLRegressor"):
            from ibcl import estimator

            return getattr(estimator, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "IBCL",
    "Bernoulli",
    "Categorical",
    "DenseGaussian",
    "DenseVI",
    "DiagonalGaussian",
    "EvidenceWarning",
    "HighestDensityRegion",
    "IBCLClassifier",
    "IBCLRegressor",
    "KnowledgeBase",
    "MeanFieldVI",
    "Mixture",
    "Model",
    "Normal",
    "OneVsRest",
    "OneVsRestVI",
    "Preference",
    "StoreError",
    "expected_calibration_error",
    "load",
    "load_model",
    "merge",
    "networks",
    "pool",
    "sample_preferences",
]
