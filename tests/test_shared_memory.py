"""``memory="shared"``: one covariance for all tasks, of which each adds its share."""

import json
import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.routing import ClassDensities, Ranks, SharedScatters, classes_of, density_gate

WHOLE = Ranks(None, None, None)
COLUMNS = 70
SETTLED = {"priors": [1.0], "pooling": ibcl.RoutedEvidence(memory="shared")}


def rows_of(task, rows=120):
    generator = torch.Generator().manual_seed(task)
    centre = torch.randn(COLUMNS, generator=generator)
    x = centre + torch.randn(rows, COLUMNS, generator=generator)
    return x, (x[:, task] > centre[task]).long()


def learnt(*tasks):
    learner = ibcl.IBCL(ibcl.networks.linear(COLUMNS), **SETTLED)
    for task in tasks:
        learner.learn(*rows_of(task), task=f"t{task}")
    return learner


@pytest.fixture(scope="module")
def three():
    return learnt(0, 1, 2)


def copy_of(learner):
    return ibcl.IBCL.from_state(learner.state)


def answers(learner, preference=None):
    x = torch.cat([rows_of(task, 30)[0] for task in range(3)])
    tasks = len(learner.tasks)
    return learner.predict_many(x, [preference or [1 / tasks] * tasks])


@pytest.mark.parametrize("columns", [20, 40, COLUMNS])
def test_a_task_adds_less_than_a_twentieth_of_the_first(columns):
    learner = ibcl.IBCL(ibcl.networks.linear(columns), **SETTLED)
    for task in range(3):
        x, y = rows_of(task)
        learner.learn(x[:, :columns], y, task=f"t{task}")
    first, second, third = (row.nbytes for row in learner.knowledge.report())
    assert second - first < first / 20
    assert third - second == second - first
    assert third == learner.knowledge.nbytes


def test_it_answers_as_the_compact_form_nearly():
    shared = learnt(0, 1, 2)
    compact = ibcl.IBCL(ibcl.networks.linear(COLUMNS), priors=[1.0], memory="compact")
    for task in range(3):
        compact.learn(*rows_of(task), task=f"t{task}")
    x, y = zip(*(rows_of(task, 400) for task in range(3)), strict=True)
    right = [
        (learner.predict_many(torch.cat(x), [[1 / 3] * 3])[0].argmax(-1) == torch.cat(y))
        .double()
        .mean()
        for learner in (shared, compact)
    ]
    assert right[0] > right[1] - 0.03


def test_sums_of_whole_scatters_are_what_the_gate_makes_of_them_itself():
    found = {f"t{task}": classes_of(*rows_of(task), None) for task in range(3)}
    records = {name: ClassDensities.of_classes(each, WHOLE) for name, each in found.items()}
    first, second, third = (SharedScatters.of(each) for each in found.values())
    x = torch.cat([rows_of(task, 30)[0] for task in range(3)]).double()
    own = density_gate(records)(x)
    shared = density_gate(records, shared=first.plus(second).plus(third))(x)
    torch.testing.assert_close(shared, own, rtol=1e-4, atol=1e-4)


def test_merging_adds():
    united = ibcl.merge(learnt(0), learnt(1, 2))
    torch.testing.assert_close(answers(united), answers(learnt(0, 1, 2)), rtol=0, atol=1e-5)


def test_adopting_adds(three):
    learner = learnt(0)
    learner.adopt(learnt(1, 2))
    torch.testing.assert_close(answers(learner), answers(three), rtol=0, atol=1e-5)


def test_given_its_rows_a_task_is_forgotten_as_if_never_learnt(three):
    learner = copy_of(three)
    x, y = rows_of(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.forget("t1", x=x, y=y)
    torch.testing.assert_close(answers(learner), answers(learnt(0, 2)), rtol=0, atol=1e-5)


def test_rows_of_batches_are_taken_out_together():
    learner = learnt(0, 2)
    x, y = rows_of(1)
    learner.learn(x[:50], y[:50], task="t1")
    learner.extend(x[50:], y[50:], task="t1")
    learner.forget("t1", x=x, y=y)
    torch.testing.assert_close(answers(learner), answers(learnt(0, 2)), rtol=0, atol=1e-5)


def test_other_rows_are_not_taken_out(three):
    learner = copy_of(three)
    x, y = rows_of(1)
    with pytest.raises(ValueError, match="not the rows that 't1' was learnt from"):
        learner.forget("t1", x=x[1:], y=y[1:])
    assert learner.tasks == three.tasks


def test_without_its_rows_it_is_said_what_stays(three):
    learner = copy_of(three)
    with pytest.warns(ibcl.ForgettingWarning, match="remains an average"):
        learner.forget("t1")
    kept = learner.knowledge.common[SharedScatters.kind]
    assert kept is three.knowledge.common[SharedScatters.kind]
    assert learner.tasks == ("t0", "t2")


def test_of_the_last_task_nothing_stays():
    learner = learnt(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.forget("t0")
    assert learner.knowledge.nbytes == 0
    learner.learn(*rows_of(1), task="t1")
    torch.testing.assert_close(answers(learner), answers(learnt(1)), rtol=0, atol=0)


def test_a_task_learnt_anew_leaves_its_first_rows_in_the_sum(three):
    learner = copy_of(three)
    with pytest.warns(ibcl.ForgettingWarning):
        learner.replace(*rows_of(1), task="t1")
    alone = learnt(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone.replace(*rows_of(0), task="t0")
    torch.testing.assert_close(answers(alone), answers(learnt(0)), rtol=0, atol=0)


def test_it_is_stored_once_and_opens_as_it_was(three, tmp_path):
    three.save(tmp_path / "kb")
    opened = ibcl.load(tmp_path / "kb")
    torch.testing.assert_close(answers(opened), answers(three), rtol=0, atol=0)
    assert opened.knowledge.nbytes == three.knowledge.nbytes
    assert len(list((tmp_path / "kb" / "parts").iterdir())) == 4


def test_forgotten_rows_leave_no_file_behind(three, tmp_path):
    three.save(tmp_path / "kb")
    learner = ibcl.load(tmp_path / "kb")
    x, y = rows_of(1)
    learner.forget("t1", x=x, y=y)
    before = set((tmp_path / "kb" / "parts").iterdir())
    learner.save(tmp_path / "kb")
    after = set((tmp_path / "kb" / "parts").iterdir())
    assert len(after) == 3
    assert len(after & before) == 2


def test_calibration_scores_do_not_change_with_what_is_shared():
    learner = ibcl.IBCL(
        ibcl.networks.linear(COLUMNS), **SETTLED, calibration=40, calibration_rows="scores"
    )
    learner.learn(*rows_of(0), task="t0")
    x, _ = rows_of(0, 30)
    before = learner.model("t0").predict_set(x, alpha=0.2)
    learner.learn(*rows_of(1), task="t1")
    assert np.array_equal(learner.model("t0").predict_set(x, alpha=0.2), before)


def test_the_command_line_takes_a_task_out_with_its_rows(tmp_path):
    for task in (0, 1):
        x, y = rows_of(task)
        frame = pd.DataFrame(x.numpy()[:, :4], columns=list("abcd"))
        frame.assign(y=np.where(y == 1, "yes", "no")).to_csv(tmp_path / f"t{task}.csv", index=False)
    base, files = str(tmp_path / "kb"), [str(tmp_path / f"t{task}.csv") for task in (0, 1)]
    run = CliRunner().invoke
    made = run(app, ["learn", base, *files, "--label", "y", "--memory", "shared", "--width", "8"])
    assert made.exit_code == 0, made.output
    shutil.copytree(base, tmp_path / "copy")
    with_rows = ["--rows", files[1], "--label", "y", "--json"]
    taken = run(app, ["forget", base, "t1", *with_rows])
    left = run(app, ["forget", str(tmp_path / "copy"), "t1", "--json"])
    assert "covariance of all tasks" not in json.loads(taken.stdout)["stays"]
    assert "covariance of all tasks" in json.loads(left.stdout)["stays"]
    kept = [
        ibcl.load(path).knowledge.common[SharedScatters.kind] for path in (base, tmp_path / "copy")
    ]
    assert [part.count.item() for part in kept] == [120, 240]


def test_preferences_are_inferred(three):
    found = three.infer_preference(rows_of(2, 60)[0])
    assert found["t2"] > 0.9


def test_later_tasks_bring_classes_and_categories():
    generator = np.random.default_rng(0)
    learner = ibcl.IBCLClassifier(memory="shared")
    for task, classes, kinds in [("a", ["low", "high"], ["oak"]), ("b", ["low", "top"], ["elm"])]:
        size = generator.normal(size=90)
        table = pd.DataFrame({"size": size, "kind": generator.choice([*kinds, "ash"], 90)})
        labels = np.where(size > 0, *classes)
        learner.partial_fit(table, labels, task=task)
    assert set(learner.classes_) == {"low", "high", "top"}
    assert (learner.set_preference({"b": 1.0, "a": 0.0}).predict(table) == labels).mean() > 0.9


def test_a_record_that_is_no_triangle_is_refused():
    count = torch.tensor(2.0, dtype=torch.float64)
    with pytest.raises(ValueError, match="triangle"):
        SharedScatters(count, torch.zeros(5), torch.zeros(6))
    with pytest.raises(ValueError, match="not a safetensors file"):
        SharedScatters.decode(b"nothing")
