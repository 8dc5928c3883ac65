import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import settings
from s3_buckets import start_server

settings.register_profile("ibcl", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("ibcl")


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
