"""The library logs under one name, silently unless asked, and no name reaches a terminal raw."""

import logging
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app

X = torch.randn(40, 3, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.INFO, logger="ibcl")
    return lambda: [record.getMessage() for record in caplog.records]


def test_what_is_learnt_chosen_saved_opened_and_forgotten_is_logged(logged, tmp_path):
    learner = ibcl.IBCL(ibcl.networks.linear(3))
    learner.learn(X, X[:, 0] > 0, task="a")
    assert logged() == [
        *(f"chose {setting}: {reason}" for setting, reason in learner.choices.items()),
        "learnt a from 40 samples with 0 updates",
    ]
    learner.extend(X[:10], X[:10, 0] > 0, task="a")
    learner.save(tmp_path / "kb")
    ibcl.load(tmp_path / "kb").forget("a")
    assert logged()[-4:] == [
        "learnt a from 50 samples with 0 updates",
        f"saved 1 tasks to {tmp_path / 'kb'}",
        f"opened {tmp_path / 'kb'} with 1 tasks",
        "forgot a",
    ]


def test_nothing_is_shown_unless_asked_for():
    program = """
import torch, ibcl
x = torch.randn(20, 2)
ibcl.IBCL(ibcl.networks.linear(2)).learn(x, x[:, 0] > 0)
import logging
logging.getLogger("ibcl").error("even this")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("", "")


def test_the_command_line_shows_it_where_asked(tmp_path):
    rows = "\n".join(["x,y", *(f"{number},{number > 9}" for number in range(20))])
    (tmp_path / "sun.csv").write_text(rows + "\n")
    command = [str(tmp_path / "kb"), str(tmp_path / "sun.csv"), "--label", "y", "--width", "4"]
    program = "import sys; from ibcl.cli import main; sys.argv[0] = 'ibcl'; main()"
    result = subprocess.run(
        [sys.executable, "-c", program, "--verbose", "learn", *command],
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert "learnt sun from 20 samples" in result.stderr
    quiet = CliRunner().invoke(app, ["show", str(tmp_path / "kb")])
    assert "opened" not in quiet.stderr
