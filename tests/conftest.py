import pytest
import torch
from hypothesis import settings

settings.register_profile("ibcl", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("ibcl")


@pytest.fixture(autouse=True, scope="session")
def _one_thread():
    """Test processes run side by side: each keeps to one core."""
    torch.set_num_threads(1)
