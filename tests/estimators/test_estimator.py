"""The scikit-learn front door: scikit-learn's own checks, and what tasks and preferences mean."""

import tracemalloc

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris, load_wine, make_moons
from sklearn.linear_model import PoissonRegressor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import ibcl


# The checks fit some hundred times; a narrow head keeps them fast and has the same code.
@parametrize_with_checks([ibcl.IBCLClassifier(width=16), ibcl.IBCLRegressor(width=16)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("head", ["linear", "random_features"])
@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_constructor_only_stores_and_clone_forgets(kind, head):
    estimator = kind(head, width=8, preference="first")
    X, y = make_moons(60, noise=0.1, random_state=0)
    estimator.fit(X, y, task="first")
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params()
    assert not hasattr(copy, "learner_")


@pytest.fixture(scope="module")
def two_tasks():
    """Two tasks that disagree: the label is the sign of the first, or of the second feature."""
    generator = np.random.default_rng(0)
    X = generator.normal(size=(400, 3))
    task = np.where(generator.random(400) < 0.5, "first", "second")
    y = np.where(np.where(task == "first", X[:, 0], X[:, 1]) > 0, "yes", "no")
    return X, y, task


def learnt(X, y, task, **parameters):
    return ibcl.IBCLClassifier("linear", **parameters).fit(X, y, task=task)


def test_labels_of_any_kind(two_tasks):
    X, y, task = two_tasks
    classifier = learnt(X, y, task)
    assert classifier.classes_.tolist() == ["no", "yes"]
    assert set(classifier.predict(X)) == {"no", "yes"}
    numbers = learnt(X, np.where(y == "yes", 7, -2), task)
    np.testing.assert_array_equal(numbers.predict_proba(X), classifier.predict_proba(X))
    assert set(numbers.predict(X)) == {-2, 7}


def test_tasks_are_learnt_in_order_of_first_appearance(two_tasks):
    X, y, task = two_tasks
    assert learnt(X, y, task).tasks_ == tuple(dict.fromkeys(task))
    flipped = np.where(task == "first", "b", "a")
    assert learnt(X, y, flipped).tasks_ == tuple(dict.fromkeys(flipped))


def test_partial_fit_equals_fit_with_a_task_array(two_tasks):
    X, y, task = two_tasks
    together = learnt(X, y, task)
    one_by_one = ibcl.IBCLClassifier("linear")
    for name in dict.fromkeys(task):
        one_by_one.partial_fit(X[task == name], y[task == name], task=name)
    assert one_by_one.tasks_ == together.tasks_
    np.testing.assert_array_equal(one_by_one.predict_proba(X), together.predict_proba(X))
    targets = X @ [1.0, -2.0, 0.5]
    both = ibcl.IBCLRegressor(width=16).fit(X, targets, task=task)
    one_by_one = ibcl.IBCLRegressor(width=16)
    for name in dict.fromkeys(task):
        one_by_one.partial_fit(X[task == name], targets[task == name], task=name)
    np.testing.assert_array_equal(one_by_one.predict(X), both.predict(X))


def test_tasks_without_names_are_numbered_and_fit_forgets(two_tasks):
    X, y, _ = two_tasks
    classifier = ibcl.IBCLClassifier("linear").partial_fit(X, y).partial_fit(X[:100], y[:100])
    assert classifier.tasks_ == ("task 1", "task 2")
    classifier.learner_.forget("task 1")
    assert classifier.partial_fit(X, y).tasks_ == ("task 2", "task 3")
    assert classifier.fit(X, y).tasks_ == ("task 1",)


@pytest.mark.parametrize("pooling", ["evidence", "wasserstein"])
def test_preference_decides_which_task_is_served(two_tasks, pooling):
    X, y, task = two_tasks
    classifier = learnt(X, y, task, pooling=pooling)
    truth = {"first": X[:, 0] > 0, "second": X[:, 1] > 0}
    for name, label in truth.items():
        prediction = classifier.set_preference(name).predict(X) == "yes"
        assert (prediction == label).mean() > 0.95
    by_parameter = classifier.set_params(preference=[0.3, 0.7]).predict_proba(X)
    by_method = classifier.set_preference([0.3, 0.7]).predict_proba(X)
    np.testing.assert_array_equal(by_parameter, by_method)
    uniform = classifier.set_preference(None).predict_proba(X)
    np.testing.assert_array_equal(uniform, classifier.set_preference("0.5,0.5").predict_proba(X))


def test_vertex_preference_under_wasserstein_is_the_first_tasks_model(two_tasks):
    X, y, task = two_tasks
    name = task[0]
    both = learnt(X, y, task, pooling="wasserstein").set_preference(name)
    alone = learnt(X[task == name], y[task == name], None, pooling="wasserstein")
    np.testing.assert_array_equal(both.predict_proba(X), alone.predict_proba(X))


def test_uniform_evidence_of_two_halves_is_regression_on_the_whole():
    generator = np.random.default_rng(3)
    X = generator.normal(size=(200, 4))
    y = X @ [1.0, 0.0, -1.0, 2.0] + generator.normal(size=200)
    # Both halves hold the same inputs twice, so that the first half's scale is the whole's.
    X[100:] = X[:100]
    halves = np.repeat(["a", "b"], 100)
    settings = {"network": "linear", "priors": [1.0], "pooling": "evidence"}
    split = ibcl.IBCLRegressor(**settings, noise=1.0).fit(X, y, task=halves)
    predicted, std = split.predict(X, return_std=True)

    # The closed form, from the standardised data and nothing of ours.
    first = y[:100]
    unit = first.std()
    design = np.column_stack([(X - X.mean(0)) / X.std(0), np.ones(200)])
    noise = 1.0 / unit
    precision = np.eye(5) + design.T @ design / noise**2
    mean = np.linalg.solve(precision, design.T @ ((y - first.mean()) / unit) / noise**2)
    spread = np.einsum("ij,ij->i", design, np.linalg.solve(precision, design.T).T)
    np.testing.assert_allclose(predicted, first.mean() + unit * design @ mean, atol=1e-5)
    np.testing.assert_allclose(std, unit * np.sqrt(spread + noise**2), rtol=1e-5)


def test_models_follow_new_tasks_and_predictives_are_remembered(two_tasks):
    X, y, task = two_tasks
    classifier = ibcl.IBCLClassifier("linear")
    classifier.partial_fit(X[task == "first"], y[task == "first"], task="first")
    before = classifier.predict_proba(X)
    classifier.partial_fit(X[task == "second"], y[task == "second"], task="second")
    assert abs(classifier.predict_proba(X) - before).max() > 0.1
    for weight in np.linspace(0, 1, 100):
        classifier.set_preference([weight, 1 - weight]).predict(X[:1])
    assert classifier._model().predictive is classifier._model().predictive


def test_sample_order_does_not_matter(two_tasks):
    X, y, task = two_tasks
    # The first task stays the first, and with it the statistics of the standardisation.
    order = np.concatenate([[0], 1 + np.random.default_rng(1).permutation(len(y) - 1)])
    straight = learnt(X, y, task).predict_proba(X)
    shuffled = learnt(X[order], y[order], task[order]).predict_proba(X)
    np.testing.assert_allclose(shuffled, straight, atol=1e-4)


def test_pipeline_search_and_cross_validation_route_tasks(two_tasks):
    X, y, task = two_tasks
    pipeline = make_pipeline(MinMaxScaler(), ibcl.IBCLClassifier("linear"))
    pipeline.fit(X, y, ibclclassifier__task=task)
    assert pipeline[-1].tasks_ == tuple(dict.fromkeys(task))
    scores = cross_val_score(ibcl.IBCLClassifier("linear"), X, X[:, 0] > 0, cv=3)
    assert scores.min() > 0.9
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = ibcl.IBCLClassifier("linear").set_fit_request(task=True)
        search = GridSearchCV(
            make_pipeline(MinMaxScaler(), estimator), {"ibclclassifier__priors": [[0.01], [1.0]]}
        )
        search.fit(X, y, task=task)
    assert set(search.best_estimator_[-1].tasks_) == {"first", "second"}
    assert search.predict(X).shape == y.shape


@pytest.mark.parametrize("load", [load_iris, load_wine])
def test_defaults_are_strong_on_several_classes(load):
    X, y = load(return_X_y=True)
    train = np.arange(len(y)) % 2 == 0
    classifier = ibcl.IBCLClassifier(width=64).fit(X[train], y[train])
    assert classifier.score(X[~train], y[~train]) > 0.94


def test_defaults_see_what_no_linear_model_can():
    X, y = make_moons(400, noise=0.2, random_state=0)
    assert ibcl.IBCLClassifier().fit(X[:200], y[:200]).score(X[200:], y[200:]) > 0.93


def test_one_against_the_rest_is_one_binary_problem_a_class():
    X, y = load_iris(return_X_y=True)
    several = ibcl.IBCLClassifier("linear", priors=[2.0], pooling="evidence").fit(X, y)
    logits = several.decision_function(X)
    for c in range(3):
        alone = ibcl.IBCLClassifier("linear", priors=[2.0], pooling="evidence").fit(X, y == c)
        np.testing.assert_allclose(logits[:, c], alone.decision_function(X), atol=1e-4)
    # A chain starts from a prior that is dense; classes must stay apart there too.
    chained = ibcl.IBCLClassifier("linear", priors=[2.0], independent=False).fit(X, y, task="a")
    chained.partial_fit(X, y, task="b")
    assert isinstance(chained.learner_.inference, ibcl.OneVsRestVI)
    assert (chained.set_preference("b").predict(X) == y).mean() > 0.94


@pytest.mark.parametrize("head", ["linear", "random_features"])
def test_the_learner_behind_several_classes_is_saved_and_loaded_bit_for_bit(head, tmp_path):
    X, y = load_iris(return_X_y=True)
    classifier = ibcl.IBCLClassifier(head, width=16, independent=False)
    classifier.partial_fit(X[::2], y[::2], task="a").partial_fit(X[1::2], y[1::2], task="b")
    learner = classifier.learner_
    learner.save(tmp_path / "iris")
    loaded = ibcl.load(tmp_path / "iris")
    assert loaded.inference == learner.inference == ibcl.OneVsRestVI()
    assert loaded.likelihood == learner.likelihood == ibcl.OneVsRest()
    for both in (learner, loaded):
        both.learn(X[::3], y[::3], task="c")
    for ours, theirs in zip(learner.knowledge.stored, loaded.knowledge.stored, strict=True):
        assert ours.equal(theirs)
    models = [both.model([0.2, 0.5, 0.3]) for both in (learner, loaded)]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
    models[0].save(tmp_path / "model.safetensors")
    alone = ibcl.load_model(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(alone.predict_proba(X), models[0].predict_proba(X))


def test_one_against_the_rest_takes_settings_of_its_own():
    X, y = load_iris(return_X_y=True)
    rough = ibcl.OneVsRestVI(tolerance=0.05)
    classifier = ibcl.IBCLClassifier("linear", inference=rough).fit(X, y)
    assert classifier.learner_.inference == rough
    assert classifier.learner_.likelihood == ibcl.OneVsRest()
    softmax = ibcl.IBCLClassifier("linear", inference=ibcl.DenseVI()).fit(X, y)
    assert softmax.learner_.likelihood == ibcl.Categorical()


@pytest.mark.parametrize(
    ("features", "classes", "dimension"),
    [
        (4, 2, 4 + 256 + 1),
        (4, 3, 3 * (4 + 256 + 1)),
        (30, 10, 10 * (30 + 119 + 1)),
        # So many features that beside them no random ones would fit, and too few rows to compare.
        (100, 10, 10 * (100 + 1)),
        (800, 2, 800 + 1),
    ],
)
def test_the_default_head_holds_the_features_as_far_as_matrices_stay_small(
    features, classes, dimension
):
    X = np.random.default_rng(0).normal(size=(3 * classes, features))
    y = np.arange(3 * classes) % classes
    classifier = ibcl.IBCLClassifier(priors=[1.0]).fit(X, y)
    assert classifier.learner_.network.dimension == dimension


def test_linear_structure_is_not_lost_to_random_features():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(300, 30))
    y = X @ generator.normal(size=30) + generator.normal(size=300)
    linear = ibcl.IBCLRegressor("linear").fit(X[:150], y[:150]).score(X[150:], y[150:])
    default = ibcl.IBCLRegressor().fit(X[:150], y[:150]).score(X[150:], y[150:])
    assert default > linear - 0.01


def test_a_class_missing_from_a_task_is_allowed_and_a_new_one_is_learnt():
    X, y = load_iris(return_X_y=True)
    classifier = ibcl.IBCLClassifier("linear").partial_fit(
        X[y < 2], y[y < 2], classes=[0, 1, 2], task="without 2"
    )
    assert classifier.predict_proba(X).shape == (150, 3)
    classifier.partial_fit(X[y > 0], y[y > 0], task="without 0")
    with pytest.raises(ValueError, match="lack some of those learnt"):
        classifier.partial_fit(X, y, classes=[0, 1], task="new")
    assert classifier.tasks_ == ("without 2", "without 0")
    classifier.partial_fit(X, np.where(y == 0, 3, y), task="new")
    assert classifier.classes_.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"y holds the classes \[2\]"):
        ibcl.IBCLClassifier("linear").partial_fit(X, y, classes=[0, 1])


@pytest.mark.parametrize("pooling", ["routed", "evidence", "wasserstein", "mixture"])
def test_credal_bounds_contain_the_prediction(two_tasks, pooling):
    X, y, task = two_tasks
    classifier = learnt(X, y, task, pooling=pooling, preference=[0.3, 0.7])
    lower, upper = classifier.credal_bounds(X)
    probabilities = classifier.predict_proba(X)
    assert ((lower <= probabilities) & (probabilities <= upper)).all()
    assert (upper - lower).max() > 0.1
    targets = 5 + X @ [3.0, -2.0, 0.5]
    regressor = ibcl.IBCLRegressor("linear", pooling=pooling).fit(X, targets, task=task)
    lower, upper = regressor.credal_bounds(X)
    values = regressor.predict(X)
    assert lower.shape == values.shape
    assert ((lower <= values) & (values <= upper)).all()


def test_credal_bounds_contain_every_tasks_model(two_tasks):
    X, y, task = two_tasks
    classifier = learnt(X, y, task, pooling="evidence")
    lower, upper = classifier.credal_bounds(X)
    for name in classifier.tasks_:
        alone = learnt(X, y, task, pooling="wasserstein").set_preference(name).predict_proba(X)
        assert (alone >= lower - 1e-5).all()
        assert (alone <= upper + 1e-5).all()


def test_predictive_std_covers_and_grows_away_from_the_data():
    generator = np.random.default_rng(0)
    X = generator.uniform(-2, 2, size=(600, 1))
    y = 100 + 20 * np.sin(2 * X[:, 0]) + 3 * generator.normal(size=600)
    regressor = ibcl.IBCLRegressor().fit(X[:300], y[:300])
    assert regressor.noise_ == pytest.approx(3, rel=0.15)
    mean, std = regressor.predict(X[300:], return_std=True)
    assert 0.9 < (abs(y[300:] - mean) < 1.96 * std).mean() < 0.99
    far = regressor.predict([[0.0], [10.0]], return_std=True)[1]
    assert far[1] > 2 * far[0]


def test_predictive_std_of_a_mixture_is_that_of_draws_from_it():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 2))
    y = np.concatenate([X[:30, 0], X[30:, 1]]) + 0.1 * generator.normal(size=60)
    regressor = ibcl.IBCLRegressor("linear", pooling="mixture", priors=[1.0], noise=0.1)
    regressor.fit(X, y, task=np.repeat(["a", "b"], 30))
    std = regressor.predict(X, return_std=True)[1]
    model = regressor.learner_.model([0.5, 0.5])
    thetas = model.distribution.sample(20_000, torch.Generator().manual_seed(0)).numpy()
    inputs = regressor.schema_.inputs(X).numpy()
    outputs = y[:30].std() * (inputs @ thetas[:, :2].T + thetas[:, 2])
    np.testing.assert_allclose(std, np.sqrt(outputs.var(1) + 0.1**2), rtol=0.03)


def test_mlp_head(two_tasks):
    X, y, task = (values[:200] for values in two_tasks)
    settings = {"network": "mlp", "width": 8, "inference": ibcl.MeanFieldVI(20, learning_rate=0.05)}
    classifier = ibcl.IBCLClassifier(**settings).fit(X, y, task=task)
    assert classifier.learner_.pooling == "routed"
    assert classifier.learner_.knowledge.independent
    np.testing.assert_allclose(classifier.predict_proba(X).sum(1), 1, rtol=1e-6)
    regressor = ibcl.IBCLRegressor(**settings).fit(X, X[:, 0])
    assert regressor.score(X, X[:, 0]) > 0.5
    assert regressor.predict(X, return_std=True)[1].shape == (200,)


def test_same_seed_same_result_and_constant_columns_are_harmless(two_tasks):
    X, y, _ = two_tasks
    wide = np.column_stack([X, np.full(len(X), 5.0)])
    first = ibcl.IBCLClassifier(width=16, random_state=3).fit(wide, y).predict_proba(wide)
    again = ibcl.IBCLClassifier(width=16, random_state=3).fit(wide, y).predict_proba(wide)
    other = ibcl.IBCLClassifier(width=16, random_state=4).fit(wide, y).predict_proba(wide)
    np.testing.assert_array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize(
    ("parameters", "task", "message"),
    [
        ({"network": "forest"}, None, "network must be one of"),
        ({"priors": [-1.0]}, None, "must be positive"),
        ({"pooling": "median"}, None, "pooling must be one of"),
        ({"width": 0}, None, "width must be a positive whole number"),
        ({}, ["a", "b"], "one name per sample"),
        ({}, "a,b", "name must be text without commas"),
    ],
)
def test_bad_parameters_are_refused(two_tasks, parameters, task, message):
    X, y, _ = two_tasks
    with pytest.raises(ValueError, match=message):
        ibcl.IBCLClassifier(**parameters).fit(X, y, task=task)


def test_bad_preferences_and_tasks_are_refused(two_tasks):
    X, y, task = two_tasks
    classifier = learnt(X, y, task)
    with pytest.raises(ValueError, match="sum to 1"):
        classifier.set_preference([0.8, 0.3])
    with pytest.raises(ValueError, match="Unknown task"):
        classifier.set_preference({"third": 1.0})
    with pytest.raises(ValueError, match="there are 2 tasks"):
        classifier.set_params(preference=[1.0]).predict(X)
    with pytest.raises(ValueError, match="only one class"):
        ibcl.IBCLClassifier().fit(X, np.ones(len(X)))


@pytest.fixture(scope="module")
def visits():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(4000, 3))
    return X, generator.poisson(np.exp(1 + X @ [0.5, -0.3, 0.2]))


def test_counts_are_those_of_poisson_regression_on_much_data(visits):
    X, y = visits
    ours = ibcl.IBCLRegressor("linear", likelihood="poisson").fit(X, y)
    theirs = PoissonRegressor(alpha=0, tol=1e-9).fit(X, y)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=2e-3)
    assert ours.schema_.scale == 1
    mean, std = ours.predict(X, return_std=True)
    # With so much data next to nothing but the counts' own spread is left, of variance λ.
    np.testing.assert_allclose(std, np.sqrt(mean), rtol=0.02)
    assert (std**2 > mean).all()
    lower, upper = ours.credal_bounds(X)
    assert ((lower <= mean) & (mean <= upper)).all()
    assert not hasattr(ours, "noise_")


@pytest.mark.parametrize("pooling", ["routed", "evidence", "wasserstein", "mixture"])
def test_predictive_std_of_counts_is_that_of_draws(visits, pooling):
    X, y = visits[0][:40], visits[1][:40]
    regressor = ibcl.IBCLRegressor(
        "linear", likelihood="poisson", pooling=pooling, priors=[0.5], preference=[0.3, 0.7]
    )
    regressor.fit(X, y, task=np.repeat(["a", "b"], 20))
    std = regressor.predict(X[:6], return_std=True)[1]
    model = regressor._model()
    generator = torch.Generator().manual_seed(0)
    inputs = regressor.schema_.inputs(X[:6]).double()
    thetas = model.distribution.sample(60_000, generator).double().reshape(60_000, -1, 4)
    if pooling == "routed":
        shares = torch.as_tensor(model.routing(X[:6]))
        drawn = torch.multinomial(shares, 60_000, replacement=True, generator=generator).T
        heads = torch.arange(60_000)[:, None]
        thetas = thetas[heads, drawn]
    f = (thetas[..., :3] * inputs).sum(-1) + thetas[..., 3]
    counts = torch.poisson(f.exp(), generator=generator)
    np.testing.assert_allclose(std, counts.std(0), rtol=0.03)


def test_counts_are_kept_by_a_saved_learner_and_by_a_pickle(visits, tmp_path):
    import pickle

    X, y = visits[0][:200], visits[1][:200]
    regressor = ibcl.IBCLRegressor(likelihood="poisson", width=16).fit(X, y, task="shop")
    regressor.learner_.save(tmp_path / "kb")
    answers = regressor.predict(X)
    np.testing.assert_array_equal(ibcl.load(tmp_path / "kb").model("shop").predict(X), answers)
    regressor._model().save(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(
        ibcl.load_model(tmp_path / "model.safetensors").predict(X), answers
    )
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(regressor)).predict(X), answers)
    assert clone(regressor).likelihood == "poisson"


def test_counts_of_a_network(visits):
    X, y = visits[0][:300], visits[1][:300]
    settings = {"network": "mlp", "width": 8, "inference": ibcl.MeanFieldVI(15, learning_rate=0.03)}
    regressor = ibcl.IBCLRegressor(likelihood="poisson", **settings).fit(X, y)
    mean, std = regressor.predict(X, return_std=True)
    assert np.corrcoef(mean, np.exp(X @ [0.5, -0.3, 0.2]))[0, 1] > 0.9
    assert (std**2 > 0.9 * mean).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"likelihood": "bernoulli"}, "must be one of normal, poisson"),
        ({"likelihood": "cauchy"}, "must be one of normal, poisson"),
        ({"likelihood": ibcl.Categorical()}, "must be one of normal, poisson"),
        ({"likelihood": 5}, "must be one of normal, poisson"),
        ({"likelihood": "poisson", "noise": 1.0}, "noise= means nothing to likelihood='poisson'"),
        ({"likelihood": ibcl.Normal(2.0), "noise": 1.0}, "noise= means nothing"),
        ({"noise": -1.0}, "noise must be positive"),
        ({"noise": float("nan")}, "noise must be positive"),
    ],
)
def test_likelihoods_that_do_not_fit_are_refused(visits, parameters, message):
    with pytest.raises(ValueError, match=message):
        ibcl.IBCLRegressor("linear", **parameters).fit(visits[0][:50], visits[1][:50])


@pytest.mark.parametrize("wrong", [-1.0, 0.5])
def test_what_is_no_count_is_refused(visits, wrong):
    y = visits[1][:50].astype(float)
    y[7] = wrong
    regressor = ibcl.IBCLRegressor("linear", likelihood="poisson")
    with pytest.raises(ValueError, match="needs counts 0, 1, 2"):
        regressor.fit(visits[0][:50], y)


def test_noise_of_a_likelihood_is_in_units_of_the_target(two_tasks):
    X = two_tasks[0]
    y = 1000 + 50 * X[:, 0]
    by_object = ibcl.IBCLRegressor("linear", likelihood=ibcl.Normal(20.0)).fit(X, y)
    by_number = ibcl.IBCLRegressor("linear", noise=20.0).fit(X, y)
    assert by_object.noise_ == pytest.approx(20.0)
    np.testing.assert_array_equal(by_object.predict(X), by_number.predict(X))


def test_a_single_task_s_table_is_not_copied_before_it_is_read():
    """A wide table is larger than all that is learnt from it."""
    x = np.random.default_rng(0).normal(size=(20_000, 60))
    y = (x[:, 0] > 0).astype(int)
    ibcl.IBCLClassifier(width=8).fit(x[:200], y[:200])
    tracemalloc.start()
    try:
        ibcl.IBCLClassifier(width=8).fit(x, y)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4 * x.nbytes
