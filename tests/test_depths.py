"""Depths left open: chosen on held-out rows of the first task, said, stored, and kept."""

import numpy as np
import pytest
import torch
from torch import nn

import ibcl
from ibcl.depths import blocks, candidates
from ibcl.networks import FlatNetwork, with_backbone


class Deep(nn.Module):
    """Blocks of which the second keeps what the last one throws away: all but the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)])
        with torch.no_grad():
            for number, layer in enumerate(self.blocks):
                generator = torch.Generator().manual_seed(number)
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
                layer.bias.zero_()
            self.blocks[2].weight.fill_(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.blocks:
            x = torch.tanh(layer(x))
        return x


def task(rows: int = 300, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, 4, generator=torch.Generator().manual_seed(seed))
    return x, (x[:, 0] > 0).long()


def open_network() -> nn.Module:
    return with_backbone(Deep(), layers="auto", example=task()[0])


def test_the_depth_that_knows_the_answer_is_chosen_and_said():
    learner = ibcl.IBCL(open_network())
    learner.learn(*task(), task="first")
    backbone = learner.network.backbone
    assert backbone is not None
    assert "blocks.1" in backbone.layers or "blocks.0" in backbone.layers
    assert learner.choices["layers"].startswith(" + ".join(backbone.layers))
    x, y = task(seed=1)
    alone = ibcl.IBCL(with_backbone(Deep(), example=x))
    alone.learn(*task(), task="first")
    scores = [float((it.model("first").predict(x) == y).float().mean()) for it in (learner, alone)]
    assert scores[0] > scores[1] + 0.1


def test_named_layers_learn_the_same_as_chosen_ones(tmp_path):
    learner = ibcl.IBCL(open_network())
    learner.learn(*task(), task="first")
    learner.learn(*task(seed=2), task="second")
    layers = learner.network.backbone.layers
    x = task(seed=3)[0]
    named = ibcl.IBCL(with_backbone(Deep(), layers=layers, example=x))
    named.learn(*task(), task="first")
    named.learn(*task(seed=2), task="second")
    expected = learner.model([0.5, 0.5]).predict_proba(x)
    assert torch.equal(named.model([0.5, 0.5]).predict_proba(x), expected)
    learner.save(tmp_path / "base")
    for network in (open_network(), with_backbone(Deep(), layers=layers, example=x)):
        again = ibcl.load(tmp_path / "base", network=network)
        assert torch.equal(again.model([0.5, 0.5]).predict_proba(x), expected)
    # Layers of the same width mean something else.
    other = [name for name in ("blocks.0", "blocks.1", "blocks.2") if name not in layers]
    if len(layers) == 1:
        with pytest.raises(ibcl.StoreError, match="not learnt with the network given"):
            ibcl.load(tmp_path / "base", network=with_backbone(Deep(), layers=other[:1], example=x))


@pytest.mark.parametrize("rows", [(10, 2), (60, 1)])
def test_with_nothing_to_choose_by_the_output_is_read(rows):
    count, classes = rows
    x, y = task(count)
    learner = ibcl.IBCL(open_network())
    learner.learn(x, y % classes, task="first")
    assert learner.network.backbone.layers == ()
    assert "since the first task has" in learner.choices["layers"]


def test_values_choose_too_and_nothing_is_chosen_twice():
    x, _ = task()
    learner = ibcl.IBCL(open_network())
    learner.learn(x, x[:, 0] * 2.5, task="first")
    chosen = learner.network.backbone.layers
    learner.learn(x, x[:, 1] * 1.5, task="second")
    assert learner.network.backbone.layers == chosen
    assert chosen


def test_transformers_have_their_layers_as_blocks():
    transformers = pytest.importorskip("transformers")
    sizes = {
        "vocab_size": 30,
        "max_position_embeddings": 16,
        "pad_token_id": 0,
        "hidden_size": 16,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    bert = transformers.BertModel(transformers.BertConfig(**sizes))
    llama = transformers.LlamaModel(transformers.LlamaConfig(num_key_value_heads=2, **sizes))
    assert blocks(bert)[-1] == "encoder.layer.3"
    assert blocks(llama)[-1] == "layers.3"
    assert ("layers.2", "layers.3") in candidates(llama)
    ids = np.random.default_rng(0).integers(1, 30, (120, 5))
    for model in (bert, llama):
        learner = ibcl.IBCL(with_backbone(model, layers="auto"))
        learner.learn(ids, ids[:, 0] > 15, task="first")
        assert learner.model("first").predict(ids).shape == (120,)
        assert "held-out losses" in learner.choices["layers"]


def test_a_module_like_those_of_timm_is_read_at_its_blocks():
    class Image(nn.Module):
        """Stem, blocks, norm and head by the names that timm gives them."""

        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 4, 4, stride=4)
            self.blocks = nn.Sequential(*(nn.Conv2d(4, 4, 1) for _ in range(4)))
            self.head = nn.Linear(4, 10)

        def forward_features(self, x: torch.Tensor) -> torch.Tensor:
            return self.blocks(self.stem(x))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.forward_features(x).mean((2, 3)))

    images = torch.randn(60, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert blocks(Image()) == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    network = with_backbone(Image(), layers="auto", example=images)
    assert FlatNetwork(network).features(images).shape == (60, 10)
    learner = ibcl.IBCL(network)
    learner.learn(images, images.mean((1, 2, 3)) > 0, task="first")
    assert learner.model("first").predict(images).shape == (60,)
