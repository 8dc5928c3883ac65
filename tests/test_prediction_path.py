"""The way from `Model.predict` to the answer, counted: few files, and φ(x) once."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pytest
import torch

import ibcl
from ibcl.networks import RandomReLUFeatures
from ibcl.pooling import RULES
from kinds import INPUTS, inputs, labels

ROOT = Path(ibcl.__file__).parent
# Reading x, the network, the predictive, the likelihood; and the densities of a gate.
FILES = {"wasserstein": 5, "evidence": 5, "mixture": 5, "routed": 6, "routed1": 6}


def functions_of(ask: Callable[[], object]) -> list[tuple[str, str]]:
    """File and name of every function of the library that a call runs, in order."""
    found: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(ROOT):
            found.append((path.relative_to(ROOT).as_posix(), frame.f_code.co_qualname))

    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return found


def model(rule: str) -> ibcl.Model:
    """The model of three tasks behind the head that the estimators choose."""
    head = ibcl.networks.random_features(INPUTS, width=16, skip=True)
    learner = ibcl.IBCL(head, pooling=rule)
    for number in range(3):
        x = inputs(number, 40, 0)
        learner.learn(x, labels("binary", number, x, 0), task=f"task {number}")
    return learner.model([0.2, 0.3, 0.5])


@pytest.mark.parametrize("rule", FILES)
def test_a_prediction_passes_few_files_and_featurises_once(rule):
    asked = model(rule)
    x = inputs(0, 7, 1)
    for _ in range(2):
        found = functions_of(lambda: asked.predict(x))
        files = dict.fromkeys(path for path, _ in found)
        assert len(files) <= FILES[rule], [*files]
        forward = ("networks.py", RandomReLUFeatures.forward.__qualname__)
        assert found.count(forward) == 1


def test_every_rule_is_counted():
    assert set(FILES) == set(RULES)


def test_a_probability_is_answered_alike():
    """What was counted is the answer: the most probable class of `predict_proba`."""
    asked, x = model("routed"), inputs(0, 50, 1)
    assert torch.equal(asked.predict(x), asked.predict_proba(x).argmax(1))
