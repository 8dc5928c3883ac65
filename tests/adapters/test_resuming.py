"""Adapters of the upper layers go on from what the frozen lower ones gave, to the same answers."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import ibcl

pytest.importorskip("peft")
pytest.importorskip("transformers")

import peft
from safetensors.torch import load_file
from worlds import NAMES, base, task, taught, texts

from ibcl.conformal import Calibration

UPPER = r"encoder\.layer\.1\..*(query|value|dense)"
LAYERS = ["encoder.layer.0", "encoder.layer.1"]


def upper(**settings: object) -> ibcl.adapters.LoRA:
    return ibcl.adapters.LoRA(2, UPPER, epochs=2, learning_rate=1e-2, share=1.0, **settings)


@pytest.fixture(scope="module", params=[(), LAYERS], ids=["output", "depths"])
def learner(request) -> ibcl.IBCL:
    network = ibcl.networks.with_backbone(base(), layers=request.param)
    return taught(network, expert=upper(), calibration=0.2)


def of_peft(folder, tokens, layers) -> np.ndarray:
    """What peft's own model answers with the head beside it, every layer run."""
    model = peft.PeftModel.from_pretrained(copy.deepcopy(base()), str(folder)).eval()
    head = load_file(folder / "ibcl_head.safetensors")
    with torch.no_grad():
        hidden = model(**tokens, output_hidden_states=True).hidden_states[-len(layers or [0]) :]
        mask = tokens["attention_mask"][:, :, None]
        depths = [(each * mask).sum(1) / mask.sum(1) for each in hidden]
        if layers:
            depths = [each / each.norm(dim=1, keepdim=True) for each in depths]
        outputs = torch.cat(depths, 1) @ head["head.weight"].T + head["head.bias"]
    return torch.softmax(outputs, 1).numpy()


def test_at_a_vertex_the_answer_is_that_of_the_whole_model(learner, tmp_path):
    assert learner.network.backbone.state_of == "encoder.layer.0"
    learner.export_adapter(NAMES[0], tmp_path)
    tokens = texts(1, 20, seed=3, padded=4)
    expected = of_peft(tmp_path, tokens, learner.network.backbone.layers)
    answers = learner.model([1.0, 0.0]).predict_proba(ibcl.networks.token_ids(tokens))
    assert np.allclose(answers, expected, atol=1e-6)


def test_with_or_without_the_state_the_answer_is_the_same(learner):
    features = learner.state.features(task(0, 20, seed=6)[0])
    plain = learner.network.without_state(features)
    assert plain.shape[1] < features.shape[1]
    answering = learner.model([0.3, 0.7]).predictive
    assert torch.allclose(answering.means(features), answering.means(plain), atol=1e-6)


def test_lower_layers_run_once_whatever_the_number_of_adapters(learner, monkeypatch):
    """In learning and in answering: each row goes through the lower layer once."""
    import transformers

    layer = transformers.models.bert.modeling_bert.BertLayer
    rows = {0: 0, 1: 0}
    forward = layer.forward

    def counting(self, hidden, *given, **options):
        rows[self.attention.self.layer_idx or 0] += len(hidden)
        return forward(self, hidden, *given, **options)

    x = np.concatenate([task(number, 30, seed=5)[0] for number in (0, 1)])
    model = ibcl.IBCL.from_state(learner.state).model([0.5, 0.5])
    model.predict_proba(x[:1])
    monkeypatch.setattr(layer, "forward", counting)
    model.predict_proba(x)
    assert rows[0] == len(x)
    assert len(x) < rows[1] <= 3 * len(x)


def test_calibration_and_storing_keep_no_state(learner, tmp_path):
    learner.save(tmp_path / "kept")
    network = ibcl.networks.with_backbone(base(), layers=learner.network.backbone.layers)
    again = ibcl.load(tmp_path / "kept", network)
    assert again.network.backbone.state_of == "encoder.layer.0"
    x = task(1, 20, seed=7)[0]
    preference = [0.4, 0.6]
    one, two = (it.model(preference) for it in (learner, again))
    assert np.allclose(one.predict_proba(x), two.predict_proba(x), atol=1e-6)
    assert np.array_equal(one.predict_set(x, 0.9), two.predict_set(x, 0.9))
    kept = learner.knowledge.parts[0][Calibration.kind].kept()
    assert kept.shape[1] == learner.network.columns + task(0)[0].shape[2]


def test_an_adapter_of_lower_layers_is_run_as_a_whole(learner, tmp_path):
    layers = learner.network.backbone.layers
    other = taught(ibcl.networks.with_backbone(base(), layers=layers))
    assert other.network.backbone.state_of is None
    other.export_adapter(NAMES[0], tmp_path)
    router = ibcl.IBCL(ibcl.networks.with_backbone(base(), layers=layers), expert=upper())
    router.add_adapter("theirs", tmp_path, moments_from=task(0)[0])
    tokens = texts(0, 20, seed=8)
    answers = router.model([1.0]).predict_proba(ibcl.networks.token_ids(tokens))
    assert np.allclose(answers, of_peft(tmp_path, tokens, layers), atol=1e-6)


class Chain(nn.Module):
    """Blocks of convolutions; with shortcuts, the end reads what every block gave."""

    def __init__(self, shortcuts: bool) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.blocks = nn.ModuleList(nn.Conv2d(2, 2, 3, padding=1) for _ in range(3))
            self.last = nn.Linear(2 * 4 * 4, 5)
        self.shortcuts = shortcuts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x)
        for block in self.blocks:
            x = torch.tanh(block(x))
            total = total + x
        found: torch.Tensor = self.last((total if self.shortcuts else x).flatten(1))
        return found


@pytest.mark.parametrize("shortcuts", [False, True])
def test_images_too_but_not_where_later_layers_read_the_skipped_ones(shortcuts):
    x = torch.randn(60, 2, 4, 4, generator=torch.Generator().manual_seed(1))
    y = (x[:, 0].mean((1, 2)) > 0).long()
    chain = Chain(shortcuts).eval()
    network = ibcl.networks.with_backbone(chain, example=x)
    expert = ibcl.adapters.LoRA(2, ("blocks.2", "last"), epochs=2)
    learner = ibcl.IBCL(network, expert=expert)
    learner.learn(x, y, task="one")
    learner.learn(x + 3, y, task="two")
    assert learner.network.backbone.state_of == (None if shortcuts else "blocks.1")
    features = learner.state.features(x)
    means = learner.model([0.5, 0.5]).predictive.means
    plain = learner.network.without_state(features)
    assert torch.allclose(means(features), means(plain), atol=1e-6)
    assert (plain.shape[1] < features.shape[1]) is not shortcuts
