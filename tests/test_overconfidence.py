"""Gates of few rows and many columns are as sure as rows that were not learnt allow."""

import dataclasses

import numpy as np
import pytest
import torch

import ibcl
from ibcl.pooling import RoutedEvidence
from ibcl.routing import ClassDensities, Ranks, RowSketch, classes_of, density_gate
from ibcl.routing.overconfidence import log_ratios, sharpness

RANKS = Ranks(32, 32, 64)


def rows(number, columns, shift, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(number, columns, generator=generator).double()
    drawn[:, 0] += shift
    return drawn


def gate_of(parts, sketched=True):
    found = {name: classes_of(part, None, None) for name, part in parts.items()}
    records = {name: ClassDensities.of_classes(each, RANKS) for name, each in found.items()}
    sketches = {name: RowSketch.of(each) for name, each in found.items()}
    return density_gate(records, sketches=sketches if sketched else None)


def log_loss(gate, tested):
    losses = [
        -torch.log_softmax(gate(part), 1)[:, number].mean() for number, part in enumerate(tested)
    ]
    return float(sum(losses)) / len(losses)


@pytest.mark.parametrize("seed", range(5))
def test_the_sums_of_a_sketch_say_how_far_rows_spread_along_any_direction(seed):
    found = classes_of(rows(300, 6, 1.0, seed), None, None)
    along = torch.randn(7, 40, generator=torch.Generator().manual_seed(seed)).double()
    kept = RowSketch.of(found).spread()[0] @ along
    # Forty directions in a space of seven are as good as seven: five deviations of their mean.
    ratio = float(kept.square().sum() / (found.rows[0] @ along).square().sum())
    assert abs(ratio - 1) < 5 * (2 / 16 / 4) ** 0.5


def test_batches_of_a_sketch_add_up_to_one_of_all_rows():
    parts = [rows(400, 5, 0.0, 0), rows(200, 5, 3.0, 1)]
    found = [classes_of(part, None, None) for part in parts]
    first, second = (ClassDensities.of_classes(each, RANKS) for each in found)
    joined = RowSketch.of(found[0]).plus(RowSketch.of(found[1], first), first, second)
    whole = classes_of(torch.cat(parts), None, None).rows[0]
    ratio = float(joined.spread()[0].square().sum() / whole.square().sum())
    assert abs(ratio - 1) < 5 * (2 / 16 / 3) ** 0.5


def test_no_row_can_be_solved_for():
    for number in (1, 5, 40, 4000):
        assert len(RowSketch.of(classes_of(rows(number, 3, 0.0, 0), None, None)).sums) <= max(
            1, number // 4
        )


def test_a_sketch_comes_back_from_its_bytes_and_others_are_refused():
    kept = RowSketch.of(classes_of(rows(50, 3, 0.0, 0), None, None))
    back = RowSketch.decode(kept.encode())
    assert all(torch.equal(each, back.tensors()[name]) for name, each in kept.tensors().items())
    with pytest.raises(ValueError, match="not a safetensors"):
        RowSketch.decode(b"something else")


@pytest.mark.parametrize(("number", "least", "most"), [(20_000, 0.95, 1.0), (30, 0.0, 0.7)])
def test_gaussians_of_many_rows_stay_as_they_are_and_of_few_do_not(number, least, most):
    parts = [rows(number, 20, shift, seed) for seed, shift in enumerate((0.0, 1.0))]
    means, counts = torch.stack([part.mean(0) for part in parts]), torch.full((2,), number).double()
    centred = torch.cat([part - part.mean(0) for part in parts])
    scatter = centred.T @ centred
    factor, root = torch.linalg.cholesky(scatter / counts.sum()), torch.linalg.cholesky(scatter)
    found = log_ratios(factor, [root[None]], 1.0, means, counts, centred)
    assert least <= sharpness(found, torch.arange(2), torch.ones(2)) <= most


@pytest.mark.parametrize("number", [60, 200])
def test_log_ratios_over_new_rows_are_as_they_were_said_to_be(number):
    """Averages over many draws of the learnt rows, and over many new rows of each."""
    said, seen = [], []
    for seed in range(60):
        parts = [rows(number, 20, 2.0 * place, 2 * seed + place) for place in range(2)]
        means = torch.stack([part.mean(0) for part in parts])
        counts = torch.full((2,), number).double()
        centred = torch.cat([part - part.mean(0) for part in parts])
        scatter = centred.T @ centred
        factor, root = torch.linalg.cholesky(scatter / counts.sum()), torch.linalg.cholesky(scatter)
        found = log_ratios(factor, [root[None]], 1.0, means, counts, centred)
        new = rows(500, 20, 0.0, 1000 + seed)
        far = [
            torch.linalg.solve_triangular(factor, (new - mean).T, upper=False).square().sum(0)
            for mean in means
        ]
        ratio = 0.5 * (far[1] - far[0])
        said.append((float(found.mean[0, 1]), float(found.std[0, 1])))
        seen.append((float(ratio.mean()), float(ratio.std())))
    said, seen = np.mean(said, 0), np.mean(seen, 0)
    np.testing.assert_allclose(said, seen, rtol=0.07)


def test_what_nothing_tells_apart_is_not_told_apart():
    learnt = {name: rows(60, 100, 0.0, seed) for seed, name in enumerate("abc")}
    tested = [rows(2000, 100, 0.0, 10 + seed) for seed in range(3)]
    found, plain = (log_loss(gate_of(learnt, each), tested) - np.log(3) for each in (True, False))
    assert found < 0.1 * plain


@pytest.mark.parametrize(("number", "columns", "shift"), [(40, 120, 3.0), (150, 60, 1.5)])
def test_rows_that_were_not_learnt_find_their_task_more_probable(number, columns, shift):
    learnt = {
        name: rows(number, columns, shift * seed, seed) for seed, name in enumerate(("a", "b"))
    }
    tested = [rows(3000, columns, shift * seed, 20 + seed) for seed in range(2)]
    plain, found = gate_of(learnt, sketched=False), gate_of(learnt)
    losses = []
    for trial in np.linspace(0.0, 1.0, 41):
        gate = gate_of(learnt, sketched=False)
        gate.settings = dataclasses.replace(gate.settings, sharpness=float(trial))
        losses.append(log_loss(gate, tested))
    assert log_loss(found, tested) < log_loss(plain, tested)
    assert log_loss(found, tested) < min(losses) + 0.25 * (np.log(2) - min(losses))


def learner(*tasks):
    found = ibcl.IBCL(
        ibcl.networks.linear(30), pooling=RoutedEvidence(head_share=1.0, adaptive=True)
    )
    for task in tasks:
        x = rows(50, 30, 2.0 * "abc".index(task), "abc".index(task)).float()
        found.learn(x, x[:, 1] > 0, task=task)
    return found


def sharpness_of(found):
    return found.model(np.full(len(found.tasks), 1 / len(found.tasks))).predictive.gate.settings


def test_it_is_of_the_set_of_tasks_whatever_their_order_and_whatever_was_forgotten():
    wanted = sharpness_of(learner("a", "b"))
    assert wanted.sharpness < 1
    assert sharpness_of(learner("b", "a")) == wanted
    more = learner("a", "c", "b")
    more.forget("c")
    assert sharpness_of(more) == wanted
    assert sharpness_of(ibcl.merge(learner("a"), learner("b"))) == wanted


def test_a_task_in_batches_is_tempered_like_one_of_all_rows(tmp_path):
    whole, parts = learner("a"), learner("a")
    x = rows(60, 30, 2.0, 1).float()
    whole.learn(x, x[:, 1] > 0, task="b")
    parts.learn(x[:30], x[:30, 1] > 0, task="b")
    parts.extend(x[30:], x[30:, 1] > 0, task="b")
    parts.save(tmp_path / "kept.ibcl")
    found = sharpness_of(ibcl.load(tmp_path / "kept.ibcl"))
    assert abs(np.log(found.sharpness / sharpness_of(whole).sharpness)) < np.log(2)


def test_a_model_of_its_own_answers_alike(tmp_path):
    model = learner("a", "b").model({"a": 0.3, "b": 0.7})
    asked = rows(20, 30, 1.0, 9).float()
    model.save(tmp_path / "model.ibcl")
    loaded = ibcl.load_model(tmp_path / "model.ibcl")
    np.testing.assert_allclose(
        loaded.predict_proba(asked), model.predict_proba(asked), rtol=1e-5, atol=1e-6
    )
