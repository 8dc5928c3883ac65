"""One small Ray cluster of this machine for all tests of a session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

import pytest
from programs import SETTINGS

ray = pytest.importorskip("ray", reason="the extra ray is not installed")


@pytest.fixture(scope="session")
def cluster() -> Iterator[None]:
    os.environ |= SETTINGS
    # Workers find the tests' own modules as this process does.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ray.init(
        address="local",
        num_cpus=2,
        object_store_memory=150 * 2**20,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
    )
    yield
    ray.shutdown()
