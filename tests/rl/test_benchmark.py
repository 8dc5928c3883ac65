"""The whole benchmark on a recipe of one update a task: files, figures and continuation."""

import csv
import json
from collections import defaultdict
from dataclasses import replace

import pytest

pytest.importorskip("mujoco")
pytest.importorskip("moocore")
pytest.importorskip("matplotlib")

from typer.testing import CliRunner

from ibcl.cli.rl import rl
from ibcl.rl import Anchor, BayesianPolicyGradient, TwinDelayed
from ibcl.rl.expected_utility import expected_utility
from ibcl.rl.hypervolume import hypervolume
from ibcl.rl.hypervolume_tables import summary
from ibcl.rl.published import PUBLISHED
from ibcl.rl.recipes import RECIPES, recipe
from ibcl.rl.results import SeedResult, TaskResult
from ibcl.rl.seeds import run
from ibcl.rl.stages import JointStage, Recipe, Restarts, Stage, SymmetryTransfer

ONE_UPDATE = BayesianPolicyGradient(iterations=1)
TINY = Recipe(
    "mo-halfcheetah",
    stages=(
        Stage("energy", (0.0, 1.0), ONE_UPDATE),
        Stage("middle", (0.5, 0.5), ONE_UPDATE),
        Stage("speed", (1.0, 0.0), ONE_UPDATE, prior="energy"),
    ),
    combinations={"all": ("energy", "middle", "speed"), "extremes": ("energy", "speed")},
    copies=2,
    hidden=(),
)


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setitem(RECIPES, "mo-halfcheetah", TINY)
    return rl


@pytest.mark.slow
def test_the_command_writes_what_it_counted(app, tmp_path):
    arguments = ["mo-halfcheetah", "--seeds", "2", "--preferences", "4", "--workers", "1"]
    outcome = CliRunner().invoke(app, [*arguments, "--output", str(tmp_path)])
    assert outcome.exit_code == 0, outcome.output
    # Policies at work are drawn where MuJoCo can render them.
    seen = ["frames.png"] if (tmp_path / "policies.gif").exists() else []
    for picture in ("front.png", "curves.png", *seen):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
    with (tmp_path / "front.csv").open() as file:
        points = defaultdict(list)
        for row in csv.DictReader(file):
            points[row["seed"]].append([float(row["return_0"]), float(row["return_1"])])
    assert {seed: len(rows) for seed, rows in points.items()} == {"0": 4, "1": 4}
    with (tmp_path / "hypervolumes.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        if row["figure"] == "all":
            assert float(row["hypervolume"]) == pytest.approx(
                hypervolume(points[row["seed"]]), rel=1e-3
            )
            assert float(row["expected_utility"]) == pytest.approx(
                expected_utility(points[row["seed"]]), abs=0.2
            )
        # A task is one update of 2 x 128 steps and one scoring episode.
        assert int(row["steps"]) == int(row["trained"]) * (2 * 128 + 500)
    assert {(row["figure"], row["combined"], row["trained"]) for row in rows} == {
        ("all", "3", "3"),
        ("extremes", "2", "2"),
    }
    text = (tmp_path / "summary.md").read_text()
    assert "| PD-MORL | 5.98 |" in text
    assert "ours, extremes (energy, speed)" in text
    assert "| middle | (0.5, 0.5) | 1 | 0.0001 | (" in text


@pytest.mark.slow
def test_a_finished_seed_is_not_run_again_and_processes_agree_with_one(tmp_path):
    alone = run(TINY, [3, 4], tmp_path / "alone", preferences=2)
    together = run(TINY, [3, 4], tmp_path / "together", preferences=2, workers=2)
    assert [result.fronts for result in alone] == [result.fronts for result in together]
    file = tmp_path / "alone" / "seed-3" / "result-2.json"
    stored = json.loads(file.read_text())
    assert stored["expected_utilities"] == alone[0].expected_utilities
    # Results from before expected utilities were kept are read as well: they follow from the front.
    del stored["expected_utilities"]
    stored["hypervolumes"]["all"] = 42.0
    file.write_text(json.dumps(stored))
    again = run(TINY, [3], tmp_path / "alone", preferences=2)
    assert again[0].hypervolumes["all"] == 42.0
    assert again[0].expected_utilities == alone[0].expected_utilities


def test_a_log_is_told_every_iteration_and_the_hypervolumes(tmp_path):
    told = []

    class Recording:
        def log(self, run, step, figures):
            told.append((run, step, dict(figures)))

    (result,) = run(TINY, [3], tmp_path, preferences=3, log=Recording())
    assert [(run, step) for run, step, _ in told] == [
        ("seed-3/energy", 1),
        ("seed-3/middle", 1),
        ("seed-3/speed", 1),
        ("seed-3", result.cost().steps),
    ]
    for (_, _, figures), task in zip(told, result.tasks, strict=False):
        assert [figures["return 1"], figures["return 2"]] == task.curve[-1][2:]
        assert figures["KL"] >= 0
    assert told[-1][2] == {
        **{f"hypervolume/{k}": v for k, v in result.hypervolumes.items()},
        **{f"expected utility/{k}": v for k, v in result.expected_utilities.items()},
    }


def test_an_unknown_environment_is_one_sentence(app, tmp_path):
    arguments = ["mo-cheetah", "--seeds", "1", "--output", str(tmp_path)]
    outcome = CliRunner().invoke(app, arguments)
    assert isinstance(outcome.exception, ValueError)
    assert str(outcome.exception).startswith("There is no environment 'mo-cheetah'")


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant"])
def test_recipes_combine_only_what_they_learn_and_at_most_five(name):
    plan = recipe(name)
    known = []
    for stage in plan.stages:
        priors = [stage.of] if isinstance(stage, SymmetryTransfer) else list(stage.priors)
        if isinstance(stage, JointStage):
            assert len(priors) == len(stage.tasks) == len(stage.inference.estimator.anchors)
        assert set(priors) <= set(known)
        kept = stage.kept if isinstance(stage, JointStage) else ()
        assert set(kept) <= set(known)
        known += [name for name in stage.names if name not in kept]
    assert len(set(known)) == len(known)
    for combined in plan.combinations.values():
        assert set(combined) <= set(known)
        assert len(combined) <= 5
    assert name in PUBLISHED


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant"])
def test_two_tasks_are_the_two_extremes_and_nothing_else(name):
    plan = recipe(name, two_tasks=True)
    assert plan.environment == name
    first, second = plan.stages
    assert isinstance(first, Stage)
    learnt = {first.task: first.preference}
    if isinstance(second, JointStage):
        # The first may be looked at again, but it is kept as it is.
        kept = [anchor.kept for anchor in second.inference.estimator.anchors]
        known = dict(zip(second.tasks, kept, strict=True))
        assert known == {name: name == first.task for name in second.tasks}
        learnt |= second.tasks
    else:
        learnt[second.task] = second.preference
    assert sorted(learnt.values()) == [(0.0, 1.0), (1.0, 0.0)]
    assert plan.combinations == {"two tasks only": plan.combinations["two tasks only"]}
    assert set(plan.combinations["two tasks only"]) == set(learnt)


@pytest.mark.parametrize("name", ["mo-halfcheetah", "mo-ant", "mo-hopper-3obj"])
def test_only_the_baseline_is_called_one(name):
    def result(plan):
        tasks = [names for stage in plan.stages for names in stage.names]
        corner = [1000.0] * len(plan.reference)
        return SeedResult(
            seed=0,
            tasks=[TaskResult(task, corner, corner, 8, 100, 1.0, []) for task in tasks],
            hypervolumes=dict.fromkeys(plan.combinations, 1000.0 ** len(corner)),
            fronts={name: [corner] for name in plan.combinations},
            fallen=dict.fromkeys(plan.combinations, 0),
            generation_steps=1,
        )

    ours, baseline = recipe(name), recipe(name, conditioned=True)
    text = summary(baseline, [result(baseline)], "ibcl rl")
    assert "ours" not in text
    assert "osteriors trained:" not in text
    assert "| baseline, network that sees the preference | 1.000 | 1000 | one network |" in text
    text = summary(ours, [result(ours)], "ibcl rl")
    assert "baseline" not in text
    assert "| 1.000 |" in text


def test_what_a_kept_task_needed_is_counted_and_what_was_learnt_beside_it_is_not():
    plan = recipe("mo-halfcheetah")
    assert plan.needed(["energy", "speed"]) == {"energy", "sprint", "run", "cruise", "speed"}
    apart = {"energy", "sprint", "run", "cruise", "jog", "walk", "stroll", "amble", "canter"}
    together = {"ambling", "strolling", "cantering"}
    assert plan.needed(["strolling"]) == apart | together | {"speed", "dash"}
    assert plan.needed(["canter"]) == apart - {"amble"}


def test_tasks_learnt_together_share_a_stretch_of_the_curves_and_images_have_none():
    curve = [[1.0, 50.0, 0.0, 0.0]]
    costs = {"alone": (100, curve), "first": (100, curve), "second": (0, curve), "image": (0, [])}
    result = SeedResult(
        seed=0,
        tasks=[
            TaskResult(task, [1.0, 0.0], [0.0, 0.0], 8, steps, 1.0, told)
            for task, (steps, told) in costs.items()
        ],
        hypervolumes={},
        fronts={},
        fallen={},
        generation_steps=1,
    )
    assert result.learnt_together() == [[0], [1, 2]]


def test_an_image_is_combined_but_not_trained():
    plan = recipe("mo-ant")
    assert plan.needed(["y-speed"]) == {"y-speed", "diagonal"}
    assert plan.posteriors(["y-speed"]) == 1


def test_tasks_learnt_together_are_needed_together():
    plan = Recipe(
        "mo-halfcheetah",
        stages=(
            Stage("a", (0.0, 1.0), ONE_UPDATE),
            Stage("b", (1.0, 0.0), ONE_UPDATE),
            JointStage({"c": (0.0, 1.0), "d": (1.0, 0.0)}, ONE_UPDATE, priors=("a", "a")),
        ),
        combinations={},
    )
    assert plan.needed(["d"]) == {"a", "c", "d"}


def test_the_priors_of_priors_count_as_trained():
    chain = Recipe(
        "mo-halfcheetah",
        stages=(
            Stage("a", (0.0, 1.0), ONE_UPDATE),
            Stage("b", (1.0, 0.0), ONE_UPDATE),
            Stage("c", (0.5, 0.5), ONE_UPDATE),
            Stage("d", (1.0, 0.0), ONE_UPDATE, prior="a"),
            Stage("e", (1.0, 0.0), ONE_UPDATE, prior=("d", "b")),
        ),
        combinations={},
    )
    assert chain.needed(["a", "d"]) == {"a", "d"}
    assert chain.needed(["e"]) == {"a", "b", "d", "e"}
    assert chain.needed(["c"]) == {"a", "b", "c"}
    assert chain.needed(["c", "d"]) == {"a", "b", "c", "d"}


def test_a_task_that_is_kept_is_learnt_and_counted_once(tmp_path):
    line = (Anchor((1.0, 0.0), kept=True), Anchor((0.0, 1.0)))
    estimator = TwinDelayed(rounds=2, updates=2, batch=2, hidden=(4,), capacity=100)
    learning = BayesianPolicyGradient(iterations=1, estimator=estimator)
    beside = replace(learning, estimator=replace(estimator, anchors=line))
    tasks = {"speed": (1.0, 0.0), "energy": (0.0, 1.0)}
    plan = replace(
        TINY,
        stages=(Stage("speed", (1.0, 0.0), learning), JointStage(tasks, beside)),
        combinations={"two tasks only": ("energy", "speed")},
        squashed=True,
    )
    (result,) = run(plan, [0], tmp_path, preferences=2)
    assert [task.task for task in result.tasks] == ["speed", "energy"]
    # Two rounds of one step with two copies; the second time both are scored.
    assert [task.steps for task in result.tasks] == [4 + 500, 4 + 2 * 500]
    text = summary(plan, [result], "ibcl rl")
    assert "Posteriors trained: 2;" in text
    assert f"| 2 | 2 | {(8 + 3 * 500) / 1e6:.2f} |" in text


def test_the_best_of_several_starts_goes_on_and_the_others_are_counted(tmp_path):
    def starting(starts):
        learning = BayesianPolicyGradient(iterations=3, score_every=1)
        return replace(
            TINY,
            stages=(
                Stage("speed", (1.0, 0.0), learning),
                Stage("energy", (0.0, 1.0), ONE_UPDATE),
            ),
            combinations={"both": ("energy", "speed")},
            restarts=Restarts(starts, iterations=2) if starts else None,
        )

    one = 2 * 128 + 500
    (plain,) = run(starting(0), [5], tmp_path / "plain", preferences=2)
    (alone,) = run(starting(1), [5], tmp_path / "alone", preferences=2)
    assert alone.fronts == plain.fronts, "pausing changes nothing"
    assert alone.given_up == plain.given_up == []
    (tried,) = run(starting(4), [5], tmp_path / "tried", preferences=2)
    assert [spent.steps for spent in tried.given_up] == 3 * [2 * one]
    assert tried.cost().steps == (3 * 2 + 3 + 1) * one
    assert "starts given up, their cost included: seed 5: 3" in summary(
        starting(4), [tried], "ibcl rl"
    )
    # Whichever went on had returned the most by then, among four of which the first is known.
    shown = max(speed for at, _, speed, _ in tried.tasks[0].curve if at <= 2)
    assert shown >= max(speed for at, _, speed, _ in plain.tasks[0].curve if at <= 2)
    # The starts are remembered by their checkpoints, and not run again.
    file = tmp_path / "tried" / "seed-5" / "result-2.json"
    before = json.loads(file.read_text())
    file.unlink()
    (continued,) = run(starting(4), [5], tmp_path / "tried", preferences=2)
    assert json.loads(file.read_text()) == before
    assert continued == tried
    with pytest.raises(ValueError, match="at least one start, not 0"):
        Restarts(starts=0, iterations=2)
    together = JointStage({"a": (0.0, 1.0), "b": (1.0, 0.0)}, ONE_UPDATE)
    with pytest.raises(ValueError, match="the first has to be learnt alone"):
        replace(starting(2), stages=(together,))
