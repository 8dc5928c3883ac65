"""Merges of adapters, against small exact cases and independent computations."""

import copy

import numpy as np
import pytest
import torch

pytest.importorskip("peft")
pytest.importorskip("transformers")

from worlds import base, task

import ibcl
from ibcl.experiments.adapters.merges import HEAD, MERGES, Change, as_adapter, change_of
from ibcl.experiments.adapters.merges.dare import dare, dropped
from ibcl.experiments.adapters.merges.fisher import fisher, information
from ibcl.experiments.adapters.merges.regmean import moments, regmean
from ibcl.experiments.adapters.merges.task_arithmetic import task_arithmetic
from ibcl.experiments.adapters.merges.ties import ties
from ibcl.experts import ExpertPart

HALVES = [0.5, 0.5]


def change(*entries: float, knowledge: dict[str, torch.Tensor] | None = None) -> Change:
    row = torch.tensor([entries])
    return Change({"layer": row}, torch.ones(1, 2), knowledge or {})


@pytest.fixture(scope="module")
def learner() -> ibcl.IBCL:
    expert = ibcl.adapters.LoRA(rank=2, epochs=2, learning_rate=1e-2)
    found = ibcl.IBCL(base(), expert=expert)
    for number, name in enumerate(("low", "high")):
        found.learn(*task(number), task=name)
    return found


def adapter_of(learner: ibcl.IBCL, number: int) -> ibcl.adapters.Adapter:
    part = learner.knowledge.parts[number][ExpertPart.kind]
    assert isinstance(part, ExpertPart)
    return part.fitted


def test_a_change_as_an_adapter_answers_as_the_adapter_it_is_of(learner):
    adapter = adapter_of(learner, 0)
    features = learner.state.features(task(0, 9, 3)[0])
    again = as_adapter(change_of(adapter), adapter)
    expected = adapter.on(learner.network).answers(features)
    assert torch.allclose(again.on(learner.network).answers(features), expected, atol=1e-5)


@pytest.mark.parametrize("title", [name for name in MERGES if name != "DARE"])
def test_merging_equal_changes_gives_them_back(learner, title):
    """Whatever the weights; settings that scale or trim are set not to."""
    adapter = adapter_of(learner, 0)
    known = change_of(adapter)
    learning = MERGES[title].learning
    if learning is not None:
        features = learner.state.features(task(0, 20, 3)[0])
        known = Change(known.layers, known.head, learning(adapter, learner.network, features))
    settings = {"task arithmetic": {"scale": 1.0}, "TIES": {"kept": 1.0, "scale": 1.0}}
    found = MERGES[title].rule([known, known], [0.3, 0.7], **settings.get(title, {}))
    for name, layer in known.layers.items():
        assert torch.allclose(found.layers[name], layer, rtol=1e-3, atol=1e-5)
    assert torch.allclose(found.head, known.head, rtol=1e-2, atol=1e-3)


def test_task_arithmetic_is_the_scaled_sum():
    found = task_arithmetic([change(1.0, 2.0), change(3.0, -2.0)], [0.25, 0.75], scale=2.0)
    assert found.layers["layer"].tolist() == [[5.0, -2.0]]


def test_ties_by_hand():
    """Trimming leaves (0, 4, -6, 0) and (0, -3, 0, 5); signs (+, -, +) are elected."""
    found = ties([change(1.0, 4.0, -6.0, 0.5), change(2.0, -3.0, 1.0, 5.0)], HALVES, kept=0.5)
    assert found.layers["layer"].tolist() == [[0.0, 4.0, -6.0, 5.0]]


def test_ties_follows_the_preference():
    found = ties([change(4.0, 1.0), change(-3.0, 1.0)], [0.2, 0.8], kept=1.0, scale=2.0)
    assert torch.allclose(found.layers["layer"], torch.tensor([[-6.0, 2.0]]))


def test_dropping_is_unbiased():
    entries = torch.tensor([1.0, -2.0, 0.5])
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([dropped(entries, 0.75, generator) for _ in range(20000)])
    # Standard deviation of a mean: |entry| · sqrt(3 / 20000).
    assert torch.allclose(drawn.mean(0), entries, atol=0.1)
    assert sorted(set(drawn[:, 0].tolist())) == [0.0, 4.0]


def test_dare_without_dropping_is_the_sum_and_its_seed_decides():
    changes = [change(*range(1, 30)), change(*range(2, 31))]
    whole = dare(changes, HALVES, drop=0.0).layers["layer"]
    assert torch.allclose(whole, torch.arange(1.5, 30)[None])
    once, again, other = (dare(changes, HALVES, drop=0.5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(once.layers["layer"], again.layers["layer"])
    assert not torch.equal(once.layers["layer"], other.layers["layer"])


def test_fisher_weights_every_entry_by_its_information():
    def knowing(values: list[float], entries: list[float]) -> Change:
        head = torch.full((1, 2), 1.0)
        return change(*entries, knowledge={"layer": torch.tensor([values]), HEAD: head})

    found = fisher([knowing([3.0, 1.0], [1.0, 1.0]), knowing([1.0, 1.0], [5.0, 3.0])], HALVES)
    assert torch.allclose(found.layers["layer"], torch.tensor([[2.0, 2.0]]), atol=0.01)


def test_regmean_is_the_least_squares_solution():
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(50, 3, generator=generator) for _ in range(2)]
    layers = [torch.randn(2, 3, generator=generator) for _ in range(2)]
    head = torch.eye(2)
    changes = [
        Change({"layer": w}, torch.ones(1, 2), {"layer": x.T @ x / len(x), HEAD: head})
        for x, w in zip(inputs, layers, strict=True)
    ]
    found = regmean(changes, [0.2, 0.8], kept=1.0).layers["layer"]
    roots = [0.2**0.5, 0.8**0.5]
    a = torch.cat([r * x for r, x in zip(roots, inputs, strict=True)])
    b = torch.cat([r * x @ w.T for r, x, w in zip(roots, inputs, layers, strict=True)])
    assert torch.allclose(found, torch.linalg.lstsq(a, b).solution.T, atol=1e-4)


def plain(learner: ibcl.IBCL, adapter: ibcl.adapters.Adapter) -> torch.nn.Module:
    """The base with the adapter added to its weights."""
    return copy.deepcopy(adapter.on(learner.network).adapted.peft).merge_and_unload()


def pooled(hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


def test_information_is_that_of_single_rows_gradients(learner):
    adapter = adapter_of(learner, 1)
    x = task(1, 3, 4)[0]
    found = information(adapter, learner.network, learner.state.features(x))
    model = plain(learner, adapter)
    name = next(each for each in found if each != HEAD)
    weight = model.get_submodule(name).weight.requires_grad_(True)
    expected = torch.zeros_like(weight)
    for row in torch.as_tensor(x).long():
        ids, mask = row[:1], row[1:]
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        logs = torch.log_softmax(
            torch.nn.functional.linear(pooled(hidden, mask), *adapter.head), 1
        )[0]
        for log in logs:
            slope = torch.autograd.grad(log, weight, retain_graph=True)[0]
            expected += log.exp().detach() * slope.square() / len(x)
    assert torch.allclose(found[name], expected, rtol=1e-3, atol=1e-9)


def test_moments_leave_padding_out(learner):
    adapter = adapter_of(learner, 0)
    x = task(0, 5, 4)[0]
    found = moments(adapter, learner.network, learner.state.features(x))
    model = plain(learner, adapter)
    ids, mask = torch.as_tensor(x).long().unbind(1)
    rows = model.embeddings(input_ids=ids)[mask.bool()]
    name = "encoder.layer.0.attention.self.query"
    assert torch.allclose(found[name], rows.T @ rows / len(rows), atol=1e-4)


def test_heads_of_other_classes_are_refused(learner):
    adapter = adapter_of(learner, 0)
    other = ibcl.adapters.Adapter(
        adapter.configuration, adapter.tensors, adapter.head, adapter.classes, 3
    )
    with pytest.raises(ValueError, match="same classes"):
        change_of(other)


def test_all_merges_of_the_registry_have_settings():
    assert {*MERGES} == {"task arithmetic", "TIES", "DARE", "Fisher", "RegMean"}
    assert all(np.size(each.choices) >= 1 for each in MERGES.values())
