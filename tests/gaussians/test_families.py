import math

import numpy as np
import ot
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch.distributions import MultivariateNormal, kl_divergence

from ibcl import DenseGaussian, DiagonalGaussian
from ibcl.gaussians import (
    BlockDiagonalGaussian,
    Gaussian,
    IndependentGaussian,
    LowRankGaussian,
    barycentre,
    family_named,
    register,
)
from theorems import FAMILIES, random_gaussian

seeds = st.integers(0, 10_000)
dimensions = st.integers(1, 6)


def reference(q: Gaussian) -> MultivariateNormal:
    """The same distribution by torch, from the matrix of its precision."""
    return MultivariateNormal(q.mean.double(), precision_matrix=q.dense().precision.double())


@pytest.mark.parametrize("kind", FAMILIES)
@given(seed=seeds, dimension=dimensions)
def test_log_density_matches_torch_and_scipy(kind, seed, dimension):
    q = random_gaussian(kind, dimension, seed)
    theta = q.sample(5, torch.Generator().manual_seed(seed))
    torch.testing.assert_close(q.log_prob(theta), reference(q).log_prob(theta))
    torch.testing.assert_close(q.log_prob(theta[0]), q.log_prob(theta)[0])
    assert q.log_prob(theta.reshape(5, 1, dimension)).shape == (5, 1)
    assert q.log_determinant == pytest.approx(q.dense().log_determinant, abs=1e-10)
    scipy = multivariate_normal(q.mean.numpy(), q.dense().covariance.numpy()).logpdf(theta.numpy())
    np.testing.assert_allclose(q.log_prob(theta).numpy(), np.atleast_1d(scipy), rtol=1e-8)


@pytest.mark.parametrize("left", FAMILIES)
@pytest.mark.parametrize("right", FAMILIES)
@given(seed=seeds, dimension=dimensions)
def test_kl_and_wasserstein_match_torch_and_pot(left, right, seed, dimension):
    q, p = random_gaussian(left, dimension, seed), random_gaussian(right, dimension, seed + 1)
    assert q.kl(p) == pytest.approx(float(kl_divergence(reference(q), reference(p))), abs=1e-8)
    pot = ot.gaussian.bures_wasserstein_distance(
        q.mean.numpy(), p.mean.numpy(), q.dense().covariance.numpy(), p.dense().covariance.numpy()
    )
    assert q.wasserstein(p) == pytest.approx(float(pot), abs=1e-5)
    assert q.wasserstein(p) == pytest.approx(p.wasserstein(q), abs=1e-8)
    assert q.wasserstein(q) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", FAMILIES)
def test_samples_have_the_right_moments_and_follow_the_seed(kind):
    q = random_gaussian(kind, 3, seed=1)
    draws = q.sample(200_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.mean(0), q.mean, atol=0.02, rtol=0)
    torch.testing.assert_close(draws.T.cov(), q.dense().covariance, atol=0.03, rtol=0.03)
    # Standard normal noise of length r lands on the ellipsoid of radius r, exactly.
    noise = torch.randn(20, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    lengths = q.mahalanobis_squared(q.unwhiten(noise))
    torch.testing.assert_close(lengths, noise.square().sum(1))
    torch.testing.assert_close(q.unwhiten(noise[0]), q.unwhiten(noise)[0], rtol=1e-12, atol=1e-12)
    assert torch.equal(
        q.sample(4, torch.Generator().manual_seed(7)), q.sample(4, torch.Generator().manual_seed(7))
    )


@pytest.mark.parametrize("kind", FAMILIES)
@given(seed=seeds)
def test_natural_parameters_of_a_product_add(kind, seed):
    q, p = random_gaussian(kind, 3, seed), random_gaussian(kind, 3, seed + 1)
    linear = q.natural_parameters().linear + p.natural_parameters().linear
    precision = q.dense().precision + p.dense().precision
    product = DenseGaussian(torch.linalg.solve(precision, linear), precision)
    theta = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).double()
    gap = q.log_prob(theta) + p.log_prob(theta) - product.log_prob(theta)
    torch.testing.assert_close(gap, gap[:1].expand_as(gap))


def test_float32_storage_keeps_double_precision_densities():
    dimension = 30_000
    q = DiagonalGaussian(torch.ones(dimension), torch.full((dimension,), 1e-3))
    assert q.mean.dtype == torch.float32
    theta = q.mean.double() + q.std.double()
    assert float(q.mahalanobis_squared(theta)) == pytest.approx(dimension, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DiagonalGaussian([0.0], [0.0]), "positive"),
        (lambda: DiagonalGaussian([0.0], [-1.0]), "positive"),
        (lambda: DiagonalGaussian([0.0, 1.0], [1.0]), "same length"),
        (lambda: DiagonalGaussian([math.nan], [1.0]), "not finite"),
        (lambda: DiagonalGaussian([], []), "non-empty"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0, 0.0], [0.5, 1.0]]), "symmetric"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0, 2.0], [2.0, 1.0]]), "positive definite"),
        (lambda: DenseGaussian([0.0, 0.0], [[1.0]]), "shape"),
        (lambda: LowRankGaussian([0.0], [1.0, 1.0], [[1.0]]), "same length"),
        (lambda: LowRankGaussian([0.0], [0.0], [[1.0]]), "positive"),
        (lambda: LowRankGaussian([0.0, 0.0], [1.0, -1.0], [[1.0], [1.0]]), "positive"),
        (lambda: DiagonalGaussian([0.0, 0.0], [1.0, -1.0]), "positive"),
        (lambda: DiagonalGaussian([0.0, math.inf], [1.0, 1.0]), "not finite"),
        (lambda: LowRankGaussian([0.0], [1.0], [1.0]), "1 rows"),
        (lambda: LowRankGaussian([0.0], [1.0], [[math.inf]]), "not finite"),
        (lambda: BlockDiagonalGaussian([0.0, 0.0], [[[1.0]]], [[0], [1]]), r"shape \(2, 1, 1\)"),
        (lambda: BlockDiagonalGaussian([0.0, 0.0], [[[1.0]]] * 2, [[0], [0]]), "once"),
        (lambda: BlockDiagonalGaussian([0.0, 0.0], [[[1.0]]], [[0]]), "once"),
        (lambda: BlockDiagonalGaussian([0.0], [[[1.0]]], [[0.0]]), "whole numbers"),
        (lambda: BlockDiagonalGaussian([0.0], [[[-1.0]]], [[0]]), "positive definite"),
        (lambda: IndependentGaussian([]), "at least one"),
        (lambda: family_named("cauchy"), "'cauchy' is not known; known are diagonal"),
        (lambda: random_gaussian("dense", 2, 0).kl(random_gaussian("dense", 3, 0)), "dimensions"),
        (lambda: random_gaussian("dense", 2, 0).log_prob([0.0]), "2 parameters"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kind", FAMILIES)
@given(seed=seeds, dimension=st.integers(1, 5), share=st.floats(0.1, 0.9))
def test_barycentres_match_their_dense_twins(kind, seed, dimension, share):
    members = [random_gaussian(kind, dimension, seed + i) for i in range(2)]
    found = barycentre([share, 1 - share], members)
    expected = barycentre([share, 1 - share], [q.dense() for q in members])
    torch.testing.assert_close(found.mean, expected.mean)
    torch.testing.assert_close(
        found.dense().covariance, expected.dense().covariance, rtol=1e-5, atol=1e-7
    )
    assert type(found) is type(members[0]) or kind == "low_rank"


def test_barycentres_and_distances_of_other_blocks_and_families_go_through_matrices():
    blocks = torch.eye(2).double().expand(2, 2, 2) + 0.5
    pairs = [[[0, 1], [2, 3]], [[0, 2], [1, 3]]]
    q, p = (BlockDiagonalGaussian(torch.zeros(4).double(), blocks, pair) for pair in pairs)
    assert q.wasserstein(p) == pytest.approx(q.dense().wasserstein(p.dense()))
    middle = barycentre([0.5, 0.5], [q, p])
    assert middle.family == "dense"
    assert middle.wasserstein(q) == pytest.approx(middle.wasserstein(p), abs=1e-6)
    mixed = barycentre([0.5, 0.5], [q, random_gaussian("diagonal", 4, 0)])
    assert mixed.family == "dense"
    halves, parts = (
        IndependentGaussian([random_gaussian("dense", n, seed=n) for n in sizes])
        for sizes in ([2, 2], [1, 3])
    )
    twin = barycentre([0.3, 0.7], [halves.dense(), parts.dense()])
    assert barycentre([0.3, 0.7], [halves, parts]).wasserstein(twin) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    "make",
    [
        lambda of: DiagonalGaussian(of([0, 1]), of([1, 2])),
        lambda of: DenseGaussian(of([0, 1]), of([[2, 1], [1, 2]])),
        lambda of: LowRankGaussian(of([0, 1]), of([1, 2]), of([[1], [3]])),
        lambda of: BlockDiagonalGaussian(of([0, 1]), of([[[2]], [[3]]]), [[1], [0]]),
    ],
)
def test_whole_numbers_are_numbers(make):
    whole, real = make(lambda values: values), make(lambda values: torch.tensor(values).float())
    assert whole.mean.dtype == torch.float32
    assert whole.equal(real)


def test_only_families_with_a_matrix_have_a_compact_form():
    natural = DiagonalGaussian([0.0], [1.0]).natural_parameters()
    assert natural.half(torch.ones(1)) is None
    with pytest.raises(ValueError, match="no compact form; it holds precision"):
        type(natural).from_half({"precision": torch.ones(1)}, 1)


@pytest.mark.parametrize("kind", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_lead_back_to_the_same_bits(kind, dtype):
    q = random_gaussian(kind, 6, 3).natural_parameters().gaussian(dtype)
    again = type(q).from_tensors(q.tensors(), 6)
    assert again.equal(q)
    assert again.mean.dtype == q.mean.dtype
    assert again.log_determinant == q.log_determinant
    theta = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again.log_prob(theta), q.log_prob(theta))


@pytest.mark.parametrize("kind", FAMILIES)
def test_equality_is_of_family_type_and_every_bit(kind):
    q = random_gaussian(kind, 6, 3)
    tensors = q.tensors()
    for name, tensor in tensors.items():
        if not tensor.is_floating_point():
            continue
        changed = tensor.clone()
        flat = changed.view(-1)
        # The last number of a symmetric matrix is on its diagonal.
        flat[-1] = torch.nextafter(flat[-1], flat[-1] + 1)
        assert not q.equal(type(q).from_tensors({**tensors, name: changed}, 6))
    assert not q.equal(random_gaussian(kind, 6, 4))
    other = "dense" if kind == "diagonal" else "diagonal"
    assert not q.equal(random_gaussian(other, 6, 3))
    mean = torch.zeros(6)
    narrow, wide = (
        q.natural_parameters().around(mean.to(d)) for d in (torch.float32, torch.float64)
    )
    assert not narrow.equal(wide)


def test_bytes_are_those_in_memory():
    expected = {
        "diagonal": 8 * 12,
        "dense": 8 * (6 + 36),
        "low_rank": 8 * (6 + 6 + 12),
        "block_diagonal": 8 * (6 + 12 + 6),
        "independent": 8 * (6 + 3 + 9),
    }
    for kind, size in expected.items():
        assert random_gaussian(kind, 6, 1).nbytes == size
    q = LowRankGaussian(torch.zeros(6), torch.ones(6), torch.ones(6, 2).half())
    assert q.nbytes == 24 + 24 + 24


def test_coordinates_that_are_alike_are_kept_once():
    prior = DiagonalGaussian(torch.zeros(1000), torch.full((1000,), 2.5))
    assert {name: len(tensor) for name, tensor in prior.tensors().items()} == {"mean": 1, "std": 1}
    assert prior.nbytes == 8000
    again = DiagonalGaussian.from_tensors(prior.tensors(), 1000)
    assert again.equal(prior)
    assert again.dimension == 1000
    # −0 equals 0, but is another number; and so is one mean that differs, or one std.
    for mean, std in (([0.0, -0.0], [1.0, 1.0]), ([0.0, 1.0], [1.0, 1.0]), ([0.0] * 2, [1.0, 2.0])):
        assert len(DiagonalGaussian(mean, std).tensors()["mean"]) == 2
    assert not DiagonalGaussian([0.0], [1.0]).equal(DiagonalGaussian([0.0, 0.0], [1.0, 1.0]))


@pytest.mark.parametrize("kind", FAMILIES)
def test_tensors_that_do_not_fit_are_refused(kind):
    q = random_gaussian(kind, 6, 3)
    tensors = q.tensors()
    with pytest.raises(ValueError, match=r"6 parameters, the network 7|once"):
        type(q).from_tensors(tensors, 7)
    for name in tensors:
        missing = {key: value for key, value in tensors.items() if key != name}
        with pytest.raises(ValueError, match=r"holds|whole numbers"):
            type(q).from_tensors(missing, 6)
    with pytest.raises(ValueError, match="holds"):
        type(q).from_tensors({**tensors, "more": torch.ones(1)}, 6)
    name = next(name for name, tensor in tensors.items() if tensor.is_floating_point())
    with pytest.raises(ValueError, match="instead of floating-point"):
        type(q).from_tensors({**tensors, name: torch.ones(1, dtype=torch.int64)}, 6)


def test_names_of_families_are_plain_and_taken_once():
    for cls in Gaussian.__subclasses__():
        if cls.__module__.startswith("ibcl."):
            assert family_named(cls.family) is cls
            assert register(cls) is cls

    class Nameless(DiagonalGaussian):
        family = "two words"

    class Impostor(DiagonalGaussian):
        family = "dense"

    with pytest.raises(ValueError, match="Nameless needs a class attribute family"):
        register(Nameless)
    with pytest.raises(ValueError, match="'dense' is DenseGaussian already"):
        register(Impostor)
    assert family_named("dense") is DenseGaussian
