r"""The scikit-learn front door: `IBCLClassifier` and `IBCLRegressor`.

Both standardise the features with the first task's statistics, learn every task with `IBCL`, and
predict with the model of the current preference, which can be changed at any time without data or
training. What the user leaves open is decided on the first task and kept for all later ones:

* the prior's standard deviation, by the evidence: for classification the ELBO of a few candidates,
  for regression the exact marginal likelihood, which also gives the noise;
* for more than two classes, linear heads are trained one class against the rest (`OneVsRest`): C
  binary problems of dimension D/C instead of one softmax of dimension D.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.nn import functional

from ibcl import networks
from ibcl.gaussians import DenseGaussian, DiagonalGaussian, Gaussian, Mixture
from ibcl.inference import DenseVI, Inference, MeanFieldVI
from ibcl.inference.protocol import InferenceResult, Progress, ProgressCallback
from ibcl.learner import IBCL
from ibcl.likelihoods import Bernoulli, Categorical, Likelihood, Normal
from ibcl.model import Model
from ibcl.networks import FlatNetwork
from ibcl.preference import Preference
from ibcl.tasks import TaskData
from ibcl.uncertainty import Bounds

HEADS = ("random_features", "linear", "mlp")
# Prior stds tried on the first task; the ELBO says which one the data call for.
PRIOR_STDS = (0.3, 1.0, 3.0, 10.0)
# Used for the mlp, where no evidence is at hand to choose one by.
MLP_PRIOR_STD = 1.0
# Random features are made fewer where many classes would make D×D matrices larger than this.
LARGEST_DIMENSION = 1500
# Models kept for preferences used before.
CACHED_MODELS = 32


@dataclass(frozen=True)
class OneVsRest(Categorical):
    """Multi-class labels as C binary ones: p(y=c | f) = s(f_c) / Σ_k s(f_k), s the logistic.

    Examples
    --------
    >>> OneVsRest().probabilities(torch.tensor([[0.0, 0.0]]))
    tensor([[0.5000, 0.5000]])
    """

    name = "one_vs_rest"

    def negative_log(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Sum of the C binary cross entropies of each sample."""
        chosen = functional.one_hot(y, outputs.shape[-1]).to(outputs.dtype).expand_as(outputs)
        return functional.binary_cross_entropy_with_logits(outputs, chosen, reduction="none").sum(
            -1
        )

    def probabilities(self, outputs: Tensor) -> Tensor:
        """Class probabilities, shape (..., n, outputs)."""
        # In logarithms, so that a sample no class claims still has probabilities that sum to 1.
        return torch.softmax(functional.logsigmoid(outputs), -1)


def _rows_of(output: int, columns: int, outputs: int) -> Tensor:
    """Positions in θ of one output's weights and bias."""
    weights = torch.arange(output * columns, (output + 1) * columns)
    return torch.cat([weights, torch.tensor([outputs * columns + output])])


@dataclass(frozen=True)
class OneVsRestVI:
    """`DenseVI` for `OneVsRest`: the classes share no parameter, so each is solved alone."""

    solver: DenseVI = field(default_factory=DenseVI)

    def infer(
        self,
        network: FlatNetwork,
        likelihood: Likelihood,
        priors: Sequence[Gaussian],
        data: TaskData,
        *,
        validation: TaskData | None = None,
        start_from_prior: bool = False,
        seed: int = 0,
        progress: ProgressCallback | None = None,
    ) -> InferenceResult:
        """Return the posterior of each prior: independent classes, full covariance within."""
        head = network.linear_head()
        with torch.no_grad():
            features = head.features(data.x)
        classes, columns = head.layer.weight.shape
        binary = FlatNetwork(nn.Linear(columns, 1))
        dense = [prior.dense() for prior in priors]
        means = [prior.mean.double().clone() for prior in dense]
        precisions = [torch.zeros_like(prior.precision) for prior in dense]
        bounds, converged = [0.0] * len(priors), True
        for c in range(classes):
            own = _rows_of(c, columns, classes)
            result = self.solver.infer(
                binary,
                Bernoulli(),
                [DenseGaussian(q.mean[own], q.precision[own][:, own]) for q in dense],
                TaskData(features, (data.y == c).float()),
            )
            for k, posterior in enumerate(result.posteriors):
                means[k][own] = posterior.mean
                precisions[k][own[:, None], own] = posterior.dense().precision
                bounds[k] += result.objectives[k]
            converged = converged and result.converged
            if progress:
                progress(Progress(c + 1, classes, -sum(bounds) / len(bounds) / data.size))
        posteriors = tuple(map(DenseGaussian, means, precisions))
        return InferenceResult(posteriors, 0, tuple(bounds), converged)


def _random_features(inputs: int, width: int, outputs: int, seed: int) -> networks.SpecifiedNetwork:
    """Build the default head: x and random features of it, as far as matrices stay small."""
    room = LARGEST_DIMENSION // outputs - 1
    skip = 2 * inputs <= room
    if outputs > 1:
        width = min(width, max(1, room - inputs * skip))
    return networks.random_features(inputs, width, outputs, seed=seed, skip=skip)


class _Predictor(NamedTuple):
    """A model and its mean model as a module in double precision, for exact batching."""

    model: Model
    module: nn.Module

    def outputs(self, inputs: Tensor) -> Tensor:
        with torch.no_grad():
            outputs: Tensor = self.module(inputs)
        return outputs


class _IBCLEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share: tasks, preference, and the model between them."""

    learner_: IBCL

    def __init__(
        self,
        head: str = "random_features",
        *,
        width: int = 256,
        priors: Sequence[float] | None = None,
        inference: Inference | None = None,
        pooling: str | None = None,
        preference: Any = None,
        continual: bool | None = None,
        d: float = 0.0,
        alpha: float = 0.01,
        random_state: Any = 0,
    ) -> None:
        self.head = head
        self.width = width
        self.priors = priors
        self.inference = inference
        self.pooling = pooling
        self.preference = preference
        self.continual = continual
        self.d = d
        self.alpha = alpha
        self.random_state = random_state

    @property
    def tasks_(self) -> tuple[str, ...]:
        """Names of the tasks learnt, in order."""
        check_is_fitted(self, "learner_")
        return self.learner_.tasks

    def set_preference(self, preference: Any) -> Self:
        """Choose the preference of all predictions from now on; None weighs all tasks equally."""
        if preference is not None and hasattr(self, "learner_"):
            Preference.parse(preference, self.tasks_)
        self.preference = preference
        return self

    def _make_network(self, inputs: int, outputs: int, seed: int) -> networks.SpecifiedNetwork:
        if self.head == "linear":
            return networks.linear(inputs, outputs)
        if self.head == "mlp":
            return networks.mlp(inputs, self.width, outputs)
        if self.head == "random_features":
            return _random_features(inputs, self.width, outputs, seed)
        raise ValueError(f"head must be one of {', '.join(HEADS)}, not {self.head!r}.")

    def _start(self, X: NDArray[np.float64], y: Tensor, outputs: int) -> None:
        """Make the learner, deciding on the first task what the user left open."""
        state = self.random_state
        seed = state if isinstance(state, int) else check_random_state(state).randint(2**31 - 1)
        self.scaler_ = StandardScaler().fit(X)
        network = self._make_network(X.shape[1], outputs, seed)
        priors, likelihood, inference = self._decide(
            FlatNetwork(network), TaskData(self._inputs(X).float(), y)
        )
        deep = self.head == "mlp"
        self.learner_ = IBCL(
            network,
            priors,
            inference,
            # Averaging networks only makes sense where one was started from the other.
            pooling=("wasserstein" if deep else "evidence")
            if self.pooling is None
            else self.pooling,
            continual=deep if self.continual is None else self.continual,
            d=self.d,
            alpha=self.alpha,
            seed=seed,
            likelihood=likelihood,
        )

    def _decide(
        self, network: FlatNetwork, data: TaskData
    ) -> tuple[Sequence[float], Likelihood, Inference]:
        raise NotImplementedError

    def _learn(
        self, X: NDArray[np.float64], y: Tensor, tasks: dict[str, Any], outputs: int
    ) -> Self:
        first = next(iter(tasks.values()))
        if not hasattr(self, "learner_"):
            self._start(X[first], y[first], outputs)
        for name in tasks:
            self.learner_.knowledge.check_new(name)
        for name, rows in tasks.items():
            self.learner_.learn(self._inputs(X[rows]), y[rows], task=name)
        self._predictors: OrderedDict[Preference, _Predictor] = OrderedDict()
        return self

    def _split(self, task: Any, samples: int) -> dict[str, NDArray[np.intp]]:
        """Rows of each task, in the order of first appearance."""
        rows = np.arange(samples)
        if task is None:
            learnt = len(self.learner_.tasks) if hasattr(self, "learner_") else 0
            return {f"task {learnt + 1}": rows}
        names = np.asarray(task, dtype=object)
        if names.ndim == 0:
            return {str(task): rows}
        if names.shape != (samples,):
            raise ValueError(
                f"task must be one name or one name a sample ({samples}), but its shape is "
                f"{names.shape}."
            )
        texts = np.array([str(name) for name in names])
        return {str(name): rows[texts == name] for name in dict.fromkeys(texts)}

    def _forget(self) -> None:
        for name in ("learner_", "_predictors"):
            self.__dict__.pop(name, None)

    def _inputs(self, X: NDArray[np.float64]) -> Tensor:
        return torch.as_tensor(self.scaler_.transform(X))

    def _checked(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self, "learner_")
        return self._inputs(validate_data(self, X, reset=False, dtype=np.float64))

    def _predictor(self) -> _Predictor:
        """Return the current preference's model; made once and kept."""
        count = len(self.tasks_)
        wanted = np.full(count, 1 / count) if self.preference is None else self.preference
        preference = Preference.parse(wanted, self.tasks_)
        kept = self._predictors
        if preference not in kept:
            model = self.learner_.model(preference)
            kept[preference] = _Predictor(model, model.module().double())
            if len(kept) > CACHED_MODELS:
                kept.popitem(last=False)
        return kept[preference]


class IBCLClassifier(ClassifierMixin, _IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn classifier.

    Parameters
    ----------
    head
        ``"random_features"`` (non-linear, and still learnt exactly), ``"linear"``, or ``"mlp"``.
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
        if self.head == "mlp" or self.inference is not None:
            likelihood = Bernoulli() if binary else Categorical()
            inference = MeanFieldVI() if self.inference is None else self.inference
        else:
            likelihood = Bernoulli() if binary else OneVsRest()
            inference = DenseVI() if binary else OneVsRestVI()
        if self.priors is not None:
            return self.priors, likelihood, inference
        if self.head == "mlp":
            return [MLP_PRIOR_STD], likelihood, inference
        rough = DenseVI(tolerance=0.1)
        zero = torch.zeros(network.dimension)
        result = (rough if binary else OneVsRestVI(rough)).infer(
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


class IBCLRegressor(RegressorMixin, _IBCLEstimator):  # type: ignore[misc]
    """Imprecise Bayesian continual learning as a scikit-learn regressor.

    Targets are standardised with the first task's mean and standard deviation.

    Parameters
    ----------
    head
        ``"random_features"`` (non-linear, and still learnt exactly), ``"linear"``, or ``"mlp"``.
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
            network = FlatNetwork(_random_features(data.x.shape[1], 256, 1, 0))
        with torch.no_grad():
            features = network.linear_head().features(data.x).double().numpy()
        design = np.column_stack([features, np.ones(len(features))])
        given = None if self.priors is None or deep else float(self.priors[0])
        std, noise = maximise_evidence(design, data.y.numpy()[:, 0], given)
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

    def _std(self, predictor: _Predictor, inputs: Tensor) -> NDArray[np.float64]:
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


def maximise_evidence(
    design: NDArray[np.float64], y: NDArray[np.float64], std: float | None = None
) -> tuple[float, float]:
    r"""Prior std σ and noise of Bayesian linear regression with the largest marginal likelihood.

    Marginally y ~ N(0, σ² (ΦΦᵀ + λI)) with λ = noise²/σ². In the singular basis of Φ this is a sum
    over its singular values, and for each λ the best σ² is closed form; λ is found on a grid.

    Parameters
    ----------
    std
        Fix σ and choose the noise alone.

    Examples
    --------
    >>> generator = np.random.default_rng(0)
    >>> design = generator.normal(size=(2000, 50))
    >>> y = design @ generator.normal(size=50) * 2 + generator.normal(size=2000) * 0.5
    >>> std, noise = maximise_evidence(design, y)
    >>> 1.5 < std < 2.5, 0.45 < noise < 0.55
    (True, True)
    """
    basis, singular, _ = np.linalg.svd(design, full_matrices=False)
    n, rank = len(y), len(singular)
    inside = (basis.T @ y) ** 2
    outside = max(0.0, float(y @ y - inside.sum()))
    ratio = np.logspace(-6, 6, 241)[:, None]
    variances = singular**2 + ratio
    squares = (inside / variances).sum(1) + outside / ratio[:, 0]
    scale = squares / n if std is None else np.full(len(ratio), std**2)
    scale = np.maximum(scale, 1e-6)
    losses = (
        n * np.log(scale)
        + np.log(variances).sum(1)
        + (n - rank) * np.log(ratio[:, 0])
        + squares / scale
    )
    best = int(np.argmin(losses))
    return float(np.sqrt(scale[best])), float(np.sqrt(scale[best] * ratio[best, 0]))
