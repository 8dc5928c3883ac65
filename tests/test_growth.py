"""A knowledge base grows with its tasks, and what it knew stays what it was."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.growth import grown
from ibcl.pooling.power_prior import borrows
from ibcl.tabular import Schema, make_head

TOWNS = ["Bonn", "Cork", "Oslo", "Rome"]


def table(towns: list[str], seed: int, rows: int = 80) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame({"age": generator.normal(size=rows), "town": generator.choice(towns, rows)})


def labels(frame: pd.DataFrame, classes: list[str]) -> list[str]:
    """One class for each town, in turn."""
    return [classes[TOWNS.index(town) % len(classes)] for town in frame.town]


def learner(frame: pd.DataFrame, y: Any, head: str = "random_features", **given: Any) -> ibcl.IBCL:
    schema = Schema.fit(frame, y, regression=given.pop("regression", False))
    width = {"width": 8} if head == "random_features" else {}
    outputs = 1 if schema.classes is None or len(schema.classes) <= 2 else len(schema.classes)
    made = ibcl.IBCL(make_head(head, schema.width, outputs, **width), encoder=schema, **given)
    made.learn(frame, y, task="first")
    return made


def room_for(known: ibcl.IBCL, frame: pd.DataFrame, y: Any = None) -> ibcl.IBCL:
    """The same learner with room for what this table has, which is not learnt."""
    assert isinstance(known.encoder, Schema)
    larger, positions = known.encoder.grown(frame, y)
    return ibcl.IBCL.from_state(grown(known.state, larger, torch.as_tensor(positions)))


@given(
    st.sets(st.sampled_from(TOWNS), min_size=1),
    st.integers(2, 3),
    st.integers(0, 2),
    st.sampled_from(["linear", "random_features"]),
    st.sampled_from(["compact", "exact", "shared"]),
)
@settings(max_examples=20, deadline=None)
def test_room_for_more_changes_no_answer(towns, classes, more, head, memory):
    frame = table(sorted(towns), seed=classes)
    names = ["no", "yes", "perhaps"][:classes]
    y = [names[position % classes] for position in range(len(frame))]
    known = learner(frame, y, head, memory=memory)
    larger = room_for(known, table(TOWNS, seed=9), ["never", "always"][:more] or None)
    for samples in (0, 3):
        found = larger.model("first").predict_proba(frame, samples=samples)
        assert (found[:, classes:] == 0).all()
        if not samples:
            expected = known.model("first").predict_proba(frame)
            assert np.allclose(found[:, :classes], expected, atol=1e-6)
    assert np.allclose(larger.model("first").novelty(frame), known.model("first").novelty(frame))


@pytest.mark.parametrize("head", ["linear", "random_features"])
def test_a_grown_model_answers_alike_as_a_plain_module_and_from_a_file(head, tmp_path):
    """The gate reads what there was before it grew, which are not the first features."""
    before, after = table(TOWNS[:2], seed=1), table(TOWNS, seed=3)
    larger = room_for(learner(before, labels(before, ["no", "yes"]), head), after)
    larger.learn(after, labels(after, ["no", "yes"]), task="second")
    model = larger.model([0.5, 0.5])
    expected = np.asarray(model.predict_proba(after))
    with torch.no_grad():
        outputs = model.module()(model.encoder.inputs(after))
    assert np.allclose(model.likelihood.mean(outputs), expected, atol=1e-5)
    model.save(tmp_path / "model.safetensors")
    loaded = ibcl.load_model(tmp_path / "model.safetensors")
    assert np.allclose(loaded.predict_proba(after), expected, atol=1e-6)


def test_a_regression_has_room_for_more_categories():
    frame = table(["Oslo", "Rome"], seed=0)
    known = learner(frame, frame.age * 3 + 1, regression=True)
    larger = room_for(known, table(TOWNS, seed=1))
    assert np.allclose(
        larger.model("first").predict(frame), known.model("first").predict(frame), atol=1e-5
    )


def test_new_categories_and_classes_are_learnt(tmp_path):
    first, second = table(["Oslo", "Rome"], seed=0), table(["Bonn", "Cork"], seed=1, rows=200)
    known = learner(first, labels(first, ["no", "yes"]))
    towns = dict(zip(TOWNS, ["never", "always", "no", "yes"], strict=True))
    known.learn(second, [towns[town] for town in second.town], task="second")
    assert known.encoder.classes == ("no", "yes", "always", "never")
    known.save(tmp_path / "base")
    for found in (known, ibcl.load(tmp_path / "base")):
        model = found.model({"first": 0.5, "second": 0.5})
        for frame in (first, second):
            right = model.predict(frame) == [towns[town] for town in frame.town]
            assert right.mean() > 0.95


def test_a_classifier_may_begin_with_one_class():
    first, second = table(["Oslo"], seed=0), table(TOWNS, seed=1, rows=200)
    classifier = ibcl.IBCLClassifier(width=8)
    classifier.partial_fit(first, ["no"] * len(first), task="first")
    assert (classifier.predict(second) == "no").all()
    assert (classifier.predict_proba(second) == 1).all()
    y = np.array(labels(second, ["no", "yes", "perhaps", "never"]))
    classifier.partial_fit(second, y, task="second")
    assert classifier.classes_.tolist() == ["no", "never", "perhaps", "yes"]
    assert (classifier.predict(second, preference="second") == y).mean() > 0.95
    assert classifier.predict_proba(second).shape == (200, 4)


@pytest.mark.parametrize("forgotten", ["first", "second"])
def test_a_grown_base_forgets_either_task(forgotten):
    first, second = table(["Oslo", "Rome"], seed=0), table(TOWNS, seed=1)
    known = learner(first, labels(first, ["no", "yes"]))
    known.learn(second, labels(second, ["no", "yes", "perhaps"]), task="second")
    larger = room_for(
        learner(first, labels(first, ["no", "yes"])), second, labels(second, ["perhaps"])
    )
    other = "first" if forgotten == "second" else "second"
    if forgotten == "first":
        larger.learn(second, labels(second, ["no", "yes", "perhaps"]), task="second")
        larger.forget("first")
    known.forget(forgotten)
    expected = larger.model(other).predict_proba(second)
    assert np.array_equal(known.model(other).predict_proba(second), expected)


def test_where_a_base_cannot_grow_new_classes_are_refused_and_new_categories_said():
    first, second = table(["Oslo", "Rome"], seed=0), table(["Bonn"], seed=1)
    known = learner(first, labels(first, ["no", "yes"]), pooling="evidence")
    with pytest.raises(ValueError, match="'perhaps' is not one of the classes"):
        known.learn(second, ["perhaps"] * len(second), task="second")
    with pytest.warns(UserWarning, match="never learnt"):
        known.learn(second, ["no", "yes"] * 40, task="second")


def trees() -> dict[str, Any]:
    tree = pytest.importorskip("sklearn.tree")
    pytest.importorskip("skops")
    return {"expert": tree.DecisionTreeClassifier(random_state=0)}


@pytest.mark.parametrize("rows", ["kept", "scores"])
@pytest.mark.parametrize("expert", [True, False])
@pytest.mark.parametrize("head", ["linear", "random_features"])
def test_experts_and_calibrations_grow(expert, rows, head, tmp_path):
    first, second = table(["Oslo", "Rome"], seed=0), table(TOWNS, seed=1, rows=200)
    given = {"calibration": 0.25, "calibration_rows": rows} | (trees() if expert else {})
    known = learner(first, labels(first, ["no", "yes"]), head, **given)
    before, alone = known.model("first"), first.iloc[:20]
    answered, sets = before.predict_proba(alone), before.predict_set(alone, alpha=0.2)
    towns = dict(zip(TOWNS, ["never", "always", "no", "yes"], strict=True))
    y = [towns[town] for town in second.town]
    known.learn(second, y, task="second")
    known.save(tmp_path / "base")
    for found in (known, ibcl.load(tmp_path / "base")):
        after = found.model("first")
        assert np.allclose(after.predict_proba(alone)[:, :2], answered, atol=1e-6)
        assert (after.predict_proba(alone)[:, 2:] == 0).all()
        assert np.array_equal(after.predict_set(alone, alpha=0.2)[:, :2], sets)
        assert (found.model("second").predict(second) == y).mean() > 0.95
        assert found.model("second").predict_set(second, alpha=0.2).any(1).mean() > 0.7


def test_an_expert_grows_more_than_once():
    known = learner(table(TOWNS[:1], seed=0), ["no", "yes"] * 40, "linear", **trees())
    frame = table(TOWNS[:1], seed=0)
    expected = known.model("first").predict_proba(frame)
    for number in (2, 3, 4):
        later = table(TOWNS[:number], seed=number)
        known.learn(later, labels(later, ["no", "yes", "perhaps", "never"]), task=f"{number}")
    found = known.model("first").predict_proba(frame)
    assert np.allclose(found[:, [known.encoder.classes.index(c) for c in ("no", "yes")]], expected)


def test_calibration_scores_of_another_function_are_not_signed_anew():
    first, second = table(["Oslo", "Rome"], seed=0), table(TOWNS, seed=1)
    y = labels(first, ["no", "yes"])
    known = learner(first, y, calibration=20, calibration_rows="scores")
    known.extend(first, y, task="first")
    known.state.knowledge.parts[0]["calibration"].fingerprint[0] += 1
    known.learn(second, labels(second, ["no", "yes", "perhaps"]), task="second")
    with pytest.raises(ValueError, match="has changed since its calibration scores were taken"):
        known.model("first").predict_set(first, alpha=0.2)


def test_the_command_line_says_what_is_new(tmp_path):
    first, second = table(["Oslo", "Rome"], seed=0), table(TOWNS, seed=1)
    for name, frame, y in (
        ("first", first, labels(first, ["no"])),
        ("second", second, labels(second, ["no", "yes", "perhaps"])),
    ):
        frame.assign(y=y).to_csv(tmp_path / f"{name}.csv", index=False)
    files = [str(tmp_path / f"{name}.csv") for name in ("first", "second")]
    runner = CliRunner()
    found = runner.invoke(app, ["learn", str(tmp_path / "kb"), *files, "--label", "y", "--json"])
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["new_classes"] == ["perhaps", "yes"]
    assert said["new_categories"] == ["town=Bonn", "town=Cork"]
    answers = ibcl.load(tmp_path / "kb").model("second").predict(second)
    assert (answers == labels(second, ["no", "yes", "perhaps"])).mean() > 0.95


def towns(seed: int, names: list[str], classes: list[str], n: int = 60) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": generator.normal(size=n), "town": generator.choice(names, n)})
    edges = np.linspace(-0.5, 0.5, len(classes) - 1)
    score = frame["age"] + (frame["town"] == names[-1])
    return frame.assign(verdict=np.array(classes)[np.digitize(score, edges)])


@pytest.mark.parametrize("classes", [["no", "yes"], ["no", "perhaps", "yes"]])
@pytest.mark.parametrize("more", [["no", "yes"], ["never", "no", "yes"]])
@pytest.mark.parametrize("ours", [["Rome", "Oslo"], ["Rome", "Lima"]])
def test_what_grew_apart_merges_as_if_learnt_together(classes, more, ours):
    first = towns(0, ["Oslo", "Rome"], classes)
    tasks = {"north": towns(1, ours, classes), "south": towns(2, ["Bonn", "Rome"], more)}
    begun = ibcl.IBCLClassifier(width=8).partial_fit(
        first[["age", "town"]], first["verdict"], task="a"
    )

    def taught(*names: str) -> ibcl.IBCL:
        learner = ibcl.IBCL.from_state(begun.learner_.state)
        for name in names:
            learner.learn(tasks[name][["age", "town"]], tasks[name]["verdict"], task=name)
        return learner

    one, other, together = taught("north"), taught("south"), taught("north", "south")
    other.forget("a")
    merged = ibcl.merge(one, other)
    assert merged.tasks == together.tasks
    assert merged.encoder == together.encoder
    rows = pd.concat([first, *tasks.values()])
    weights = [0.2, 0.3, 0.5]
    np.testing.assert_allclose(
        merged.model(weights).predict_proba(rows),
        together.model(weights).predict_proba(rows),
        atol=1e-7,
    )


def test_classes_that_grew_apart_are_refused():
    first = towns(0, ["Oslo", "Rome"], ["no", "yes"])
    begun = ibcl.IBCLClassifier(width=8).partial_fit(
        first[["age", "town"]], first["verdict"], task="a"
    )
    learners = []
    for name in ("perhaps", "maybe"):
        learner = ibcl.IBCL.from_state(begun.learner_.state)
        learner.learn(first[["age", "town"]], [name] * len(first), task=name)
        learner.forget("a")
        learners.append(learner)
    with pytest.raises(ValueError, match="read their inputs or classes differently"):
        ibcl.merge(*learners)


def test_many_classes_after_two_are_answered_without_matrices_of_all_parameters():
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(160, 3))
    known = ibcl.IBCLClassifier()
    for task, classes in (("first", 2), ("second", 2), ("many", 20)):
        known.partial_fit(rows, np.arange(160) % classes, task=task)
    knowledge = known.learner_.knowledge
    # 5,200 parameters: sums of evidence of two forms, and distances, would take all their squares.
    assert not borrows(knowledge)
    assert [size.distances for size in knowledge.report()] == [(None,)] * 3
    assert np.allclose(known.predict_proba(rows).sum(1), 1)
    few = ibcl.IBCLClassifier(width=8)
    for task, classes in (("first", 2), ("second", 2), ("many", 3)):
        few.partial_fit(rows, np.arange(160) % classes, task=task)
    assert borrows(few.learner_.knowledge)
    assert few.learner_.knowledge.report()[-1].distances[0] > 0
