"""Prediction sets of learners: held out, kept, forgotten, united, and never learnt from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import ibcl
from ibcl.conformal import GUARANTEES, Calibration, held_out, inside
from ibcl.store import StoreError

KINDS = ("kept", "scores")
CENTRES = {"north": -2.0, "south": 0.0, "west": 2.0}


def rows_of(task: str, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Inputs around the task's own place, with labels that are noisy."""
    rng = np.random.default_rng([seed, *task.encode()])
    x = rng.normal(CENTRES[task], 1, size=(n, 3))
    return x, (x[:, 0] + rng.normal(size=n) > CENTRES[task]).astype(int)


def learnt(*tasks: str, n: int = 300, **settings: Any) -> ibcl.IBCL:
    learner = ibcl.IBCL(ibcl.networks.linear(3), **({"calibration": 100} | settings))
    for task in tasks:
        learner.learn(*rows_of(task, n, 0), task=task)
    return learner


def kept(learner: ibcl.IBCL, task: str) -> Calibration:
    part = learner.knowledge.parts[learner.tasks.index(task)][Calibration.kind]
    assert isinstance(part, Calibration)
    return part


def sets(learner: ibcl.IBCL, **asked: Any) -> NDArray[np.bool_]:
    x, _ = rows_of("south", 80, 1)
    weights = dict.fromkeys(learner.tasks, 1 / len(learner.tasks))
    return learner.model(weights).predict_set(x, **asked)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_held_out_changes_nothing_that_is_learnt(kind: str) -> None:
    x, y = rows_of("north", 300, 0)
    held = held_out(300, 100, seed=0)[1]
    others = y.copy()
    others[held] = 1 - others[held]
    moved = x.copy()
    moved[held] += 5
    plain = ibcl.IBCL(ibcl.networks.linear(3))
    plain.learn(np.delete(x, held, 0), np.delete(y, held), task="north")
    for inputs, labels in ((x, y), (moved, others)):
        learner = ibcl.IBCL(ibcl.networks.linear(3), calibration=100, calibration_rows=kind)
        record = learner.learn(inputs, labels, task="north")
        assert record.samples == 200
        np.testing.assert_array_equal(
            learner.model("north").predict_proba(x), plain.model("north").predict_proba(x)
        )


def test_calibrating_a_learner_is_what_holding_out_is() -> None:
    x, y = rows_of("north", 300, 0)
    learn, held = held_out(300, 0.25, seed=0)
    for kind in KINDS:
        one = ibcl.IBCL(ibcl.networks.linear(3), calibration=0.25, calibration_rows=kind)
        other = ibcl.IBCL(ibcl.networks.linear(3), calibration_rows=kind)
        one.learn(x, y, task="north")
        other.learn(x[learn], y[learn], task="north")
        with pytest.raises(ValueError, match=r"learner\.calibrate"):
            other.model("north").predict_set(x)
        other.calibrate("north", x[held], y[held])
        assert kept(one, "north").encode() == kept(other, "north").encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_forgotten_task_leaves_nothing_of_its_calibration(kind: str) -> None:
    learner = learnt("north", "south", "west", calibration_rows=kind)
    learner.forget("north")
    never = learnt("south", "west", calibration_rows=kind)
    assert kept(learner, "south").encode() == kept(never, "south").encode()
    for guarantee in GUARANTEES:
        np.testing.assert_array_equal(
            sets(learner, guarantee=guarantee), sets(never, guarantee=guarantee)
        )


@pytest.mark.parametrize("kind", KINDS)
def test_merged_bases_have_the_sets_of_one_that_learnt_it_all(kind: str) -> None:
    first, second = learnt("north", calibration_rows=kind), learnt("west", calibration_rows=kind)
    together = learnt("north", "west", calibration_rows=kind)
    united = ibcl.merge(first, second)
    first.adopt(second)
    for guarantee in GUARANTEES:
        expected = sets(together, guarantee=guarantee)
        np.testing.assert_array_equal(sets(united, guarantee=guarantee), expected)
        np.testing.assert_array_equal(sets(first, guarantee=guarantee), expected)


def test_bases_that_keep_different_things_make_no_sets_together() -> None:
    united = ibcl.merge(learnt("north"), learnt("west", calibration_rows="scores"))
    with pytest.raises(ValueError, match=r"^Some tasks keep calibration rows and others only"):
        sets(united)
    united.calibrate("west", *rows_of("west", 60, 3))
    assert sets(united).any()


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_saved_answers_as_before_and_holds_no_row_where_none_is_to_be_kept(
    kind: str, tmp_path: Path
) -> None:
    learner = learnt("north", "south", calibration_rows=kind)
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base")
    assert again.given.calibration_rows == kind
    for guarantee in GUARANTEES:
        np.testing.assert_array_equal(
            sets(again, guarantee=guarantee), sets(learner, guarantee=guarantee)
        )
    expected = {"kept": {"features", "answers"}, "scores": {"scores", "fingerprint"}}
    assert set(kept(again, "north").tensors()) == expected[kind]
    again.learn(*rows_of("west", 300, 0), task="west")
    assert kept(again, "west").n == 100


@pytest.mark.parametrize("storage", ["float16", "eigenvectors:8"])
def test_scores_stay_right_where_posteriors_are_stored_with_loss(
    storage: str, tmp_path: Path
) -> None:
    learner = learnt("north", "south", calibration_rows="scores", memory="exact")
    learner.save(tmp_path / "base", storage=storage)
    np.testing.assert_array_equal(sets(ibcl.load(tmp_path / "base")), sets(learner))


def test_further_batches_add_rows_until_there_are_enough() -> None:
    learner = learnt("north", n=300, calibration=100)
    rows = kept(learner, "north")
    learner.extend(*rows_of("north", 50, 5), task="north")
    assert kept(learner, "north").encode() == rows.encode()
    shared = learnt("north", n=300, calibration=0.1)
    shared.extend(*rows_of("north", 50, 5), task="north")
    assert kept(shared, "north").n == 35


def test_scores_of_a_task_that_went_on_learning_are_those_of_its_last_batch() -> None:
    learner = learnt("north", n=300, calibration=0.2, calibration_rows="scores")
    learner.extend(*rows_of("north", 100, 5), task="north")
    assert kept(learner, "north").n == 20
    assert sets(learner, alpha=0.2).any()


def test_scores_of_a_task_that_changed_are_refused() -> None:
    learner = learnt("north", calibration=None, calibration_rows="scores")
    learner.calibrate("north", *rows_of("north", 100, 7))
    assert sets(learner).any()
    learner.extend(*rows_of("north", 50, 5), task="north")
    with pytest.raises(ValueError, match=r"^Task 'north' has changed since"):
        sets(learner)


def test_a_task_learnt_anew_is_calibrated_anew() -> None:
    learner = learnt("north")
    before = kept(learner, "north").encode()
    learner.replace(*rows_of("north", 200, 9), task="north")
    assert kept(learner, "north").n == 100
    assert kept(learner, "north").encode() != before


def test_tasks_without_weight_need_no_calibration() -> None:
    learner = learnt("north", "south", calibration=None)
    learner.calibrate("north", *rows_of("north", 100, 1))
    x, _ = rows_of("north", 5, 2)
    assert learner.model("north").predict_set(x).shape == (5, 2)
    with pytest.raises(ValueError, match=r"^The task 'south' has weight but no calibration"):
        learner.model([0.5, 0.5]).predict_set(x)
    with pytest.raises(ValueError, match=r"^The task 'south' has weight but no calibration"):
        learner.model("north").predict_set(x, guarantee="task")


def test_twenty_samples_say_what_they_can_prove() -> None:
    learner = learnt("north", calibration=20)
    sentence = "20 calibration samples of the task 'north' are too few for alpha=0.01"
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        sets(learner, alpha=0.01)
    with pytest.raises(ValueError, match=r"^300 of 300 samples cannot be held out"):
        learnt("north", calibration=300)


@pytest.mark.parametrize("kind", KINDS)
def test_many_preferences_have_the_sets_of_each(kind: str) -> None:
    learner = learnt("north", "south", "west", calibration_rows=kind)
    x, _ = rows_of("south", 40, 1)
    weights = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    for guarantee in GUARANTEES:
        together = learner.predict_sets(x, weights, alpha=0.15, guarantee=guarantee)
        for row, found in zip(weights, together, strict=True):
            expected = learner.model(row).predict_set(x, 0.15, guarantee)
            np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pooling", ["routed", "routed1", "evidence", "wasserstein", "mixture"])
def test_every_rule_has_sets(pooling: str, kind: str) -> None:
    learner = learnt("north", "south", pooling=pooling, calibration_rows=kind)
    covered = []
    for task in ("north", "south"):
        x, y = rows_of(task, 2000, 2)
        covered.append(learner.model([0.5, 0.5]).predict_set(x)[np.arange(2000), y].mean())
    # The calibration is drawn once: 200 samples leave a spread of about 0.02 of the coverage.
    assert np.mean(covered) > 0.83


def test_a_learner_that_is_told_tasks_has_sets_too() -> None:
    learner = ibcl.IBCL(ibcl.networks.linear(5), task_incremental=2, calibration=50)
    for task in ("north", "south"):
        learner.learn(*rows_of(task, 200, 0), task=task)
    x, y = rows_of("north", 500, 2)
    found = learner.model([0.5, 0.5]).predict_set(x, guarantee="task", task="north")
    assert found[np.arange(500), y].mean() > 0.8


@pytest.mark.parametrize("kind", KINDS)
def test_answers_may_be_among_all_classes_of_all_tasks(kind: str) -> None:
    """Every task has two classes of its own."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 4)) * 3
    learner = ibcl.IBCL(ibcl.networks.linear(4, 6), calibration=80, calibration_rows=kind)

    def drawn(task: int, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        y = rng.integers(2 * task, 2 * task + 2, size=n)
        return centres[y] + rng.normal(size=(n, 4)), y

    for task in range(3):
        learner.learn(*drawn(task, 280), task=str(task))
    x, y = drawn(1, 1000)
    members = learner.model([0.2, 0.6, 0.2]).predict_set(x, guarantee="task")
    assert members.shape == (1000, 6)
    assert members[np.arange(1000), y].mean() > 0.84


def test_sets_say_what_they_hold_and_an_empty_one_says_so() -> None:
    learner = learnt("north", "west", calibration_rows="scores")
    model = learner.model([0.5, 0.5])
    assert model.describe_sets(np.full((1, 3), 1e3)) == ["like nothing that was learnt"]
    x, _ = rows_of("north", 50, 1)
    lines = model.describe_sets(x)
    words = {0: "like nothing that was learnt", 2: "0 or 1"}
    for line, members in zip(lines, model.predict_set(x), strict=True):
        assert line == words.get(members.sum(), str(members.argmax()))


@pytest.mark.parametrize("pooling", ["routed", "wasserstein"])
def test_a_model_file_answers_as_the_model_did(pooling: str, tmp_path: Path) -> None:
    learner = learnt("north", "south", pooling=pooling)
    model = learner.model([0.7, 0.3])
    model.save(tmp_path / "model.safetensors")
    again = ibcl.load_model(tmp_path / "model.safetensors")
    x, y = rows_of("north", 1000, 1)
    for alpha in (0.05, 0.1, 0.3):
        np.testing.assert_array_equal(again.predict_set(x, alpha), model.predict_set(x, alpha))
        assert again.threshold(alpha) == model.threshold(alpha)
    assert again.predict_set(x, 0.1, "task")[np.arange(1000), y].mean() > 0.83
    again.save(tmp_path / "copy.safetensors")
    assert ibcl.load_model(tmp_path / "copy.safetensors").threshold() == model.threshold()


def test_the_threshold_is_the_probability_from_which_on_a_class_is_in_the_set() -> None:
    model = learnt("north", "south").model([0.7, 0.3])
    x = torch.as_tensor(rows_of("north", 200, 1)[0]).half().float()
    tau = model.threshold(0.1)
    clear = np.abs(model.predict_proba(x.numpy()) - tau) > 1e-5
    np.testing.assert_array_equal(
        (model.predict_proba(x.numpy()) >= tau)[clear], model.predict_set(x, 0.1)[clear]
    )


@pytest.mark.parametrize("calibration", [None, 50])
def test_a_file_without_rows_says_how_to_get_sets(calibration: int | None, tmp_path: Path) -> None:
    learner = learnt("north", calibration=calibration, calibration_rows="scores")
    learner.model("north").save(tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"^This model file holds no calibration"):
        ibcl.load_model(tmp_path / "model.safetensors").predict_set(np.zeros((1, 3)))


def values_of(task: str, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Two tasks that contradict each other, with noise of their own."""
    rng = np.random.default_rng([seed, *task.encode()])
    x = rng.normal(size=(n, 3))
    size, noise = (10.0, 0.3) if task == "north" else (-10.0, 1.0)
    return x, size + x[:, 0] + noise * rng.normal(size=n)


def values_learnt(**settings: Any) -> ibcl.IBCL:
    learner = ibcl.IBCL(ibcl.networks.linear(3), **({"calibration": 150} | settings))
    for task in ("north", "south"):
        learner.learn(*values_of(task, 450, 0), task=task)
    return learner


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_intervals_hold_values_and_unions_are_shorter(kind: str, guarantee: Any) -> None:
    model = values_learnt(calibration_rows=kind).model([0.5, 0.5])
    held, length = [], []
    for task in ("north", "south"):
        x, y = values_of(task, 500, 2)
        hull = model.predict_interval(x, guarantee=guarantee)
        parts = model.predict_interval(x, guarantee=guarantee, union=True)
        assert hull.shape == (500, 2)
        held.append(inside(hull[:, None], y).mean())
        inner = [any(a <= value <= b for a, b in row) for row, value in zip(parts, y, strict=True)]
        held.append(np.mean(inner))
        length.append(np.mean([sum(b - a for a, b in row) for row in parts]))
        length.append(np.nanmean(np.diff(hull)))
    assert np.mean(held[::2]) > 0.85
    assert np.mean(held[1::2]) > 0.85
    assert np.mean(length[::2]) < 0.6 * np.mean(length[1::2])


def test_intervals_of_many_preferences_and_of_files(tmp_path: Path) -> None:
    learner = values_learnt()
    x, y = values_of("north", 300, 3)
    weights = [[0.5, 0.5], [1.0, 0.0]]
    together = learner.predict_intervals(x, weights)
    assert together.shape == (2, 300, 2)
    np.testing.assert_array_equal(together[1], learner.model("north").predict_interval(x))
    learner.model("north").save(tmp_path / "north.safetensors")
    again = ibcl.load_model(tmp_path / "north.safetensors")
    assert inside(again.predict_interval(x)[:, None], y).mean() > 0.83
    with pytest.raises(ValueError, match=r"^A model file holds one interval per row"):
        again.predict_interval(x, union=True)


def test_sets_of_values_and_intervals_of_classes_are_refused() -> None:
    x = np.zeros((1, 3))
    with pytest.raises(ValueError, match=r"^Values have intervals, not sets"):
        values_learnt().model("north").predict_set(x)
    with pytest.raises(ValueError, match=r"^Values have intervals, not sets"):
        values_learnt().predict_sets(x, [[0.5, 0.5]])
    with pytest.raises(ValueError, match=r"^Classes have sets, not intervals"):
        learnt("north").model("north").predict_interval(x)
    with pytest.raises(ValueError, match=r"^Only routed models have an interval"):
        values_learnt(pooling="evidence").model([0.5, 0.5]).predict_interval(x, union=True)


def test_a_model_file_with_scores_that_do_not_fit_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    path = tmp_path / "model.safetensors"
    learnt("north").model("north").save(path)
    tensors = load_file(path)
    assert {"calibration.scores", "calibration.task"} < set(tensors)
    assert tensors["calibration.scores"].shape == tensors["calibration.task"].shape
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(StoreError):
        ibcl.load_model(path)
