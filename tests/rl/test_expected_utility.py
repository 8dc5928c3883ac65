"""Expected utility against its definition, and what every utility must satisfy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibcl.rl.expected_utility import even_preferences, expected_utility

values = st.floats(-1e4, 1e4)
fronts = st.lists(st.tuples(values, values), min_size=1, max_size=6)


@given(fronts)
def test_it_is_the_mean_over_users_of_their_best_policy(front):
    total = 0.0
    for user in range(200):
        first = user / 199
        total += max(first * a + (1 - first) * b for a, b in front)
    assert expected_utility(front) == pytest.approx(total / 200, rel=1e-9, abs=1e-6)


@given(fronts, values, values)
def test_a_further_policy_never_harms_and_a_shift_shifts(front, a, b):
    before = expected_utility(front)
    assert expected_utility([*front, (a, b)]) >= before - 1e-9
    moved = np.add(front, (a, b))
    assert expected_utility(moved) == pytest.approx(before + (a + b) / 2, abs=1e-6)


def test_a_circle_has_the_utility_of_its_radius():
    angle = np.linspace(0, np.pi / 2, 2001)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    weights = even_preferences(200)
    # The best point of a circle for w is along w, and earns the length of w.
    expected = np.linalg.norm(weights, axis=1).mean()
    assert expected_utility(circle) == pytest.approx(expected, abs=1e-6)


def test_three_objectives_and_bad_shapes():
    assert expected_utility(np.eye(3)) == pytest.approx(even_preferences(200, 3).max(1).mean())
    for nothing in ([], [1.0, 2.0], np.empty((0, 2))):
        with pytest.raises(ValueError, match="at least one policy"):
            expected_utility(nothing)
