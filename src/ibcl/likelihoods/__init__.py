"""Likelihoods: how a network's outputs f(θ, x) give the labels y a probability.

A likelihood is chosen once, at the first task, and kept for all later ones. It owns everything that
depends on it: which labels it takes, the loss, what its models predict, how sure they are, the
expectations full-covariance inference needs, and how it is stored. To add one, write a file beside
these with `check`, `negative_log` and `mean`, put `register` above its class and add the line that
imports it below; one from outside the library is registered in the same way. What it must satisfy
says `Likelihood`, and `requirements` checks.
"""

from ibcl.likelihoods.bernoulli import Bernoulli as Bernoulli
from ibcl.likelihoods.categorical import Categorical as Categorical
from ibcl.likelihoods.likelihood import Likelihood as Likelihood
from ibcl.likelihoods.normal import Normal as Normal
from ibcl.likelihoods.one_vs_rest import OneVsRest as OneVsRest
from ibcl.likelihoods.poisson import Poisson as Poisson
from ibcl.likelihoods.quadrature import Expectations as Expectations
from ibcl.likelihoods.registry import LIKELIHOODS as LIKELIHOODS
from ibcl.likelihoods.registry import canonical as canonical
from ibcl.likelihoods.registry import choose as choose
from ibcl.likelihoods.registry import from_description as from_description
from ibcl.likelihoods.registry import register as register
