"""Memory is asked for before it is taken."""

import os

import pytest

from ibcl.inference.memory import available_memory, check_memory
from ibcl.inference.sites import needed_bytes


def test_there_is_memory_and_no_more_than_the_machine_has():
    available = available_memory()
    assert available is not None
    assert 2**24 < available <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def test_what_fits_is_let_through_and_what_does_not_is_refused():
    available = available_memory()
    check_memory(available // 4, "This", "nothing")
    with pytest.raises(ValueError, match=r"This needs about .* GiB .*; use less\."):
        check_memory(4 * available, "This", "use less")


def test_the_estimate_grows_with_what_is_computed():
    """Seven D×D matrices, four of the features and the sites of Anderson's history, in doubles."""
    assert needed_bytes(0, 10, 3) == 8 * 7 * 30**2
    per_sample = needed_bytes(1, 10, 3) - needed_bytes(0, 10, 3)
    assert per_sample == 8 * (4 * 10 + 28 * 3 * 4)
    assert needed_bytes(5, 10, 3) == needed_bytes(0, 10, 3) + 5 * per_sample
