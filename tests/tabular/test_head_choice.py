"""The network of a wide table is the one that predicts held-out rows better."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.tabular import choose_head

COLUMNS = 800


def linear(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, COLUMNS))
    return x, x[:, :20].sum(1) + generator.normal(size=rows) > 0


def shells(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes of one centre, which no linear function tells apart."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(rows) % 2
    x = torch.randn(rows, COLUMNS, generator=generator) * (0.3 + 0.7 * y[:, None])
    return x, y


def test_a_wide_table_is_not_worse_than_linear():
    x, y = linear(1500)
    classifier = ibcl.IBCLClassifier().fit(x[:500], y[:500])
    rival = LogisticRegression(C=0.01).fit(x[:500], y[:500])
    assert classifier.network_choice_.name == "linear"
    # Two standard errors of a difference between accuracies on a thousand rows.
    assert classifier.score(x[500:], y[500:]) > rival.score(x[500:], y[500:]) - 0.04


def test_random_features_are_chosen_where_they_predict_better():
    x, y = shells(600)
    choice = choose_head(x, y, 2)
    assert choice.name == "random_features"
    assert choice.width in (256, 1024)
    assert "held-out error" in choice.reason
    assert choose_head(x, y, 2, width=100).width == 100


@pytest.mark.parametrize("classes", [2, 5, None])
def test_labels_that_nothing_predicts_choose_the_columns(classes):
    x = torch.randn(400, COLUMNS, generator=torch.Generator().manual_seed(0))
    noise = torch.randn(400, generator=torch.Generator().manual_seed(1))
    y = noise.double() if classes is None else (noise.abs() * 100).long() % classes
    assert choose_head(x, y, classes).name == "linear"


def test_the_choice_is_the_same_on_the_command_line_and_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x, y = linear(150)
    frame = pd.DataFrame(x, columns=[f"c{place}" for place in range(COLUMNS)])
    frame.assign(y=y).to_csv("t.csv", index=False)
    said = CliRunner().invoke(app, ["learn", "kb", "t.csv", "--label", "y", "--json"])
    network = json.loads(said.stdout)["network"]
    estimator = ibcl.IBCLClassifier().fit(frame, y, task="t")
    assert network["name"] == estimator.network_choice_.name == "linear"
    assert network["reason"] == estimator.network_choice_.reason
    np.testing.assert_allclose(
        ibcl.load("kb").model("t").predict_proba(frame), estimator.predict_proba(frame)
    )
