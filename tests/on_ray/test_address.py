"""Addresses of clusters; before this process is connected to one."""

from __future__ import annotations

import pytest
import ray
from pieces import square

from ibcl.engines.ray import RayEngine

pytestmark = pytest.mark.slow


def test_an_address_without_a_cluster_is_one_sentence() -> None:
    if ray.is_initialized():
        pytest.skip("this process is connected already")
    with pytest.raises(ValueError, match=r"no Ray cluster at '127\.0\.0\.1:1'"):
        list(RayEngine("127.0.0.1:1").run(square, [1]))
