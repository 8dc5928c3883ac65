"""Old names keep working for one version, with a warning that says the new one."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch

import ibcl
from kinds import task

X, Y = task("binary", 0)


@pytest.mark.parametrize("continual", [True, False])
def test_continual_is_the_opposite_of_independent(continual):
    with pytest.warns(DeprecationWarning, match=f"write independent={not continual}") as caught:
        old = ibcl.IBCL(ibcl.networks.linear(3), [1.0], continual=continual)
    assert caught[0].filename == __file__
    new = ibcl.IBCL(ibcl.networks.linear(3), [1.0], independent=not continual)
    assert old.given == new.given
    for learner in (old, new):
        learner.learn(X, Y)
        learner.learn(*task("binary", 1))
    assert old.knowledge.independent is (not continual)
    weights = [0.4, 0.6]
    assert torch.equal(old.model(weights).predict_proba(X), new.model(weights).predict_proba(X))


def test_both_names_at_once_are_refused():
    with (
        pytest.warns(DeprecationWarning, match="continual"),
        pytest.raises(ValueError, match="not also its old name"),
    ):
        ibcl.IBCL(ibcl.networks.linear(3), continual=True, independent=False)


@pytest.mark.parametrize("kind", [ibcl.IBCLClassifier, ibcl.IBCLRegressor])
def test_estimators_take_their_old_names(kind):
    x, y = X.numpy(), Y.numpy()
    with pytest.warns(DeprecationWarning, match="network='linear'"):
        old = kind(head="linear").fit(x, y)
    new = kind(network="linear").fit(x, y)
    assert np.array_equal(old.predict(x), new.predict(x))
    with pytest.warns(DeprecationWarning, match="independent=True"):
        assert kind("linear", continual=False).fit(x, y).learner_.knowledge.independent is True


def test_a_new_name_warns_of_nothing(recwarn):
    ibcl.IBCL(ibcl.networks.linear(3), [1.0], independent=True).learn(X, Y)
    ibcl.IBCLClassifier("linear").fit(X.numpy(), Y.numpy())
    assert not [w for w in recwarn if issubclass(w.category, DeprecationWarning)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_rooms_that_documents_name_are_there_after_import_ibcl():
    rooms = ["likelihoods", "networks", "pooling", "rl", "tabular"]
    # Each in a process that has not seen the others.
    program = f"""
import os, ibcl, torch
for room in {rooms!r}:
    if os.fork() == 0:
        print(getattr(ibcl, room).__name__, room in dir(ibcl), flush=True)
        os._exit(0)
    os.wait()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.splitlines() == [f"ibcl.{room} True" for room in rooms], done.stderr
