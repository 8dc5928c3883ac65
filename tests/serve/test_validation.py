"""Rows to measure on that do not fit the knowledge base, at the start and later."""

from __future__ import annotations

import numpy as np
import pytest
from fastapi.testclient import TestClient
from served_bases import JSON, films

import ibcl
from ibcl.serve import Settings, create_app

WRONG = {
    "a class that was not learnt": (lambda frame: frame.assign(verdict="adored"), "adored"),
    "a column that lacks": (lambda frame: frame.drop(columns="minutes"), "minutes"),
    "text for numbers": (lambda frame: frame.assign(year="last"), "year"),
    "no labels": (lambda frame: frame.assign(verdict=None), "label"),
    "no finite numbers": (lambda frame: frame.assign(year=np.inf), "year"),
}


def table(path, task, change=lambda frame: frame):
    frame, labels = films(task, 20, seed=5)
    change(frame.assign(verdict=labels)).to_csv(path, index=False)
    return path


@pytest.mark.parametrize(("change", "named"), WRONG.values(), ids=WRONG)
def test_rows_that_do_not_fit_are_refused_at_the_start_and_replace_nothing(
    base, tmp_path, change, named
):
    good = Settings(
        base, validation={"sci-fi": table(tmp_path / "a.csv", "sci-fi")}, label="verdict"
    )
    create_app(good).state.service.close()
    wrong = {"sci-fi": table(tmp_path / "b.csv", "sci-fi", change)}
    with pytest.raises(ValueError, match=f"'sci-fi' do not fit.*{named}"):
        create_app(Settings(base, validation=wrong, label="verdict"))
    with TestClient(create_app(Settings(base)), headers=JSON) as client:
        measured = client.post("/v1/explorer/measure", json={"preference": {"sci-fi": 1}}).json()
    assert list(measured["scores"]) == ["sci-fi"]


def test_rows_that_no_longer_fit_leave_the_others_in_the_explorer(base, tmp_path):
    """A task may be learnt later, under a name for which other rows were given."""
    tables = {
        "sci-fi": table(tmp_path / "a.csv", "sci-fi"),
        "later": table(tmp_path / "b.csv", "horror", lambda frame: frame.drop(columns="mood")),
    }
    settings = Settings(base, validation=tables, label="verdict")
    create_app(settings).state.service.close()
    learner = ibcl.load(base)
    learner.learn(*films("romance", 80), task="later")
    learner.save(base)
    with TestClient(create_app(Settings(base)), headers=JSON) as client:
        assert client.get("/v1/explorer").json()["validation"] == {"sci-fi": 20}
