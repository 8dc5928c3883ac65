"""Adapters behind the gate: peft's own model at a vertex, and their mixture in between."""

import copy
from concurrent.futures import ThreadPoolExecutor

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

from ibcl.adapters.adapter import AdapterOnBase
from ibcl.experts import ExpertPart

LAYERS = ["encoder.layer.0", "encoder.layer.1"]


@pytest.fixture(scope="module")
def learner() -> ibcl.IBCL:
    return taught(calibration=0.2)


def mean_of_peft(folder, tokens, network=None) -> np.ndarray:
    """What peft's own model answers with the head beside it, computed here from the folder."""
    model = peft.PeftModel.from_pretrained(copy.deepcopy(network or base()), str(folder)).eval()
    head = load_file(folder / "ibcl_head.safetensors")
    with torch.no_grad():
        hidden = model(**tokens).last_hidden_state
        mask = tokens["attention_mask"][:, :, None]
        features = (hidden * mask).sum(1) / mask.sum(1)
        outputs = features @ head["head.weight"].T + head["head.bias"]
    return torch.softmax(outputs, 1).numpy()


@pytest.mark.parametrize("number", [0, 1])
def test_at_a_vertex_the_answer_is_that_of_pefts_own_model(learner, number, tmp_path):
    learner.export_adapter(NAMES[number], tmp_path)
    for seen in (0, 1):
        tokens = texts(seen, 20, seed=3)
        inputs = ibcl.networks.token_ids(tokens)
        expected = mean_of_peft(tmp_path, tokens)
        vertex = np.eye(2)[number]
        assert np.allclose(learner.model(vertex).predict_proba(inputs), expected, atol=1e-6)
        assert np.allclose(learner.predict_many(inputs, [vertex])[0], expected, atol=1e-6)


def test_in_between_it_is_their_mixture_by_the_gates_shares(learner):
    x = np.concatenate([task(number, 20, seed=4)[0] for number in (0, 1)])
    exact = ibcl.IBCL.from_state(learner.state)
    model = exact.model([0.4, 0.6])
    shares = model.routing(x)
    vertices = np.stack([exact.model(row).predict_proba(x) for row in np.eye(2)], 1)
    expected = (shares[:, :, None] * vertices).sum(1)
    # The tasks with the smallest shares answer with their heads.
    assert np.abs(model.predict_proba(x) - expected).max() <= exact.state.rule.tolerance + 1e-6
    full = ibcl.IBCL.from_state(learner.state)
    every = ibcl.RoutedEvidence(tolerance=0.0).predictives(
        full.knowledge, full.network, full.state.likelihood
    )
    features = full.state.features(x)
    answers = every.at(torch.tensor([0.4, 0.6])).means(features)[0].numpy()
    assert np.allclose(answers, expected, atol=1e-9)


def test_a_row_runs_about_one_adapter(learner, monkeypatch):
    rows: list[int] = []
    answers = AdapterOnBase.answers
    monkeypatch.setattr(
        AdapterOnBase, "answers", lambda self, x: (rows.append(len(x)), answers(self, x))[1]
    )
    x = np.concatenate([task(number, 30, seed=5)[0] for number in (0, 1)])
    learner.model([0.5, 0.5]).predict_proba(x)
    assert len(x) <= sum(rows) < 2 * len(x)
    rows.clear()
    learner.predict_many(x, [[0.5, 0.5], [0.3, 0.7], [1.0, 0.0]])
    assert sum(rows) <= 2 * len(x)


def test_no_texts_have_no_answers(learner):
    none = task(0)[0][:0]
    model = learner.model([0.5, 0.5])
    assert model.predict_proba(none).shape == (0, 2)
    assert model.routing(none).shape == (0, 2)
    assert model.routing_table(none) == []


def test_learning_leaves_the_base_and_random_numbers_as_they_were():
    network = copy.deepcopy(base())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    names = [name for name, _ in network.named_modules()]
    learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA(rank=2, epochs=1))
    drawn = torch.random.get_rng_state()
    learner.learn(*task(0), task="low")
    learner.model("low").predict(task(0)[0])
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert names == [name for name, _ in network.named_modules()]
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_the_same_seed_learns_the_same_adapter():
    one, two = (taught().knowledge.parts[1][ExpertPart.kind] for _ in range(2))
    assert one.encode() == two.encode()


def test_adapters_learn_what_heads_on_the_frozen_base_cannot():
    """Whether a word occurs twice in a row is no linear function of mean hidden states."""

    def repeated(rows, seed):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, 30, (rows, 6), generator=generator)
        y = torch.arange(rows) % 2
        ids[y == 1, 1] = 7
        ids[y == 0, 1] = 8
        ids[:, 4] = torch.where(torch.rand(rows, generator=generator) < 0.5, 7, 8)
        return ids.numpy(), (ids[:, 1] == ids[:, 4]).long().numpy()

    x, y = repeated(300, 0)
    fresh, right = repeated(300, 1)
    expert = ibcl.adapters.LoRA(
        rank=8, epochs=25, learning_rate=2e-2, target_modules=("query", "key", "value", "dense")
    )
    scores = []
    for chosen in (None, expert):
        network = ibcl.networks.with_backbone(base(), layers=LAYERS)
        learner = ibcl.IBCL(network, expert=chosen)
        learner.learn(x, y, task="pairs")
        scores.append((learner.model("pairs").predict(fresh) == right).mean())
    assert scores[1] > scores[0] + 0.2


def test_forgetting_and_merging_are_exact(learner):
    x, y = task(0, 30, seed=6)
    kept = ibcl.IBCL.from_state(learner.state)
    kept.forget("low")
    alone = ibcl.IBCL(base(), expert=learner.given.expert, calibration=0.2)
    alone.learn(*task(1), task="high")
    expected = learner.model([0.0, 1.0]).predict_proba(x)
    assert np.array_equal(kept.model("high").predict_proba(x), expected)
    other = ibcl.IBCL(base(), expert=learner.given.expert, calibration=0.2)
    other.learn(x, y, task="third")
    united = ibcl.merge(learner, other)
    third = other.model("third").predict_proba(x)
    assert np.array_equal(united.model([0.0, 0.0, 1.0]).predict_proba(x), third)
    assert np.array_equal(united.model([0.0, 1.0, 0.0]).predict_proba(x), expected)


@pytest.mark.parametrize("layers", [(), LAYERS])
def test_a_stored_learner_answers_the_same_and_goes_on(layers, tmp_path):
    def network() -> nn.Module:
        return ibcl.networks.with_backbone(base(), layers=layers) if layers else base()

    learner = taught(network(), calibration=0.2)
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=network())
    x, y = task(0, 25, seed=7)
    for ask in (
        lambda it: it.model([0.5, 0.5]).predict_proba(x),
        lambda it: it.model([0.5, 0.5]).predict_set(x, alpha=0.3),
        lambda it: it.predict_many(x, [[0.2, 0.8], [1.0, 0.0]]),
    ):
        assert np.array_equal(ask(again), ask(learner))
    again.learn(x, y, task="third")
    learner.learn(x, y, task="third")
    third = [it.model([0.0, 0.0, 1.0]).predict_proba(x) for it in (again, learner)]
    assert np.array_equal(*third)
    with pytest.raises(ibcl.StoreError, match="give that module as network="):
        ibcl.load(tmp_path / "base")
    stranger = ibcl.networks.with_backbone(base(), layers=LAYERS[:1])
    with pytest.raises(ibcl.StoreError, match=r"not learnt with the network given|does not fit"):
        ibcl.load(tmp_path / "base", network=stranger)


def test_token_ids_are_calibrated_with_exactly_whatever_their_length(learner):
    """Ids above 2,048 have no half precision; rows of one task may be longer than another's."""
    wide = ibcl.IBCL.from_state(learner.state)
    longer = ibcl.networks.token_ids(texts(0, 30, seed=8, padded=5))
    y = task(0, 30, seed=8)[1]
    wide.calibrate("low", longer, y)
    x, _ = task(0, 30, seed=8)
    model = wide.model([0.5, 0.5])
    assert np.array_equal(model.predict_set(x), model.predict_set(longer))
    part = wide.knowledge.parts[0]["calibration"]
    assert np.array_equal(part.tokens.numpy()[:, :6], longer[:, 0, :6])
    assert part.tokens.shape[1] == longer.shape[2]


def test_bounds_uncertainty_novelty_and_inferred_preferences(learner):
    x, y = task(1, 40, seed=9)
    model = learner.model([0.5, 0.5])
    bounds, answers = model.credal_bounds(x), model.predict_proba(x)
    assert (bounds.lower <= answers + 1e-9).all()
    assert (answers <= bounds.upper + 1e-9).all()
    total, within, between = model.uncertainty(x)
    assert np.allclose(total, within + between, atol=1e-9)
    assert model.novelty(x).shape == (40,)
    assert learner.infer_preference(x)["high"] > 0.8
    assert learner.infer_preference(x, y)["high"] > 0.8


def test_what_an_adapter_cannot_do_is_refused_in_a_sentence(learner, tmp_path):
    x, y = task(0, 20, seed=10)
    model = learner.model([0.5, 0.5])
    for ask in (
        lambda: model.region,
        lambda: model.predict(x, samples=3),
        model.module,
        lambda: model.save(tmp_path / "model.safetensors"),
    ):
        with pytest.raises(ValueError, match=r"^Experts answer for some of these tasks.*\.$"):
            ask()
    with pytest.raises(ValueError, match="cannot take further batches"):
        learner.extend(x, y, task="low")
    with pytest.raises(ValueError, match=r"^LoRA adapts a base model"):
        ibcl.IBCL(ibcl.networks.linear(3), expert=ibcl.adapters.LoRA())
    with pytest.raises(ValueError, match="give features=, or inputs to measure it with"):
        ibcl.IBCL(nn.Sequential(nn.Linear(3, 4)), expert=ibcl.adapters.LoRA())
    for settings in ({"rank": 0}, {"epochs": 1.5}, {"learning_rate": -1.0}):
        with pytest.raises(ValueError, match=r"^\w+ must be .*\.$"):
            ibcl.adapters.LoRA(**settings)


def test_values_and_images(tmp_path):
    """A convolutional base without any configuration, and a regression."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        stack = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 8))
    images = torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    values = images.mean((1, 2, 3)) * 10
    network = ibcl.networks.with_backbone(stack, layers=["1", "3"], example=images)
    learner = ibcl.IBCL(network, expert=ibcl.adapters.LoRA(rank=2, epochs=2), calibration=0.2)
    learner.learn(images, values, task="brightness")
    learner.learn(-images, values + 1, task="darkness")
    model = learner.model([0.5, 0.5])
    assert model.predict(images).shape == (60,)
    assert model.predict_interval(images).shape == (60, 2)
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base", network=network)
    assert torch.equal(again.model([0.5, 0.5]).predict(images), model.predict(images))


def test_many_threads_get_the_same_answers():
    network = ibcl.networks.with_backbone(base(), layers=LAYERS)
    model = taught(network).model([0.5, 0.5])
    batches = [task(number % 2, 16, seed=number)[0] for number in range(8)]
    expected = [model.predict_proba(batch) for batch in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(model.predict_proba, batches))
    for one, other in zip(expected, found, strict=True):
        assert np.array_equal(one, other)
