"""Training data with equal classes: sizes kept, no row invented, small classes used in full."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ibcl.experiments.benchmarks.balance import equal_classes


@given(st.lists(st.integers(1, 30), min_size=2, max_size=4), st.integers(0, 1000))
def test_classes_are_equal_and_small_ones_complete(sizes, seed):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    chosen = equal_classes(labels, seed)
    assert len(chosen) == len(labels)
    counts = np.bincount(labels[chosen], minlength=len(sizes))
    assert counts.max() - counts.min() <= 1
    uses = np.bincount(chosen, minlength=len(labels))
    for label, count in enumerate(counts):
        own = uses[labels == label]
        assert own.sum() == count
        # No row is used twice while another of its class is left out.
        assert own.max() - own.min() <= 1


def test_the_seed_decides():
    labels = np.repeat([0, 1], [50, 5])
    assert np.array_equal(equal_classes(labels, 3), equal_classes(labels, 3))
    assert not np.array_equal(equal_classes(labels, 3), equal_classes(labels, 4))
