"""Features are computed once, and a damaged file is noticed."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

from ibcl.experiments.benchmarks.cache import (
    DamagedCacheWarning,
    FeatureCache,
    FloatArray,
    array_hash,
    content_hash,
)

KEY = {"data": "a", "backbone": {"model": "m", "size": 96}}


class Counter:
    """Computes features and counts how often."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> FloatArray:
        self.calls += 1
        return np.arange(12, dtype=np.float32).reshape(3, 4)


def test_second_request_is_not_computed_and_is_equal(tmp_path: Path) -> None:
    compute = Counter()
    first = FeatureCache(tmp_path).get(KEY, compute)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = FeatureCache(tmp_path).get(KEY, compute)
    assert compute.calls == 1
    np.testing.assert_array_equal(first, again)
    assert again.dtype == np.float32


@pytest.mark.parametrize(
    "other",
    [
        {"data": "b", "backbone": {"model": "m", "size": 96}},
        {"data": "a", "backbone": {"model": "n", "size": 96}},
        {"data": "a", "backbone": {"model": "m", "size": 224}},
    ],
)
def test_other_data_model_or_setting_is_computed(tmp_path: Path, other: dict[str, object]) -> None:
    compute, cache = Counter(), FeatureCache(tmp_path)
    cache.get(KEY, compute)
    cache.get(other, compute)
    assert compute.calls == 2


def test_order_of_settings_does_not_matter(tmp_path: Path) -> None:
    cache = FeatureCache(tmp_path)
    turned = {"backbone": {"size": 96, "model": "m"}, "data": "a"}
    assert cache.path(KEY) == cache.path(turned)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def _flip_a_number(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def _replace(path: Path) -> None:
    path.write_text("not features at all")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_truncate, _flip_a_number, _replace, _empty])
def test_damage_is_noticed_and_repaired(tmp_path: Path, damage: object) -> None:
    compute, cache = Counter(), FeatureCache(tmp_path)
    intact = cache.get(KEY, compute)
    assert callable(damage)
    damage(cache.path(KEY))
    with pytest.warns(DamagedCacheWarning, match=r"are damaged .* and are computed again"):
        repaired = cache.get(KEY, compute)
    np.testing.assert_array_equal(repaired, intact)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.get(KEY, compute)
    assert compute.calls == 2


def test_interrupted_computation_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted() -> FloatArray:
        raise KeyboardInterrupt

    cache = FeatureCache(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cache.get(KEY, interrupted)
    assert [p for p in cache.folder.iterdir() if p.suffix != ".lock"] == []


def test_hashes_tell_contents_apart() -> None:
    assert content_hash(["a", "b"]) != content_hash(["b", "a"])
    assert content_hash(["ab"]) != content_hash(["a", "b"])
    assert content_hash(["a"]) == content_hash([b"a"])
    array = np.arange(6)
    assert array_hash(array) != array_hash(array.reshape(2, 3))
    assert array_hash(array) != array_hash(array.astype(np.float64))
    assert array_hash(array[::2]) == array_hash(np.array([0, 2, 4]))
    assert array_hash(np.empty((0, 3))) != array_hash(np.empty((0, 2)))
