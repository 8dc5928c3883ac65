"""Routed evidence: a set of task records, exact to forget and merge, and continuous in w."""

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ibcl
from ibcl.routing import density_gate, gate_from_tensors
from ibcl.routing.densities import fourier, fourier_frequencies, polar
from ibcl.routing.records import ClassDensities, Ranks
from ibcl.routing.scatters import scatter_of_rows

RANKS = Ranks(96, 128, 32)
TASKS = ("north", "east", "south")
KINDS = ("binary", "classes", "different classes", "regression", "counts")


def _task(kind, number, rows=60, columns=3, seed=0):
    generator = torch.Generator().manual_seed(100 * seed + number)
    x = torch.randn(rows, columns, generator=generator) + 2.5 * torch.eye(columns)[number % columns]
    score = x[:, number % columns] - 0.5
    if kind == "binary":
        return x, (score > 0).long()
    if kind == "classes":
        return x, (score > 0).long() + (score > 1).long()
    if kind == "different classes":
        return x, 2 * number + (score > 0).long()
    noise = 0.1 * torch.randn(rows, generator=generator)
    if kind == "regression":
        return x, 3.0 * number + score + noise
    return x, torch.poisson(score.clamp(-1, 1).exp(), generator=generator)


def _network(kind, columns=3):
    outputs = {"classes": 3, "different classes": 6}.get(kind, 1)
    return ibcl.networks.linear(columns, outputs)


def _learner(kind, names=TASKS, **settings):
    settings = {"likelihood": "poisson"} | settings if kind == "counts" else settings
    learner = ibcl.IBCL(_network(kind), **settings)
    for name in names:
        learner.learn(*_task(kind, TASKS.index(name)), task=name)
    return learner


@cache
def _known(kind, names=TASKS, memory=None):
    """A learner that nobody changes, made once."""
    return _learner(kind, names, memory=memory)


def _probes(columns=3):
    return 3 * torch.randn(40, columns, generator=torch.Generator().manual_seed(7))


def _answers(learner, weights):
    """What preferences by task name answer, in double precision."""
    features = learner.state.features(_probes())
    rows = torch.tensor([weights[name] for name in learner.tasks], dtype=torch.float64)
    return learner.state.predictives.answers(features).paired(rows.expand(len(features), -1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("memory", ["compact", "exact"])
def test_forgetting_the_first_task_is_as_if_it_had_never_been_learnt(kind, memory):
    learner = ibcl.IBCL.from_state(_known(kind, memory=memory).state)
    learner.forget("north")
    never = _known(kind, TASKS[1:], memory)
    weights = {"east": 0.3, "south": 0.7}
    assert torch.equal(_answers(learner, weights), _answers(never, weights))
    assert learner.choices == never.choices
    assert learner.likelihood == never.likelihood


def _saved(folder):
    """All files of a saved knowledge base, without the id that every save has of its own."""
    manifest = json.loads((folder / "manifest.json").read_text())
    save = manifest["save"]
    del manifest["checksum"]
    files = {
        str(file.relative_to(folder)).replace(save, ""): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and file.name not in (".lock", "manifest.json")
    }
    return files, json.dumps(manifest).replace(save, "")


def test_nothing_of_a_forgotten_first_task_stays_on_disk(tmp_path):
    learner = ibcl.IBCL.from_state(_known("regression").state)
    learner.forget("north")
    learner.save(tmp_path / "forgotten")
    _known("regression", TASKS[1:]).save(tmp_path / "never")
    assert _saved(tmp_path / "forgotten") == _saved(tmp_path / "never")


@pytest.mark.parametrize("kind", KINDS)
def test_merged_is_learnt_together_and_the_order_does_not_matter(kind):
    weights = {"north": 0.2, "east": 0.3, "south": 0.5}
    together = _answers(_known(kind), weights)
    merged = ibcl.merge(_learner(kind, ["south"]), _learner(kind, ["east", "north"]))
    assert (_answers(merged, weights) - together).abs().max() < 1e-12
    backwards = _answers(_learner(kind, TASKS[::-1]), weights)
    assert (backwards - together).abs().max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_vertex_is_the_task_s_own_posterior(kind):
    learner = _known(kind)
    model = learner.model({"north": 0, "east": 1, "south": 0})
    own = learner.knowledge.extremes("east")[0]
    assert torch.equal(model.theta, own.mean)
    assert model.distribution is own
    region = ibcl.HighestDensityRegion(own, learner.alpha, learner.seed)
    assert model.region.threshold == region.threshold


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2), st.floats(1e-15, 1e-6), st.sampled_from(["binary", "regression"]))
def test_answers_are_continuous_at_vertices(vertex, step, kind):
    learner = _known(kind)
    other = (vertex + 1) % 3
    at = dict.fromkeys(TASKS, 0.0) | {TASKS[vertex]: 1.0}
    near = at | {TASKS[vertex]: 1 - step, TASKS[other]: step}
    spread = 1.0 if kind == "binary" else 40.0
    change = (_answers(learner, near) - _answers(learner, at)).abs().max()
    assert change <= 2 * spread * step * len(TASKS) / 1e-3 + 1e-12


def test_bounds_hold_every_task_s_own_predictive():
    learner = _known("classes")
    x = _probes()
    bounds = learner.model([0.2, 0.3, 0.5]).credal_bounds(x)
    for task in TASKS:
        theta = learner.knowledge.extremes(task)[0].mean
        alone = learner.state.likelihood.mean(learner.network(theta.float(), x))
        expert = learner.model(dict.fromkeys(TASKS, 0.0) | {task: 1.0}).predict_proba(x)
        for answer in (alone, expert):
            assert bool((bounds.lower <= answer + 1e-6).all())
            assert bool((answer <= bounds.upper + 1e-6).all())


def test_regression_obeys_the_preference_after_a_first_task_of_noise():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(200, 3, generator=generator)
    learner = ibcl.IBCL(ibcl.networks.linear(3))
    learner.learn(x, torch.randn(200, generator=generator), task="noise")
    learner.learn(x, 9.89 + 0.2 * torch.randn(200, generator=generator), task="level")
    assert abs(float(learner.model([0, 1]).predict(x).mean()) - 9.89) < 0.1
    nearly = float(learner.model([0.01, 0.99]).predict(x).mean())
    assert abs(nearly - 9.89) < 0.2


def test_ten_rows_of_a_first_task_do_not_spoil_later_ones():
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(400, 5, generator=generator)
    y = x @ torch.arange(1.0, 6.0) + 0.3 * torch.randn(400, generator=generator)

    def rest(first):
        learner = ibcl.IBCL(ibcl.networks.linear(5))
        if first:
            learner.learn(x[:10], y[:10], task="few")
        learner.learn(x[10:], y[10:], task="many")
        return learner.knowledge.extremes("many")[0].mean

    assert torch.equal(rest(True), rest(False))


def test_several_priors_a_backbone_an_mlp_and_compact_storage(tmp_path):
    x, y = _task("binary", 0)
    backbone = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh())
    cases = [
        (ibcl.networks.linear(3), {"priors": [1.0, 3.0]}),
        (ibcl.networks.with_backbone(backbone, 8), {}),
        (ibcl.networks.mlp(3, hidden=4), {"inference": ibcl.MeanFieldVI(epochs=2)}),
    ]
    for number, (network, given_) in enumerate(cases):
        learner = ibcl.IBCL(network, **given_)
        learner.learn(x, y, task="a")
        learner.learn(*_task("binary", 1), task="b")
        before = learner.predict_many(x, [[0.4, 0.6]])
        for storage in ("exact", "float16", "eigenvectors:2"):
            place = tmp_path / f"{number} {storage.replace(':', ' ')}"
            learner.save(place, storage=storage)
            loaded = ibcl.load(place, network=network)
            torch.testing.assert_close(loaded.predict_many(x, [[0.4, 0.6]]), before)
            assert [r.scale for r in loaded.knowledge.records] == [
                r.scale for r in learner.knowledge.records
            ]


def test_a_loaded_base_goes_on_choosing_for_every_task_itself(tmp_path):
    learner = _learner("regression", TASKS[:2])
    learner.save(tmp_path / "base")
    loaded = ibcl.load(tmp_path / "base")
    loaded.learn(*_task("regression", 2), task="south")
    learner.learn(*_task("regression", 2), task="south")
    assert loaded.knowledge.records == learner.knowledge.records
    assert loaded.knowledge.records[-1].noise == pytest.approx(0.1, rel=0.3)


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_is_the_same_from_file_and_as_a_module(kind, tmp_path):
    model = _known(kind).model([0.2, 0.3, 0.5])
    x = _probes()
    model.save(tmp_path / "model.safetensors")
    outputs = model.outputs(x)[0]
    assert torch.equal(ibcl.load_model(tmp_path / "model.safetensors").outputs(x)[0], outputs)
    exported = model.likelihood.mean(model.module()(x))
    torch.testing.assert_close(exported, model.likelihood.mean(outputs), atol=2e-4, rtol=2e-3)


def test_bytes_bound_what_is_kept_of_a_task():
    x, y = _task("binary", 0, rows=300, columns=100)
    sizes = {}
    for memory in ("exact", "compact", 60_000):
        learner = ibcl.IBCL(ibcl.networks.linear(100), memory=memory)
        learner.learn(x, y, task="a")
        sizes[memory] = learner.knowledge.nbytes
    assert sizes[60_000] <= 60_000 < sizes["compact"] < sizes["exact"]
    tiny = ibcl.IBCL(ibcl.networks.linear(100), memory=10)
    with pytest.raises(ValueError, match=r"memory=10 bytes do not hold .* give at least"):
        tiny.learn(x, y, task="a")
    with pytest.raises(ValueError, match="memory must be 'compact', 'exact', 'shared' or a number"):
        ibcl.IBCL(ibcl.networks.linear(3), memory="small")
    with pytest.raises(ValueError, match="is a setting of pooling='routed'"):
        ibcl.IBCL(ibcl.networks.linear(3), memory="exact", pooling="evidence")


@pytest.mark.parametrize("memory", ["compact", "exact"])
def test_batches_of_a_task_have_the_densities_of_all(memory):
    x, y = _task("binary", 0)
    whole, batches = (ibcl.IBCL(ibcl.networks.linear(3), memory=memory) for _ in range(2))
    whole.learn(x, y, task="a")
    batches.learn(x[:20], y[:20], task="a")
    batches.extend(x[20:], y[20:], task="a")
    one, other = (each.knowledge.parts[0]["densities"].tensors() for each in (whole, batches))
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def test_compact_scatters_keep_the_diagonal_and_the_leading_directions():
    generator = torch.Generator().manual_seed(5)
    strong = torch.randn(200, 4, generator=generator) @ torch.randn(4, 80, generator=generator)
    rows = (3 * strong + 0.1 * torch.randn(200, 80, generator=generator)).double()
    exact = rows.T @ rows
    kept = scatter_of_rows([rows], 8)
    assert kept.nbytes < exact.nbytes / 40
    dense = kept.dense()[0]
    torch.testing.assert_close(dense.diagonal(), exact.diagonal(), rtol=5e-2, atol=0)
    assert (dense - exact).norm() < 0.02 * exact.norm()


def test_records_are_read_back_as_they_were_and_damage_is_refused():
    x, y = _task("binary", 0, columns=70)
    kept = ClassDensities.of(x, y, None, RANKS)
    data = kept.encode()
    assert ClassDensities.decode(data).encode() == data
    for damaged in (b"", data[:100], data.replace(b"classes", b"clusses")):
        with pytest.raises(ValueError, match="densities"):
            ClassDensities.decode(damaged)


def test_weights_count_as_repetitions():
    x, y = _task("binary", 0, rows=20)
    weights = torch.arange(20) % 3 + 1
    times = torch.repeat_interleave(torch.arange(20), weights)
    one = ClassDensities.of(x, y, weights, RANKS).tensors()
    other = ClassDensities.of(x[times], y[times], None, RANKS).tensors()
    for name, tensor in one.items():
        torch.testing.assert_close(tensor, other[name], rtol=1e-4, atol=1e-5, msg=name)


def test_fourier_features_have_the_kernel_they_approximate():
    x = polar(torch.randn(50, 80, generator=torch.Generator().manual_seed(0)).double())
    waves = fourier(x, *fourier_frequencies(80))
    found = waves @ waves.T / waves.shape[1]
    squares = torch.cdist(x, x).square()
    assert (found - torch.exp(-squares / 4)).abs().max() < 6 / np.sqrt(waves.shape[1])


def test_version_one_is_known_by_its_name():
    learner = ibcl.IBCL(ibcl.networks.linear(3), pooling=ibcl.Routed(temperature=2.0))
    learner.learn(*_task("binary", 0), task="a")
    learner.learn(*_task("binary", 1), task="b")
    assert learner.pooling == "routed1"
    assert learner.model([0.5, 0.5]).predictive.gate.temperature == 2.0


@pytest.mark.parametrize("classes", [2, 3])
def test_heads_that_answer_alone_keep_few_directions_and_answer_the_same(classes):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 6))
    y = np.digitize(x[:, 0] + x[:, 1] ** 2, [0.5, 1.5][: classes - 1])
    found, sizes = {}, {}
    for memory in ("compact", "exact"):
        model = ibcl.IBCLClassifier(memory=memory)
        for task in range(2):
            model.partial_fit(x + 3 * task, y, task=f"t{task}")
        found[memory] = model.predict_proba(np.vstack([x, x + 3]), preference=[0.5, 0.5])
        sizes[memory] = model.learner_.knowledge.nbytes / 2
    assert sizes["compact"] < {2: 160_000, 3: 420_000}[classes]
    assert np.abs(found["compact"] - found["exact"]).mean() < 0.01
    assert (found["compact"].argmax(1) == found["exact"].argmax(1)).mean() > 0.98


def test_small_heads_of_many_outputs_take_further_batches_and_grow():
    generator = np.random.default_rng(0)
    x = pd.DataFrame({"size": generator.normal(size=240), "kind": ["oak", "ash"] * 120})
    y = np.digitize(x["size"], [-0.5, 0.5])
    model = ibcl.IBCLClassifier().partial_fit(x[:120], y[:120], task="a")
    model.partial_fit(x[120:], y[120:], task="a")
    before = model.predict_proba(x)
    assert (before.argmax(1) == y).mean() > 0.9
    more = x.assign(kind="elm")
    model.partial_fit(more, np.where(y == 2, 3, y), task="b")
    after = model.predict_proba(x, preference={"a": 1.0, "b": 0.0})
    assert (after.argmax(1) == before.argmax(1)).mean() > 0.95
    assert model.learner_.knowledge.nbytes < 1_200_000


def _with_empty_rows(number, empty, columns=20):
    x, y = _task("binary", number, rows=150, columns=columns)
    rows = torch.cat([x, torch.zeros(empty, columns)])
    return rows, torch.cat([y, torch.arange(empty) % 2])


def test_rows_without_features_do_not_move_the_routing_of_others():
    with_, without = (ibcl.IBCL(ibcl.networks.linear(20)) for _ in range(2))
    for number in range(3):
        with_.learn(*_with_empty_rows(number, 10), task=f"t{number}")
        without.learn(*_with_empty_rows(number, 0), task=f"t{number}")
    asked = torch.randn(50, 20, generator=torch.Generator().manual_seed(9))
    one, other = (each.model([0.5, 0.3, 0.2]).routing(asked) for each in (with_, without))
    torch.testing.assert_close(one, other)


def test_routing_is_continuous_where_a_row_has_no_features():
    learner = ibcl.IBCL(ibcl.networks.linear(20))
    for number in range(3):
        learner.learn(*_with_empty_rows(number, 10), task=f"t{number}")
    model, ways = learner.model([0.5, 0.3, 0.2]), torch.eye(20)
    at = model.routing(torch.zeros(1, 20))
    for size in (1e-12, 1e-7, 1e-6, 1e-5, 1e-4):
        assert float((model.routing(size * ways) - at).abs().max()) < 30 * size
    assert float(model.novelty(torch.zeros(1, 20))) < 1


def test_a_class_of_rows_without_features_is_found_again():
    learner = ibcl.IBCL(ibcl.networks.linear(20, outputs=3))
    for number in range(2):
        x, y = _task("binary", number, rows=150, columns=20)
        rows = torch.cat([x, torch.zeros(30, 20)])
        learner.learn(rows, torch.cat([y, torch.full((30,), 2)]), task=f"t{number}")
    assert (learner.model([0.5, 0.5]).predict(torch.zeros(4, 20)) == 2).all()


def test_models_of_gates_without_a_typical_length_open_as_before():
    learner = ibcl.IBCL(ibcl.networks.linear(3))
    for number in range(2):
        learner.learn(*_task("binary", number), task=f"t{number}")
    gate = learner.model([0.5, 0.5]).predictive.gate
    earlier = gate.tensors() | {"settings": gate.tensors()["settings"][:3]}
    opened = gate_from_tensors(earlier, 1.0)
    asked = torch.randn(9, 3, generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(opened(asked), gate(asked))
    assert opened.settings.typical == 0


def test_records_of_earlier_versions_keep_their_outliers():
    rows = {name: _with_empty_rows(number, 10) for number, name in enumerate(TASKS)}
    records = {name: ClassDensities.of(*given, None, RANKS) for name, given in rows.items()}
    assert [float(record.empty) for record in records.values()] == [10, 10, 10]
    assert density_gate(records).settings.typical > 0
    earlier = {name: replace(record, empty=None) for name, record in records.items()}
    gate = density_gate(earlier)
    assert gate.settings.typical == 0
    asked = torch.tensor([[0.0], [1e-3]]).double() * torch.ones(20)
    lengths = polar(asked, gate.settings.typical)[:, -1] * np.sqrt(20)
    torch.testing.assert_close(lengths.exp(), torch.tensor([1e-6, 1e-3 * 20**0.5]).double())
    record = earlier["north"]
    assert ClassDensities.decode(record.encode()).empty is None
