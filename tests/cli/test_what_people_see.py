"""Somebody else's names are shown as they are: no markup in them, no control characters."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import pytest
from weather_tables import weather

MARKUP = ["x[/b]", "[red]stop[/red]", "[link=a]b", ":smile:", "\\[x]"]


def harmless(text: str) -> bool:
    """Whether a terminal only shows it."""
    return all(character == "\n" or character.isprintable() for character in text)


@pytest.mark.parametrize("name", MARKUP)
def test_markup_in_names_is_shown_and_not_followed(ibcl, name):
    frame = weather("sun").rename(columns={"c": name})
    frame["verdict"] = frame["verdict"].replace({"good": name})
    frame["unused" + name] = [f"{name} {n}" for n in range(80)]
    frame.to_csv("t.csv", index=False)
    folder = name.replace("/", "-")
    shown = [
        ibcl("learn", folder, "t.csv", "--label", "verdict", "--task", name, "--network", "linear"),
        ibcl("show", folder),
        ibcl("predict", folder, "t.csv", "--preference", name),
        ibcl("score", folder, "t.csv", "--label", "verdict", "--preference", name),
        ibcl("generate", folder, "--preference", name, "--output", f"{folder}.safetensors"),
    ]
    for result in shown:
        assert result.exit_code == 0, result.stderr
        assert harmless(result.stdout)
    assert name in shown[0].stdout
    assert name in shown[1].stdout
    forgotten = ibcl("forget", folder, name)
    assert forgotten.exit_code == 0
    assert name in forgotten.stdout


@pytest.mark.parametrize("name", ["a\x1b[31mred", "a\x00b", "a\x9b31m", "a\u202eb", "a\rb"])
def test_control_characters_do_not_reach_the_terminal(ibcl, name):
    frame = weather("sun").rename(columns={"c": name})
    frame["verdict"] = frame["verdict"].replace({"good": name})
    frame.to_parquet("t.parquet")
    arguments = ("learn", "kb", "t.parquet", "--label", "verdict", "--network", "linear")
    for result in (
        ibcl(*arguments),
        ibcl(*arguments, "--task", name),
        ibcl("show", "kb"),
        ibcl("show", "kb", "--json"),
        ibcl("predict", "kb", "t.parquet", "--preference", "t"),
        ibcl("predict", "kb", "t.parquet", "--preference", name),
        ibcl("predict", "kb", f"{name}.csv", "--preference", "t"),
        ibcl("show", name),
        ibcl("show", "kb", f"--{name}"),
        ibcl(name),
        ibcl("show", "kb", name),
        ibcl("learn", "kb", "t.parquet", "--label", name, "--pooling", name),
        ibcl("--plugin", name, "show", "kb"),
    ):
        assert harmless(result.stdout)
        assert harmless(result.stderr)


def test_a_file_whose_name_is_no_text(ibcl, sun):
    import os

    odd = os.fsencode(sun.parent) + b"/t\xff.csv"
    shutil.copy(sun, odd)
    result = ibcl("learn", "kb", os.fsdecode(odd), "--label", "verdict")
    assert result.exit_code == 2
    assert harmless(result.stderr)
    assert not Path("kb", "manifest.json").exists()
    assert ibcl("learn", "kb", os.fsdecode(odd), "--label", "verdict", "--task", "t").exit_code == 0


def test_help_shows_every_word(ibcl):
    import re

    def words(command: str) -> str:
        return re.sub(r"[\s│]+", " ", ibcl(command, "--help").stdout)

    assert "[one per processor]" in words("bench")
    learn = words("learn")
    for name in ("random_features", "mean_field", "wasserstein", "routed", "poisson"):
        assert name in learn


def test_choices_come_from_the_registries_also_of_a_plugin(ibcl, succeed, refuse, sun):
    Path("my_plugin.py").write_text(
        "import ibcl\n"
        "from ibcl.networks import BUILDERS, linear\n"
        "from ibcl.pooling import RULES, register_rule\n"
        "def straight(inputs, outputs=1):\n"
        "    return linear(inputs, outputs)\n"
        "BUILDERS['straight'] = straight\n"
        "class Mine(type(RULES['wasserstein'])):\n"
        "    pass\n"
        "register_rule('mine', Mine(), title='my own')\n"
    )
    from ibcl.networks import BUILDERS
    from ibcl.pooling import RULES, TITLES

    arguments = ("learn", "kb", sun, "--label", "verdict", "--network", "straight")
    assert "--network must be one of" in refuse(*arguments)
    try:
        learnt = ibcl("--plugin", "my_plugin", *arguments, "--pooling", "mine")
        assert learnt.exit_code == 0, learnt.stderr
        assert succeed("--plugin", "my_plugin", "show", "kb")["settings"]["pooling"] == "mine"
        assert "mine" in ibcl("--plugin", "my_plugin", "learn", "--help").stdout
    finally:
        BUILDERS.pop("straight", None)
        RULES.pop("mine", None)
        TITLES.pop("mine", None)
    assert "'nowhere'" in refuse("--plugin", "nowhere", "show", "kb")


def test_files_and_folders_that_may_not_be_touched(refuse, sun, monkeypatch):
    import ibcl as library

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(sun))

    with monkeypatch.context() as patched:
        patched.setattr(pd, "read_csv", forbidden)
        assert "permission denied" in refuse("learn", "kb2", sun, "--label", "verdict")

    def too_much(*_: object, **__: object) -> None:
        raise MemoryError

    def torch_too_much(*_: object, **__: object) -> None:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 8 bytes")

    for failure in (too_much, torch_too_much):
        with monkeypatch.context() as patched:
            patched.setattr(library.IBCL, "learn", failure)
            result = refuse("learn", "kb2", sun, "--label", "verdict")
            assert "not enough memory" in result


def test_who_loses_a_race_is_told_what_to_do(refuse, knowledge_base, sun, monkeypatch):
    import ibcl as library

    learn = library.IBCL.learn

    def slowly(learner: library.IBCL, *arguments: object, **settings: object) -> object:
        faster = library.load(knowledge_base)
        faster.forget("rain")
        faster.save(knowledge_base)
        return learn(learner, *arguments, **settings)

    monkeypatch.setattr(library.IBCL, "learn", slowly)
    arguments = (knowledge_base, sun, "--label", "verdict", "--task", "late")
    sentence = refuse("learn", *arguments)
    assert "again" in sentence
    assert "overwrite" not in sentence
    assert library.load(knowledge_base).tasks == ("sun",)
