"""The projection keeps geometry without looking at data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibcl.experiments.benchmarks.projection import orthogonal_projection


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 1000))
def test_columns_are_orthogonal_and_equally_long(outputs: int, extra: int, seed: int) -> None:
    inputs = outputs + extra
    q = orthogonal_projection(inputs, outputs, seed)
    np.testing.assert_allclose(q.T @ q, inputs / outputs * np.eye(outputs), atol=1e-4)


def test_lengths_are_kept_on_average() -> None:
    x = np.random.default_rng(1).standard_normal((500, 1280))
    ratio = np.linalg.norm(x @ orthogonal_projection(1280, 512), axis=1) / np.linalg.norm(x, axis=1)
    assert abs(ratio.mean() - 1) < 0.01


def test_seed_decides() -> None:
    np.testing.assert_array_equal(orthogonal_projection(9, 4, 2), orthogonal_projection(9, 4, 2))
    assert not np.allclose(orthogonal_projection(9, 4, 2), orthogonal_projection(9, 4, 3))


@pytest.mark.parametrize("outputs", [0, 5])
def test_impossible_width(outputs: int) -> None:
    with pytest.raises(ValueError, match=f"cannot project 4 features to {outputs}"):
        orthogonal_projection(4, outputs)
