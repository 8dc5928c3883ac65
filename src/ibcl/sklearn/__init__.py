"""The scikit-learn front door: `IBCLClassifier` and `IBCLRegressor`.

Both read tables with an `ibcl.tabular.Schema` fitted on the first task, learn every task with
`ibcl.IBCL`, and predict with the model of a preference, which can be changed at any time without
data or training. What the user leaves open is decided on the first task by `ibcl.defaults`, as
everywhere, and kept for all later ones. The learner behind an estimator, ``learner_``, can be saved
and predicts the same from the same frames.
"""

from ibcl.sklearn.classifier import IBCLClassifier
from ibcl.sklearn.regressor import IBCLRegressor

__all__ = ["IBCLClassifier", "IBCLRegressor"]
