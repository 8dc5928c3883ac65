"""Hypervolumes and fronts against counting and direct comparison."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("moocore")

from ibcl.rl.hypervolume import front, hypervolume

points = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=8)


@given(points)
def test_hypervolume_counts_the_dominated_unit_squares(corners):
    squares = {(x, y) for a, b in corners for x in range(a) for y in range(b)}
    assert hypervolume(np.array(corners, dtype=float)) == len(squares)


@given(points)
def test_the_front_is_what_nobody_dominates(corners):
    returns = np.array(corners, dtype=float)
    kept = set(map(tuple, returns[front(returns)].tolist()))
    expected = {
        tuple(map(float, p))
        for p in corners
        if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in corners)
    }
    assert kept == expected


def test_points_below_the_reference_count_nothing():
    assert hypervolume([[-1.0, 5.0]]) == 0
    assert hypervolume([[-1.0, 5.0]], reference=[-2.0, 0.0]) == 5


def test_bad_shapes_are_named():
    with pytest.raises(ValueError, match=r"not \(3,\)"):
        hypervolume([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="reference point has 3 values"):
        hypervolume([[1.0, 2.0]], reference=[0, 0, 0])
