"""Knowledge bases on networks that ibcl did not build, from the shell."""

from __future__ import annotations

import pytest
import torch

import ibcl as library

MODULE = """
import torch

def trunk():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
"""


@pytest.fixture
def base(tmp_path, monkeypatch):
    (tmp_path / "own_networks_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    from own_networks_of_a_test import trunk

    x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    for name, column in {"one": 0, "other": 1}.items():
        learner = library.IBCL(trunk(), inference=library.MeanFieldVI(epochs=1))
        learner.learn(x, x[:, column] > 0, task=name)
        learner.save(tmp_path / name)
    return "own_networks_of_a_test:trunk"


def test_they_are_shown_merged_and_forgotten_with_their_network(base, succeed, refuse):
    assert "--network" in refuse("show", "one")
    assert [task["task"] for task in succeed("show", "one", "--network", base)["tasks"]] == ["one"]
    merged = succeed("merge", "one", "other", "both", "--network", base)
    assert merged["tasks"] == ["one", "other"]
    assert succeed("forget", "both", "one", "--network", base)["tasks"] == ["other"]
