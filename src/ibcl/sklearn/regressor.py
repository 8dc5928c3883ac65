"""`IBCLRegressor`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import column_or_1d

from ibcl.conformal import Guarantee
from ibcl.likelihoods import Likelihood, Normal
from ibcl.sklearn.base import IBCLEstimator, setting
from ibcl.tabular import sample_weights, target_values, value_likelihood
from ibcl.uncertainty import Bounds


@dataclass(eq=False, repr=False)
class IBCLRegressor(RegressorMixin, IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn regressor.

    Targets are standardised with the first task's mean and standard deviation, but for counts. A
    frame's columns may be numbers, truth values or categories, and values may be missing:
    `ibcl.tabular` says what becomes of them. Arrays and sparse matrices hold numbers.

    Parameters
    ----------
    network
        ``"random_features"`` (x itself beside random functions of it: non-linear, and still learnt
        without sampling), ``"linear"``, ``"mlp"``, or another one of `ibcl.networks.BUILDERS`.
        Where None, ``"random_features"``; of tables too wide for x beside them, whichever of linear
        and random features predicts held-out rows of the first task better; `network_choice_` says
        which, and why.
    width
        Random features or hidden units.
    likelihood
        ``"normal"``; ``"poisson"`` for counts 0, 1, 2, ..., which are not scaled and whose
        predictions are expected counts; or another one of `ibcl.likelihoods` that is not of
        classes, by its name or as an object in units of y.
    noise
        Standard deviation of the targets around the model, in units of y; where None the one that
        maximises the first task's marginal likelihood.
    priors, inference, pooling, independent, d
        As in `ibcl.IBCL`; where None the best for the network, chosen on the first task. Heads
        borrow from the tasks that are like their own: see `ibcl.tabular.table_pooling`.
    preference
        Weights of the tasks, as in `ibcl.Preference.parse`; None weighs all tasks learnt equally.
    alpha, calibration, calibration_rows
        As in `ibcl.IBCL`.
    expert
        What answers for a task in place of its head: an estimator of scikit-learn such as
        ``HistGradientBoostingRegressor()``, or ``"auto"``: gradient boosting beside the head, as
        far as held-out rows say; see `ibcl.experts`.
    random_state
        Seed of the random features and of whatever inference draws.
    head, continual
        Old names of `network` and of the opposite of `independent`.

    Attributes
    ----------
    learner_
        The `ibcl.IBCL` behind it, which takes the same frames and gives the same values.
    schema_
        The `ibcl.tabular.Schema` of the first task.
    noise_
        The noise used, in units of y.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> X = np.linspace(-3, 3, 200)[:, None]
    >>> regressor = IBCLRegressor().fit(X, np.sin(X[:, 0]))
    >>> bool(abs(regressor.predict([[1.0]])[0] - np.sin(1.0)) < 0.01)
    True
    >>> counts = np.random.default_rng(0).poisson(np.exp(X[:, 0]))
    >>> counter = IBCLRegressor("linear", likelihood="poisson").fit(X, counts)
    >>> bool(abs(np.log(counter.predict([[1.0]])[0]) - 1.0) < 0.2)
    True
    """

    likelihood: str | Likelihood = field(default=Normal.name, kw_only=True)
    noise: float | None = setting("noise")

    def fit(
        self, X: ArrayLike, y: ArrayLike, task: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Forget everything and learn X, y: one task, or one for each name in `task`.

        Parameters
        ----------
        task
            A task's name, or an array of them, one per sample; tasks are learnt in the order of
            first appearance.
        sample_weight
            How often each sample counts.
        """
        with self._all_or_nothing("learner_", "network_choice_"):
            return self.partial_fit(X, y, task, sample_weight)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, task: Any = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn new tasks on top of the earlier ones, or further batches of these.

        Parameters
        ----------
        task
            A name or an array of them, one per sample; ``"task 1"``, ``"task 2"``, ... if None. The
            samples of a task learnt before are added to it.
        sample_weight
            How often each sample counts.
        """
        with self._all_or_nothing():
            table, given = self._checked(X, y)
            values = target_values(column_or_1d(given, warn=True))
            weights = sample_weights(values, sample_weight)
            likelihood = value_likelihood(self.likelihood, self.noise)
            return self._learn(table, values, task, weights, classes=None, likelihood=likelihood)

    @property
    def noise_(self) -> float:
        """The noise used, in units of y; only a Gaussian likelihood has one."""
        likelihood = self._model().likelihood
        if not isinstance(likelihood, Normal):
            raise AttributeError(f"A {likelihood.name} likelihood has no noise of its own.")
        return likelihood.noise * self.schema_.scale

    def predict(self, X: ArrayLike, return_std: bool = False, preference: Any = None) -> Any:
        """Return expected values or counts, and with ``return_std`` also the predictive stds.

        The variance is that of the noise (of counts, around their rate) plus that of the
        preference's distribution over models: exact for heads linear in their parameters, by
        sampling for others.

        Parameters
        ----------
        preference
            Whose model to ask, as in `ibcl.Preference.parse`; the estimator's own where None.
        """
        model = self._model(preference)
        table, _ = self._checked(X)
        values: NDArray[np.float64] = model.predict(table)
        return (values, np.sqrt(model.uncertainty(table).total)) if return_std else values

    def predict_interval(
        self,
        X: ArrayLike,
        alpha: float = 0.1,
        preference: Any = None,
        guarantee: Guarantee = "mixture",
        union: bool = False,
    ) -> Any:
        """Return intervals that hold the right value with probability 1 − alpha: shape (n, 2).

        Parameters
        ----------
        preference
            Whose model to ask, as in `ibcl.Preference.parse`; the estimator's own where None.
        guarantee, union
            As in `ibcl.Model.predict_interval`.
        """
        model = self._model(preference)
        return model.predict_interval(self._checked(X)[0], alpha, guarantee, union)

    def credal_bounds(self, X: ArrayLike, preference: Any = None) -> Bounds:
        """Return lower and upper expected values, of all tasks and the served model."""
        bounds = self._model(preference).credal_bounds(self._checked(X)[0])
        return Bounds(*(np.asarray(values)[:, 0] for values in bounds))
