"""A node removed in the middle costs nothing, whatever ran on it."""

from __future__ import annotations

from pathlib import Path

import pytest
from predicting_data import make
from programs import python

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of the work, by its kind; both kinds share a cluster, which is slow to start."""
    folder = make(tmp_path_factory.mktemp("nodes"))
    program = python(Path(__file__).with_name("losing_nodes.py"), folder)
    out, err = program.communicate(timeout=300)
    found = dict(line.split(" ", 1) for line in out.splitlines() if " " in line)
    assert {"pieces", "scores"} <= set(found), err
    return found


def test_pieces_of_work_begin_again_elsewhere(lines: dict[str, str]) -> None:
    # Four pieces, of which one began twice; two nodes are left.
    assert lines["pieces"] == "[0, 1, 2, 3] 5 2"


def test_scores_are_those_of_one_machine(lines: dict[str, str]) -> None:
    # The node died while its worker wrote; one node is left.
    assert lines["scores"] == "True 1"
