"""`IBCLRegressor`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from ibcl.estimator.base import MLP_PRIOR_STD, IBCLEstimator, Predictor, default_head
from ibcl.gaussians import Gaussian
from ibcl.inference import DenseVI, Inference, MeanFieldVI
from ibcl.inference.marginal_likelihood import maximise_marginal_likelihood
from ibcl.likelihoods import Likelihood, Normal
from ibcl.mixture import Mixture
from ibcl.networks import FlatNetwork
from ibcl.tasks import TaskData
from ibcl.uncertainty import Bounds


class IBCLRegressor(RegressorMixin, IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn regressor.

    Targets are standardised with the first task's mean and standard deviation.

    Parameters
    ----------
    head
        ``"random_features"`` (x itself beside random functions of it: non-linear, and still learnt
        without sampling), ``"linear"``, or ``"mlp"``.
    width
        Random features or hidden units.
    priors
        Standard deviations of the m zero-mean priors; where None the one that maximises the first
        task's marginal likelihood.
    noise
        Standard deviation of the targets around the model, in units of y; where None the one that
        maximises the first task's marginal likelihood.
    inference
        `DenseVI` where None, `MeanFieldVI` for the mlp.
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
        The `ibcl.IBCL` behind it; it sees standardised features and targets.
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
    """

    def __init__(
        self,
        head: str = "random_features",
        *,
        width: int = 256,
        priors: Sequence[float] | None = None,
        noise: float | None = None,
        inference: Inference | None = None,
        pooling: str | None = None,
        preference: Any = None,
        continual: bool | None = None,
        d: float = 0.0,
        alpha: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        super().__init__(
            head,
            width=width,
            priors=priors,
            inference=inference,
            pooling=pooling,
            preference=preference,
            continual=continual,
            d=d,
            alpha=alpha,
            random_state=random_state,
        )
        self.noise = noise

    def fit(self, X: ArrayLike, y: ArrayLike, task: Any = None) -> Self:
        """Forget everything and learn X, y: one task, or one for each name in `task`.

        Parameters
        ----------
        task
            A task's name, or an array of them, one a sample; tasks are learnt in the order of
            first appearance.
        """
        self._forget()
        return self.partial_fit(X, y, task)

    def partial_fit(self, X: ArrayLike, y: ArrayLike, task: Any = None) -> Self:
        """Learn new tasks on top of the earlier ones.

        Parameters
        ----------
        task
            A new name or an array of them, one a sample; ``"task 1"``, ``"task 2"``, ... if None.
        """
        first = not hasattr(self, "learner_")
        features, values = validate_data(self, X, y, reset=first, dtype=np.float64, y_numeric=True)
        column = np.asarray(values, dtype=np.float64)[:, None]
        tasks = self._split(task, len(column))
        if first:
            rows = next(iter(tasks.values()))
            self._target_scaler = StandardScaler().fit(column[rows])
        targets = torch.as_tensor(self._target_scaler.transform(column))
        return self._learn(features, targets, tasks, 1)

    @property
    def _unit(self) -> float:
        return float(self._target_scaler.scale_[0])

    def _decide(
        self, network: FlatNetwork, data: TaskData
    ) -> tuple[Sequence[float], Likelihood, Inference]:
        deep = self.head == "mlp"
        if deep:
            # The noise is a property of the data; any flexible head with a closed form finds it.
            network = FlatNetwork(default_head(data.x.shape[1], 256, 1, 0))
        with torch.no_grad():
            features = network.linear_head().features(data.x).double().numpy()
        design = np.column_stack([features, np.ones(len(features))])
        given = None if self.priors is None or deep else float(self.priors[0])
        std, noise = maximise_marginal_likelihood(design, data.y.numpy()[:, 0], given)
        if self.noise is not None:
            noise = self.noise / self._unit
        self.noise_ = noise * self._unit
        priors = [MLP_PRIOR_STD if deep else std] if self.priors is None else self.priors
        inference: Inference = MeanFieldVI() if deep else DenseVI()
        return priors, Normal(noise), inference if self.inference is None else self.inference

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Return expected values, and with ``return_std`` also the predictive stds.

        The variance is that of the noise plus that of the current preference's distribution over
        models: exact for linear heads, by sampling for the mlp.
        """
        inputs = self._checked(X)
        predictor = self._predictor()
        outputs = predictor.outputs(inputs).numpy()
        values = self._target_scaler.inverse_transform(outputs)[:, 0]
        return (values, self._unit * self._std(predictor, inputs)) if return_std else values

    def _std(self, predictor: Predictor, inputs: Tensor) -> NDArray[np.float64]:
        model = predictor.model
        if self.head == "mlp":
            total: NDArray[np.float64] = model.uncertainty(inputs.numpy()).total
            return np.sqrt(total)
        *fixed, _ = predictor.module.children()
        with torch.no_grad():
            features = nn.Sequential(*fixed)(inputs)
        design = torch.cat([features, features.new_ones(len(features), 1)], 1)
        q = model.distribution
        components = q.components if isinstance(q, Mixture) else (q,)
        weights = q.weights if isinstance(q, Mixture) else torch.ones(1).double()
        gaussians = [part.dense() for part in components if isinstance(part, Gaussian)]
        means = torch.stack([design @ part.mean.double() for part in gaussians])
        within = torch.stack(
            [(design @ part.covariance_factor).square().sum(1) for part in gaussians]
        )
        between = (means - weights @ means).square()
        std: NDArray[np.float64] = np.sqrt(
            (weights @ (within + between)).numpy() + (self.noise_ / self._unit) ** 2
        )
        return std

    def credal_bounds(self, X: ArrayLike) -> Bounds:
        """Return lower and upper expected values over the credal set of all tasks."""
        bounds = self._predictor().model.credal_bounds(self._checked(X).numpy())
        return Bounds(*(self._target_scaler.inverse_transform(values)[:, 0] for values in bounds))
