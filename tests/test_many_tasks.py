"""Very many tasks: what a gate holds is bounded, and what it says hardly changes by that."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ibcl
from ibcl.routing import ClassDensities, DensityGate, Ranks, density_gate

COLUMNS = 70
RANKS = Ranks(96, 128, 32)


def records(tasks: int) -> dict[str, ClassDensities]:
    """Tasks of two classes at places of their own."""
    generator = torch.Generator().manual_seed(0)
    found = {}
    for task in range(tasks):
        shift = 3 * torch.randn(COLUMNS, generator=generator)
        rows = torch.randn(40, COLUMNS, generator=generator) + shift
        found[f"task {task}"] = ClassDensities.of(rows, torch.arange(40) % 2, None, RANKS)
    return found


@pytest.fixture
def rows() -> torch.Tensor:
    return 2 * torch.randn(50, COLUMNS, generator=torch.Generator().manual_seed(1)).double()


def test_what_a_gate_holds_is_bounded_and_keeps_the_largest_directions(monkeypatch):
    kept = records(12)
    whole = density_gate(kept)
    # Half of the directions that the classes have, and of those between them.
    monkeypatch.setattr("ibcl.routing.gate_of_records._LARGEST_ROOTS", whole.maps.numel() // 2)
    monkeypatch.setattr("ibcl.routing.gate_of_records._LARGEST_COVARIANCES", 12 * 11**2)
    bounded = density_gate(kept)
    assert bounded.maps.numel() <= whole.maps.numel() // 2
    assert bounded.fourier_whitening.numel() <= 12 * 11**2
    own = torch.cat([record.means[:, :-1] for record in kept.values()]).double()
    noisy = own.repeat(20, 1) + 0.1 * torch.randn(
        480, COLUMNS, generator=torch.Generator().manual_seed(1)
    )
    recognised = [
        gate(noisy).argmax(1) == torch.arange(12).repeat_interleave(2).repeat(20)
        for gate in (whole, bounded)
    ]
    assert recognised[1].double().mean() >= recognised[0].double().mean() - 0.02 > 0.9


def test_what_is_left_out_of_a_covariance_stays_on_its_diagonal(monkeypatch):
    """The spread of a class, summed over all directions, is that of its rows, however few."""
    from ibcl.routing.gate_of_records import _leading

    scatters = [record.scatters for record in records(3).values()]
    expected = torch.cat([each.dense().diagonal(dim1=1, dim2=2) for each in scatters])
    for numbers in (2**25, 6 * (COLUMNS + 1) * 5, 1):
        monkeypatch.setattr("ibcl.routing.gate_of_records._LARGEST_ROOTS", numbers)
        roots, tails = _leading(scatters)
        torch.testing.assert_close(roots.square().sum(2) + tails, expected)


def test_rows_in_blocks_are_the_rows(monkeypatch, rows):
    gate = density_gate(records(4))
    together = gate(rows), gate.novelty(rows)
    monkeypatch.setattr("ibcl.routing.densities._BLOCK", 1)
    torch.testing.assert_close((gate(rows), gate.novelty(rows)), together, rtol=1e-12, atol=1e-12)


def test_products_in_single_precision_say_the_same_of_a_row_alone_and_in_a_batch(monkeypatch, rows):
    kept = records(4)
    exact = density_gate(kept)
    monkeypatch.setattr("ibcl.routing.densities._MANY_MAPS", 0)
    rounded = density_gate(kept)
    assert rounded.product_maps.dtype == torch.float32
    together = rounded.joint(rows)
    assert together.dtype == torch.float64
    torch.testing.assert_close(together, exact.joint(rows), rtol=2e-8, atol=1e-5)
    torch.testing.assert_close(rounded.novelty(rows), exact.novelty(rows), rtol=1e-5, atol=0)
    alone = torch.cat([rounded.joint(row[None]) for row in rows])
    torch.testing.assert_close(alone, together, rtol=2e-8, atol=1e-5)
    shares = [torch.softmax(gate(rows), 1) for gate in (exact, rounded)]
    torch.testing.assert_close(*shares, rtol=0, atol=1e-5)
    # What a file keeps is not rounded.
    for name, tensor in exact.tensors().items():
        assert torch.equal(tensor, rounded.tensors()[name])


def test_bounds_ask_the_gate_once_however_many_tasks(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    learner = ibcl.IBCL(ibcl.networks.linear(3))
    for task in range(4):
        x = torch.randn(30, 3, generator=generator)
        learner.learn(x, x[:, task % 3] > 0, task=f"task {task}")
    model = learner.model([0.25] * 4)
    asked = []
    whole = DensityGate.joint

    def counted(gate: DensityGate, features: torch.Tensor) -> torch.Tensor:
        asked.append(len(features))
        return whole(gate, features)

    monkeypatch.setattr(DensityGate, "joint", counted)
    x = torch.randn(5, 3, generator=generator)
    lower, upper = model.credal_bounds(x)
    assert asked == [5, 5]
    for task in learner.tasks:
        answer = learner.model(task).predict_proba(x)
        assert bool(((lower <= answer + 1e-6) & (answer <= upper + 1e-6)).all())


def test_saving_a_task_writes_and_encodes_that_task_alone(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)

    def learn(learner: ibcl.IBCL, task: str) -> None:
        x = torch.randn(30, 3, generator=generator)
        learner.learn(x, x[:, 0] > 0, task=task)

    def files() -> dict[Path, float]:
        found = (tmp_path / "tasks.ibcl").rglob("*.safetensors")
        return {path: path.stat().st_mtime_ns for path in found}

    learner = ibcl.IBCL(ibcl.networks.linear(3))
    for task in range(5):
        learn(learner, f"task {task}")
    learner.save(tmp_path / "tasks.ibcl")
    encoded = []
    whole = ClassDensities.encode

    def counted(record: ClassDensities) -> bytes:
        encoded.append(record)
        return whole(record)

    monkeypatch.setattr(ClassDensities, "encode", counted)
    for opened in (False, True):
        learner = ibcl.load(tmp_path / "tasks.ibcl") if opened else learner
        before = files()
        encoded.clear()
        learn(learner, f"opened: {opened}")
        learner.save(tmp_path / "tasks.ibcl")
        after = files()
        assert {path: after.get(path) for path in before} == before
        assert len(after) == len(before) + 2
        assert {id(each) for each in encoded} == {id(learner.knowledge.parts[-1]["densities"])}


def test_sentences_name_a_few_of_very_many_tasks():
    tasks = [f"task {number}" for number in range(10_000)]
    with pytest.raises(ValueError, match=r"task 20 and 9,979 more; give every task a weight"):
        ibcl.Preference.parse({"task 0": 1.0}, tasks)
    with pytest.raises(ValueError, match=r"Unknown task other; known tasks are .* 9,980 more"):
        ibcl.Preference.parse({"other": 1.0}, tasks)


def test_of_very_many_samples_evenly_spaced_ones_stand_for_all(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 3, generator=generator)
    y, weights = (x[:, 0] > 1).long(), torch.rand(4000, generator=generator)
    whole = ClassDensities.of(x, y, weights, RANKS)
    monkeypatch.setattr("ibcl.routing.records._MOST_WAVES", 1000)
    part = ClassDensities.of(x, y, weights, RANKS)
    assert torch.equal(part.counts, whole.counts)
    assert torch.equal(part.means, whole.means)
    torch.testing.assert_close(part.fourier_means, whole.fourier_means, rtol=0, atol=0.1)
    ratio = part.fourier_scatter.dense()[0].trace() / whole.fourier_scatter.dense()[0].trace()
    assert abs(float(ratio) - 1) < 0.05


def test_scatters_of_many_rows_in_single_precision_are_those_in_double(monkeypatch):
    """Directions and diagonal as the eight bits keep them, whichever way they were computed."""
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(900, COLUMNS, generator=generator) * torch.linspace(0.1, 2, COLUMNS)
    labels, weights = torch.arange(900) % 2, 0.5 + torch.rand(900, generator=generator)
    expected = ClassDensities.of(rows, labels, weights, RANKS)
    for module in ("records", "scatters"):
        monkeypatch.setattr(f"ibcl.routing.{module}.MANY", 1000)
    found = ClassDensities.of(rows, labels, weights, RANKS)
    torch.testing.assert_close(found.means, expected.means, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.fourier_means, expected.fourier_means, rtol=1e-4, atol=1e-5)
    for name in ("scatters", "fourier_scatter"):
        mine, theirs = getattr(found, name).dense(), getattr(expected, name).dense()
        assert float((mine - theirs).norm()) < 0.01 * float(theirs.norm())
        torch.testing.assert_close(
            mine.diagonal(dim1=1, dim2=2), theirs.diagonal(dim1=1, dim2=2), rtol=1e-3, atol=1e-3
        )


@pytest.mark.parametrize(("samples", "directions"), [(9, 9), (40, None)])
def test_of_few_samples_a_posterior_is_kept_as_their_few_directions(samples, directions):
    """Exactly: it is the same Gaussian, at a fraction of the bytes, and so are saved ones."""
    from ibcl.gaussians import DenseGaussian, LowRankGaussian

    x = torch.randn(samples, 60, generator=torch.Generator().manual_seed(0))
    y = x[:, 0] > 0
    small, whole = (ibcl.IBCL(ibcl.networks.linear(60), memory=kept) for kept in (None, "exact"))
    for learner in (small, whole):
        learner.learn(x, y, task="few")
    (kept,), (full,) = small.knowledge.stored, whole.knowledge.stored
    assert isinstance(full, DenseGaussian)
    assert isinstance(kept, LowRankGaussian) == (directions is not None)
    if isinstance(kept, LowRankGaussian):
        assert kept.factor.shape[1] == directions
        assert kept.nbytes < full.nbytes / 2
    torch.testing.assert_close(kept.mean, full.mean, rtol=0, atol=0)
    torch.testing.assert_close(kept.dense().precision, full.precision, rtol=1e-9, atol=1e-9)
