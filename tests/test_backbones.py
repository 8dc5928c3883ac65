"""Frozen backbones: inner depths, token ids with their masks, and scales that no task sets."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ibcl
from ibcl.networks import FlatNetwork, token_ids, with_backbone
from ibcl.tasks import as_inputs

LAYERS = ["encoder.layer.0", "encoder.layer.1"]


@pytest.fixture(scope="module")
def text_model() -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=32,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.BertModel(config).eval()


def texts(rows: int, length: int, padded: int, seed: int) -> dict[str, torch.Tensor]:
    """Token ids of a length, and the same with some padding behind them."""
    ids = torch.randint(1, 50, (rows, length), generator=torch.Generator().manual_seed(seed))
    ids = torch.cat([ids, torch.zeros(rows, padded, dtype=torch.long)], 1)
    mask = torch.ones_like(ids)
    mask[:, length:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 8), st.integers(0, 6), st.integers(0, 1000))
def test_padding_changes_nothing(text_model, length, padded, seed):
    for layers in ([], LAYERS):
        network = FlatNetwork(with_backbone(text_model, layers=layers))
        short, long = (
            network.features(as_inputs(token_ids(texts(3, length, many, seed))))
            for many in (0, padded)
        )
        assert torch.allclose(short, long, atol=1e-5)


def test_depths_are_the_masked_means_of_hidden_states_scaled_to_unit_norm(text_model):
    batch = texts(4, 5, 3, 0)
    with torch.no_grad():
        hidden = text_model(**batch, output_hidden_states=True).hidden_states
    expected = []
    for depth in hidden[1:]:
        mean = depth[:, :5].mean(1)
        expected.append(mean / mean.norm(dim=1, keepdim=True))
    network = FlatNetwork(with_backbone(text_model, layers=LAYERS))
    found = network.features(torch.as_tensor(token_ids(batch)).float())
    assert network.columns == 32
    assert torch.allclose(found, torch.cat(expected, 1), atol=1e-6)


def test_without_layers_the_mean_of_the_last_states_comes_before_the_pooler(text_model):
    batch = texts(2, 4, 0, 0)
    with torch.no_grad():
        output = text_model(**batch)
    found = FlatNetwork(with_backbone(text_model)).features(batch["input_ids"].float())
    assert torch.allclose(found, output.last_hidden_state.mean(1), atol=1e-6)
    assert not torch.allclose(found, output.pooler_output, atol=1e-2)


def test_ids_alone_know_their_padding(text_model):
    network = FlatNetwork(with_backbone(text_model, layers=LAYERS))
    batch = texts(3, 4, 2, 1)
    with_mask = network.features(torch.as_tensor(token_ids(batch)).float())
    assert torch.allclose(network.features(batch["input_ids"].float()), with_mask)


def test_tasks_of_texts_are_learnt_stored_and_answered_the_same(text_model, tmp_path):
    network = with_backbone(text_model, layers=LAYERS)
    learner = ibcl.IBCL(network)
    one, two = token_ids(texts(60, 6, 1, 2)), token_ids(texts(60, 6, 1, 3))
    learner.learn(one, one[:, 0, 0] > 25, task="first word")
    learner.learn(two, two[:, 0, 1] > 25, task="second word")
    proba = learner.model([0.5, 0.5]).predict_proba(one)
    assert learner.pooling == "routed"
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=network)
    assert np.array_equal(again.model([0.5, 0.5]).predict_proba(one), proba)


def test_depths_of_a_convolutional_network_are_means_over_the_image():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stack = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3), nn.Flatten())
    images = torch.randn(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    found = FlatNetwork(with_backbone(stack, layers=["0", "2"], example=images)).features(images)
    with torch.no_grad():
        first = stack[0](images)
        second = stack[2](torch.relu(first))
    for part, depth in zip(torch.split(found, [4, 6], 1), (first, second), strict=True):
        mean = depth.mean((2, 3))
        assert torch.allclose(part, mean / mean.norm(dim=1, keepdim=True), atol=1e-6)
    # The scale of inputs that come later is nobody's business.
    assert torch.allclose(found.norm(dim=1), torch.full((5,), 2**0.5))


def test_a_vision_transformer_says_what_it_takes():
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        image_size=8,
        patch_size=4,
    )
    network = FlatNetwork(with_backbone(transformers.ViTModel(config, add_pooling_layer=False)))
    assert network.features(torch.zeros(2, 3, 8, 8)).shape == (2, 8)


def test_what_cannot_be_read_is_refused_in_a_sentence(text_model):
    stack = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(ValueError, match=r"no layer 'deep'; it has 0\."):
        with_backbone(stack, layers=["deep"])
    with pytest.raises(ValueError, match="must be a list of names"):
        with_backbone(stack, layers="0")
    with pytest.raises(ValueError, match="pool must be one of masked-mean, first"):
        with_backbone(stack, pool="max")
    with pytest.raises(ValueError, match="give features=, or inputs to measure"):
        with_backbone(stack)
    network = FlatNetwork(with_backbone(text_model))
    with pytest.raises(ValueError, match="whole numbers"):
        network.features(torch.full((1, 4), 0.5))
    with pytest.raises(ValueError, match=r"\(n, 2, length\)"):
        network.features(torch.zeros(1, 3, 4))
    with pytest.raises(ValueError, match="cannot take inputs"):
        network.features(torch.full((1, 4), 50.0))


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({}, "must hold 'input_ids'"),
        ({"input_ids": [[1, 2], [3]]}, "padding=True"),
        ({"input_ids": [[1.5]]}, "whole numbers"),
        ({"input_ids": [[1]], "attention_mask": [[1, 1]]}, "do not fit"),
    ],
)
def test_tokens_that_are_none(tokens, said):
    with pytest.raises(ValueError, match=said):
        token_ids(tokens)


def test_no_texts_have_no_features(text_model):
    network = FlatNetwork(with_backbone(text_model))
    assert network.features(torch.zeros(0, 2, 4)).shape == (0, network.columns)


def test_a_model_of_transformers_needs_a_head_in_front_of_all_doors(text_model):
    """It returns no scores, and no tensor: learning would fail far from the cause."""
    with pytest.raises(ValueError, match="with_backbone"):
        ibcl.IBCL(text_model)


def test_what_a_tokenizer_returns_is_refused_with_the_remedy(text_model):
    transformers = pytest.importorskip("transformers")
    tokens = transformers.BatchEncoding({"input_ids": torch.ones(2, 4, dtype=torch.long)})
    learner = ibcl.IBCL(with_backbone(text_model))
    for returned in (tokens, dict(tokens)):
        with pytest.raises(ValueError, match=r"ibcl\.networks\.token_ids"):
            learner.learn(returned, [0, 1], task="texts")


def test_a_backbone_stays_in_evaluation_mode():
    noisy = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5))
    network = with_backbone(noisy, 2).train()
    x = torch.ones(4, 2)
    assert torch.equal(network[0](x), network[0](x))
