"""`IBCLClassifier`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from ibcl.estimator.base import MLP_PRIOR_STD, IBCLEstimator
from ibcl.gaussians import DiagonalGaussian
from ibcl.inference import DenseVI, Inference, MeanFieldVI, OneVsRestVI
from ibcl.likelihoods import Bernoulli, Categorical, Likelihood, OneVsRest
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData
from ibcl.uncertainty import Bounds

# Prior stds tried on the first task; the ELBO says which one the data call for.
PRIOR_STDS = (0.3, 1.0, 3.0, 10.0)


class IBCLClassifier(ClassifierMixin, IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn classifier.

    Parameters
    ----------
    head
        ``"random_features"`` (x itself beside random functions of it: non-linear, and still learnt
        without sampling), ``"linear"``, or ``"mlp"``.
    width
        Random features or hidden units. With more than two classes fewer random features are used
        if all classes' parameters would be more than 1,500.
    priors
        Standard deviations of the m zero-mean priors; one chosen on the first task where None.
    inference
        `DenseVI` where None (one class against the rest for more than two classes), `MeanFieldVI`
        for the mlp.
    pooling
        ``"evidence"``, ``"wasserstein"`` or ``"mixture"``; evidence where None, wasserstein for the
        mlp.
    preference
        Weights of the tasks, as in `ibcl.Preference.parse`; None weighs all tasks learnt equally.
    continual
        Learn a task from the previous task's posteriors; where None only for the mlp.
    d, alpha
        As in `ibcl.IBCL`.
    random_state
        Seed of the random features and of whatever inference draws.

    Attributes
    ----------
    learner_
        The `ibcl.IBCL` behind it; it sees standardised features and classes 0, 1, ...
    classes_, n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> classifier = IBCLClassifier(width=64)
    >>> classifier = classifier.partial_fit(X, np.where(X[:, 0] > 0, "yes", "no"), task="first")
    >>> classifier = classifier.partial_fit(X, np.where(X[:, 1] > 0, "yes", "no"), task="second")
    >>> classifier.set_preference({"first": 0.9, "second": 0.1}).predict([[2.0, -1.0]])
    array(['yes'], dtype='<U3')
    >>> classifier.set_preference("second").predict([[2.0, -1.0]])
    array(['no'], dtype='<U3')
    """

    def fit(self, X: ArrayLike, y: ArrayLike, task: Any = None) -> Self:
        """Forget everything and learn X, y: one task, or one for each name in `task`.

        Parameters
        ----------
        task
            A task's name, or an array of them, one a sample; tasks are learnt in the order of
            first appearance.
        """
        self._forget()
        return self._fit(X, y, None, task)

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, task: Any = None
    ) -> Self:
        """Learn new tasks on top of the earlier ones.

        Parameters
        ----------
        classes
            All classes any task will have; the first call's labels where not given.
        task
            A new name or an array of them, one a sample; ``"task 1"``, ``"task 2"``, ... if None.
        """
        return self._fit(X, y, classes, task)

    def _fit(self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None, task: Any) -> Self:
        first = not hasattr(self, "learner_")
        features, labels = validate_data(self, X, y, reset=first, dtype=np.float64)
        check_classification_targets(labels)
        if first:
            self.classes_ = np.unique(labels if classes is None else classes)
            if len(self.classes_) < 2:
                raise ValueError(
                    "A classifier needs samples of at least two classes, but there is only one "
                    f"class: {self.classes_[0]!r}."
                )
        elif classes is not None and not np.array_equal(self.classes_, np.unique(classes)):
            raise ValueError(
                f"classes {np.unique(classes)} differ from the first call's {self.classes_}."
            )
        unseen = np.setdiff1d(labels, self.classes_)
        if len(unseen):
            raise ValueError(
                f"y holds the classes {unseen.tolist()}, but {self.classes_.tolist()} were fixed "
                "by the first call; name all classes there with classes=."
            )
        codes = torch.as_tensor(np.searchsorted(self.classes_, labels))
        outputs = 1 if len(self.classes_) == 2 else len(self.classes_)
        return self._learn(features, codes, self._split(task, len(labels)), outputs)

    def _decide(
        self, network: FlatNetwork, data: TaskData
    ) -> tuple[Sequence[float], Likelihood, Inference]:
        binary = len(self.classes_) == 2
        closed_form: DenseVI = DenseVI() if binary else OneVsRestVI()
        inference: Inference = closed_form if self.head != "mlp" else MeanFieldVI()
        if self.inference is not None:
            inference = self.inference
        likelihood: Likelihood = Bernoulli() if binary else Categorical()
        if not binary and isinstance(inference, OneVsRestVI):
            likelihood = OneVsRest()
        if self.priors is not None:
            return self.priors, likelihood, inference
        if self.head == "mlp":
            return [MLP_PRIOR_STD], likelihood, inference
        zero = torch.zeros(network.dimension)
        result = replace(closed_form, tolerance=0.1).infer(
            network,
            Bernoulli() if binary else OneVsRest(),
            [DiagonalGaussian(zero, torch.full_like(zero, std)) for std in PRIOR_STDS],
            TaskData(data.x, data.y.float() if binary else data.y),
        )
        return [PRIOR_STDS[int(np.argmax(result.objectives))]], likelihood, inference

    def decision_function(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return the model's logits: shape (n,) for two classes, (n, classes) for more."""
        inputs = self._checked(X)
        logits: NDArray[np.float64] = self._predictor().outputs(inputs).numpy()
        return logits[:, 0] if len(self.classes_) == 2 else logits

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the most probable classes under the current preference's model."""
        decision = self.decision_function(X)
        index = (decision > 0).astype(int) if decision.ndim == 1 else decision.argmax(1)
        labels: NDArray[Any] = self.classes_[index]
        return labels

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Return class probabilities of the current preference's model, shape (n, classes)."""
        inputs = self._checked(X)
        predictor = self._predictor()
        likelihood = predictor.model.likelihood
        assert isinstance(likelihood, Bernoulli | Categorical)
        probabilities: NDArray[np.float64] = likelihood.probabilities(
            predictor.outputs(inputs)
        ).numpy()
        return probabilities

    def credal_bounds(self, X: ArrayLike) -> Bounds:
        """Return lower and upper class probabilities over the credal set of all tasks."""
        inputs = self._checked(X)
        return self._predictor().model.credal_bounds(inputs.numpy())
