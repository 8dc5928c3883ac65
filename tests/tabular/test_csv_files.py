"""CSV files are read without guessing: cells under their names, and one kind per column."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from ibcl.tabular import csv_blocks, read_csv
from ibcl.tabular.csv_files import BLOCK_ROWS


@pytest.fixture
def written(tmp_path):
    def write(text: str):
        path = tmp_path / "t.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    "text",
    [
        "a,b\n1,2\n3,4\n",
        "a|b\n1|2\n3|4\n",
        "sep=;\na;b\n1;2\n3;4\n",
        "\ufeffsep=,\r\na,b\r\n1,2\r\n3,4\r\n",
        "\nsep=\t\na\tb\n1\t2\t\n3\t4\n",
        "a,b\n1,2,\n3,4,\n",
        "\n\na,b\n1,2\n\n3,4",
        "\ufeffa,b\r\n1,2\r\n3,4\r\n",
        'a,b\n"1","2"\n3,4\n   \n',
        "a;b\n1;2\n3;4\n",
        "a;b\n1;2;\n3;4;\n",
        'a\tb\r\n"1"\t2\r\n3\t4\r\n',
        '"a";"b"\n"1";2\n"3";4\n',
        '"a"\t"b"\n1\t2\n3\t4\n',
    ],
)
def test_cells_stay_under_their_names(written, text):
    frame = read_csv(written(text))
    assert frame.to_dict("list") == {"a": [1, 3], "b": [2, 4]}
    blocks = pd.concat(list(csv_blocks(written(text), rows=1)), ignore_index=True)
    pd.testing.assert_frame_equal(blocks, frame)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n1,2\n3,4,5\n", "row 2 has 3 cells, but the first line names 2 columns"),
        ("a,b\n1,2\n3\n", "row 2 has 1 cells"),
        ("\na,b,a\n1,2,3\n", "more than one column named 'a'"),
        ('a,b\n1,"2\n3,4\n', "unexpected end"),
        ("a;b\n1;2\n3;4;5\n", "row 2 has 3 cells, but the first line names 2 columns"),
        ("a;b;a\n1;2;3\n", "more than one column named 'a'"),
        ('a,b\n1,2\n"3"x,4\n', "line 3 does not fall into cells"),
        ('"a"b,c\n1,2\n', "line 1 does not fall into cells"),
    ],
)
def test_what_is_not_certain_is_refused(written, text, words):
    for read in (read_csv, lambda path: list(csv_blocks(path, rows=1))):
        with pytest.raises(Exception, match=words):
            read(written(text))


@pytest.mark.parametrize("end", ["", ","])
def test_a_quoted_name_may_have_lines(written, end):
    frame = read_csv(written(f'\n"a\nb",c\n1,"x\ny"{end}\n\n2,"z,"{end}\n'))
    assert frame.to_dict("list") == {"a\nb": [1, 2], "c": ["x\ny", "z,"]}


def test_a_delimiter_inside_of_a_quoted_name_delimits_nothing(written):
    assert list(read_csv(written('"price, net";"a;b"\n1;2\n'))) == ["price, net", "a;b"]
    assert list(read_csv(written('"a;b"\n1\n'))) == ["a;b"]


@pytest.mark.parametrize("text", ["", "\n", "a,b\n", "a,b", "\na,b\n\n"])
def test_a_file_without_rows_is_an_empty_table(written, text):
    assert len(read_csv(written(text))) == 0
    assert list(csv_blocks(written(text))) == []


def test_a_column_without_a_name_is_called_as_pandas_does(written):
    assert list(read_csv(written(",a,\n0,1,\n1,2\n"))) == ["Unnamed: 0", "a", "Unnamed: 2"]


def test_kinds_of_columns(written):
    text = (
        "w,r,t,b,x,m,e,n\n"
        "1,1.5,01,True,a_1,TRUE,,NA\n"
        "2,,x,,1_000,NA,,None\n"
        "-3,NA,1,false,,false,,null\n"
    )
    frame = read_csv(written(text))
    assert frame["w"].dtype == np.int64
    assert frame["r"].isna().tolist() == [False, True, True]
    assert frame["t"].tolist() == ["01", "x", "1"]
    assert frame["b"].tolist() == [True, None, False]
    assert frame["x"].tolist()[:2] == ["a_1", "1_000"]
    assert frame["x"].isna().tolist() == [False, False, True]
    assert frame["m"].isna().tolist() == [False, True, False]
    assert frame["e"].isna().all()
    assert frame["n"].tolist() == ["NA", "None", "null"]
    assert read_csv(written(text), texts=["w", "b"])[["w", "b"]].fillna("").to_dict("list") == {
        "w": ["1", "2", "-3"],
        "b": ["True", "", "false"],
    }


def test_whole_numbers_of_many_digits_are_no_truth_values(written):
    """Beyond 64 bits they are numbers all the same, and as texts keep every digit."""
    digits = ["123456789012345678901234567890", "98765432109876543210987654321"]
    path = written("a,b\n" + "".join(f"{each},1\n" for each in digits))
    assert read_csv(path)["a"].tolist() == [float(each) for each in digits]
    assert read_csv(path, texts=["a"])["a"].tolist() == digits


@pytest.mark.parametrize("cells", [["inf", "NA", "none"], ["inf", "inf"], ["Infinity", ""]])
def test_words_for_infinity_alone_are_texts(written, cells):
    path = written("a,b\n" + "".join(f"{cell},1\n" for cell in cells))
    assert read_csv(path)["a"].fillna("").tolist() == cells
    beside = written("a\ninf\n1\n")
    assert read_csv(beside)["a"].tolist() == [np.inf, 1.0]


@pytest.mark.parametrize("last", ["x", "True", "NA"])
def test_a_column_has_one_kind_however_long_the_file(written, last):
    """Text after many numbers makes texts of them, written as they were."""
    cells = ["01", "1"] * BLOCK_ROWS
    frame = read_csv(written("\n".join(["a,b", *(f"{cell},0.1" for cell in cells), f"{last},"])))
    if last == "NA":
        assert frame["a"].dtype == np.float64
        assert frame["a"].nunique() == 1
    else:
        assert frame["a"].unique().tolist() == ["01", "1", last]
    assert frame["b"].dtype == np.float64


def test_numbers_come_back_to_the_last_bit(tmp_path):
    values = np.random.default_rng(0).normal(size=2000) * 10.0 ** np.arange(-10, 10).repeat(100)
    pd.DataFrame({"a": values}).to_csv(tmp_path / "n.csv", index=False)
    assert np.array_equal(read_csv(tmp_path / "n.csv")["a"], values)


def test_a_cell_that_is_too_long_is_called_that(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('a,b\n1,"' + "x" * 200_000 + '"\n')
    with pytest.raises(ValueError, match="line 2 holds a cell of more than 131,072 characters"):
        read_csv(path)
