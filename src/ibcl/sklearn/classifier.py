"""`IBCLClassifier`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from ibcl.conformal import Guarantee
from ibcl.sklearn.base import IBCLEstimator
from ibcl.tabular import sample_weights
from ibcl.uncertainty import Bounds


@dataclass(eq=False, repr=False)
class IBCLClassifier(ClassifierMixin, IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn classifier.

    A frame's columns may be numbers, truth values or categories, and values may be missing:
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
        Random features or hidden units. With more than two classes fewer random features are used
        if all classes' parameters would be more than 1,500.
    priors, inference, pooling, independent, d
        As in `ibcl.IBCL`; where None the best for the network, chosen on the first task. Heads
        borrow from the tasks that are like their own: see `ibcl.tabular.table_pooling`.
    preference
        Weights of the tasks, as in `ibcl.Preference.parse`; None weighs all tasks learnt equally.
    alpha, calibration, calibration_rows
        As in `ibcl.IBCL`.
    expert
        What answers for a task in place of its head: an estimator of scikit-learn such as
        ``HistGradientBoostingClassifier()``, or ``"auto"``: gradient boosting beside the head, as
        far as held-out rows say; see `ibcl.experts`.
    class_weight
        ``"balanced"``, or weights by class; None lets every sample count once.
    random_state
        Seed of the random features and of whatever inference draws.
    head, continual
        Old names of `network` and of the opposite of `independent`.

    Attributes
    ----------
    learner_
        The `ibcl.IBCL` behind it, which takes the same frames and gives the same classes.
    schema_
        The `ibcl.tabular.Schema` of the first task.
    classes_, n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> classifier = IBCLClassifier(width=64)
    >>> classifier = classifier.partial_fit(X, np.where(X[:, 0] > 0, "yes", "no"), task="first")
    >>> classifier = classifier.partial_fit(X, np.where(X[:, 1] > 0, "yes", "no"), task="second")
    >>> classifier.predict([[1.0, -2.0]], preference={"first": 0.9, "second": 0.1})
    array(['yes'], dtype='<U3')
    >>> classifier.set_preference("second").predict([[1.0, -2.0]])
    array(['no'], dtype='<U3')
    """

    class_weight: str | Mapping[Any, float] | None = field(default=None, kw_only=True)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes learnt so far: those of the first task sorted, later ones behind them."""
        schema = self.schema_
        assert schema.classes is not None
        return schema.decode(torch.arange(len(schema.classes)))

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
            return self._fit(X, y, None, task, sample_weight, fewest=2)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        task: Any = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Learn new tasks on top of the earlier ones, or further batches of these.

        Parameters
        ----------
        classes
            Classes to make room for from the beginning; later tasks may bring further ones.
        task
            A name or an array of them, one per sample; ``"task 1"``, ``"task 2"``, ... if None. The
            samples of a task learnt before are added to it.
        sample_weight
            How often each sample counts.
        """
        with self._all_or_nothing():
            return self._fit(X, y, classes, task, sample_weight)

    def _fit(
        self,
        X: Any,
        y: Any,
        classes: ArrayLike | None,
        task: Any,
        sample_weight: Any,
        fewest: int = 1,
    ) -> Self:
        first = not hasattr(self, "learner_")
        table, given = self._checked(X, _plain_labels(y))
        labels = column_or_1d(given, warn=True)
        if pd.isna(labels).any():
            raise ValueError(
                f"y contains NaN or None, first in row {int(pd.isna(labels).argmax()) + 1}; leave "
                "rows without a label out."
            )
        _refuse_mixed(labels)
        check_classification_targets(labels)
        named: Any = classes if first else self.classes_
        weights = sample_weights(labels, sample_weight, self.class_weight, named)
        if not first:
            known = self.classes_
            if classes is not None and len(np.setdiff1d(known, np.unique(classes))):
                raise ValueError(
                    f"classes {np.unique(classes)} lack some of those learnt, {known}."
                )
            return self._learn(table, labels, task, weights, classes=known)
        occurring = labels if weights is None else labels[weights > 0]
        wanted = np.unique(occurring if classes is None else classes)
        if len(wanted) < fewest:
            raise ValueError(
                "A classifier needs samples of at least two classes, but there is only one "
                f"class: {wanted.tolist()[0]!r}; partial_fit may begin with one."
            )
        unseen = np.setdiff1d(occurring, wanted)
        if len(unseen):
            raise ValueError(
                f"y holds the classes {unseen.tolist()}, which classes={wanted.tolist()} "
                "does not name; name all of them, or leave classes= out."
            )
        return self._learn(table, labels, task, weights, classes=wanted)

    def decision_function(self, X: ArrayLike, preference: Any = None) -> NDArray[np.float64]:
        """Return the model's logits: shape (n,) for two classes, (n, classes) for more."""
        model = self._model(preference)
        rows = model.features(self._checked(X)[0])
        # Not rounded to single precision, so that they do not depend on the rows beside them.
        logits = model.predictive.outputs(rows.values)[0].double().cpu().numpy()
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: ArrayLike, preference: Any = None) -> NDArray[Any]:
        """Return the most probable classes.

        Parameters
        ----------
        preference
            Whose model to ask, as in `ibcl.Preference.parse`; the estimator's own where None.
        """
        probabilities = self.predict_proba(X, preference)
        labels: NDArray[Any] = self.classes_[probabilities.argmax(1)]
        return labels

    def predict_proba(self, X: ArrayLike, preference: Any = None) -> NDArray[np.float64]:
        """Return class probabilities, shape (n, classes).

        Parameters
        ----------
        preference
            Whose model to ask, as in `ibcl.Preference.parse`; the estimator's own where None.
        """
        model = self._model(preference)
        probabilities: NDArray[np.float64] = model.predict_proba(self._checked(X)[0])
        # Of a single class nothing else can be the answer yet.
        return probabilities if len(self.classes_) > 1 else np.ones((len(probabilities), 1))

    def predict_set(
        self,
        X: ArrayLike,
        alpha: float = 0.1,
        preference: Any = None,
        guarantee: Guarantee = "mixture",
    ) -> NDArray[np.bool_]:
        """Return sets of classes that hold the right one with probability 1 − alpha.

        Parameters
        ----------
        preference
            Whose model to ask, as in `ibcl.Preference.parse`; the estimator's own where None.
        guarantee
            As in `ibcl.Model.predict_set`.

        Returns
        -------
        Which of ``classes_`` are in the sets: shape (n, classes).
        """
        return self._model(preference).predict_set(self._checked(X)[0], alpha, guarantee)

    def credal_bounds(self, X: ArrayLike, preference: Any = None) -> Bounds:
        """Return lower and upper class probabilities, of all tasks and the served model."""
        return self._model(preference).credal_bounds(self._checked(X)[0])


def _plain_labels(y: Any) -> Any:
    """Return labels as what they are: of pandas' own kinds scikit-learn would make floats.

    Missing ones are left to be refused.
    """
    if isinstance(y, np.ndarray) and y.dtype == object and y.ndim == 1:
        y = pd.Series(y, dtype=object)
    if not isinstance(y, pd.Series) or y.isna().any():
        return y
    if isinstance(y.dtype, np.dtype) and y.dtype != object:
        return y
    values = [v.item() if isinstance(v, np.generic) else v for v in y.astype(object)]
    alike = len({type(value) for value in values}) == 1 and not isinstance(values[0], str)
    return np.array(values, dtype=None if alike else object)


def _refuse_mixed(labels: NDArray[Any]) -> None:
    """Refuse labels of several kinds, which have no order, and of those that are no labels."""
    if labels.dtype != object:
        return
    kinds = {"str" if isinstance(value, str) else type(value).__name__ for value in labels}
    if kinds != {"str"}:
        raise ValueError(
            f"Unknown label type: y holds values of kind {', '.join(sorted(kinds))}; make all "
            "labels texts, or all numbers."
        )
