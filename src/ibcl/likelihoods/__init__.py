"""Likelihoods: how a network's outputs f(θ, x) give the labels y a probability.

A likelihood is chosen once, at the first task, and kept for all later ones. It owns everything that
depends on it: which labels it takes, the loss, what its models predict, how sure they are, the
expectations full-covariance inference needs, and how it is stored. To add one, write a file beside
these with `check`, `negative_log` and `mean`, and register its class; one from outside the library
is registered with `register`.
"""

from ibcl.likelihoods.bernoulli import Bernoulli
from ibcl.likelihoods.categorical import Categorical
from ibcl.likelihoods.likelihood import Likelihood
from ibcl.likelihoods.normal import Normal
from ibcl.likelihoods.one_vs_rest import OneVsRest
from ibcl.likelihoods.poisson import Poisson
from ibcl.likelihoods.quadrature import Expectations
from ibcl.likelihoods.registry import LIKELIHOODS, choose, from_description, register

for _likelihood in (Bernoulli, Categorical, OneVsRest, Normal, Poisson):
    register(_likelihood)

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Expectations",
    "Likelihood",
    "Normal",
    "OneVsRest",
    "Poisson",
    "choose",
    "from_description",
    "register",
]
