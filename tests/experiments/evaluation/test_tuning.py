"""Searches: real ones, different ones, from published settings on, and resumed."""

import json

import optuna
import pytest

from ibcl.experiments import methods
from ibcl.experiments.evaluation import tuning
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.tuning import Search, distributions, tune


def search(method="nearest_class_mean", trials=6, **settings):
    return Search("digits", method, 0, trials, seeds=(100, 101), tasks=2, **settings)


def test_the_first_trial_is_the_registered_settings():
    found = tune(search("loranpac", trials=1))
    entry = methods.registered("loranpac")
    first = found.trials[0].settings
    assert first["truncated"] == entry.settings["truncated"] == 0.25
    assert first["feature_map"] == "raw"
    assert found.trials[0].finished


def test_no_two_searches_draw_the_same_settings():
    """Streaming LDA and nearest class means share the space of their temperature."""
    drawn = {
        name: [t.settings["temperature"] for t in tune(search(name, trials=4)).trials[1:]]
        for name in ("nearest_class_mean", "streaming_lda")
    }
    assert not set(drawn["nearest_class_mean"]) & set(drawn["streaming_lda"])


def test_an_interrupted_search_goes_on_where_it_was(tmp_path, monkeypatch):
    score, calls = tuning._score, []

    def dying(*arguments):
        calls.append(arguments)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return score(*arguments)

    monkeypatch.setattr(tuning, "_score", dying)
    wanted = search(trials=6, folder=str(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        tune(wanted)
    kept = json.loads(wanted.file.read_text())["trials"]
    assert kept
    found = tune(wanted)
    assert len(found.trials) == 6
    assert [t.settings for t in found.trials[: len(kept)]] == [t["settings"] for t in kept]
    before = len(calls)
    assert tune(wanted) == found
    assert len(calls) == before


def test_halving_stops_the_worse_half_after_a_seed(monkeypatch):
    """Settings whose score is known: only those that lead at their first seed see the second."""
    monkeypatch.setattr(tuning, "_score", lambda chosen, *_: chosen.options["temperature"])
    found = tune(search(trials=30))
    stopped = [t for t in found.trials if not t.finished]
    assert all(len(t.scores) == 1 for t in stopped)
    assert 5 <= len(stopped) <= 25
    values = [t.settings["temperature"] for t in found.trials]
    assert found.best.settings["temperature"] == max(
        t.settings["temperature"] for t in found.trials if t.finished
    )
    # What is drawn after the random trials is drawn where scores are high.
    assert sum(values[20:]) / 10 > sum(values[1:11]) / 10


def test_every_registered_setting_is_one_that_tuning_can_draw():
    for name in methods.METHODS:
        start = contender(name)
        present = tuning._registered(start)
        for setting, space in distributions(start).items():
            if setting in present:
                optuna.trial.create_trial(
                    value=0.0, params={setting: present[setting]}, distributions={setting: space}
                )


def test_all_but_our_own_may_take_any_map():
    for name, entry in methods.METHODS.items():
        assert ("feature_map" in entry.searched) == (entry.group != "IBCL"), name
