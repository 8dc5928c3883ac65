"""Outputs appear whole or not at all, and replace nothing that was not meant to be replaced."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

import ibcl as library


def leavings(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_existing_files_are_kept_unless_forced(refuse, succeed, knowledge_base, sun):
    Path("out.csv").write_text("precious")
    predict = ("predict", knowledge_base, sun, "--preference", "sun", "--output", "out.csv")
    assert "--force" in refuse(*predict)
    assert Path("out.csv").read_text() == "precious"
    succeed(*predict, "--force")
    assert len(pd.read_csv("out.csv")) == 80
    Path("m.safetensors").write_text("precious")
    generate = ("generate", knowledge_base, "--preference", "sun", "--output", "m.safetensors")
    assert "--force" in refuse(*generate)
    assert Path("m.safetensors").read_text() == "precious"
    succeed(*generate, "--force")
    assert library.load_model("m.safetensors").preference["sun"] == 1
    assert leavings(Path()) == []


def test_the_input_is_not_an_output(refuse, knowledge_base, sun):
    before = sun.read_bytes()
    arguments = ("--preference", "sun", "--output", sun)
    assert "is the input itself" in refuse("predict", knowledge_base, sun, *arguments)
    os.link(sun, "same.csv")
    arguments = ("--preference", "sun", "--output", "same.csv")
    assert "--force" in refuse("predict", knowledge_base, sun, *arguments)
    assert sun.read_bytes() == before


@pytest.mark.parametrize("inside", ["out.csv", "posteriors/out.csv"])
def test_nothing_is_written_into_a_knowledge_base(refuse, knowledge_base, sun, inside):
    before = sorted(knowledge_base.rglob("*"))
    arguments = ("--preference", "sun", "--force", "--output")
    sentence = refuse("predict", knowledge_base, sun, *arguments, knowledge_base / inside)
    assert "inside the knowledge base" in sentence
    model = (knowledge_base / inside).with_suffix(".safetensors")
    assert "inside the knowledge base" in refuse("generate", knowledge_base, *arguments, model)
    several = ("--preference", "sun", "--preference", "rain", "--force", "--output")
    sentence = refuse("generate", knowledge_base, *several, knowledge_base)
    assert "inside the knowledge base" in sentence
    assert sorted(knowledge_base.rglob("*")) == before


def test_a_full_disk_is_said_and_leaves_the_old_file(
    refuse, knowledge_base, sun, monkeypatch: pytest.MonkeyPatch
):
    import errno

    Path("out.csv").write_text("precious")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    arguments = ("--preference", "sun", "--force", "--output", "out.csv")
    sentence = refuse("predict", knowledge_base, sun, *arguments)
    assert "No space left on device" in sentence
    assert "out.csv" in sentence
    assert Path("out.csv").read_text() == "precious"
    assert leavings(Path()) == []


def test_many_users_in_one_pass(succeed, knowledge_base, rain):
    users = pd.DataFrame({"rain": [0.5, 1.0, 0.0], "user": ["01", "2", "x"], "sun": [0.5, 0.0, 1]})
    users.to_csv("users.csv", index=False)
    frame = pd.read_parquet(rain)
    result = succeed(
        "predict", knowledge_base, rain, "--preferences", "users.csv", "--output", "s.parquet"
    )
    assert (result["users"], result["rows"]) == (3, 80)
    scores = pd.read_parquet("s.parquet")
    assert scores["user"].unique().tolist() == ["01", "2", "x"]
    learner = library.load(knowledge_base)
    for name, weights in (("01", "0.5,0.5"), ("2", "rain"), ("x", "sun")):
        own = scores[scores["user"] == name].sort_values("row")
        model = learner.model(weights)
        assert own["row"].tolist() == list(range(1, 81))
        assert own["prediction"].tolist() == model.predict(frame).tolist()
        expected = model.predict_proba(frame)[:, 1]
        assert own["probability_good"].to_numpy() == pytest.approx(expected, abs=1e-5)
    # The name it had in version 0.2.
    succeed("score", knowledge_base, rain, "--users", "users.csv", "--out", "p.csv")
    pd.testing.assert_frame_equal(
        pd.read_csv("p.csv", dtype={"user": str}), scores, check_dtype=False
    )


@pytest.mark.parametrize("classes", [[0, 1], [False, True], [2, 3, 5]])
def test_many_users_and_classes_of_any_kind(succeed, classes, monkeypatch):
    from ibcl.cli import predictions

    frame = pd.DataFrame({"u": range(60)}, dtype=float)
    frame["y"] = [classes[number * len(classes) // 60] for number in range(60)]
    frame.to_parquet("t.parquet")
    succeed("learn", "kb", "t.parquet", "--label", "y")
    users = pd.DataFrame({"user": ["a", "b", "d", "c"], "t": [1.0] * 4})
    users.to_csv("users.csv", index=False)
    # Blocks of other users, and of fewer, go to the same file.
    monkeypatch.setattr(predictions, "BLOCK_NUMBERS", 3 * 60 * len(classes))
    for name in ("s.csv", "s.parquet"):
        succeed("predict", "kb", "t.parquet", "--preferences", "users.csv", "--output", name)
    scores = pd.read_parquet("s.parquet")
    assert scores["user"].tolist() == [name for name in "abdc" for _ in range(60)]
    assert scores["row"].tolist() == [*range(1, 61)] * 4
    expected = library.load("kb").model("t").predict(frame).tolist()
    assert scores["prediction"].tolist() == expected * 4
    pd.testing.assert_frame_equal(pd.read_csv("s.csv"), scores, check_dtype=False)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_blocks_do_not_change_the_answers(succeed, knowledge_base, rain, ending, monkeypatch):
    from ibcl.cli import predictions, tables

    pd.DataFrame({"rain": [0.5, 0.2, 0.9], "sun": [0.5, 0.8, 0.1]}).to_csv("u.csv", index=False)
    frame = pd.read_parquet(rain)
    frame.to_csv("rows.csv", index=False)
    frame.to_parquet("rows.parquet")
    arguments = ("predict", knowledge_base, f"rows.{ending}", "--preferences", "u.csv", "--output")
    succeed(*arguments, "whole.parquet")
    monkeypatch.setattr(tables.read_blocks, "__defaults__", ((), 7))
    monkeypatch.setattr(predictions, "BLOCK_NUMBERS", 20)
    succeed(*arguments, "blocks.parquet")
    order = ["user", "row"]
    whole, blocks = (
        pd.read_parquet(f"{name}.parquet").sort_values(order, ignore_index=True)
        for name in ("whole", "blocks")
    )
    assert len(whole) == 240
    pd.testing.assert_frame_equal(whole, blocks, rtol=1e-6)


def test_many_users_of_a_regression_get_values_in_the_targets_units(succeed):
    frame = pd.DataFrame({"u": range(60)}, dtype=float)
    frame["price"] = 1000 + 50 * frame["u"]
    frame.to_csv("t.csv", index=False)
    succeed("learn", "kb", "t.csv", "--label", "price", "--regression", "--network", "linear")
    pd.DataFrame({"user": ["a"], "t": [1.0]}).to_csv("users.csv", index=False)
    succeed("predict", "kb", "t.csv", "--preferences", "users.csv", "--output", "s.csv")
    assert pd.read_csv("s.csv")["prediction"].to_numpy() == pytest.approx(frame["price"], rel=1e-3)


def test_users_that_make_no_sense(refuse, knowledge_base, rain):
    score = ("predict", knowledge_base, rain, "--output", "s.csv", "--preferences")
    for columns, words in (
        ({"user": ["a"], "rain": [0.5], "sun": [0.6]}, "sum to 1"),
        ({"user": ["a", "b"], "rain": [0.5, 2.0], "sun": [0.5, -1.0]}, "negative"),
        ({"user": ["a"], "rain": [1.0]}, "leaves out sun"),
        ({"user": ["a"], "rain": [0.5], "sun": [0.5], "snow": [0.0]}, "snow"),
        ({"user": ["a"], "rain": ["much"], "sun": [0.5]}, "number"),
    ):
        pd.DataFrame(columns).to_csv("users.csv", index=False)
        assert words in refuse(*score, "users.csv")
    assert not Path("s.csv").exists()
    assert "--label" in refuse("score", knowledge_base, rain)
    arguments = (knowledge_base, rain, "--preferences", "users.csv")
    assert "--output" in refuse("predict", *arguments)
    assert "either" in refuse("predict", *arguments, "--preference", "sun", "--output", "o.csv")


def test_many_models_are_summed_up(ibcl, knowledge_base):
    weights = [n / 99 for n in range(100)]
    frame = pd.DataFrame({"sun": weights, "rain": [1 - w for w in weights]})
    frame.to_csv("wanted.csv", index=False)
    result = ibcl("generate", knowledge_base, "--preferences", "wanted.csv", "--output", "models")
    assert result.exit_code == 0
    assert "100 models" in result.stdout
    assert "90 models more in models" in result.stdout
    assert result.stdout.count("model-") == 10
    assert len(list(Path("models").iterdir())) == 100


def test_threads_are_chosen(knowledge_base, succeed, monkeypatch: pytest.MonkeyPatch):
    import torch

    chosen: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("IBCL_THREADS", raising=False)
    succeed("show", knowledge_base)
    assert chosen == [1]
    monkeypatch.setenv("IBCL_THREADS", "3")
    succeed("show", knowledge_base)
    assert chosen == [1, 3]


def test_a_first_save_that_was_interrupted_is_no_hindrance(succeed, refuse, knowledge_base, sun):
    arguments = ("learn", "first", sun, "--label", "verdict", "--like", knowledge_base)
    succeed(*arguments, "--task", "more")
    merge = ("merge", knowledge_base, "first", "union")
    succeed(*merge)
    # The manifest is written last.
    Path("union/manifest.json").unlink()
    assert succeed(*merge)["tasks"] == ["sun", "rain", "more"]
    assert "exists already" in refuse(*merge)
    Path("first/manifest.json").unlink()
    assert succeed(*arguments, "--task", "more")["created"]
