"""Tables as people have them: read rightly, or refused in a sentence, never otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from weather_tables import weather

import ibcl as library
from ibcl.cli.preferences import read_users
from ibcl.cli.tables import read_blocks
from ibcl.serve.rows import RowEncoder, rows_frame

LEARN = ("--label", "verdict", "--network", "linear")


def grades(n: int = 80) -> pd.DataFrame:
    """Tables whose categories are called like missing values, truth values and numbers."""
    generator = np.random.default_rng(0)
    grade = generator.choice(["NA", "None", "null", "01", "1", "A"], n)
    member = generator.random(n) < 0.5
    score = generator.choice([1, 2, 3], n)
    good = (grade == "NA") | member
    return pd.DataFrame(
        {
            "grade": grade,
            "member": pd.Series(member).map({True: "True", False: "no"}),
            "score": score,
            "verdict": np.where(good, "good", "bad"),
        }
    )


def test_rows_that_end_in_a_delimiter_are_read_under_their_names(succeed):
    frame = weather("sun")
    frame.to_csv("plain.csv", index=False)
    lines = Path("plain.csv").read_text().splitlines()
    Path("ends.csv").write_text("\n".join([lines[0], *(f"{line}," for line in lines[1:])]))
    for name in ("plain", "ends"):
        succeed("learn", f"{name}.kb", f"{name}.csv", *LEARN, "--task", "t")
    answers = [
        succeed("predict", f"{kb}.kb", f"{file}.csv", "--preference", "t")["predictions"]
        for kb in ("plain", "ends")
        for file in ("plain", "ends")
    ]
    assert all(answer == answers[0] for answer in answers)


def test_rows_with_other_cells_than_names_are_refused(refuse, knowledge_base):
    Path("t.csv").write_text("a,b,c,verdict\n1,2,3,good\n7,1,2,3,bad\n")
    for command in (
        ("learn", "kb", "t.csv", "--label", "verdict"),
        ("predict", knowledge_base, "t.csv", "--preference", "sun"),
    ):
        assert "row 2 has 5 cells, but the first line names 4 columns" in refuse(*command)


def test_a_blank_first_line_hides_no_repeated_name(refuse):
    Path("t.csv").write_text("\na,a,verdict\n1,2,good\n4,5,bad\n")
    assert "more than one column named 'a'" in refuse("learn", "kb", "t.csv", "--label", "verdict")


def test_a_written_index_is_left_out_and_said(succeed, ibcl):
    weather("sun").to_csv("t.csv")
    assert succeed("learn", "kb", "t.csv", *LEARN)["columns_left_out"] == ["Unnamed: 0"]
    result = ibcl("learn", "other", "t.csv", *LEARN)
    assert "Unnamed: 0" in result.stdout


def test_categories_called_like_missing_values_are_the_same_at_every_door(succeed):
    frame = grades()
    frame.to_csv("t.csv", index=False)
    succeed("learn", "kb", "t.csv", *LEARN)
    rows = frame.drop(columns="verdict")
    rows.to_csv("rows.csv", index=False)
    rows.to_parquet("rows.parquet")
    model = library.load("kb").model("t")
    expected = model.predict_proba(rows)[:, 1]
    assert model.predict(rows).tolist() == frame["verdict"].tolist()
    for file in ("rows.csv", "rows.parquet"):
        found = succeed("predict", "kb", file, "--preference", "t")["predictions"]
        np.testing.assert_allclose([row["probability_good"] for row in found], expected, rtol=1e-6)
    schema = library.load("kb").encoder
    sent = json.loads(rows.to_json(orient="values"))
    direct = RowEncoder(schema)(sent)
    np.testing.assert_array_equal(direct, schema.inputs(rows))
    np.testing.assert_array_equal(direct, schema.inputs(rows_frame(list(rows), sent)))


def test_numbers_as_categories_stay_known_beside_an_empty_cell(succeed, ibcl):
    frame = grades().astype({"score": "category"})
    frame.to_parquet("t.parquet")
    succeed("learn", "kb", "t.parquet", *LEARN)
    rows = frame.drop(columns="verdict").astype({"score": "float"})
    rows.loc[0, "score"] = None
    rows.to_csv("rows.csv", index=False)
    assert "1.0" in Path("rows.csv").read_text()
    result = ibcl("predict", "kb", "rows.csv", "--preference", "t", "--json")
    assert result.stderr == ""
    expected = library.load("kb").model("t").predict_proba(rows)[:, 1]
    found = [row["probability_good"] for row in json.loads(result.stdout)["predictions"]]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_unknown_categories_are_said(succeed, ibcl):
    frame = grades()
    frame.to_csv("t.csv", index=False)
    succeed("learn", "kb", "t.csv", *LEARN)
    frame.assign(grade="new", member="new")[:3].to_csv("rows.csv", index=False)
    result = ibcl("predict", "kb", "rows.csv", "--preference", "t")
    assert result.exit_code == 0
    assert "Warning: Most categories of 3 of 3 rows were never learnt" in result.stderr


def test_lists_and_records_are_left_out_of_parquet_files(succeed, refuse):
    frame = weather("sun").assign(
        tags=[["a", "b"]] * 80, place=[{"x": 1, "y": 2}] * 80, raw=[b"x"] * 80
    )
    frame.to_parquet("t.parquet")
    assert succeed("learn", "kb", "t.parquet", *LEARN)["features"] == ["a", "b", "c"]
    assert succeed("predict", "kb", "t.parquet", "--preference", "t")["rows"] == 80
    assert "'tags' holds" in refuse("learn", "k", "t.parquet", *LEARN, "--features", "a,tags")
    for label in ("tags", "place", "raw"):
        assert "Something went wrong" not in refuse("learn", "k", "t.parquet", "--label", label)


def test_numbers_that_are_categories_stay_so_in_parquet_files(succeed):
    frame = weather("sun")
    frame["code"] = pd.Categorical([None, *(k % 3 for k in range(1, len(frame)))])
    frame["truth"] = pd.Categorical([k % 2 == 0 for k in range(len(frame))])
    frame.to_parquet("t.parquet")
    succeed("learn", "kb", "t.parquet", *LEARN)
    estimator = library.IBCLClassifier().fit(frame.drop(columns="verdict"), frame["verdict"])
    learner = library.load("kb")
    assert "code=2" in learner.encoder.input_names
    assert learner.encoder == estimator.schema_
    (block, *_) = read_blocks(Path("t.parquet"), rows=7)
    assert block["code"].dtype == "category"


def test_dates_are_learnt_alike_from_files_and_frames(succeed):
    when = pd.date_range("2023-01-01", periods=200, freq="31h")
    frame = pd.DataFrame({"when": when})
    frame["verdict"] = np.where(when.day_of_week >= 4, "good", "bad")
    frame.to_csv("a.csv", index=False)
    frame.to_parquet("b.parquet")
    for file in ("a.csv", "b.parquet"):
        succeed("learn", f"{file}.kb", file, "--label", "verdict", "--task", "t")
    one, other = (library.load(f"{file}.kb") for file in ("a.csv", "b.parquet"))
    assert one.encoder == other.encoder
    rows = frame[["when"]]
    np.testing.assert_array_equal(
        one.model("t").predict_proba(rows), other.model("t").predict_proba(rows)
    )
    assert (one.model("t").predict(rows) == frame["verdict"]).mean() > 0.9


def test_a_weight_for_no_class_is_refused(refuse, sun):
    sentence = refuse("learn", "kb", sun, *LEARN, "--class-weight", "good=2,great=3")
    assert "--class-weight names 'great'" in sentence
    again = refuse("learn", "kb", sun, *LEARN, "--class-weight", "good=2,good=3")
    assert "'good=2,good=3' names a class more than once" in again


def write_users(*rows: str) -> None:
    Path("users.csv").write_text("\n".join(["user,sun,rain", *rows]) + "\n")


def test_users_keep_their_names(succeed, knowledge_base, sun):
    names = ["NA", "None", "null", "007", "7", "true"]
    write_users(*(f"{name},0.5,0.5" for name in names))
    succeed("predict", knowledge_base, sun, "--preferences", "users.csv", "--output", "o.parquet")
    assert list(pd.read_parquet("o.parquet")["user"].unique()) == names


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_written_index_says_who_users_are_unless_it_counts_them(tmp_path, ending):
    """What ``frame.to_csv`` makes of a frame whose index holds the users."""
    weights = pd.DataFrame({"sun": [0.8, 0.0], "rain": [0.2, 1.0]})
    path = tmp_path / f"users{ending}"
    for index, names in (
        (["ann", "bob"], ["ann", "bob"]),
        ([17, 23], ["17", "23"]),
        ([1, 0], ["1", "0"]),
        ([0, 1], ["1", "2"]),
    ):
        frame = weights.set_axis(index)
        frame.to_csv(path) if ending == ".csv" else frame.to_parquet(path)
        users = read_users(path, ("sun", "rain"))
        assert list(users.names) == names
        assert users.preferences.tolist() == [[0.8, 0.2], [0.0, 1.0]]
        named = frame.assign(user=["x", "y"])
        named.to_csv(path) if ending == ".csv" else named.to_parquet(path)
        assert list(read_users(path, ("sun", "rain")).names) == ["x", "y"]


def test_columns_of_users_that_differ_in_blanks_are_one(refuse, knowledge_base, sun):
    Path("users.csv").write_text("user,sun, sun,rain\nann,1,0,0\n")
    said = refuse("predict", knowledge_base, sun, "--preferences", "users.csv", "--output", "o.csv")
    assert "more than one column named 'sun'" in said


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (["ann,0.5,0.5", "  ,1,0"], "row 2 names no user"),
        (["ann,0.5,0.5", "ann,1,0"], "more than one row for the user 'ann'"),
        (["ann,0.5,0.5", ",1,0"], "row 2 names no user"),
        (["ann,0.5,0.5", "NA,0.5,0.6"], "Row 2, user 'NA': The weights"),
        (["ann,0.5,0.5", "bob,0.5,"], "Row 2, user 'bob': The weight of task 'rain'"),
        (["ann,0.5,0.5", "bob,0.5,half"], "Row 2, user 'bob': The weight of task 'rain'"),
    ],
)
def test_whose_preference_is_wrong_is_said(refuse, knowledge_base, sun, rows, words):
    write_users(*rows)
    arguments = (knowledge_base, sun, "--preferences", "users.csv", "--output", "o.csv")
    assert words in refuse("predict", *arguments)


def test_rounded_preferences_are_accepted_and_others_normalised_on_demand(
    succeed, refuse, knowledge_base, sun
):
    write_users("ann,0.3333,0.6666", "bob,0.3334,0.6667")
    arguments = (knowledge_base, sun, "--preferences", "users.csv", "--output", "o.csv", "--force")
    succeed("predict", *arguments)
    write_users("ann,3,1", "bob,0,9")
    assert "Row 1, user 'ann'" in refuse("predict", *arguments)
    succeed("predict", *arguments, "--normalise")
    single = succeed("predict", knowledge_base, sun, "--preference", "3,1", "--normalise")
    assert single["preference"] == {"sun": 0.75, "rain": 0.25}
    scored = succeed(
        "score", knowledge_base, sun, "--label", "verdict", "--preference", "3,1", "--normalise"
    )
    assert scored["scores"][0]["preference"] == {"sun": 0.75, "rain": 0.25}
    made = succeed(
        "generate",
        knowledge_base,
        "--preference",
        "3,1",
        "--normalise",
        "--output",
        "m.safetensors",
    )
    assert made["models"][0]["preference"] == {"sun": 0.75, "rain": 0.25}


def test_a_written_index_with_a_name_is_a_column_but_not_learnt_from(succeed, ibcl):
    frame = weather("sun")
    plain = succeed_on(succeed, frame, "plain")
    frame.rename_axis("id").to_parquet("indexed.parquet")
    result = ibcl("learn", "said.kb", "indexed.parquet", *LEARN)
    assert "Columns not used: id (a written index)." in result.stdout
    learnt = succeed("learn", "indexed.kb", "indexed.parquet", *LEARN)
    assert learnt["columns_left_out"] == ["id"]
    assert learnt["features"] == plain["features"]
    # Whatever was the index where it was written: labels, and columns that were learnt from.
    for index in ("verdict", plain["features"][0], ["verdict", plain["features"][0]]):
        frame.set_index(index).to_parquet("labels.parquet")
        arguments = ("labels.parquet", "--label", "verdict", "--preference", "plain")
        assert succeed("score", "plain.kb", *arguments)["scores"][0]["accuracy"] > 0.8
    frame.set_index("verdict").to_parquet("again.parquet")
    assert succeed("learn", "again.kb", "again.parquet", *LEARN)["features"] == plain["features"]


def succeed_on(succeed, frame, name):
    frame.to_parquet(f"{name}.parquet")
    return succeed("learn", f"{name}.kb", f"{name}.parquet", *LEARN)


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_another_encoding_is_refused_with_what_to_do(refuse, encoding):
    frame = weather("sun").assign(place="Ærø")
    frame.to_csv("t.csv", index=False, encoding=encoding)
    assert "it is not text in UTF-8; save it as such" in refuse("learn", "kb", "t.csv", *LEARN)


@pytest.mark.parametrize("mark", [";", "\t"])
def test_other_delimiters_are_those_of_the_first_line(succeed, mark):
    frame = weather("sun")
    plain = succeed_on(succeed, frame, "t")
    frame.to_csv("other.csv", index=False, sep=mark)
    assert succeed("learn", "other.kb", "other.csv", *LEARN)["features"] == plain["features"]
    answers = [
        succeed("predict", "t.kb", file, "--preference", "t")["predictions"]
        for file in ("t.parquet", "other.csv")
    ]
    assert answers[0] == answers[1]


def test_what_is_left_out_or_read_as_text_is_said_with_its_reason(ibcl):
    frame = weather("sun")
    frame["price"] = [f"{k % 4},5" for k in range(len(frame))]
    frame["number"] = [f"N{k}" for k in range(len(frame))]
    frame["rooms"] = ["?" if k == 9 else str(k % 5) for k in range(len(frame))]
    frame["code"] = ["-" if k == 9 else str(k) for k in range(len(frame))]
    frame.to_csv("t.csv", index=False)
    said = ibcl("learn", "kb", "t.csv", *LEARN).stdout
    assert f"code ({len(frame)} different texts such as '-', most of them numbers)." in said
    assert "Column 'rooms' is learnt as categories, since it holds texts such as '?'" in said
    assert f"Columns not used: number ({len(frame)} different texts such as 'N0'), code" in said
    assert "Column 'price' is learnt as categories, since it holds texts such as '0,5'" in said


def test_a_label_too_long_to_be_a_class_is_refused_in_a_sentence(refuse):
    frame = weather("sun")
    frame["verdict"] = frame["verdict"].map(lambda word: word * 2000)
    frame.to_csv("t.csv", index=False)
    assert "characters, but a class has at most 4,096" in refuse("learn", "kb", "t.csv", *LEARN)


def test_a_weight_that_is_missing_is_called_so(refuse, knowledge_base, sun):
    Path("users.csv").write_text("user,sun,rain\nann,1,\n")
    said = refuse("predict", knowledge_base, sun, "--preferences", "users.csv", "--output", "o.csv")
    assert "Row 1, user 'ann': The weight of task 'rain' is missing; give 0 for no interest" in said


def test_blanks_around_the_names_of_tasks_are_none_of_them(succeed, knowledge_base, sun):
    for name, names in (("plain", "user,sun,rain"), ("spaced", "user, sun, rain ")):
        Path(f"{name}.csv").write_text(f"{names}\nann, 0.25, 0.75\n")
        users = ("--preferences", f"{name}.csv", "--output", f"{name}.parquet")
        succeed("predict", knowledge_base, sun, *users)
    assert pd.read_parquet("plain.parquet").equals(pd.read_parquet("spaced.parquet"))


def test_what_learning_should_have_been_told_is_said_as_its_option(refuse, knowledge_base, sun):
    said = refuse("predict", knowledge_base, sun, "--preference", "sun", "--sets", "0.9")
    assert "learn with --calibration," in said
