"""Natural parameters are a vector space, whatever families its elements come from."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl import DenseGaussian, DiagonalGaussian
from ibcl.gaussians import (
    BlockDiagonalGaussian,
    Gaussian,
    ImproperError,
    IndependentGaussian,
    LowRankGaussian,
    LowRankNatural,
    NaturalParameters,
    linear_combination,
)
from theorems import FAMILIES, random_gaussian

kinds = st.sampled_from(FAMILIES)
seeds = st.integers(0, 10_000)
dimensions = st.integers(1, 7)
weights = st.floats(-3, 3)


def natural(kind: str, dimension: int, seed: int) -> NaturalParameters:
    return random_gaussian(kind, dimension, seed).natural_parameters()


def assert_same(a: NaturalParameters, b: NaturalParameters) -> None:
    torch.testing.assert_close(a.linear, b.linear, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(a.dense().precision, b.dense().precision, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("left", FAMILIES)
@pytest.mark.parametrize("right", FAMILIES)
@settings(max_examples=10)
@given(dimension=dimensions, seed=seeds, s=weights)
def test_it_is_a_vector_space(left: str, right: str, dimension: int, seed: int, s: float) -> None:
    a, b = natural(left, dimension, seed), natural(right, dimension, seed + 1)
    assert_same((a + b) - b, a)
    assert_same(b + a, a + b)
    assert_same(s * (a + b), s * a + s * b)
    assert_same(a.plus(b, s), a + s * b)
    assert_same(a * s, s * a)
    assert_same(a - a, 0 * a)


@pytest.mark.parametrize("left", FAMILIES)
@pytest.mark.parametrize("right", FAMILIES)
@settings(max_examples=10)
@given(dimension=dimensions, seed=seeds)
def test_dense_twins_add_alike(left: str, right: str, dimension: int, seed: int) -> None:
    """Embedding commutes with becoming dense."""
    a, b = natural(left, dimension, seed), natural(right, dimension, seed + 1)
    assert_same(a + b, a.dense() + b.dense())
    assert_same(a - b, a.dense() - b.dense())
    embedded = a.embed(b)
    if embedded is not None:
        assert type(embedded) is type(a)
        assert_same(embedded, b)


@pytest.mark.parametrize(
    ("left", "right", "family"),
    [
        ("diagonal", "diagonal", "diagonal"),
        ("diagonal", "dense", "dense"),
        ("diagonal", "low_rank", "low_rank"),
        ("diagonal", "block_diagonal", "block_diagonal"),
        ("diagonal", "independent", "independent"),
        ("dense", "low_rank", "dense"),
        ("dense", "block_diagonal", "dense"),
        ("low_rank", "low_rank", "low_rank"),
        ("low_rank", "block_diagonal", "dense"),
        ("block_diagonal", "block_diagonal", "block_diagonal"),
        ("independent", "independent", "independent"),
        ("independent", "low_rank", "dense"),
    ],
)
def test_sums_stay_in_the_smallest_family_that_holds_them(
    left: str, right: str, family: str
) -> None:
    a, b = natural(left, 6, 0), natural(right, 6, 1)
    assert (a + b).gaussian().family == (b + a).gaussian().family == family


def test_other_blocks_and_sizes_only_meet_densely() -> None:
    blocks = torch.eye(2).double().expand(2, 2, 2) + 0.5
    one, other = (
        BlockDiagonalGaussian(torch.zeros(4).double(), blocks, positions).natural_parameters()
        for positions in ([[0, 1], [2, 3]], [[0, 2], [1, 3]])
    )
    assert (one + other).gaussian().family == "dense"
    assert_same(one + other, one.dense() + other.dense())
    parts = [random_gaussian("dense", size, size) for size in (1, 3)]
    forwards, backwards = IndependentGaussian(parts), IndependentGaussian(parts[::-1])
    product = forwards.natural_parameters() + backwards.natural_parameters()
    assert product.gaussian().family == "dense"


def test_sums_of_different_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"different dimensions.*: 2 and 3"):
        natural("diagonal", 2, 0) + natural("dense", 3, 0)


@settings(max_examples=60)
@given(members=st.lists(st.tuples(weights, kinds), min_size=1, max_size=4), seed=seeds)
def test_linear_combinations_are_sums(members: list[tuple[float, str]], seed: int) -> None:
    terms = [(w, natural(kind, 5, seed + i)) for i, (w, kind) in enumerate(members)]
    expected = sum(w * a.linear for w, a in terms), sum(w * a.dense().precision for w, a in terms)
    found = linear_combination(terms)
    torch.testing.assert_close(found.linear, expected[0], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(found.dense().precision, expected[1], rtol=1e-11, atol=1e-11)


def test_a_combination_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one term"):
        linear_combination([])


@pytest.mark.parametrize("kind", FAMILIES)
@given(dimension=dimensions, seed=seeds)
def test_natural_parameters_lead_back_to_the_gaussian(kind: str, dimension: int, seed: int) -> None:
    q = random_gaussian(kind, dimension, seed)
    found = q.natural_parameters().gaussian()
    assert type(found) is type(q)
    torch.testing.assert_close(found.mean, q.mean, rtol=1e-9, atol=1e-9)
    theirs = q.natural_parameters().dense().precision
    torch.testing.assert_close(
        found.natural_parameters().dense().precision, theirs, rtol=1e-12, atol=1e-12
    )
    assert q.natural_parameters().gaussian(torch.float32).mean.dtype == torch.float32
    assert q.natural_parameters().around(q.mean).mean.equal(q.mean)


@pytest.mark.parametrize("kind", FAMILIES)
@given(dimension=dimensions, seed=seeds)
def test_the_precision_can_be_asked_without_a_matrix(kind: str, dimension: int, seed: int) -> None:
    a = natural(kind, dimension, seed)
    precision = a.dense().precision
    torch.testing.assert_close(a.precision_diagonal(), precision.diagonal())
    # In any order, some left out and some asked for twice.
    index = torch.randint(dimension, (5,), generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(a.precision_at(index), precision[index[:, None], index])
    columns = torch.randn(dimension, 3, generator=torch.Generator().manual_seed(seed)).double()
    torch.testing.assert_close(a.precision_times(columns), precision @ columns)
    torch.testing.assert_close(a.precision_times(columns[:, 0]), precision @ columns[:, 0])
    torch.testing.assert_close(a.linear, precision @ a.mean())
    assert a.dimension == dimension


@pytest.mark.parametrize("kind", FAMILIES)
def test_what_is_no_density_is_refused(kind: str) -> None:
    a = natural(kind, 4, 0)
    for improper in (-1.0 * a, a - 2 * a, 0.0 * a):
        with pytest.raises(ImproperError, match="positive definite"):
            improper.gaussian()
        with pytest.raises(ImproperError, match="positive definite"):
            improper.mean()
        with pytest.raises(ImproperError, match="positive definite"):
            improper.around(torch.zeros(4).double())


def test_only_what_is_negative_is_cut() -> None:
    after = DiagonalGaussian([1.0, 2.0, 3.0, 4.0], [0.5, 2.0, 1.0, 0.5])
    before = DiagonalGaussian(torch.zeros(4), torch.ones(4))
    evidence = after.natural_parameters() - before.natural_parameters()
    kept, share = evidence.proper()
    # Where both know the same the linear term is still evidence: a shift of the mean.
    assert kept.precision_diagonal().tolist() == [3.0, 0.0, 0.0, 3.0]
    assert kept.linear.tolist() == [4.0, 0.0, 3.0, 16.0]
    assert share == 0.25
    again, nothing = kept.proper()
    assert again is kept
    assert nothing == 0
    other = DenseGaussian([0.0], [[1.0]])
    product = IndependentGaussian([after, other]).natural_parameters()
    product = product - IndependentGaussian([before, other]).natural_parameters()
    cut, share = product.proper()
    assert share == pytest.approx(1 / 5)
    assert cut.precision_diagonal().tolist() == [3.0, 0.0, 0.0, 3.0, 0.0]


@pytest.mark.parametrize("kind", ["dense", "low_rank", "block_diagonal"])
def test_correlated_evidence_is_not_cut(kind: str) -> None:
    a = natural(kind, 4, 0)
    kept, share = a.proper()
    assert kept is a
    assert share == 0


class TestLowRank:
    """Sums of few directions stay few, and cost no copy of them."""

    def test_what_was_added_is_taken_away_column_by_column(self) -> None:
        a, b = natural("low_rank", 9, 1), natural("low_rank", 9, 3)
        assert isinstance(a, LowRankNatural)
        both = a + b
        assert isinstance(both, LowRankNatural)
        assert both.rank == 4
        for left, expected in ((both - b, a), (both - a, b)):
            assert isinstance(left, LowRankNatural)
            assert torch.equal(left.factor, expected.factor)
            assert torch.equal(left.weights, torch.ones(2).double())
        assert (a - a).factor.shape == (9, 0)
        assert torch.equal((a + a).weights, torch.full((2,), 2.0).double())

    def test_evidence_on_a_diagonal_prior_shares_the_columns(self) -> None:
        q = LowRankGaussian(torch.zeros(9), torch.ones(9), torch.randn(9, 2))
        prior = DiagonalGaussian(torch.zeros(9), torch.ones(9) * 2)
        evidence = 3.0 * (q.natural_parameters() - prior.natural_parameters())
        assert evidence.factor.data_ptr() == q.factor.data_ptr()
        assert evidence.factor.dtype == torch.float32

    def test_as_many_directions_as_parameters_are_dense(self) -> None:
        a, b = natural("low_rank", 4, 1), natural("low_rank", 4, 3)
        assert (a + b).gaussian().family == "dense"
        assert (natural("low_rank", 5, 1) + natural("low_rank", 5, 3)).gaussian().family == (
            "low_rank"
        )

    def test_a_negative_direction_is_a_dense_gaussian_or_none(self) -> None:
        a, b = natural("low_rank", 9, 1), natural("low_rank", 9, 3)
        fine = 2.0 * a - 0.01 * b
        assert fine.gaussian().family == "dense"
        torch.testing.assert_close(fine.gaussian().mean, fine.dense().mean())

    def test_one_direction_against_the_sherman_morrison_formula(self) -> None:
        d, f = torch.tensor([1.0, 2.0, 4.0]).double(), torch.tensor([[1.0], [2.0], [3.0]]).double()
        eta = torch.tensor([1.0, -1.0, 2.0]).double()
        scaled = f[:, 0] / d
        expected = eta / d - scaled * (scaled @ eta) / (1 + f[:, 0] @ scaled)
        torch.testing.assert_close(LowRankNatural(eta, d, f).mean(), expected)

    def test_strong_directions_are_solved_as_well_as_densely(self) -> None:
        """Woodbury's identity alone, which subtracts almost equal numbers, errs 3 times as much."""
        ours, densely = 0.0, 0.0
        for seed in range(10):
            generator = torch.Generator().manual_seed(seed)
            factor = 1e6 * torch.randn(50, 3, generator=generator).double()
            linear = torch.randn(50, generator=generator).double()
            strong = LowRankNatural(linear, torch.ones(50).double(), factor)
            ours += float((strong.precision_times(strong.mean()) - linear).norm())
            densely += float((strong.precision_times(strong.dense().mean()) - linear).norm())
        assert ours <= 2 * densely

    def test_large_networks_need_no_matrix(self) -> None:
        dimension = 300_000
        generator = torch.Generator().manual_seed(0)
        columns = torch.randn(2, dimension, 2, generator=generator)
        prior = DiagonalGaussian(torch.zeros(dimension), torch.ones(dimension))
        q, p = (LowRankGaussian(torch.zeros(dimension), torch.ones(dimension), c) for c in columns)
        pooled = linear_combination(
            [(1.0, prior.natural_parameters())]
            + [(0.5, r.natural_parameters() - prior.natural_parameters()) for r in (q, p)]
        ).gaussian(torch.float32)
        assert pooled.family == "low_rank"
        assert pooled.sample(1, generator).shape == (1, dimension)
        assert math.isfinite(q.kl(p) + q.kl(prior) + prior.kl(q))
        assert bool(torch.isfinite(pooled.log_prob(q.mean)))
        with pytest.raises(ValueError, match="too large"):
            q.dense()


@settings(max_examples=50)
@given(seed=seeds, rank=st.integers(1, 6))
def test_projections_keep_the_diagonal_and_few_directions_exactly(seed: int, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(6, 2, generator=generator).double()
    prior = torch.rand(6, generator=generator).double() + 0.5
    few = LowRankNatural(torch.zeros(6).double(), torch.zeros(6).double(), factor)
    found = few.dense().low_rank(rank)
    assert found.rank == rank
    if rank >= 2:
        assert_same(found, few)
    full = LowRankNatural(few.linear, prior, factor).dense()
    torch.testing.assert_close(full.low_rank(rank).precision_diagonal(), full.precision_diagonal())
    values = torch.linalg.eigvalsh(full.low_rank(rank).dense().precision)
    assert float(values[0]) > -1e-12


@settings(max_examples=50)
@given(seed=seeds, rank=st.integers(1, 5))
def test_columns_are_projected_as_their_dense_twin_is(seed: int, rank: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factor = torch.randn(8, 5, generator=generator).double()
    tiny = torch.full((8,), 1e-13).double()
    few = LowRankNatural(torch.zeros(8).double(), tiny, factor)
    unit = 1 + torch.rand(8, generator=generator).double()
    ours, theirs = few.low_rank(rank, unit), few.dense().low_rank(rank, unit)
    assert ours is not None
    assert ours.rank == theirs.rank == rank
    torch.testing.assert_close(ours.dense().precision, theirs.dense().precision)
    assert few.low_rank(5) is few


def test_a_projection_of_what_is_negative_is_refused() -> None:
    indefinite = natural("dense", 3, 0) - 5 * natural("dense", 3, 1)
    with pytest.raises(ImproperError, match="semi-definite"):
        indefinite.dense().low_rank(1, torch.ones(3).double())


@pytest.mark.parametrize("kind", ["diagonal", "independent", "block_diagonal"])
def test_families_without_a_projection_say_so(kind: str) -> None:
    assert natural(kind, 4, 0).low_rank(2) is None


@pytest.mark.parametrize("kind", ["dense", "low_rank", "block_diagonal"])
@given(seed=seeds, size=st.floats(-8, 8))
def test_half_precision_is_a_thousandth_off_and_never_negative(
    kind: str, seed: int, size: float
) -> None:
    a = 10**size * natural(kind, 6, seed)
    unit = a.precision_diagonal().sqrt()
    parts = a.half(unit)
    assert parts is not None
    found = type(a).from_half(parts, 6)
    assert type(found) is type(a)
    error = (found.dense().precision - a.dense().precision) / unit / unit[:, None]
    assert float(error.abs().max()) < 2**-9
    assert float(torch.linalg.eigvalsh(found.dense().precision)[0]) > 0
    assert (
        sum(part.nbytes for name, part in parts.items() if part.is_floating_point()) < a.nbytes / 2
    )
    assert (-1.0 * a).half(unit) is None


@pytest.mark.parametrize("kind", FAMILIES)
def test_bytes_are_those_of_its_numbers(kind: str) -> None:
    expected = {
        "diagonal": 6 + 6,
        "dense": 6 + 36,
        "low_rank": 6 + 6 + 12 + 2,
        "block_diagonal": 6 + 12 + 6,
        "independent": 3 + 3 + 3 + 9,
    }
    assert natural(kind, 6, 1).nbytes == 8 * expected[kind]


def test_a_diagonal_among_them_is_recognised() -> None:
    diagonal = random_gaussian("diagonal", 2, 0)
    assert diagonal.as_diagonal() is diagonal
    product: Gaussian = IndependentGaussian([diagonal, random_gaussian("diagonal", 1, 1)])
    found = product.as_diagonal()
    assert found is not None
    torch.testing.assert_close(found.dense().precision, product.dense().precision)
    assert torch.equal(found.mean, product.mean)
    for kind in ("dense", "low_rank", "block_diagonal", "independent"):
        assert random_gaussian(kind, 4, 0).as_diagonal() is None
