"""MAPIE as an oracle: with one task, both make the same sets."""

from __future__ import annotations

import numpy as np
import pytest

from ibcl.conformal import (
    inside,
    label_scores,
    mixture_threshold,
    prediction_set,
    residual_intervals,
    residual_scores,
)

pytest.importorskip("mapie", reason="split conformal sets are compared with MAPIE's")


@pytest.mark.parametrize("n", [50, 199, 400])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
def test_sets_of_probabilities_are_mapie_s(n: int, level: float) -> None:
    from mapie.classification import SplitConformalClassifier
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(n)
    x = rng.normal(size=(1000 + n, 3))
    y = (x + rng.normal(size=x.shape)).argmax(1)
    expert = LogisticRegression().fit(x[:500], y[:500])
    oracle = SplitConformalClassifier(
        expert, confidence_level=level, conformity_score="lac", prefit=True
    )
    oracle.conformalize(x[1000:], y[1000:])
    expected = oracle.predict_set(x[500:1000])[1][:, :, 0]
    calibration = label_scores(expert.predict_proba(x[1000:]), y[1000:])
    tau = mixture_threshold(calibration, np.zeros(n, int), [1.0], 1 - level)
    assert (prediction_set(expert.predict_proba(x[500:1000]), tau) == expected).all()


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_intervals_of_residuals_are_mapie_s(level: float) -> None:
    from mapie.regression import SplitConformalRegressor
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 2))
    y = x[:, 0] + rng.standard_t(3, size=400)
    expert = LinearRegression().fit(x[:100], y[:100])
    oracle = SplitConformalRegressor(expert, confidence_level=level, prefit=True)
    oracle.conformalize(x[100:250], y[100:250])
    expected = oracle.predict_interval(x[250:])[1][:, :, 0]
    scores = residual_scores(y[100:250], expert.predict(x[100:250]), 1.0)
    tau = mixture_threshold(scores, np.zeros(150, int), [1.0], 1 - level)
    intervals = residual_intervals(expert.predict(x[250:]), np.ones(150), tau)
    np.testing.assert_allclose(intervals[:, 0], expected, atol=1e-5)
    assert (
        inside(intervals, y[250:]) == ((expected[:, 0] <= y[250:]) & (y[250:] <= expected[:, 1]))
    ).all()
