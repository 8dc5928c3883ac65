"""Feature maps: fitted on the first task alone, of the length that is wanted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.experiments import benchmarks
from ibcl.experiments.evaluation.contenders import contender
from ibcl.experiments.evaluation.feature_maps import MAPS, FeatureMap
from ibcl.experiments.evaluation.protocol import Protocol, run


@pytest.mark.parametrize("kind", MAPS)
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), length=st.floats(0.1, 100))
def test_the_first_tasks_rows_have_the_wanted_length(kind, seed, length):
    rows = np.random.default_rng(seed).normal(3, 2, size=(20, 4)).astype(np.float32)
    mapped = FeatureMap.fit(rows, kind, length)(rows)
    assert np.linalg.norm(mapped, axis=1).mean() == pytest.approx(length, rel=1e-4)
    assert mapped.dtype == np.float32


def test_a_row_is_mapped_whoever_stands_beside_it():
    rng = np.random.default_rng(0)
    first, later = rng.normal(size=(2, 30, 5)).astype(np.float32)
    for kind in MAPS:
        fitted = FeatureMap.fit(first, kind, 1.0)
        np.testing.assert_allclose(fitted(later)[3:5], fitted(later[3:5]), rtol=1e-5)


def test_directions_do_not_depend_on_lengths_and_polar_keeps_them():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(30, 5)).astype(np.float32)
    unit, polar = (FeatureMap.fit(rows, kind, 1.0) for kind in ("unit", "polar"))
    longer = unit.mean + 7 * (rows - unit.mean)
    np.testing.assert_allclose(unit(longer), unit(rows), atol=1e-5)
    grown = (polar(longer) - polar(rows))[:, -1]
    np.testing.assert_allclose(grown, polar.scale * np.log(7) / np.sqrt(5), rtol=1e-4)


def test_a_row_at_the_mean_is_no_accident():
    rows = np.zeros((4, 3), np.float32)
    for kind in MAPS:
        assert np.isfinite(FeatureMap.fit(rows, kind, 1.0)(rows)).all()


@pytest.mark.parametrize("kind", MAPS)
def test_contenders_run_with_every_map(kind):
    chosen = contender("streaming_lda").changed(feature_map=kind)
    digits = benchmarks.load("digits")
    table = run(chosen, digits, protocol=Protocol(samples=0, tasks=2, evaluate_after="last"))
    assert table["accuracy"].mean() > 0.8


def test_unknown_maps_are_refused():
    with pytest.raises(ValueError, match="raw or unit or polar, not 'log'"):
        FeatureMap.fit(np.zeros((2, 2), np.float32), "log", 1.0)
