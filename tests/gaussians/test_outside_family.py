"""A family written outside the library, in one class and its natural parameters, works everywhere.

It has one precision for all parameters: q = N(μ, I/p).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ibcl
from ibcl import inference
from ibcl.gaussians import (
    FAMILIES,
    DiagonalNatural,
    Gaussian,
    ImproperError,
    NaturalParameters,
    register,
)
from ibcl.inference import InferenceResult


@dataclass(frozen=True, eq=False)
class IsotropicNatural(NaturalParameters):
    linear: Tensor
    precision: float

    def scaled(self, weight: float) -> IsotropicNatural:
        return IsotropicNatural(weight * self.linear, weight * self.precision)

    def embed(self, other: NaturalParameters) -> IsotropicNatural | None:
        return other if isinstance(other, IsotropicNatural) else None

    def _plus(self, other: IsotropicNatural, weight: float) -> IsotropicNatural:
        return IsotropicNatural(
            self.linear + weight * other.linear, self.precision + weight * other.precision
        )

    def precision_times(self, columns: Tensor) -> Tensor:
        return self.precision * columns

    def mean(self) -> Tensor:
        if self.precision <= 0:
            raise ImproperError("precision must be positive definite.")
        return self.linear / self.precision

    def around(self, mean: Tensor) -> IsotropicGaussian:
        return IsotropicGaussian(mean, self.precision)

    def as_diagonal(self) -> DiagonalNatural:
        return DiagonalNatural(self.linear, torch.full_like(self.linear, self.precision))


class IsotropicGaussian(Gaussian):
    family = "isotropic"
    natural = IsotropicNatural

    def __init__(self, mean: Tensor, precision: float) -> None:
        if not precision > 0:
            raise ImproperError("precision must be positive definite.")
        self.mean, self.precision = mean, float(precision)

    def natural_parameters(self) -> IsotropicNatural:
        return IsotropicNatural(self.precision * self.mean.double(), self.precision)

    def mahalanobis_squared(self, theta: Any) -> Tensor:
        return self.precision * (self.points(theta) - self.mean.double()).square().sum(-1)

    def unwhiten(self, noise: Tensor) -> Tensor:
        return self.mean + noise.to(self.mean.dtype) / math.sqrt(self.precision)

    @property
    def log_determinant(self) -> float:
        return -self.dimension * math.log(self.precision)

    def tensors(self) -> dict[str, Tensor]:
        return {
            "mean": self.mean,
            "precision": torch.tensor([self.precision], dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor], dimension: int) -> IsotropicGaussian:
        if tensors["mean"].shape != (dimension,):
            raise ValueError("the mean does not fit")
        return cls(tensors["mean"], float(tensors["precision"]))


@dataclass(frozen=True)
class IsotropicVI(ibcl.DenseVI):
    """The dense posterior with its precision averaged over all directions."""

    def infer(self, *arguments: Any, **options: Any) -> InferenceResult:
        result = super().infer(*arguments, **options)
        posteriors = tuple(
            IsotropicGaussian(q.mean, float(q.dense().precision.diagonal().mean()))
            for q in result.posteriors
        )
        return InferenceResult(posteriors, result.updates, result.objectives, result.converged)


@pytest.fixture(autouse=True)
def _registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(inference.METHODS, "IsotropicVI", IsotropicVI)
    register(IsotropicGaussian)
    yield
    del FAMILIES["isotropic"]


def task(number: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(40, 3, generator=torch.Generator().manual_seed(number))
    return x, x[:, number] > 0


def learner(tasks: str, isotropic_prior: bool = True, **settings: Any) -> ibcl.IBCL:
    prior = IsotropicGaussian(torch.zeros(4).double(), 0.2) if isotropic_prior else 2.0
    made = ibcl.IBCL(
        ibcl.networks.linear(3),
        [prior],
        IsotropicVI(),
        **{"pooling": "evidence", "d": 0, "independent": True, **settings},
    )
    for name in tasks:
        made.learn(*task("abc".index(name)), task=name)
    return made


def assert_knows_the_same(a: ibcl.IBCL, b: ibcl.IBCL) -> None:
    assert a.tasks == b.tasks
    for ours, theirs in zip(a.knowledge.stored, b.knowledge.stored, strict=True):
        assert ours.equal(theirs)
    for weights in ibcl.sample_preferences(len(a.tasks), 3, seed=0):
        assert torch.equal(a.model(weights).theta, b.model(weights).theta)


@pytest.mark.parametrize("rule", ["wasserstein", "mixture", "evidence"])
def test_it_is_learnt_and_pooled(rule: str) -> None:
    found = learner("ab", pooling=rule)
    assert all(isinstance(q, IsotropicGaussian) for q in found.knowledge.stored)
    for k, name in enumerate(found.tasks):
        model = found.model(np.eye(2)[k])
        x, y = task(k)
        assert float((model.predict(x) == y).float().mean()) > 0.9
        if rule != "evidence":
            assert model.distribution.equal(found.knowledge.extremes(name)[0])
    model = found.model([0.5, 0.5])
    assert bool(model.region.contains(model.region.sample(20)).all())
    lower, upper = model.credal_bounds(x)
    assert bool((lower <= upper).all())


def test_pooled_evidence_stays_in_the_family_or_the_next_that_holds_it() -> None:
    q = ibcl.pool(learner("ab").knowledge, [0.5, 0.5], "evidence")
    assert isinstance(q, IsotropicGaussian)
    first, second = learner("ab").knowledge.stored
    assert q.precision == pytest.approx(first.precision + second.precision - 0.2)
    diagonal = ibcl.pool(learner("ab", isotropic_prior=False).knowledge, [0.5, 0.5], "evidence")
    assert isinstance(diagonal, ibcl.DiagonalGaussian)


def test_distances_and_thresholds_need_no_more_than_the_class() -> None:
    ours, theirs = (IsotropicGaussian(torch.zeros(4).double(), p) for p in (1.0, 0.25))
    assert ours.wasserstein(theirs) == pytest.approx(2.0)
    assert ours.kl(theirs) == pytest.approx(ours.dense().kl(theirs.dense()))
    assert learner("ab", d=100.0).knowledge.record("b").pointers == (True,)


def test_it_is_forgotten() -> None:
    apart = learner("abc")
    apart.forget("b")
    assert_knows_the_same(apart, learner("ac"))
    chain = learner("abc", independent=False)
    before = chain.knowledge.evidence("c", 0)
    chain.forget("b", approximation="rebase")
    after = chain.knowledge.evidence("c", 0)
    torch.testing.assert_close(before.linear, after.linear)
    assert isinstance(chain.knowledge.stored[1], IsotropicGaussian)


def test_it_is_merged() -> None:
    assert_knows_the_same(ibcl.merge(learner("ac"), learner("b")), learner("acb"))
    chain = ibcl.merge(learner("a", independent=False), learner("b", independent=False), "rebase")
    assert all(isinstance(q, IsotropicGaussian) for q in chain.knowledge.stored)
    other = learner("b", isotropic_prior=False)
    with pytest.raises(ValueError, match="priors differ"):
        ibcl.merge(learner("a"), other)


@pytest.mark.parametrize("storage", ["exact", "float16", "eigenvectors:2"])
@pytest.mark.parametrize("isotropic_prior", [True, False])
def test_it_is_saved_and_loaded(tmp_path: Path, storage: str, isotropic_prior: bool) -> None:
    """Without a compact form of its own it is kept exactly, whatever is asked for."""
    found = learner("ab", isotropic_prior)
    found.save(tmp_path / "one", storage=storage)
    loaded = ibcl.load(tmp_path / "one", autosave=True)
    assert_knows_the_same(loaded, found)
    for base in (loaded, found):
        base.learn(*task(2), task="c")
    assert_knows_the_same(ibcl.load(tmp_path / "one"), found)
    found.model([0.2, 0.3, 0.5]).save(tmp_path / "model.safetensors")
    x, _ = task(0)
    predictions = ibcl.load_model(tmp_path / "model.safetensors").predict_proba(x)
    # The file holds the module's own single precision.
    expected = found.model([0.2, 0.3, 0.5]).predict_proba(x)
    torch.testing.assert_close(predictions, expected, rtol=0, atol=1e-6)


def test_a_family_that_nobody_registered_says_so(tmp_path: Path) -> None:
    found = learner("a")
    found.save(tmp_path / "known")
    del FAMILIES["isotropic"]
    try:
        with pytest.raises(ibcl.StoreError, match="'isotropic' is not known"):
            ibcl.load(tmp_path / "known")
        with pytest.raises(ibcl.StoreError, match="IsotropicGaussian cannot be saved"):
            learner("a").save(tmp_path / "unknown")
    finally:
        register(IsotropicGaussian)
