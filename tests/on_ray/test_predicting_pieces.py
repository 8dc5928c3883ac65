"""Pieces cover users × rows once, along the blocks that one machine computes at once."""

from __future__ import annotations

import pandas as pd
import pytest

from ibcl.cli.predicting_pieces import pieces
from ibcl.cli.predictions import users_at_once
from ibcl.tabular import Schema

FRAME = pd.DataFrame({"a": [0.0, 1.0], "y": ["no", "yes"]})
SCHEMA = Schema.fit(FRAME[["a"]], FRAME["y"])


@pytest.mark.parametrize("workers", [1, 4, 1000])
@pytest.mark.parametrize("users", [1, 7, 5_000])
def test_pieces_cover_everything_once(users: int, workers: int) -> None:
    lengths, numbers = [20, 20, 3], 400
    found = pieces(SCHEMA, lengths, users, numbers, workers)
    assert [piece["number"] for piece in found] == [*range(len(found))]
    covered = [
        (row, user)
        for piece in found
        for user in range(piece["begin"], piece["end"])
        for row in range(piece["first"], piece["first"] + lengths[piece["block"]])
    ]
    assert len(covered) == len(set(covered)) == 43 * users
    assert min(covered) == (1, 0)
    assert max(covered) == (43, users - 1)
    for piece in found:
        assert piece["begin"] % users_at_once(SCHEMA, lengths[piece["block"]], numbers) == 0


def test_there_is_work_for_all_and_not_too_many_pieces() -> None:
    blocks = 10_000
    for workers in (2, 100):
        found = pieces(SCHEMA, [1_000], blocks, 2_000, workers)
        assert 8 * workers <= len(found) < blocks
    assert len(pieces(SCHEMA, [1_000], blocks, 2_000, workers=blocks)) == blocks
