"""The Student interval of a mean over seeds."""

import math

import numpy as np
import pytest

from ibcl.intervals import interval


def test_an_interval_covers_its_mean_at_the_stated_rate():
    rng = np.random.default_rng(0)
    found = [interval(sample) for sample in rng.normal(5.0, 2.0, (4000, 9))]
    covered = [abs(each.mean - 5) <= each.half_width for each in found]
    assert np.mean(covered) == pytest.approx(0.95, abs=0.015)


def test_one_value_has_no_width_and_none_is_refused():
    alone = interval([3.0])
    assert (alone.mean, alone.n) == (3.0, 1)
    assert math.isnan(alone.half_width)
    assert alone.times(1) == "3.000"
    with pytest.raises(ValueError, match="at least one value"):
        interval([])
