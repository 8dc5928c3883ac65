"""Every setting is declared once: learner, estimators and command line agree with it and refuse."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

import ibcl
from ibcl.cli import app
from ibcl.settings import Settings, TableSettings, check_setting, declared

X = np.random.default_rng(0).normal(size=(20, 2))
Y = (X[:, 0] > 0).astype(int)
# What a constructor takes besides settings: what is worked on, and old names.
NOT_SETTINGS = {"self", "network", "autosave", "encoder", "device", "continual"}
OF_ESTIMATORS = {"preference", "random_state", "head", "continual", "class_weight"}
# What `ibcl learn` takes besides settings: the data, and how the first task's columns are read.
OF_LEARN = {
    "knowledge_base", "files", "label", "task", "extend", "replace", "validation", "sample_weight",
    "class_weight", "features", "classes", "standardise", "like", "regression", "storage", "engine",
    "as_json",
    # The old name of a setting.
    "isolated",
}  # fmt: skip


def options() -> dict[str, Any]:
    group = typer.main.get_command(app)
    command = group.get_command(typer.Context(group), "learn")  # type: ignore[attr-defined]
    return {parameter.name: parameter for parameter in command.params if parameter.name != "help"}


def test_a_learner_takes_exactly_the_settings():
    taken = {
        name: parameter.default
        for name, parameter in inspect.signature(ibcl.IBCL.__init__).parameters.items()
        if name not in NOT_SETTINGS
    }
    assert taken == {name: default for name, (default, _) in declared(Settings).items()}


@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_an_estimator_takes_settings_only(kind):
    known = declared(TableSettings)
    given = kind().get_params()
    for name in set(given) - OF_ESTIMATORS:
        if name == "likelihood":
            # A regression's likelihood is never chosen by its labels.
            continue
        assert given[name] == known[name][0], name
    assert given["random_state"] == known["seed"][0]


def test_the_command_line_takes_exactly_the_settings_that_have_an_option():
    known = {name for name, (_, facts) in declared(TableSettings).items() if facts.option}
    found = options()
    assert set(found) - OF_LEARN == known
    for name in known:
        default, facts = declared(TableSettings)[name]
        assert found[name].default is None, f"--{name} would count as given"
        assert found[name].help.startswith(facts.help)
        shown = str(default) if facts.left_open is None else facts.left_open
        assert found[name].show_default == shown


def test_every_setting_says_what_it_means_and_has_a_default_within_its_bounds():
    for name, (default, facts) in declared(TableSettings).items():
        assert facts.help.endswith(".")
        assert (default is None) <= (facts.left_open is not None), name
        assert (facts.check is None) == (not facts.expected), name
        check_setting(TableSettings, name, default)


WRONG: dict[str, list[Any]] = {
    "priors": [[], [0.0], [-1.0], [math.nan], [math.inf], [1.0, -2.0]],
    "d": [-0.1, math.inf, math.nan],
    "distance": ["nobody", ""],
    "alpha": [0.0, 1.0, -1.0, 2.0, math.nan],
    "seed": [2**64, -(2**63) - 1],
    "width": [0, -3],
    "epochs": [0, -1],
    "noise": [0.0, -1.0, math.inf, math.nan],
    "pooling": ["nobody"],
    "likelihood": ["nobody"],
    "inference": ["nobody"],
    "network": ["nobody"],
    "hidden": [(0,), (4, -1)],
    "independent": ["no", 3],
    "task_incremental": [0, -1, 1.5],
    "calibration": [0, -1, -0.5, math.nan],
    "calibration_rows": ["all", None, 1],
    "memory": ["nobody", 0, -1],
    "expert": ["nobody"],
}
CASES = [(name, value) for name, values in WRONG.items() for value in values]


def test_every_setting_has_wrong_values_to_try():
    assert set(WRONG) == set(declared(TableSettings))


def assert_one_sentence(text: str, name: str) -> None:
    assert text.count(". ") == 0
    assert name.split("_")[0].rstrip("s") in text.lower(), text


@pytest.mark.parametrize(("name", "value"), CASES)
def test_a_learner_refuses_at_once(name, value):
    if name not in declared(Settings):
        return
    with pytest.raises(ValueError, match=r"\.$") as error:
        ibcl.IBCL(ibcl.networks.linear(2), **{name: value})
    assert_one_sentence(str(error.value), name)


@pytest.mark.parametrize(("name", "value"), CASES)
@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_an_estimator_refuses_when_it_is_fitted(kind, name, value):
    parameter = "random_state" if name == "seed" else name
    if parameter not in kind().get_params():
        return
    with pytest.raises(ValueError, match=r"\.$") as error:
        kind(**{parameter: value}).fit(X, Y)
    assert_one_sentence(str(error.value), name)


@pytest.mark.parametrize(("name", "value"), CASES)
def test_the_command_line_refuses_and_leaves_nothing(name, value, tmp_path, monkeypatch):
    if name not in options() or name == "independent":
        return
    monkeypatch.chdir(tmp_path)
    pd.DataFrame(X, columns=["a", "b"]).assign(y=Y).to_csv("t.csv", index=False)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    extra = ["--network", "mlp"] if name in ("hidden", "epochs") else []
    extra = ["--regression"] if name == "noise" else extra
    option = f"--{name.replace('_', '-')}={text}"
    result = CliRunner().invoke(app, ["learn", "kb", "t.csv", "--label", "y", option, *extra])
    assert result.exit_code == 2, result.output
    assert name.rstrip("s") in " ".join(result.output.split()).lower()
    assert "Traceback" not in result.output
    assert not (tmp_path / "kb").exists()


def test_doors_make_the_same_learner(tmp_path, monkeypatch):
    """The same settings through every door: the same settled settings, but for the encoder."""
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame.assign(y=Y).to_csv("t.csv", index=False)
    plain = CliRunner().invoke(app, ["learn", "kb", "t.csv", "--label", "y", "--width", "16"])
    assert plain.exit_code == 0, plain.output
    one = ibcl.load("kb").state
    other = ibcl.IBCLClassifier(width=16).fit(frame, Y, task="t").learner_.state
    assert one.network.specification == other.network.specification
    for field in dataclasses.fields(Settings):
        if field.name == "priors":
            (a,), (b,) = one.settled.priors, other.settled.priors
            assert np.array_equal(a.std, b.std)
            continue
        assert getattr(one.settled, field.name) == getattr(other.settled, field.name), field.name
    assert one.reasons == other.reasons


def test_settings_are_checked_where_they_are_made():
    with pytest.raises(ValueError, match="alpha must be between 0 and 1, not 7"):
        Settings(alpha=7)
    with pytest.raises(ValueError, match="at least one prior"):
        Settings(priors=())
    assert Settings(priors=[1.0]).priors == (1.0,)
