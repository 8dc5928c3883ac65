"""Models cut in two: the part above, given what the part below returned, is the whole model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("transformers")

from worlds import base, texts

import ibcl
from ibcl.experiments.adapters.bases.efficientnet import EFFICIENTNET, EfficientNetUpper
from ibcl.experiments.adapters.bases.efficientnet import below as image_below
from ibcl.experiments.adapters.bases.minilm import MiniLMUpper, below
from ibcl.experiments.adapters.merges import MERGES, as_adapter, change_of
from ibcl.experiments.benchmarks.backbones import backbone
from ibcl.experts import ExpertPart

WIDTH = 16


def test_the_last_layer_of_a_language_model_goes_on_from_the_others():
    batch, model = texts(0, 9), base()
    ids, mask = batch["input_ids"], batch["attention_mask"]
    upper = MiniLMUpper(model.encoder.layer[-1], WIDTH, ids.shape[1])
    rows = below(model, ids, mask)
    assert rows.shape == (9, upper.columns)
    with torch.no_grad():
        states = model(ids, attention_mask=mask, output_hidden_states=True).hidden_states
        found = upper(rows)
    counts = mask.sum(1, keepdim=True)
    means = [(state * mask[:, :, None]).sum(1) / counts for state in states]
    assert torch.allclose(found, means[-1], atol=1e-5)
    assert torch.equal(upper.positions(rows), mask[:, :6].bool())
    # The depths below are there to be read.
    network = ibcl.networks.with_backbone(upper, layers=["depth4", "depth5"], example=rows)
    expected = torch.cat([torch.nn.functional.normalize(each, dim=1) for each in means[:2]], 1)
    assert torch.allclose(network[0](rows), expected, atol=1e-5)


@pytest.fixture(scope="module")
def network():
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="weights are not needed")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return package.EfficientNet.from_name("efficientnet-lite0").eval()


def test_the_last_blocks_of_a_convolutional_network_go_on_from_the_others(network):
    images = torch.randn(4, 3, 96, 96, generator=torch.Generator().manual_seed(0))
    upper = EfficientNetUpper(network).eval()
    rows = image_below(network, images)
    assert rows.shape == (4, upper.columns)
    with torch.no_grad():
        expected = network.extract_features(images).mean((2, 3))
        assert torch.allclose(upper(rows), expected, atol=1e-4)


def test_what_the_part_below_returns_is_not_kept_as_the_features_of_the_whole():
    """Kept features are told by settings, and both are asked for the same images."""
    pytest.importorskip("efficientnet_lite_pytorch", reason="a backbone's settings name weights")
    whole = backbone("efficientnet-lite0")
    assert EFFICIENTNET.backbone().settings != whole.settings


def test_adapters_of_convolutions_are_merged_like_any_others(network):
    """A change as dense matrices, made an adapter again, answers the same."""
    upper = EfficientNetUpper(network).eval()
    x = np.random.default_rng(0).normal(size=(24, upper.columns)).astype(np.float32)
    expert = ibcl.adapters.LoRA(2, EFFICIENTNET.targets, epochs=1)
    heads = ibcl.networks.with_backbone(upper, layers=EFFICIENTNET.layers, example=x)
    learner = ibcl.IBCL(heads, expert=expert)
    learner.learn(x, x[:, 0] > 0, task="one")
    part = learner.knowledge.parts[0]["expert"]
    assert isinstance(part, ExpertPart)
    adapter, features = part.fitted, learner.state.features(x)
    again = as_adapter(change_of(adapter), adapter)
    expected = adapter.on(learner.network).answers(features)
    assert torch.allclose(again.on(learner.network).answers(features), expected, atol=1e-4)
    for title in ("Fisher", "RegMean"):
        known = MERGES[title].learning(adapter, learner.network, features)
        assert {*known} == {*change_of(adapter).layers, "head"}
        for name, layer in change_of(adapter).layers.items():
            assert bool(torch.isfinite(known[name]).all())
            assert known[name].shape[-1] == layer.shape[1]
