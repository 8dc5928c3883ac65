"""Top-k routing: costly experts are left out only as far as the tolerance allows."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ibcl
from ibcl.experts import EXPERTS, Expert, Fitted
from ibcl.pooling import RoutedEvidence
from ibcl.routing.top_k import kept_shares

PLACES = [-3.0, -1.0, 1.0, 3.0]
PREFERENCES = [[0.25] * 4, [0.97, 0.01, 0.01, 0.01], [0, 1, 0, 0], [0, 0, 0.5, 0.5]]


class Slope(Fitted):
    """Answers with a curve of its own, and counts the rows it was asked."""

    name = "slope"
    costly = True

    def __init__(self, size: float) -> None:
        self.size, self.asked, self.calls = size, 0, 0

    def answers(self, x):
        """One curve per task."""
        self.asked, self.calls = self.asked + len(x), self.calls + 1
        chance = torch.sigmoid(self.size * x[:, :1].double())
        return torch.cat([1 - chance, chance], 1)

    def encode(self):
        """Write the slope."""
        return repr(self.size).encode()


class Slopes(Expert):
    """Experts that are costly to run."""

    name = "slope"
    reads_inputs = True

    def __init__(self, share: float = 1.0) -> None:
        self.share = share

    def fit(self, data, classes, seed):
        """Take the average of the labels."""
        return Slope(float(data.x.mean()))

    def description(self):
        """Nothing to say."""
        return {}

    @classmethod
    def from_description(cls, description):
        """Nothing to read."""
        assert description == {}
        return cls()

    @classmethod
    def decode(cls, data):
        """Read the slope."""
        return Slope(float(data))


def data() -> list[tuple[np.ndarray, np.ndarray]]:
    random = np.random.default_rng(0)
    inputs = [random.normal(size=(100, 2)) + place for place in PLACES]
    return [(x, x[:, 1] > place) for x, place in zip(inputs, PLACES, strict=True)]


def learnt(tolerance: float, share: float = 1.0) -> ibcl.IBCL:
    learner = ibcl.IBCL(
        ibcl.networks.linear(2),
        pooling=RoutedEvidence(tolerance=tolerance),
        expert=Slopes(share),
        calibration=0.3,
    )
    for place, (x, y) in zip(PLACES, data(), strict=True):
        learner.learn(x, y, task=f"at {place:g}")
    return learner


def runs(learner: ibcl.IBCL) -> list[Slope]:
    return [parts["expert"].fitted for parts in learner.knowledge.parts]


@pytest.fixture(scope="module")
def rows() -> np.ndarray:
    return np.random.default_rng(1).normal(size=(200, 2)) * 3


@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=8),
    st.floats(0, 0.49),
    st.integers(0, 255),
)
def test_no_more_than_the_tolerance_is_left_out(sizes, tolerance, which):
    shares = torch.tensor([sizes], dtype=torch.float64)
    shares = shares / shares.sum()
    costly = torch.tensor([bool(which >> place & 1) for place in range(len(sizes))])
    kept = kept_shares(shares, costly, tolerance)
    gone = (kept == 0) & (shares > 0)
    assert not bool((gone & ~costly).any())
    assert float(shares[gone].sum()) <= tolerance
    assert float(kept.sum()) == pytest.approx(1)
    # One more, the smallest of what is left, would have been too much.
    rest = shares[~gone & costly]
    assert not len(rest) or float(shares[gone].sum() + rest.min()) > tolerance
    assert torch.allclose(kept[~gone] * shares[~gone].sum(), shares[~gone])


@pytest.mark.parametrize("tolerance", [0.0, 0.02, 0.3])
def test_answers_are_the_full_sums_within_the_tolerance_at_every_door(tolerance, rows):
    full, some = learnt(0.0), learnt(tolerance)
    crossed = some.predict_many(rows, PREFERENCES)
    for number, weights in enumerate(PREFERENCES):
        model, exact = some.model(weights), full.model(weights)
        answers = model.predict_proba(rows)
        assert np.abs(answers - exact.predict_proba(rows)).max() <= tolerance + 1e-6
        # One preference, many at once and one per row leave out the same experts.
        assert np.allclose(crossed[number], answers, atol=1e-6)
        bounds = model.credal_bounds(rows)
        assert (bounds.lower <= answers + 1e-9).all()
        assert (answers <= bounds.upper + 1e-9).all()
        assert np.array_equal(bounds.lower, np.minimum(answers, exact.credal_bounds(rows).lower))
        total, within, between = model.uncertainty(rows)
        assert np.allclose(total, within + between)
    each = torch.tensor([PREFERENCES[number % 4] for number in range(len(rows))])
    paired = some.state.predictives.answers(some.state.features(rows)).paired(each.double())
    assert np.allclose(paired, crossed[np.arange(len(rows)) % 4, np.arange(len(rows))], atol=1e-6)


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_task_whose_expert_is_not_run_answers_with_its_head(share, rows):
    """The difference to the full sum is Σ r_k λ_k (expert − head) over those, written out here."""
    some, full = learnt(0.3, share), learnt(0.0, share)
    heads = ibcl.IBCL(ibcl.networks.linear(2), calibration=0.3, pooling=RoutedEvidence())
    for task, (x, y) in zip(some.tasks, data(), strict=True):
        heads.learn(x, y, task=task)
    model, exact = some.model([0.25] * 4), full.model([0.25] * 4)
    shares = model.routing(rows)
    each = np.stack([heads.model(row).predict_proba(rows) for row in np.eye(4)], 1)
    experts = np.stack([fit.answers(torch.as_tensor(rows)).numpy() for fit in runs(some)], 1)
    smallest = np.argsort(shares, 1)
    left = np.zeros_like(shares, dtype=bool)
    np.put_along_axis(left, smallest, np.cumsum(np.sort(shares, 1), 1) <= 0.3, 1)
    difference = (np.where(left, shares, 0)[:, :, None] * share * (each - experts)).sum(1)
    found = model.predict_proba(rows) - exact.predict_proba(rows)
    assert np.allclose(found, difference, atol=1e-6)
    assert np.abs(found).max() <= 0.3 * share


def test_only_experts_that_matter_are_run_each_once_on_all_its_rows(rows):
    learner = learnt(0.05)
    near = np.random.default_rng(2).normal(size=(300, 2)) * 0.3 + 3
    learner.model([0.25] * 4).predict(near)
    asked = [fitted.asked for fitted in runs(learner)]
    assert asked[:2] == [0, 0]
    assert asked[3] == 300
    for fitted in runs(learner):
        fitted.calls = 0
    learner.predict_many(rows, PREFERENCES)
    assert max(fitted.calls for fitted in runs(learner)) == 1


def test_sets_cover_with_experts_left_out():
    learner = learnt(0.1)
    random = np.random.default_rng(3)
    place = random.choice(PLACES, size=2000)
    x = random.normal(size=(2000, 2)) + place[:, None]
    right = (x[:, 1] > place).astype(int)
    found = learner.model([0.25] * 4).predict_set(x, alpha=0.1)
    assert found[np.arange(2000), right].mean() > 0.86


def test_a_tolerance_that_cannot_be_is_refused():
    with pytest.raises(ValueError, match="tolerance must be at least 0"):
        RoutedEvidence(tolerance=0.5)


def test_the_tolerance_is_stored(monkeypatch, tmp_path, rows):
    monkeypatch.setitem(EXPERTS, "slope", f"{__name__}:Slopes")
    learner = learnt(0.2)
    learner.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base")
    expected = learner.model([0.25] * 4).predict_proba(rows)
    assert np.array_equal(again.model([0.25] * 4).predict_proba(rows), expected)
    assert again.state.rule == RoutedEvidence(tolerance=0.2)
