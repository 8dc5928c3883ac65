"""Frames with categories and missing values, sparse input, weights, batches, and threads."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ibcl


def people(seed: int, n: int = 120) -> tuple[pd.DataFrame, np.ndarray]:
    """Whether somebody likes tea: by town, by age, and by whether the age is known."""
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": generator.normal(40, 10, n),
            "town": generator.choice(["Oslo", "Rome", "Lima"], n),
            "member": generator.random(n) < 0.5,
        }
    )
    unknown = generator.random(n) < 0.2
    likes = (frame["town"] == "Rome") | ((frame["age"] > 45) & ~unknown)
    frame.loc[unknown, "age"] = np.nan
    return frame, np.where(likes, "tea", "coffee")


@pytest.fixture(scope="module")
def classifier() -> ibcl.IBCLClassifier:
    learnt = ibcl.IBCLClassifier(width=32)
    for task, seed in (("north", 0), ("south", 1)):
        learnt.partial_fit(*people(seed), task=task)
    return learnt


def test_categories_and_missing_values_are_learnt_from(classifier):
    assert classifier.score(*people(2)) > 0.9
    assert classifier.feature_names_in_.tolist() == ["age", "town", "member"]


def test_unseen_categories_and_new_missing_values_have_a_defined_answer(classifier):
    frame, _ = people(3)
    frame["town"] = "Atlantis"
    frame["member"] = None
    assert np.isfinite(classifier.predict_proba(frame)).all()


def test_columns_in_another_order_are_refused_as_everywhere_in_scikit_learn(classifier):
    frame, _ = people(3)
    with pytest.raises(ValueError, match="same order"):
        classifier.predict(frame[["town", "age", "member"]])
    with pytest.raises(ValueError, match="not certain"), pytest.warns(UserWarning, match="names"):
        classifier.predict(np.zeros((2, 3)))


def test_the_learner_behind_it_predicts_the_same_from_a_frame_in_any_order(classifier, tmp_path):
    frame, _ = people(3)
    shuffled = frame[["member", "town", "age"]].assign(more=1)
    classifier.learner_.save(tmp_path / "kb")
    model = ibcl.load(tmp_path / "kb").model([0.3, 0.7])
    model.save(tmp_path / "model.safetensors")
    expected = classifier.predict_proba(frame, preference=[0.3, 0.7])
    for other in (model, ibcl.load_model(tmp_path / "model.safetensors")):
        np.testing.assert_array_equal(other.predict_proba(shuffled), expected)
        labels = classifier.predict(frame, preference=[0.3, 0.7])
        np.testing.assert_array_equal(other.predict(shuffled), labels)


def test_a_preference_for_one_call_leaves_the_estimators_own():
    frame, _ = people(3)
    estimator = ibcl.IBCLClassifier(width=32).partial_fit(*people(0), task="north")
    other_people, likes = people(1)
    estimator.partial_fit(other_people, np.where(likes == "tea", "coffee", "tea"), task="south")
    estimator = pickle.loads(pickle.dumps(estimator)).set_preference("north")
    own = estimator.predict_proba(frame)
    other = estimator.predict_proba(frame, preference="south")
    assert abs(own - other).max() > 0.01
    np.testing.assert_array_equal(estimator.predict_proba(frame), own)
    np.testing.assert_array_equal(estimator.set_preference("south").predict_proba(frame), other)
    with pytest.raises(ValueError, match="sum to 1"):
        estimator.predict(frame, preference=[1.0, 1.0])


def test_sparse_input_is_the_same_as_dense():
    dense = np.random.default_rng(0).normal(size=(80, 4)) * (np.arange(4) > 1)
    y = dense[:, 2] > 0
    plain = ibcl.IBCLClassifier(width=16).fit(dense, y)
    for kind in (sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix):
        fitted = ibcl.IBCLClassifier(width=16).fit(kind(dense), y)
        np.testing.assert_array_equal(fitted.predict_proba(kind(dense)), plain.predict_proba(dense))
    pipeline = make_pipeline(StandardScaler(with_mean=False), ibcl.IBCLRegressor("linear"))
    assert pipeline.fit(sparse.csr_matrix(dense), dense[:, 3]).score(dense, dense[:, 3]) > 0.99


@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_a_sample_of_weight_two_counts_as_two_and_one_of_weight_zero_not_at_all(kind):
    generator = np.random.default_rng(0)
    X = generator.normal(size=(60, 3))
    y = (X[:, 0] + generator.normal(size=60) > 0).astype(int)
    weights = generator.integers(0, 3, 60)
    weighted = kind("linear").fit(X, y, sample_weight=weights)
    repeated = kind("linear").fit(np.repeat(X, weights, 0), np.repeat(y, weights))
    answer = "predict_proba" if kind is ibcl.IBCLClassifier else "predict"
    np.testing.assert_allclose(
        getattr(weighted, answer)(X), getattr(repeated, answer)(X), rtol=1e-6
    )


def test_balanced_classes_are_weights_by_class():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 2))
    y = np.where(X[:, 0] + generator.normal(size=200) > 1.5, "rare", "usual")
    balanced = ibcl.IBCLClassifier("linear", class_weight="balanced").fit(X, y)
    counts = {name: 100 / (y == name).sum() for name in ("rare", "usual")}
    by_hand = ibcl.IBCLClassifier("linear", class_weight=counts).fit(X, y)
    np.testing.assert_allclose(balanced.predict_proba(X), by_hand.predict_proba(X), rtol=1e-6)
    plain = ibcl.IBCLClassifier("linear").fit(X, y)
    assert (balanced.predict(X) == "rare").mean() > 2 * (plain.predict(X) == "rare").mean()
    with pytest.raises(ValueError, match="class_weight"):
        ibcl.IBCLClassifier(class_weight="heavy").fit(X, y)


def test_a_task_in_two_batches_is_the_task():
    generator = np.random.default_rng(0)
    X = generator.normal(size=(200, 3))
    y = X @ [1.0, -2.0, 0.5] + 0.3 * generator.normal(size=200)
    settings = {"network": "linear", "priors": [1.0], "noise": 0.3, "pooling": "evidence"}
    # The first batch fixes the scaling, so it is the same inputs twice.
    X[100:] = X[:100]
    whole = ibcl.IBCLRegressor(**settings).fit(X, y, task="t", sample_weight=np.ones(200))
    batches = ibcl.IBCLRegressor(**settings)
    batches.partial_fit(X[:100], y[:100], task="t").partial_fit(X[100:], y[100:], task="t")
    assert batches.tasks_ == ("t",)
    np.testing.assert_allclose(batches.predict(X), whole.predict(X), atol=2e-3)
    alone = ibcl.IBCLRegressor(**settings).fit(X[:100], y[:100], task="t")
    assert abs(alone.predict(X) - whole.predict(X)).max() > 1e-2


def test_a_failed_first_fit_leaves_nothing_behind():
    estimator = ibcl.IBCLClassifier(network="forest")
    with pytest.raises(ValueError, match="network must be one of"):
        estimator.fit([[0.0], [1.0]], [0, 1])
    assert not hasattr(estimator, "learner_")


def test_any_number_of_threads_get_their_own_preferences_answers():
    estimator = clone(ibcl.IBCLClassifier(width=16))
    for task, seed in (("north", 0), ("south", 1)):
        estimator.partial_fit(*people(seed), task=task)
    frame, _ = people(4, 20)
    # More preferences than models are kept.
    wanted = [(w / 47, 1 - w / 47) for w in range(48)]
    expected = [estimator.predict_proba(frame, preference=w) for w in wanted]

    def ask(number: int) -> bool:
        answer = estimator.predict_proba(frame, preference=wanted[number % 48])
        return bool(np.array_equal(answer, expected[number % 48]))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(200)))


def test_models_follow_what_is_learnt_meanwhile():
    estimator = ibcl.IBCLClassifier("linear").partial_fit(*people(0), task="north")
    frame, _ = people(4)
    before = estimator.predict_proba(frame, preference="north")
    estimator.partial_fit(*people(5), task="north")
    assert abs(estimator.predict_proba(frame, preference="north") - before).max() > 1e-6


def test_samples_without_a_label_or_a_task_are_refused_in_a_sentence():
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = np.where(X[:, 0] > 0, "yes", "no").astype(object)
    for missing in (None, np.nan):
        labels = y.copy()
        labels[3] = missing
        with pytest.raises(ValueError, match=r"y contains NaN or None, first in row 4"):
            ibcl.IBCLClassifier("linear").fit(pd.DataFrame(X, columns=["u", "v"]), labels)
        tasks = np.array(["a"] * 20, dtype=object)
        tasks[5] = missing
        with pytest.raises(ValueError, match="Some samples have no task"):
            ibcl.IBCLClassifier("linear").fit(X, y, task=tasks)
    with pytest.raises(ValueError, match="Some samples have no task"):
        ibcl.IBCLClassifier("linear").fit(X, y, task=np.nan)


def test_a_class_of_half_a_character_is_refused_in_a_sentence():
    X = np.random.default_rng(0).normal(size=(20, 2))
    y = np.where(X[:, 0] > 0, "\udcff", "no")
    for labels in (y, y.astype(object), y.tolist()):
        with pytest.raises(ValueError, match="not valid text and could not be read back"):
            ibcl.IBCLClassifier("linear").fit(X, labels)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame([[0.0, 1.0], [1.0, 0.0]], columns=["a", "a"]), "more than one column"),
        (pd.DataFrame({"a": []}), "no rows"),
    ],
)
@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_frames_that_cannot_be_learnt_from_are_refused_in_a_sentence(kind, frame, message):
    with pytest.raises(ValueError, match=message):
        kind().fit(frame, np.arange(len(frame)) % 2)


def test_classes_that_are_truth_values_stay_so():
    frame = pd.DataFrame({"a": [-2.0, -1.0, 1.0, 2.0]})
    fitted = ibcl.IBCLClassifier().fit(frame, (frame.a > 0).astype("boolean"))
    assert fitted.predict(frame).tolist() == [False, False, True, True]
    assert fitted.classes_.dtype == bool


def test_one_weight_for_all_samples_is_that_of_each():
    frame = pd.DataFrame({"a": np.linspace(-1, 1, 20)})
    y = np.arange(20) % 2
    alike, each = (
        ibcl.IBCLClassifier(width=8).fit(frame, y, sample_weight=w) for w in (2.0, np.full(20, 2.0))
    )
    assert np.array_equal(alike.predict_proba(frame), each.predict_proba(frame))


def test_many_preferences_answer_in_the_units_of_the_targets():
    frame = pd.DataFrame({"a": np.linspace(-1, 1, 30)})
    fitted = ibcl.IBCLRegressor(width=8).fit(frame, 1000 + 50 * frame.a, task=np.arange(30) % 2)
    matrix = np.array([[0.5, 0.5], [0.0, 1.0]])
    found = fitted.learner_.predict_many(frame, matrix)
    expected = [fitted.predict(frame, preference=w) for w in matrix]
    np.testing.assert_allclose(found[:, :, 0], expected, rtol=1e-5)


def test_few_rows_gain_by_a_task_of_the_same_law_and_lose_nothing_by_the_opposite():
    rows, labels = people(0, 40)
    alike = ibcl.IBCLClassifier("linear").partial_fit(rows, labels, task="north")
    apart = ibcl.IBCLClassifier("linear").partial_fit(rows, labels, task="north")
    alone = ibcl.IBCLClassifier("linear").partial_fit(rows, labels, task="north")
    more, same = people(1, 400)
    alike.partial_fit(more, same, task="south")
    apart.partial_fit(more, np.where(same == "tea", "coffee", "tea"), task="south")
    test, truth = people(2, 1000)

    def loss(estimator):
        chances = np.asarray(estimator.predict_proba(test, preference="north"))
        return -np.log(chances[np.arange(len(test)), (truth == "tea").astype(int)]).mean()

    assert loss(alike) < 0.8 * loss(alone)
    assert loss(apart) < 1.1 * loss(alone)


@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_a_refused_fit_leaves_what_was_learnt(kind):
    frame, y = people(0)
    y = y if kind is ibcl.IBCLClassifier else np.arange(len(y), dtype=float)
    fitted = kind("linear").partial_fit(frame, y, task="north")
    before, answers = dict(fitted.__dict__), fitted.predict(frame)
    for x, labels in (
        (frame, [None] * len(frame)),
        (frame[["town"]], ["a"] * len(frame)),
        (frame.assign(age=np.inf), y),
        (frame[:0], y[:0]),
    ):
        for learn in (fitted.fit, fitted.partial_fit):
            with pytest.raises(ValueError, match=r"\w"):
                learn(x, labels, task="other")
            assert fitted.__dict__ == before
            assert np.array_equal(fitted.predict(frame), answers)


@pytest.mark.parametrize(
    ("dtype", "classes"),
    [
        ("Int64", [0, 1]),
        ("int8[pyarrow]", [0, 1]),
        ("boolean", [False, True]),
        ("bool[pyarrow]", [False, True]),
        ("category", [False, True]),
        (object, [False, True]),
    ],
)
@pytest.mark.parametrize("as_frame", [True, False])
def test_labels_of_pandas_own_kinds_come_back_as_they_were(dtype, classes, as_frame):
    frame = pd.DataFrame({"a": [-2.0, -1.0, 1.0, 2.0]})
    y = (frame.a > 0).astype(dtype)
    fitted = ibcl.IBCLClassifier().fit(frame if as_frame else frame.to_numpy(), y)
    assert fitted.classes_.tolist() == classes
    assert [type(value) for value in fitted.classes_.tolist()] == [type(v) for v in classes]
    # Learnt again as plain labels, nothing is new.
    fitted.partial_fit(frame if as_frame else frame.to_numpy(), y.tolist(), task="again")
    assert fitted.classes_.tolist() == classes


def test_classes_that_the_learner_behind_it_has_learnt_are_the_estimators():
    fitted = ibcl.IBCLClassifier("linear").partial_fit(*people(0), task="north")
    frame, y = people(1)
    fitted.learner_.learn(frame, np.where(frame.town == "Lima", "juice", y), task="south")
    assert fitted.classes_.tolist() == ["coffee", "tea", "juice"]
    assert fitted.predict_proba(frame).shape == (len(frame), 3)
    assert "juice" in fitted.predict(frame, preference="south")


def test_numbers_stay_numbers_where_later_classes_are_texts():
    frame, y = people(0)
    fitted = ibcl.IBCLClassifier("linear").partial_fit(frame, (y == "tea") + 1, task="north")
    fitted.partial_fit(frame, np.where(y == "tea", "much", "none"), task="south")
    assert fitted.classes_.tolist() == [1, 2, "much", "none"]
    assert set(fitted.predict(frame, preference="north").tolist()) == {1, 2}


def test_without_any_task_left_there_is_nothing_to_predict_with():
    fitted = ibcl.IBCLClassifier("linear").partial_fit(*people(0), task="north")
    fitted.learner_.forget("north")
    with pytest.raises(ValueError, match="all of them were forgotten"):
        fitted.predict(people(1)[0])
    fitted.partial_fit(*people(1), task="south")
    assert fitted.score(*people(2)) > 0.7


@pytest.mark.parametrize(
    "target",
    [
        pd.date_range("2024-01-01", periods=20).to_series(),
        pd.to_timedelta(range(20), "h"),
        ["much"] * 20,
    ],
)
def test_dates_durations_and_words_are_no_targets(target):
    frame = pd.DataFrame({"a": np.linspace(-1, 1, 20)})
    with pytest.raises(ValueError, match="targets must be numbers, but row 1 holds"):
        ibcl.IBCLRegressor().fit(frame, target)


def test_labels_of_several_kinds_are_refused_in_a_sentence():
    frame = pd.DataFrame({"a": np.linspace(-1, 1, 20)})
    with pytest.raises(ValueError, match=r"of kind int, str; make all labels texts"):
        ibcl.IBCLClassifier().fit(frame, pd.Series([1, "1"] * 10, dtype=object))


@pytest.mark.parametrize("text", ["{},5", "{}.5 %", "€ {}", "{},000.5", "{} 000"])
def test_numbers_in_another_notation_are_categories_and_said(text):
    frame = pd.DataFrame({"a": [text.format(k % 3) for k in range(30)], "b": range(30)})
    with pytest.warns(UserWarning, match=r"Column 'a' is learnt as categories, since"):
        ibcl.IBCLClassifier("linear").fit(frame, np.arange(30) % 2)


def test_settings_are_numbers_of_any_kind():
    X = np.random.default_rng(0).normal(size=(40, 3))
    plain = {"width": 8, "memory": 100_000, "random_state": 3, "calibration": 10, "alpha": 0.5}
    given = {name: np.array(value)[()] for name, value in plain.items()}
    answers = [
        ibcl.IBCLClassifier(**settings).fit(X, X[:, 0] > 0).predict_proba(X)
        for settings in (plain, given)
    ]
    np.testing.assert_array_equal(*answers)
    search = GridSearchCV(ibcl.IBCLClassifier(), {"width": np.arange(4, 12, 4)}, cv=2)
    assert search.fit(X, X[:, 0] > 0).best_params_["width"] in (4, 8)
    for wrong in ({"random_state": True}, {"width": True}, {"width": 2.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be"):
            ibcl.IBCLClassifier(**wrong).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="noise must be positive"):
        ibcl.IBCLRegressor(noise="x").fit(X, X[:, 0])


def test_frames_of_other_libraries_and_tensors_are_tables():
    frame = pd.DataFrame({"a": np.linspace(-1, 1, 40), "b": ["p", "q"] * 20})
    y = np.where(frame["a"] > 0, "yes", "no")
    arrow = pa.Table.from_pandas(frame)
    plain = ibcl.IBCLClassifier("linear").fit(frame, y)
    other = ibcl.IBCLClassifier("linear").fit(arrow, pa.array(y))
    np.testing.assert_array_equal(other.predict_proba(arrow), plain.predict_proba(frame))
    x = torch.tensor(frame[["a"]].to_numpy(), requires_grad=True)
    assert ibcl.IBCLClassifier("linear").fit(x, y).score(x, y) > 0.9


def test_what_is_masked_is_missing_and_no_hidden_value():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(80, 2))
    labels = np.where(rows.sum(1) > 0, 1, 0)
    hidden = np.zeros(rows.shape, dtype=bool)
    hidden[::5, 0] = True
    gaps = np.where(hidden, np.nan, rows)
    masked = np.ma.masked_array(np.where(hidden, 1e6, rows), hidden)
    expected = ibcl.IBCLClassifier("linear").fit(gaps, labels).predict_proba(gaps)
    found = ibcl.IBCLClassifier("linear").fit(masked, labels).predict_proba(masked)
    assert np.array_equal(found, expected)
    weights = np.ma.masked_array(np.ones(80), hidden[:, 0])
    for refused in (
        {"y": np.ma.masked_array(labels, hidden[:, 0])},
        {"y": labels, "sample_weight": weights},
        {"y": labels, "task": np.ma.masked_array(labels, hidden[:, 0])},
    ):
        with pytest.raises(ValueError, match=r"NaN|finite"):
            ibcl.IBCLClassifier("linear").fit(rows, **refused)


@pytest.mark.parametrize(
    "dress",
    [
        lambda values: torch.as_tensor(values).to(torch.bfloat16),
        lambda values: torch.as_tensor(values).double().requires_grad_(),
    ],
)
def test_tensors_of_any_kind_are_tables_labels_and_weights(dress):
    generator = np.random.default_rng(0)
    rows = generator.integers(-8, 8, size=(60, 2)).astype(float)
    labels, weights = (rows[:, 0] > 0).astype(float), 1.0 + np.arange(60) % 2
    expected = ibcl.IBCLClassifier("linear").fit(rows, labels, sample_weight=weights)
    found = ibcl.IBCLClassifier("linear")
    found.fit(dress(rows), dress(labels), sample_weight=dress(weights))
    assert np.array_equal(found.predict_proba(dress(rows)), expected.predict_proba(rows))


def test_records_are_columns_with_names():
    frame, labels = people(0)
    numbers = frame[["age"]].assign(height=1.0)
    expected = ibcl.IBCLClassifier("linear").fit(numbers, labels)
    records = numbers.to_records(index=False)
    found = ibcl.IBCLClassifier("linear").fit(records, labels)
    assert found.feature_names_in_.tolist() == ["age", "height"]
    assert np.array_equal(found.predict_proba(records), expected.predict_proba(numbers))


def test_a_task_called_by_a_number_is_one_task_however_pandas_holds_it():
    frame, labels = people(0)
    learnt = ibcl.IBCLClassifier("linear").partial_fit(frame, labels, task=2019)
    # Beside a missing cell, whole numbers become floats.
    years = pd.Series([2019, 2020] * 60, dtype=float)
    learnt.partial_fit(frame, labels, task=years)
    assert learnt.tasks_ == ("2019", "2020")


@pytest.mark.parametrize("task", [b"a", {"a": 1}, {"a"}, (name for name in "ab")])
def test_what_names_no_task_is_refused(task):
    frame, labels = people(0)
    with pytest.raises(ValueError, match="named by text or by a number"):
        ibcl.IBCLClassifier("linear").fit(frame, labels, task=task)


def test_a_column_that_first_varies_in_a_later_task_does_not_drown_the_others():
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"school": generator.normal(size=600), "age": generator.normal(size=600)})
    task = np.repeat(["at home", "at work"], 300)
    frame["hours"] = np.where(task == "at work", generator.uniform(20, 4000, 600), 0.0)
    college = np.where(frame["school"] > 0, "yes", "no")
    found = ibcl.IBCLClassifier().fit(frame[::2], college[::2], task=task[::2])
    asked = (task == "at work")[1::2]
    answers = found.predict(frame[1::2][asked], preference="at work")
    assert (answers == college[1::2][asked]).mean() > 0.9
