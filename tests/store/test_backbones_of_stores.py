"""A backbone is not stored: its weights are told by their hash, and given again at load."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ibcl
from ibcl.bases import base_model
from ibcl.networks import FlatNetwork

transformers = pytest.importorskip("transformers")

WORDS = 30


def bert(seed: int = 0) -> nn.Module:
    config = transformers.BertConfig(
        vocab_size=WORDS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.BertModel(config).eval()


def inputs(seed: int = 0) -> np.ndarray:
    ids = np.random.default_rng(seed).integers(1, WORDS, (40, 6))
    return ibcl.networks.token_ids({"input_ids": ids})


def learner_of(network: nn.Module, **settings: object) -> ibcl.IBCL:
    learner = ibcl.IBCL(network, **settings)
    for number, name in enumerate(("one", "two")):
        x = inputs(number)
        learner.learn(x, x[:, 0, number] > WORDS // 2, task=name)
    return learner


def heads(**settings: object) -> nn.Module:
    return ibcl.networks.with_backbone(bert(), **settings)


SETTINGS = {"output": {}, "first token": {"layers": ["encoder.layer.0"], "pool": "first"}}


@pytest.fixture(params=SETTINGS)
def learner(request) -> ibcl.IBCL:
    return learner_of(heads(**SETTINGS[request.param]))


def chances(learner: ibcl.IBCL) -> np.ndarray:
    return learner.model([0.3, 0.7]).predict_proba(inputs(5))


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*.safetensors"))


def test_its_weights_are_not_written_and_the_base_alone_is_enough(learner, tmp_path):
    learner.save(tmp_path / "base")
    assert not [*(tmp_path / "base").glob("network/*")]
    again = ibcl.load(tmp_path / "base", network=bert())
    assert np.array_equal(chances(again), chances(learner))
    x = inputs(9)
    for each in (learner, again):
        each.learn(x, x[:, 0, 2] > WORDS // 2, task="three")
    three = [it.model("three").predict_proba(inputs(5)) for it in (learner, again)]
    assert np.array_equal(*three)


def test_another_base_of_the_same_shapes_is_refused(learner, tmp_path):
    learner.save(tmp_path / "base")
    model = learner.model([0.5, 0.5])
    model.save(tmp_path / "model.safetensors")
    assert (tmp_path / "model.safetensors").stat().st_size < size(tmp_path / "base") + 2**16
    again = ibcl.load_model(tmp_path / "model.safetensors", network=bert())
    assert np.array_equal(again.predict_proba(inputs(5)), model.predict_proba(inputs(5)))
    sentence = r"^[^.]*(\.ibcl|base|model\.safetensors) was learnt on a base model with other "
    with pytest.raises(ibcl.StoreError, match=sentence + r"weights than the network given; .*\.$"):
        ibcl.load(tmp_path / "base", network=bert(seed=1))
    with pytest.raises(ibcl.StoreError, match=sentence):
        ibcl.load(tmp_path / "base", network=ibcl.networks.with_backbone(bert(seed=1)))
    with pytest.raises(ibcl.StoreError, match=sentence):
        ibcl.load_model(tmp_path / "model.safetensors", network=bert(seed=1))
    with pytest.raises(ibcl.StoreError, match=r"^[^\n]*\.$"):
        ibcl.load(tmp_path / "base", network=nn.Linear(3, 4))


def test_an_adapters_base_is_not_written_either(tmp_path):
    pytest.importorskip("peft")
    learner = learner_of(heads(layers=["encoder.layer.1"]), expert=ibcl.adapters.LoRA(2, epochs=1))
    learner.save(tmp_path / "base")
    assert not [*(tmp_path / "base").glob("network/*")]
    again = ibcl.load(tmp_path / "base", network=bert())
    assert np.array_equal(chances(again), chances(learner))
    with pytest.raises(ibcl.StoreError, match="other weights than the network given"):
        ibcl.load(tmp_path / "base", network=bert(seed=1))


def test_layers_that_the_first_task_chose_come_back_with_the_base(tmp_path):
    learner = learner_of(heads(layers="auto"))
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=bert())
    assert again.network.backbone.layers == learner.network.backbone.layers
    assert np.array_equal(chances(again), chances(learner))


def test_images_come_back_in_their_shape(tmp_path):
    pytest.importorskip("peft")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stack = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 6, 3))
    x = torch.randn(40, 1, 6, 6, generator=torch.Generator().manual_seed(0))
    network = ibcl.networks.with_backbone(stack, example=x)
    learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA(2, epochs=1))
    learner.learn(x, x.mean((1, 2, 3)) > 0, task="bright")
    learner.learn(-x, x[:, 0, 0, 0] > 0, task="corner")
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=stack)
    expected = learner.model([0.5, 0.5]).predict_proba(x)
    assert torch.equal(again.model([0.5, 0.5]).predict_proba(x), expected)


@pytest.mark.slow
def test_a_base_is_found_by_where_it_is(learner, tmp_path):
    learner.save(tmp_path / "kb")
    bert().save_pretrained(tmp_path / "bert")
    again = ibcl.load(tmp_path / "kb", network=tmp_path / "bert")
    assert np.array_equal(chances(again), chances(learner))
    (tmp_path / "mynetworks.py").write_text(
        "import transformers\n\n\ndef bert():\n"
        f"    return transformers.AutoModel.from_pretrained({str(tmp_path / 'bert')!r})\n"
    )
    code = "import ibcl, sys; print(ibcl.load('kb', network='mynetworks:bert').tasks)"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "('one', 'two')"


def test_what_makes_no_network_is_refused_in_a_sentence(tmp_path):
    for source, sentence in (
        ("os:getcwd", r"^os:getcwd makes no torch\.nn\.Module but str\.$"),
        ("no_such_module:net", r"^The network no_such_module:net cannot be imported: .*\.$"),
        ("torch:no_such_net", r"^The network torch:no_such_net cannot be imported: .*\.$"),
        ("a b", r"^There is no network 'a b': .*\.$"),
        (tmp_path, r" holds no network that transformers can read: .*\.$"),
    ):
        with pytest.raises(ValueError, match=sentence):
            base_model(source)


def test_an_older_folder_with_the_weights_in_it_opens_and_compares(tmp_path, monkeypatch):
    """Backbones were once written like any module's buffers, and laid over what was given."""
    learner = learner_of(heads())
    monkeypatch.setattr(FlatNetwork, "backbone", None)
    learner.save(tmp_path / "base")
    monkeypatch.undo()
    assert [*(tmp_path / "base").glob("network/*")]
    again = ibcl.load(tmp_path / "base", network=heads())
    assert np.array_equal(chances(again), chances(learner))
    with pytest.raises(ibcl.StoreError, match="was not learnt with the network given"):
        ibcl.load(tmp_path / "base", network=ibcl.networks.with_backbone(bert(seed=1)))
