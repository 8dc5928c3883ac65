from __future__ import annotations

import pytest

from ibcl.demo.experiment import Results, run
from ibcl.demo.tasks import DigitTasks, digit_tasks


@pytest.fixture(scope="session")
def digits() -> DigitTasks:
    """Return two of the five tasks, to be quick."""
    complete = digit_tasks(seed=0)
    return DigitTasks(complete.tasks[:2], complete.scaling)


@pytest.fixture(scope="session")
def results(digits: DigitTasks) -> Results:
    return run(digits, seed=0)
