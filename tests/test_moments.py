"""Moments against numpy's, in one pass and in batches."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ibcl.routing import Moments
from ibcl.routing import moments as moments_module


def sample(n: int = 40, columns: int = 3, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(n, columns, generator=generator) + 2
    classes = torch.randint(0, 3, (n,), generator=generator)
    # A class number that never occurs, between those that do.
    return features, torch.tensor([0, 2, 5])[classes]


def assert_same_moments(ours: Moments, theirs: Moments) -> None:
    for name, tensor in ours.tensors().items():
        torch.testing.assert_close(tensor, theirs.tensors()[name], rtol=1e-5, atol=1e-5)


def test_they_are_counts_means_and_scatters_of_every_class():
    features, labels = sample()
    found = Moments.of(features, labels)
    assert found.classes.tolist() == [0, 2, 5]
    assert found.by_class
    assert found.columns == 3
    for position, number in enumerate((0, 2, 5)):
        own = features[labels == number].double().numpy()
        assert found.counts[position] == len(own)
        np.testing.assert_allclose(found.means[position], own.mean(0), atol=1e-12)
        scatter = np.cov(own.T, bias=True) * len(own)
        np.testing.assert_allclose(found.scatters[position], scatter, rtol=1e-5)
    np.testing.assert_allclose(found.within(), found.scatters.double().sum(0))
    assert found.within().dtype == torch.float64
    # 3 classes and counts of 8 bytes, means of 9 × 8 and scatters of 27 × 4.
    assert found.nbytes == 24 + 24 + 72 + 108


def test_without_labels_all_samples_are_one_class():
    features, _ = sample()
    found = Moments.of(features)
    assert found.classes.tolist() == [0]
    np.testing.assert_allclose(
        found.scatters[0], np.cov(features.double().numpy().T, bias=True) * 40, rtol=1e-5
    )


def test_a_sample_of_weight_two_counts_twice():
    features, labels = sample()
    weights = torch.arange(40) % 3 + 1
    repeated = [part.repeat_interleave(weights, 0) for part in (features, labels)]
    assert_same_moments(Moments.of(features, labels, weights.double()), Moments.of(*repeated))


@pytest.mark.parametrize("largest", [2**23, 26, 0])
@given(seed=st.integers(0, 1000), cut=st.integers(1, 39))
def test_batches_add_up_to_one_pass(largest, seed, cut):
    """Also where only some batches are large enough for scatters summed over classes."""
    kept = moments_module.LARGEST_BY_CLASS
    moments_module.LARGEST_BY_CLASS = largest
    try:
        features, labels = sample(seed=seed)
        whole = Moments.of(features, labels)
        parts = Moments.of(features[:cut], labels[:cut]) + Moments.of(features[cut:], labels[cut:])
    finally:
        moments_module.LARGEST_BY_CLASS = kept
    if parts.by_class == whole.by_class:
        assert_same_moments(parts, whole)
    torch.testing.assert_close(parts.within(), whole.within(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(parts.counts, whole.counts)
    torch.testing.assert_close(parts.means, whole.means)


def test_scatters_are_summed_over_classes_where_they_would_take_too_much(monkeypatch):
    features, labels = sample()
    whole = Moments.of(features, labels)
    # Three classes of nine numbers each.
    monkeypatch.setattr(moments_module, "LARGEST_BY_CLASS", 27)
    assert Moments.of(features, labels).by_class
    monkeypatch.setattr(moments_module, "LARGEST_BY_CLASS", 26)
    summed = Moments.of(features, labels)
    assert not summed.by_class
    assert summed.scatters.shape == (1, 3, 3)
    torch.testing.assert_close(summed.within(), whole.within())
    # A batch with scatters by class and one with their sum: only the sum is known.
    both = whole + summed
    assert not both.by_class
    torch.testing.assert_close(both.within(), 2 * whole.within())


def test_a_class_may_first_occur_in_a_later_batch():
    features, labels = sample()
    order = labels.argsort(stable=True)
    features, labels = features[order], labels[order]
    cut = int((labels == 0).sum())
    parts = Moments.of(features[cut:], labels[cut:]) + Moments.of(features[:cut], labels[:cut])
    assert_same_moments(parts, Moments.of(features, labels))


def test_they_return_from_their_tensors():
    found = Moments.of(*sample())
    again = Moments.from_tensors(found.tensors(), 3)
    assert all(torch.equal(again.tensors()[n], t) for n, t in found.tensors().items())
    assert Moments.from_tensors(found.tensors(), None).columns == 3


def changed(**tensors: torch.Tensor) -> dict[str, torch.Tensor]:
    return {**Moments.of(*sample()).tensors(), **tensors}


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "cannot consist of nothing"),
        ({**changed(), "more": torch.zeros(1)}, "cannot consist of"),
        (changed(counts=torch.ones(3)), "counts of moments are torch.float32"),
        (changed(scatters=torch.zeros(3, 3, 3).double()), "scatters of moments are torch.float64"),
        (changed(counts=torch.ones(2).double()), "one class, count and mean each"),
        (changed(classes=torch.tensor([0, 1])), "one class, count and mean each"),
        (changed(means=torch.ones(3).double()), "one class, count and mean each"),
        (changed(scatters=torch.zeros(2, 3, 3)), "do not fit 3 classes of 3 features"),
        (changed(counts=torch.tensor([1.0, 0.0, 1.0]).double()), "positive counts"),
        (changed(means=torch.full((3, 3), torch.nan).double()), "finite"),
        (changed(scatters=torch.full((3, 3, 3), torch.inf)), "finite"),
        (changed(classes=torch.tensor([-1, 2, 5])), "ascending numbers from 0"),
        (changed(classes=torch.tensor([0, 2, 2])), "ascending numbers from 0"),
    ],
)
def test_what_are_no_moments_is_refused(tensors, message):
    with pytest.raises(ValueError, match=message):
        Moments.from_tensors(tensors, 3)


def test_moments_of_other_features_are_refused():
    found, other = Moments.of(*sample()), Moments.of(*sample(columns=2))
    with pytest.raises(ValueError, match="of 3 and of 2 features cannot be added"):
        found + other
    with pytest.raises(ValueError, match="3 features, the network 4"):
        Moments.from_tensors(found.tensors(), 4)
