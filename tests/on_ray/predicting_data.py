"""A small knowledge base of tables, rows to predict, and users to predict them for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from ibcl.cli import app

ROWS, USERS, MANY = 50, 300, 18_000


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def make(folder: Path) -> Path:
    random = np.random.default_rng(0)
    for task in range(2):
        x = random.normal(size=(60, 3))
        table = pd.DataFrame(x, columns=["a", "b", "c"])
        table["y"] = np.where(x[:, task] > 0, "yes", "no")
        table.to_csv(folder / f"task{task}.csv", index=False)
        run("learn", folder / "kb", folder / f"task{task}.csv", "--label", "y", "--width", 16)
    rows = pd.DataFrame(random.normal(size=(ROWS, 3)), columns=["a", "b", "c"])
    rows.to_parquet(folder / "rows.parquet", row_group_size=20)
    for name, number in (("users", USERS), ("many", MANY)):
        weight = random.uniform(size=number)
        users = pd.DataFrame({"user": [f"u{n}" for n in range(number)], "task0": weight})
        users["task1"] = 1 - weight
        users.to_parquet(folder / f"{name}.parquet")
    return folder


def predict(folder: Path, out: str, *options: object, users: str = "users") -> pd.DataFrame:
    arguments = ["predict", folder / "kb", folder / "rows.parquet"]
    arguments += ["--preferences", folder / f"{users}.parquet", "--output", folder / out, "--json"]
    answer = run(*arguments, *options)
    assert json.loads(answer.splitlines()[-1])["rows"] == ROWS
    return pd.read_parquet(folder / out)
