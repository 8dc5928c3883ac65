from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from weather_tables import weather

import ibcl as library


def test_scores_follow_the_preference(succeed, knowledge_base, sun, rain):
    for task, file, other in (("sun", sun, rain), ("rain", rain, sun)):
        own, foreign = (
            succeed("score", knowledge_base, path, "--label", "verdict", "--preference", task)[
                "scores"
            ][0]
            for path in (file, other)
        )
        assert own["accuracy"] > 0.9
        assert foreign["accuracy"] < 0.8
        assert 0 <= own["calibration_error"] <= 1
        assert own["balanced_accuracy"] > 0.9


def test_later_tasks_use_the_first_tasks_columns_and_scaling(succeed, sun, rain):
    succeed("learn", "kb", sun, "--label", "verdict", "--network", "linear")
    before = library.load("kb").encoder
    shuffled = pd.read_parquet(rain)[["verdict", "c", "a", "b"]]
    shuffled["extra"] = 1.0
    shuffled.to_csv("later.csv", index=False)
    result = succeed("learn", "kb", "later.csv", "--label", "verdict")
    assert result["features"] == ["a", "b", "c"]
    assert result["columns_left_out"] == ["extra"]
    assert library.load("kb").encoder == before
    frame = pd.read_csv(sun)[["a", "b", "c"]]
    assert np.allclose([column.centre for column in before.columns], frame.mean())
    assert np.allclose([column.scale for column in before.columns], frame.std(ddof=0))


def test_learning_is_what_the_library_does_on_scaled_columns(sun, knowledge_base):
    frame = pd.read_csv(sun)
    x = frame[["a", "b", "c"]].to_numpy()
    learner = library.IBCL(library.networks.linear(3))
    learner.learn((x - x.mean(0)) / x.std(0), frame["verdict"] == "good", task="sun")
    ours = library.load(knowledge_base).knowledge.extremes("sun")[0]
    assert np.allclose(ours.mean, learner.knowledge.extremes("sun")[0].mean, atol=1e-6)


def test_boosting_beside_heads_goes_through_every_command(succeed, refuse, tmp_path):
    pytest.importorskip("skops")
    # A product of signs: nothing for a linear head, so that held-out rows leave it to the trees.
    sun, rain = tmp_path / "sun.csv", tmp_path / "rain.csv"
    for path, sign in ((sun, 1), (rain, -1)):
        frame = weather(path.stem, 400)
        product = sign * frame["a"] * (frame["b"] - 5)
        frame.assign(verdict=np.where(product > 0, "good", "bad")).to_csv(path, index=False)
    learn = ("learn", "kb", sun, rain, "--label", "verdict", "--network", "linear")
    succeed(*learn, "--expert", "auto", "--calibration", "0.25")
    assert "must be auto" in refuse("learn", "kb2", sun, "--label", "verdict", "--expert", "trees")
    assert succeed("show", "kb")["settings"]["expert"] == "auto"
    half = ("--preference", "sun=0.5,rain=0.5")
    wish = ("--preference", "sun=1,rain=0")
    scored = succeed("score", "kb", sun, "--label", "verdict", *wish)["scores"][0]
    assert scored["accuracy"] > 0.8
    model = library.load("kb").model({"sun": 0.5, "rain": 0.5})
    rows = succeed("predict", "kb", sun, *half, "--sets", "0.9")["predictions"]
    expected = model.predict(pd.read_csv(sun)[["a", "b", "c"]])
    assert [row["prediction"] for row in rows] == expected.tolist()
    assert "one file" in refuse("generate", "kb", *half, "--output", "m.safetensors")
    again = ("learn", "kb", sun, "--label", "verdict", "--task", "sun", "--extend")
    assert "cannot take further batches" in refuse(*again)
    succeed("learn", "other", rain, "--label", "verdict", "--task", "hail", "--like", "kb")
    assert succeed("merge", "kb", "other", "both")["tasks"] == ["sun", "rain", "hail"]
    assert succeed("forget", "both", "sun")["tasks"] == ["rain", "hail"]


def test_files_given_at_once_judge_the_trees_of_those_before_them(succeed, tmp_path):
    pytest.importorskip("skops")
    files = [tmp_path / f"{name}.csv" for name in ("sun", "rain", "few")]
    for file, rows in zip(files, (400, 120, 40), strict=True):
        frame = weather(file.stem, rows)
        product = frame["a"] * (frame["b"] - 5)
        frame.assign(verdict=np.where(product > 0, "good", "bad")).to_csv(file, index=False)
    given = ("--label", "verdict", "--network", "linear", "--expert", "auto")
    succeed("learn", "at once", *files, *given)
    succeed("learn", "in order", files[0], *given)
    for file in files[1:]:
        succeed("learn", "in order", file, "--label", "verdict")
    ours, theirs = (library.load(name).knowledge.parts[2] for name in ("at once", "in order"))
    assert ours["judgement"].others["sun"] > 0.1
    assert ours["judgement"].encode() == theirs["judgement"].encode()


def test_where_heads_are_enough_auto_keeps_no_trees(succeed, sun, rain):
    pytest.importorskip("skops")
    learn = ("learn", "kb", sun, rain, "--label", "verdict", "--network", "linear")
    succeed(*learn, "--expert", "auto")
    half = ("--preference", "sun=0.5,rain=0.5")
    succeed("generate", "kb", *half, "--output", "m.safetensors")
    frame = pd.read_csv(sun)[["a", "b", "c"]]
    answers = [library.load_model("m.safetensors"), library.load("kb").model([0.5, 0.5])]
    assert answers[0].predict(frame).tolist() == answers[1].predict(frame).tolist()


def test_forgetting_names_what_stays_of_a_table(succeed, ibcl, knowledge_base, sun):
    assert succeed("forget", knowledge_base, "sun")["stays"] == [
        "means and scales of columns",
        "what fills in missing numbers",
        "names of classes",
    ]
    frame = weather("sun")
    frame["a"] = np.where(frame["a"] > 0, "high", "low")
    frame.to_csv(sun, index=False)
    succeed("learn", "plain", sun, "--label", "verdict", "--no-standardise", "--network", "linear")
    said = ibcl("forget", "plain", "sun").stdout
    assert "means and scales" not in said
    assert "names of categories" in said


def test_show_lists_tasks_and_settings(succeed, ibcl, knowledge_base):
    shown = succeed("show", knowledge_base)
    assert [task["task"] for task in shown["tasks"]] == ["sun", "rain"]
    assert [task["stored_posteriors"] for task in shown["tasks"]] == [1, 2]
    assert shown["tasks"][1]["distances"][0] > 0
    assert shown["settings"]["classes"] == ["bad", "good"]
    assert shown["bytes_on_disk"] > 0
    text = ibcl("show", knowledge_base).stdout
    assert "sun" in text
    assert "routed" in text


def test_show_works_on_knowledge_bases_made_in_python(succeed, tmp_path):
    learner = library.IBCL(library.networks.linear(2), inference=library.DenseVI())
    learner.learn([[0.0, 1.0], [1.0, 0.0]], [0, 1], task="first")
    learner.save(tmp_path / "other")
    assert succeed("show", tmp_path / "other")["tasks"][0]["task"] == "first"


def test_a_generated_model_is_the_learners_model(succeed, knowledge_base):
    result = succeed(
        "generate", knowledge_base, "--preference", "sun=0.8,rain=0.2", "--output", "m.safetensors"
    )
    model = library.load_model("m.safetensors")
    assert dict(model.preference) == {"sun": 0.8, "rain": 0.2}
    expected = library.load(knowledge_base).model([0.8, 0.2])
    assert np.allclose(model.theta, expected.theta, atol=1e-6)
    assert result["models"][0]["log_volume"] == pytest.approx(expected.region.log_volume)
    assert result["models"][0]["alpha"] == 0.01


def test_several_preferences_make_a_folder(succeed, knowledge_base):
    pd.DataFrame({"rain": [0.5, 1.0], "sun": [0.5, 0.0]}).to_csv("wanted.csv", index=False)
    result = succeed(
        "generate",
        knowledge_base,
        "--preference",
        "sun",
        "--preferences",
        "wanted.csv",
        "--output",
        "models",
    )
    assert [row["preference"]["sun"] for row in result["models"]] == [1.0, 0.5, 0.0]
    for row in result["models"]:
        assert dict(library.load_model(row["file"]).preference) == row["preference"]


@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_predictions_in_a_file(succeed, knowledge_base, rain, output):
    succeed(
        "predict", knowledge_base, rain, "--preference", "0.3,0.7", "--output", output,
        "--bounds", "--uncertainty", "--samples", 20,
    )  # fmt: skip
    frame = pd.read_csv(output) if output.endswith("csv") else pd.read_parquet(output)
    assert len(frame) == len(pd.read_parquet(rain))
    assert np.allclose(frame["probability_bad"] + frame["probability_good"], 1, atol=1e-5)
    best = np.where(frame["probability_good"] > frame["probability_bad"], "good", "bad")
    assert (frame["prediction"] == best).all()
    assert (frame["lower_good"] <= frame["upper_good"]).all()
    parts = frame["aleatoric_uncertainty"] + frame["epistemic_uncertainty"]
    assert np.allclose(frame["total_uncertainty"], parts, atol=1e-5)


def test_predictions_on_the_terminal(ibcl, succeed, knowledge_base, sun):
    text = ibcl("predict", knowledge_base, sun, "--preference", "sun").stdout
    assert "60 rows more" in text
    rows = succeed("predict", knowledge_base, sun, "--preference", "sun")["predictions"]
    assert len(rows) == 80
    assert set(rows[0]) == {"prediction", "probability_bad", "probability_good"}


def test_regression_comes_back_in_the_targets_own_units(succeed):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(200, 2))
    frame = pd.DataFrame(x, columns=["u", "v"])
    frame["price"] = 50_000 + 2_000 * x[:, 0] - 1_000 * x[:, 1] + generator.normal(size=200) * 200
    frame.to_csv("houses.csv", index=False)
    arguments = ("--label", "price", "--regression", "--network", "linear")
    succeed("learn", "kb", "houses.csv", *arguments)
    (scores,) = succeed("score", "kb", "houses.csv", "--label", "price", "--preference", "houses")[
        "scores"
    ]
    # The best linear predictor leaves the noise, of standard deviation 200.
    assert 150 < scores["rmse"] < 250
    assert scores["r2"] > 0.98
    row = succeed(
        "predict", "kb", "houses.csv", "--preference", "houses", "--bounds", "--uncertainty"
    )["predictions"][0]
    assert row["lower"] <= row["prediction"] <= row["upper"]
    # The marginal likelihood finds the noise.
    assert row["aleatoric_uncertainty"] == pytest.approx(200**2, rel=0.2)
    succeed("learn", "known", "houses.csv", *arguments, "--noise", "300")
    row = succeed("predict", "known", "houses.csv", "--preference", "houses", "--uncertainty")[
        "predictions"
    ][0]
    assert row["aleatoric_uncertainty"] == pytest.approx(300**2, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([True, False], [False, True]),
        ([10, 9, 2], [2, 9, 10]),
        ([1.0, 2.0], [1.0, 2.0]),
        (["x y", "ä"], ["x y", "ä"]),
    ],
)
def test_labels_of_any_kind(succeed, values, names):
    n = 30
    frame = pd.DataFrame({"u": np.arange(n * len(values), dtype=float)})
    frame["kind"] = np.repeat(np.array(values, dtype=object), n)
    frame = frame.infer_objects()
    frame.to_parquet("task.parquet")
    result = succeed("learn", "kb", "task.parquet", "--label", "kind", "--width", 32)
    assert result["classes"] == names
    rows = succeed("predict", "kb", "task.parquet", "--preference", "task")["predictions"]
    assert {row["prediction"] for row in rows} == set(names)
    # The same table as text must mean the same labels.
    frame.to_csv("again.csv", index=False)
    again = succeed("learn", "kb", "again.csv", "--label", "kind")
    assert again["classes"] == names


def test_classes_that_the_first_task_lacks(succeed, sun):
    result = succeed(
        "learn", "kb", sun, "--label", "verdict", "--classes", "bad,good,great", "--width", 16
    )
    assert result["classes"] == ["bad", "good", "great"]


def test_an_mlp_with_several_priors(succeed, sun, rain):
    arguments = ("--label", "verdict", "--network", "mlp", "--hidden", "8,4", "--epochs", 2)
    first = succeed("learn", "kb", sun, *arguments, "--priors", "2,3", "--validation", rain)
    assert first["updates"] > 0
    assert first["stored_posteriors"] == 2
    settings = succeed("show", "kb")["settings"]
    assert settings["network hidden"] == [8, 4]
    assert settings["pooling"] == "routed"
    assert settings["tasks"] == "independent"


def test_the_papers_setting(succeed, sun):
    arguments = ("--label", "verdict", "--network", "mlp", "--hidden", "4", "--epochs", 2)
    succeed("learn", "kb", sun, *arguments, "--pooling", "wasserstein", "--priors", "2.5")
    settings = succeed("show", "kb")["settings"]
    assert settings["tasks"] == "each learnt from the one before"
    assert settings["d"] == 0.012


def test_forgetting_is_as_if_never_learnt(succeed, knowledge_base, rain):
    succeed("learn", "alone", rain, "--label", "verdict", "--like", knowledge_base)
    assert succeed("forget", knowledge_base, "sun")["tasks"] == ["rain"]
    left, alone = (
        library.load(path).knowledge.extremes("rain")[0] for path in (knowledge_base, "alone")
    )
    assert np.array_equal(left.mean, alone.mean)


def test_merging_is_as_if_learnt_in_one_place(succeed, knowledge_base, sun, rain):
    succeed("learn", "north", sun, "--label", "verdict", "--network", "linear")
    succeed("learn", "south", rain, "--label", "verdict", "--like", "north")
    assert succeed("merge", "north", "south", "union")["tasks"] == ["sun", "rain"]
    scores = [
        succeed("score", path, rain, "--label", "verdict", "--preference", "0.4,0.6")["scores"]
        for path in ("union", knowledge_base)
    ]
    assert scores[0] == scores[1]


def test_smaller_files_on_request(succeed, sun):
    for storage in ("exact", "float16"):
        arguments = ("--label", "verdict", "--storage", storage)
        succeed("learn", storage, sun, *arguments)
    sizes = [succeed("show", path)["bytes_on_disk"] for path in ("exact", "float16")]
    assert sizes[1] < sizes[0]


def test_every_command_has_help(ibcl):
    from ibcl.cli import COMMANDS

    overview = ibcl("--help")
    assert overview.exit_code == 0
    listed = {line.strip("│ ").split(" ")[0] for line in overview.stdout.splitlines()}
    assert set(COMMANDS) <= listed
    for command in COMMANDS:
        result = ibcl(command, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.stdout


def test_json_is_one_object_on_stdout_alone(ibcl, sun):
    result = ibcl("learn", "kb", sun, "--label", "verdict", "--json")
    assert isinstance(json.loads(result.stdout), dict)
    assert result.stdout.count("\n") == 1
    assert result.stderr == ""
    assert Path("kb").is_dir()
