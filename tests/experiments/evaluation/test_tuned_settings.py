"""What a search found, written as settings."""

import tomllib

import pytest

from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.runs import cells_of
from ibcl.experiments.evaluation.tuning import Search, Trial, Tuned, as_toml


def test_a_section_keeps_what_no_trial_varied():
    # RanPAC's number of random features on CelebA is not searched: without it the section would
    # mean another method than the one that was tuned.
    before = contender("ranpac", "celeba-balanced")
    found = Trial({"feature_norm": 10.0, "temperature": 0.5}, (0.6, 0.7), True, 1.0)
    search = Search("celeba-balanced", "ranpac", 0, trials=1)
    section = tomllib.loads(as_toml([Tuned(search, (found,))]))["ranpac"]
    assert section == {"width": before.options["width"], **found.settings}


def test_settings_of_every_kind_can_be_read_back():
    settings = {"learning_rate": 1e-05, "steps": 20, "network": "random:800"}
    search = Search("digits", "gem", 50, trials=1)
    text = as_toml([Tuned(search, (Trial(settings, (0.5,), True, 1.0),))])
    assert tomllib.loads(text) == {"gem": {"50": settings}}


def test_choices_of_a_folder_go_before_the_packages_own(tmp_path):
    def found(benchmark: str, name: str, memory: int, **settings: float) -> str:
        search = Search(benchmark, name, memory, trials=1)
        return as_toml([Tuned(search, (Trial(settings, (0.5,), True, 1.0),))])

    (tmp_path / "digits.toml").write_text(found("digits", "gem", 50, learning_rate=0.25))
    (gem,) = cells_of(["digits"], ["gem"], [0], memories=[50], settings=tmp_path)
    assert gem.contender.options["learning_rate"] == 0.25
    # What the folder says nothing of is as it was: other methods, and other benchmarks.
    assert contender("oracle", "digits", folder=tmp_path) == contender("oracle", "digits")
    assert contender("gem", "20news", 50, tmp_path) == contender("gem", "20news", 50)


def test_a_benchmark_of_ones_own_is_told_by_its_file(tmp_path):
    description = tmp_path / "mine.yaml"
    description.write_text(
        "name: films\nfiles: films.csv\nnumbers: [a]\nlabel: y\n"
        "tasks: [{name: one, classes: [bad, good]}]\n"
    )
    (tmp_path / "mine.toml").write_text("[oracle]\nlearning_rate = 0.25\n")
    found = contender("oracle", str(description), folder=tmp_path)
    assert found.options["learning_rate"] == 0.25


def test_a_folder_without_settings_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no settings"):
        cells_of(["digits"], ["oracle"], [0], settings=tmp_path / "tuning")
