"""What a search found, written as settings."""

import tomllib

from ibcl.experiments.evaluation.contenders import contender
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
