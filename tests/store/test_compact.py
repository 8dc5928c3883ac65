"""Compact posteriors: small, positive definite whatever is rounded, and hardly any worse."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learners import load
from torch import Tensor

import ibcl
from ibcl import store
from ibcl.gaussians import Gaussian, LowRankGaussian
from ibcl.store.posteriors import contents, decode, encode
from theorems import FAMILIES, random_gaussian

STORAGES = ("float16", "eigenvectors:24")


def passed_through_a_file(
    posterior: Gaussian, storage: str, prior: Gaussian, named: bool = True
) -> Gaussian:
    """Write and read; without its family's name, as folders of the first format have it."""
    encoding = encode(posterior, storage, ("0" * 64, prior))
    base = prior if encoding.entry.base else None
    entry = encoding.entry if named else encoding.entry.model_copy(update={"family": None})
    return decode(contents(posterior, encoding), entry, posterior.dimension, storage, base)


def assert_evidence_stays_a_likelihood(
    found: ibcl.DenseGaussian, prior: ibcl.DenseGaussian
) -> None:
    """The precision added to the prior's has no negative eigenvalue, up to double precision."""
    values = torch.linalg.eigvalsh(found.precision - prior.precision)
    assert float(values[0]) >= -1e-12 * float(found.precision.abs().max())


def random_evidence(dimension: int, rank: int, decades: float, seed: int) -> Tensor:
    """Σ λ φ φᵀ of so many samples, with features of very different sizes."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rank, dimension, generator=generator, dtype=torch.float64)
    scaled = features * torch.logspace(-decades / 2, decades / 2, dimension, dtype=torch.float64)
    return scaled.T @ scaled


@settings(max_examples=60, deadline=None)
@given(
    dimension=st.integers(1, 24),
    rank=st.integers(0, 40),
    decades=st.floats(0, 12),
    scale=st.floats(-12, 12),
    prior_scale=st.floats(-6, 6),
    storage=st.sampled_from(["float16", "eigenvectors:1", "eigenvectors:5", "eigenvectors:99"]),
    seed=st.integers(0, 10**6),
)
def test_any_posterior_survives(
    dimension: int,
    rank: int,
    decades: float,
    scale: float,
    prior_scale: float,
    storage: str,
    seed: int,
) -> None:
    identity = torch.eye(dimension, dtype=torch.float64)
    prior = ibcl.DenseGaussian(torch.zeros(dimension), 10**prior_scale * identity)
    evidence = 10**scale * random_evidence(dimension, rank, decades, seed)
    mean = torch.randn(dimension, generator=torch.Generator().manual_seed(seed))
    try:
        posterior = ibcl.DenseGaussian(mean, prior.precision + evidence)
    except ValueError:
        return
    found = passed_through_a_file(posterior, storage, prior).dense()
    assert torch.equal(found.mean, mean.double())
    assert_evidence_stays_a_likelihood(found, prior)
    diagonal = posterior.precision.diagonal()
    assert torch.allclose(found.precision.diagonal(), diagonal, rtol=2e-3, atol=0)


def test_float16_keeps_directions_the_task_says_nothing_about() -> None:
    """Strong evidence along few directions, a weak prior along the rest."""
    prior = ibcl.DenseGaussian(torch.zeros(60), 0.01 * torch.eye(60, dtype=torch.float64))
    posterior = ibcl.DenseGaussian(
        torch.zeros(60), prior.precision + 1e3 * random_evidence(60, 20, 0, seed=1)
    )
    found = passed_through_a_file(posterior, "float16", prior).dense()
    weakest = torch.linalg.eigvalsh(found.precision)[:40]
    assert float(weakest.min()) >= 0.01 * (1 - 1e-6)
    # Rounding the evidence itself, not a factor of it, misses this by orders of magnitude.
    assert float(weakest.median()) < 0.02
    relative = (found.precision - posterior.precision).norm() / posterior.precision.norm()
    assert float(relative) < 5e-4


@pytest.mark.parametrize("storage", ["float16", "eigenvectors:4"])
def test_evidence_of_few_directions_is_kept_to_half_precision(storage: str) -> None:
    """Rounding unit rows by at most 2⁻¹¹ of each number moves their products by at most 2⁻¹⁰."""
    evidence = random_evidence(12, rank=4, decades=2, seed=0)
    prior = ibcl.DenseGaussian(torch.zeros(12), torch.eye(12, dtype=torch.float64))
    posterior = ibcl.DenseGaussian(torch.zeros(12), prior.precision + evidence)
    found = passed_through_a_file(posterior, storage, prior).dense()
    scale = evidence.diagonal().sqrt()
    error = (found.precision - posterior.precision) / scale / scale[:, None]
    assert float(error.abs().max()) < 1.01 * 2**-10


def test_a_posterior_wider_than_its_prior_is_kept_whole() -> None:
    """There is no evidence to keep then; the posterior's own precision is kept compactly."""
    prior = ibcl.DenseGaussian(torch.zeros(6), 4 * torch.eye(6, dtype=torch.float64))
    posterior = ibcl.DenseGaussian(
        torch.ones(6), 0.5 * torch.eye(6, dtype=torch.float64) + random_evidence(6, 2, 0, seed=0)
    )
    found = passed_through_a_file(posterior, "float16", prior).dense()
    assert encode(posterior, "float16", ("0" * 64, prior)).entry.base is None
    assert torch.allclose(found.precision, posterior.precision, rtol=2e-3, atol=2e-3)


@pytest.fixture(scope="module")
def learnt() -> tuple[ibcl.IBCL, list[tuple[Tensor, Tensor]]]:
    """Four related tasks with 64 features of decreasing size, and their test data."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.logspace(0.5, -1, 64)
    learner = ibcl.IBCL(
        ibcl.networks.linear(64), inference=ibcl.DenseVI(), pooling="evidence", d=0, priors=[2.5]
    )
    common = torch.randn(64, generator=generator)
    tests = []
    for number in range(4):
        x = torch.randn(600, 64, generator=generator) * sizes
        weights = common + 0.5 * torch.randn(64, generator=generator)
        y = x @ weights + torch.randn(600, generator=generator) > 0
        learner.learn(x[:300], y[:300], task=f"task {number}")
        tests.append((x[300:], y[300:]))
    return learner, tests


def accuracy(learner: ibcl.IBCL, tests: list[tuple[Tensor, Tensor]]) -> float:
    scores = []
    for weights in ibcl.sample_preferences(len(tests), 10, seed=0):
        model = learner.model(weights)
        right = [float((model.predict(x) == y).float().mean()) for x, y in tests]
        scores.append(sum(weight * score for weight, score in zip(weights, right, strict=True)))
    return sum(scores) / len(scores)


@pytest.mark.parametrize(
    ("storage", "named", "lost", "smaller"),
    [("float16", "Dense", 0.001, 5), ("eigenvectors:24", "LowRank", 0.01, 5)],
)
def test_accuracy_hardly_moves_and_files_are_small(
    storage: str,
    named: str,
    lost: float,
    smaller: float,
    learnt: tuple[ibcl.IBCL, list[tuple[Tensor, Tensor]]],
    tmp_path: Path,
) -> None:
    learner, tests = learnt
    learner.save(tmp_path / "exact", storage="exact")
    learner.save(tmp_path / "compact", storage=storage)
    loaded = load(tmp_path / "compact")
    assert all(named in repr(q) for q in loaded.knowledge.stored[:2])
    assert accuracy(learner, tests) > 0.75
    assert abs(accuracy(loaded, tests) - accuracy(learner, tests)) <= lost
    for task in learner.tasks:
        factor = loaded.knowledge.evidence(task, 0).dense().precision
        assert float(torch.linalg.eigvalsh(factor)[0]) > -1e-9
    exact, compact = store.size(tmp_path / "exact"), store.size(tmp_path / "compact")
    assert compact.posteriors * smaller < exact.posteriors


@pytest.mark.parametrize("storage", STORAGES)
def test_learning_goes_on_from_compact_posteriors(
    storage: str, learnt: tuple[ibcl.IBCL, list[tuple[Tensor, Tensor]]], tmp_path: Path
) -> None:
    learner, tests = learnt
    learner.save(tmp_path, storage=storage)
    for number, name in enumerate(("more", "and more")):
        loaded = load(tmp_path, autosave=True)
        loaded.learn(*tests[number], task=name)
        again = load(tmp_path)
        assert again.storage == storage
        assert_evidence_stays_a_likelihood(
            again.knowledge.extremes(name)[0].dense(),
            again.knowledge.prior_of(name, 0).dense(),
        )
    assert load(tmp_path).tasks == (*learner.tasks, "more", "and more")


def test_storage_can_be_changed_back_and_forth(
    learnt: tuple[ibcl.IBCL, list[tuple[Tensor, Tensor]]], tmp_path: Path
) -> None:
    learner, _ = learnt
    sizes = []
    for number, storage in enumerate(["exact", "float16", "eigenvectors:8", "exact"]):
        learner.save(tmp_path, storage=storage, overwrite=number == 0)
        sizes.append(store.size(tmp_path).posteriors)
    assert sizes[0] == sizes[3] > sizes[1] > sizes[2]


@pytest.mark.parametrize("kind", ["low_rank", "block_diagonal"])
@pytest.mark.parametrize("storage", ["float16", "eigenvectors:2", "eigenvectors:1"])
@pytest.mark.parametrize("named", [True, False])
def test_every_family_is_rounded_in_its_own_way(kind: str, storage: str, named: bool) -> None:
    prior = random_gaussian("diagonal", 8, 0)
    factor = random_gaussian(kind, 8, 1).natural_parameters()
    posterior = (prior.natural_parameters() + factor).gaussian()
    if not named and kind == "block_diagonal":
        with pytest.raises(ibcl.StoreError, match="it holds mean, positions, scale, triangle"):
            passed_through_a_file(posterior, storage, prior, named)
        return
    found = passed_through_a_file(posterior, storage, prior, named)
    assert found.family == kind
    assert torch.equal(found.mean, posterior.mean.float().double())
    ours, theirs = (q.natural_parameters() - prior.natural_parameters() for q in (found, posterior))
    scale = theirs.precision_diagonal().sqrt()
    error = (ours.dense().precision - theirs.dense().precision) / scale / scale[:, None]
    torch.testing.assert_close(
        ours.precision_diagonal(), theirs.precision_diagonal(), rtol=2e-3, atol=0
    )
    if storage != "eigenvectors:1" or kind == "block_diagonal":
        assert float(error.abs().max()) < 1.01 * 2**-10


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("storage", ["exact", "float16", "eigenvectors:3"])
def test_writing_what_was_read_writes_the_same_bytes(kind: str, storage: str) -> None:
    prior = random_gaussian("diagonal", 8, 0)
    factor = random_gaussian(kind, 8, 1).natural_parameters()
    posterior = (prior.natural_parameters() + factor).gaussian()
    before = encode(posterior, storage, ("0" * 64, prior))
    data = contents(posterior, before)
    base = prior if before.entry.base else None
    found = decode(data, before.entry, 8, storage, base, "0" * 64)
    after = encode(found, storage, ("0" * 64, prior))
    assert after.entry == before.entry
    assert contents(found, after) == data
    if storage == "exact" or kind in ("diagonal", "independent"):
        assert found.equal(posterior)
        assert before.entry.family == kind
    else:
        assert before.entry.family is not None
        assert before.entry.family.endswith(":float16")


@pytest.mark.parametrize("kind", ["diagonal", "dense"])
def test_files_without_a_family_are_known_by_their_tensors(kind: str) -> None:
    prior = random_gaussian("diagonal", 5, 0)
    posterior = random_gaussian(kind, 5, 1)
    assert passed_through_a_file(posterior, "exact", prior, named=False).equal(posterior)


def test_few_directions_stay_few_in_memory() -> None:
    """At 512 features a task takes an eighth of its dense posterior's bytes, or less."""
    generator = torch.Generator().manual_seed(0)
    prior = ibcl.DiagonalGaussian(torch.zeros(513), torch.full((513,), 2.5))
    features = torch.randn(600, 513, generator=generator).double()
    dense = prior.dense().precision + features.T @ features
    posterior = ibcl.DenseGaussian(torch.zeros(513).double(), dense)
    found = passed_through_a_file(posterior, "eigenvectors:64", prior)
    assert isinstance(found, LowRankGaussian)
    assert found.factor.shape == (513, 64)
    evidence = found.natural_parameters() - prior.natural_parameters()
    assert evidence.factor.data_ptr() == found.factor.data_ptr()
    assert found.nbytes * 8 < posterior.nbytes * 1.02
    # Ten thousand tasks then take 1.4 GB, and their evidence little more.
    assert 10_000 * found.nbytes < 1.5e9
