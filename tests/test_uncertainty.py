import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve

from ibcl import expected_calibration_error
from ibcl.uncertainty import decompose, entropy


def test_a_calibrated_forecast_has_a_small_error_and_a_sure_one_a_large():
    generator = np.random.default_rng(0)
    p = generator.random(20_000)
    y = (generator.random(20_000) < p).astype(int)
    assert expected_calibration_error(p, y) < 0.02
    assert expected_calibration_error((p > 0.5).astype(float), y) > 0.2


def test_weights_count_as_repetitions():
    generator = np.random.default_rng(0)
    p, y = generator.random(50), generator.integers(0, 2, 50)
    times = generator.integers(1, 4, 50)
    repeated = expected_calibration_error(np.repeat(p, times), np.repeat(y, times))
    assert expected_calibration_error(p, y, weights=times) == pytest.approx(repeated)
    assert expected_calibration_error(p, y, weights=np.ones(50)) == expected_calibration_error(p, y)


@pytest.mark.parametrize("w", [0.5, 0.25, 1.0])
def test_bayes_rule_is_calibrated_on_its_preference_s_inputs_and_not_on_single_tasks(w):
    """Two tasks ask of the same input: 9 in 10 are of class 1 in one, 3 in 10 in the other."""
    one, other = np.repeat([1, 0], [9, 1]), np.repeat([1, 0], [3, 7])
    answer = np.full(20, w * 0.9 + (1 - w) * 0.3)
    together = np.concatenate([one, other])
    shares = np.repeat([w, 1 - w], 10)
    assert expected_calibration_error(answer, together, weights=shares) < 1e-12
    assert expected_calibration_error(answer[:10], one) == pytest.approx((1 - w) * 0.6)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [1.0, np.nan]])
def test_weights_that_are_none_are_refused(weights):
    with pytest.raises(ValueError, match="one number of at least 0 per row"):
        expected_calibration_error([0.2, 0.9], [0, 1], weights=weights)


@given(st.integers(0, 1000))
def test_the_error_matches_scikit_learns_calibration_curve(seed):
    generator = np.random.default_rng(seed)
    p = generator.random(300)
    y = generator.integers(0, 2, 300)
    confidence = np.maximum(p, 1 - p)
    correct = ((p > 0.5) == y).astype(int)
    share, mean = calibration_curve(correct, confidence, n_bins=10)
    sizes = np.histogram(confidence, np.linspace(0, 1, 11))[0]
    expected = (sizes[sizes > 0] / 300 * abs(share - mean)).sum()
    assert expected_calibration_error(p, y, bins=10) == pytest.approx(expected)


def test_models_that_agree_have_no_epistemic_uncertainty():
    p = torch.tensor([[0.3, 0.7]]).expand(5, 1, 2)
    parts = decompose(p)
    assert float(parts.epistemic) == pytest.approx(0, abs=1e-7)
    opposed = torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]])
    assert float(decompose(opposed).epistemic) == pytest.approx(
        float(entropy(p.new_full((2,), 0.5)))
    )


@pytest.mark.parametrize(
    ("p", "y"), [([0.5], [0, 1]), ([1.5], [0]), ([float("nan")], [0]), ([], [])]
)
def test_what_is_no_forecast_is_refused(p, y):
    with pytest.raises(ValueError, match="robabilities"):
        expected_calibration_error(p, y)


def test_bins_of_confidence_are_equally_wide_and_hold_their_upper_edge():
    """With two bins: up to a half, and above it; gaps of different bins do not cancel."""
    unsure, sure = [0.4, 0.3, 0.3], [0.05, 0.05, 0.9]
    assert expected_calibration_error([unsure, sure], [0, 0], bins=2) == pytest.approx(0.75)
    assert expected_calibration_error([unsure, sure], [0, 0], bins=1) == pytest.approx(0.15)
    half = [0.5, 0.25, 0.25]
    assert expected_calibration_error([half, unsure], [1, 0], bins=2) == pytest.approx(0.05)
    assert expected_calibration_error([half, sure], [1, 0], bins=2) == pytest.approx(0.7)
