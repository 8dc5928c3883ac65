import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from s3_buckets import start_server

settings.register_profile("ibcl", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("ibcl")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: some tests wait for other processes most of their time."""
    return None if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ else (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first, so that nobody waits for one in the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Test processes run side by side: each keeps to one core."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """What tests write need not outlive a power cut, so nobody waits for the disk to say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Address of a real S3 server; skips where none is installed."""
    server, url = start_server()
    yield url
    server.kill()
    server.wait()
