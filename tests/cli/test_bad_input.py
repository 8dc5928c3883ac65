"""Every mistake gets one sentence that says what is wrong, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from weather_tables import weather


def test_unknown_file_type(refuse):
    Path("table.xlsx").write_text("")
    assert ".csv or .parquet" in refuse("learn", "kb", "table.xlsx", "--label", "y")


def test_missing_file(refuse):
    assert "nowhere.csv" in refuse("learn", "kb", "nowhere.csv", "--label", "y")


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_damaged_file(refuse, name):
    Path(name).write_bytes(b"\x00\xff\xfe,\n\x80\n" * 5)
    assert "cannot be read" in refuse("learn", "kb", name, "--label", "y")


@pytest.mark.parametrize("content", ["", "a,y\n"])
def test_empty_file(refuse, content):
    Path("table.csv").write_text(content)
    sentence = refuse("learn", "kb", "table.csv", "--label", "y")
    assert "table.csv" in sentence
    assert not Path("kb").exists()


def test_missing_label_column(refuse, sun):
    sentence = refuse("learn", "kb", sun, "--label", "grade")
    assert "'grade'" in sentence
    assert "'verdict'" in sentence


def test_missing_feature_column(refuse, sun):
    assert "'z'" in refuse("learn", "kb", sun, "--label", "verdict", "--features", "a,z")


def test_label_among_the_features(refuse, sun):
    arguments = ("--label", "verdict", "--features", "a,verdict")
    assert "cannot be a feature" in refuse("learn", "kb", sun, *arguments)


def test_no_column_to_learn_from(refuse):
    frame = weather("sun")[["verdict"]].assign(tags=[["a"]] * 80)
    frame.to_parquet("t.parquet")
    assert "no column beside the label" in refuse("learn", "kb", "t.parquet", "--label", "verdict")
    arguments = ("--label", "verdict", "--features", "tags")
    assert "'tags' holds" in refuse("learn", "kb", "t.parquet", *arguments)


def test_text_in_a_column_of_numbers(refuse, knowledge_base):
    frame = weather("sun").astype({"b": object})
    frame.loc[3, "b"] = "many"
    frame.to_csv("t.csv", index=False)
    sentence = refuse("learn", knowledge_base, "t.csv", "--label", "verdict")
    assert "'b'" in sentence
    assert "'many'" in sentence
    assert "row 4" in sentence


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--features", "a,a"), "'a' more than once"),
        (("--features", ","), "no features"),
        (("--sample-weight", "weight"), "no column 'weight'"),
        (("--sample-weight", "a"), "not negative"),
        (("--class-weight", "heavy"), "'heavy'"),
        (("--class-weight", "good=many"), "--class-weight"),
    ],
)
def test_columns_that_make_no_sense(refuse, sun, options, words):
    assert words in refuse("learn", "kb", sun, "--label", "verdict", *options)
    assert not Path("kb").exists()


def test_two_columns_of_one_name(refuse, knowledge_base):
    Path("t.csv").write_text("a,b,a,verdict\n1,2,3,good\n4,5,6,bad\n")
    assert "more than one column named 'a'" in refuse("learn", "kb", "t.csv", "--label", "verdict")
    arguments = (knowledge_base, "t.csv", "--preference", "sun")
    assert "more than one column named 'a'" in refuse("predict", *arguments)


def test_a_table_without_a_column_it_was_learnt_from(refuse, knowledge_base):
    weather("sun")[["a", "b"]].to_csv("t.csv", index=False)
    sentence = refuse("predict", knowledge_base, "t.csv", "--preference", "sun")
    assert "no column 'c'" in sentence


def test_an_outlier_that_cannot_be_computed_with(refuse, succeed, knowledge_base):
    frame = weather("sun")
    frame.loc[2, "b"] = 1e20
    frame.to_csv("t.csv", index=False)
    # In the first task it is only a large scale.
    assert succeed("learn", "other", "t.csv", "--label", "verdict")["samples"] == 80
    sentence = refuse("predict", knowledge_base, "t.csv", "--preference", "sun")
    assert "'b' holds 1e+20 in row 3" in sentence
    assert "'b'" in refuse("learn", knowledge_base, "t.csv", "--label", "verdict")


def test_many_different_numbers_as_labels(refuse, succeed):
    frame = pd.DataFrame({"u": np.arange(207.0), "y": np.arange(207) % 140})
    frame.to_csv("t.csv", index=False)
    sentence = refuse("learn", "kb", "t.csv", "--label", "y")
    assert "140 different numbers in 207 rows" in sentence
    assert "--regression" in sentence
    assert "--classes" in sentence
    assert "regression=" not in sentence
    assert succeed("learn", "kb", "t.csv", "--label", "y", "--regression")["classes"] is None


def test_missing_label(refuse):
    frame = weather("sun")
    frame.loc[3, "verdict"] = None
    frame.to_parquet("t.parquet")
    assert "missing" in refuse("learn", "kb", "t.parquet", "--label", "verdict")


def test_infinite_value(refuse):
    frame = weather("sun")
    frame.loc[3, "b"] = np.inf
    frame.to_parquet("t.parquet")
    assert "'b'" in refuse("learn", "kb", "t.parquet", "--label", "verdict")


def test_real_labels_without_regression(refuse):
    frame = weather("sun")
    frame["verdict"] = np.linspace(0, 1, len(frame))
    frame.to_csv("t.csv", index=False)
    assert "--regression" in refuse("learn", "kb", "t.csv", "--label", "verdict")


def test_names_as_a_regressions_target(refuse, sun):
    assert "must be numbers" in refuse("learn", "kb", sun, "--label", "verdict", "--regression")


def test_an_unseen_label(refuse, knowledge_base):
    frame = weather("sun")
    frame.loc[0, "verdict"] = "great"
    frame.to_csv("t.csv", index=False)
    arguments = ("--label", "verdict", "--preference", "sun")
    assert "'great'" in refuse("score", knowledge_base, "t.csv", *arguments)


def test_a_task_learnt_already(refuse, knowledge_base, sun):
    assert "'sun'" in refuse("learn", knowledge_base, sun, "--label", "verdict")
    arguments = ("learn", knowledge_base, sun, "--label", "verdict")
    assert "not both" in refuse(*arguments, "--extend", "--replace")
    assert "'hail'" in refuse(*arguments, "--extend", "--task", "hail")
    assert "'hail'" in refuse(*arguments, "--replace", "--task", "hail")
    assert "no task to change" in refuse("learn", "new", sun, "--label", "verdict", "--extend")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--network", "mlp"), "network = linear"),
        (("--pooling", "mixture"), "pooling = routed"),
        (("--inference", "mean-field"), "inference = dense"),
        (("--alpha", "0.5"), "alpha = 0.01"),
        (("--likelihood", "categorical"), "likelihood = bernoulli"),
        (("--seed", "5"), "seed = 0"),
        (("--priors", "7"), "priors = "),
        (("--d", "0.5"), "d = 0.0"),
        (("--sequential",), "independent = true"),
        (("--regression",), "regression = false"),
        (("--features", "a,b"), "a, b, c"),
        (("--classes", "x,y"), "bad, good"),
    ],
)
def test_settings_that_contradict_the_first_task(refuse, knowledge_base, sun, options, words):
    arguments = ("--label", "verdict", "--task", "new", *options)
    assert words in refuse("learn", knowledge_base, sun, *arguments)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--network", "mlp", "--inference", "dense"), "linear in its parameters"),
        (("--network", "forest"), "linear, mlp, random_features"),
        (("--pooling", "median"), "evidence"),
        (("--inference", "guess"), "mean_field"),
        (("--likelihood", "cauchy"), "poisson"),
        (("--likelihood", "bernoulli", "--regression"), "for classes"),
        (("--hidden", "4"), "--hidden means nothing to a network of kind random_features"),
        (("--network", "linear", "--width", "4"), "--width means nothing"),
        (("--epochs", "4"), "--inference mean-field"),
        (("--noise", "1"), "--regression"),
        (("--priors", "1e200"), "1e+200"),
        (("--priors", "nan"), "nan"),
        (("--priors", "wide"), "--priors"),
        (("--priors", "-1"), "positive"),
        (("--alpha", "2"), "alpha"),
        (("--task", "a,b"), "comma"),
        (("--storage", "tiny"), "tiny"),
    ],
)
def test_settings_that_make_no_sense(refuse, sun, options, words):
    assert words in refuse("learn", "kb", sun, "--label", "verdict", *options)
    assert not Path("kb").exists()


@pytest.mark.parametrize(
    ("preference", "words"),
    [
        ("sun=0.8,rain=0.3", "sum to 1"),
        ("sun=1.5,rain=-0.5", "negative"),
        ("sun=1", "leaves out rain"),
        ("sun=0.5,snow=0.5", "snow"),
        ("0.5,0.25,0.25", "2 tasks"),
        ("sunny", "Cannot read"),
        ("sun=nan,rain=1", "finite"),
        ("sun=1e308,rain=1e308", "sum to 1"),
        ("1e308,1e308", "sum to 1"),
    ],
)
def test_bad_preferences(refuse, knowledge_base, sun, preference, words):
    assert words in refuse("predict", knowledge_base, sun, "--preference", preference)
    assert words in refuse(
        "generate", knowledge_base, "--preference", preference, "--output", "m.safetensors"
    )
    assert not Path("m.safetensors").exists()


def test_a_bad_preference_among_good_ones_writes_nothing(refuse, knowledge_base):
    arguments = ("--preference", "sun", "--preference", "0.5,0.6", "--output", "models")
    assert "sum to 1" in refuse("generate", knowledge_base, *arguments)
    assert not Path("models").exists()


def test_nothing_is_served_and_nothing_left_of_a_base_that_is_not_there(refuse):
    before = {*Path().iterdir()}
    assert "ibcl learn" in refuse("serve", "nothing.ibcl", "--port", 0)
    assert {*Path().iterdir()} == before


def test_outputs_that_cannot_be_written(refuse, knowledge_base, sun):
    where = ("--preference", "sun", "--output")
    assert ".safetensors" in refuse("generate", knowledge_base, *where, "model.pt")
    assert ".csv or .parquet" in refuse("predict", knowledge_base, sun, *where, "out.txt")
    assert "does not exist" in refuse("predict", knowledge_base, sun, *where, "no/where.csv")
    assert "does not exist" in refuse("demo", "--output", "no/where.html")
    Path("full").mkdir()
    Path("full/file").write_text("")
    assert "exists already" in refuse(
        "generate", knowledge_base, "--preference", "sun", *where, "full"
    )
    assert "--preference" in refuse("generate", knowledge_base, "--output", "m.safetensors")


@pytest.mark.parametrize("command", [("show",), ("forget", "sun")])
def test_no_knowledge_base(refuse, command):
    name, *rest = command
    assert "ibcl learn" in refuse(name, "nowhere", *rest)


def test_a_damaged_knowledge_base(refuse, knowledge_base):
    (knowledge_base / "manifest.json").write_text("{")
    assert "manifest.json" in refuse("show", knowledge_base)


def test_a_folder_of_something_else(refuse, sun):
    Path("photos").mkdir()
    Path("photos/cat.png").write_text("")
    assert "photos" in refuse("learn", "photos", sun, "--label", "verdict")


def test_a_knowledge_base_that_knows_no_columns(refuse, sun):
    import ibcl

    learner = ibcl.IBCL(ibcl.networks.linear(3), inference=ibcl.DenseVI())
    learner.save("kb")
    assert "ibcl.load" in refuse("learn", "kb", sun, "--label", "verdict")


def test_forgetting_an_unknown_task(refuse, knowledge_base):
    assert "'snow'" in refuse("forget", knowledge_base, "snow")


def test_forgetting_within_a_chain_must_be_accepted(refuse, succeed, sun, rain):
    succeed("learn", "kb", sun, "--label", "verdict", "--network", "linear", "--sequential")
    succeed("learn", "kb", rain, "--label", "verdict")
    assert "rebase" in refuse("forget", "kb", "sun")
    assert succeed("forget", "kb", "sun", "--approximation", "rebase")["tasks"] == ["rain"]


def test_merging_tables_scaled_differently(refuse, succeed, knowledge_base, rain):
    succeed("learn", "other", rain, "--label", "verdict", "--network", "linear", "--task", "more")
    assert "--like" in refuse("merge", knowledge_base, "other", "union")
    assert "exists already" in refuse("merge", knowledge_base, "other", "other")
