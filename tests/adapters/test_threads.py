"""A backbone read at inner layers from many threads at once: nobody reads another's pass."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import ibcl

pytest.importorskip("peft")
pytest.importorskip("transformers")

from worlds import base, task, taught

LAYERS = ["encoder.layer.0", "encoder.layer.1"]
UPPER = r"encoder\.layer\.1\..*(query|value|dense)"


@pytest.fixture(autouse=True)
def _threads_that_change_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


def assert_the_same_from_threads(function, batches):
    alone = [function(batch) for batch in batches]
    with ThreadPoolExecutor(8) as threads:
        together = list(threads.map(function, batches * 20))
    for expected, found in zip(alone * 20, together, strict=True):
        assert torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_layers_are_read_from_ones_own_pass():
    frozen = ibcl.networks.with_backbone(base(), layers=LAYERS)[0]
    batches = [torch.as_tensor(task(seed % 2, 16 + seed, seed)[0]).float() for seed in range(8)]
    assert_the_same_from_threads(frozen, batches)


def test_adapters_go_on_from_ones_own_state():
    network = ibcl.networks.with_backbone(base(), layers=LAYERS)
    model = taught(network, expert=ibcl.adapters.LoRA(2, UPPER, epochs=1)).model([0.4, 0.6])
    assert_the_same_from_threads(
        model.predict_proba, [task(seed % 2, 16, seed)[0] for seed in range(8)]
    )
