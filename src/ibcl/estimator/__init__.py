"""The scikit-learn front door: `IBCLClassifier` and `IBCLRegressor`.

Both standardise the features with the first task's statistics, learn every task with `ibcl.IBCL`,
and predict with the model of the current preference, which can be changed at any time without data
or training. What the user leaves open is decided on the first task and kept for all later ones:

* the prior's standard deviation, by the evidence: for classification the ELBO of a few candidates,
  for regression the exact marginal likelihood, which also gives the noise;
* for more than two classes, linear heads are trained one class against the rest
  (`ibcl.inference.OneVsRestVI`).
"""

from ibcl.estimator.classifier import IBCLClassifier
from ibcl.estimator.regressor import IBCLRegressor

__all__ = ["IBCLClassifier", "IBCLRegressor"]
