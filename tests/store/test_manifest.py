"""The manifest: bounds of every number, what returns from disk unchanged, and older formats."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learners import files, inputs, learn, load, make, rewrite
from lossy import nested
from pydantic import ValidationError

import ibcl
from ibcl.store.manifest import LARGEST_MANIFEST, FileEntry, Manifest, parse_manifest


def entry(number: int, size: int = 100, **more: Any) -> dict[str, Any]:
    return {"sha256": f"{number:064x}", "bytes": size, **more}


def task(name: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "name": name,
        "posteriors": [0],
        "priors": [None],
        "pointers": [False],
        "distances": [None],
        "samples": 0,
        "updates": 0,
        **changes,
    }


def manifest(**changes: Any) -> Manifest:
    contents: dict[str, Any] = {
        "version": "1",
        "network": {
            "specification": {"kind": "linear", "inputs": 1, "outputs": 1},
            "fingerprint": "f" * 64,
            "dimension": 2,
            "frozen": None,
        },
        "inference": {"name": "dense", "settings": {}},
        "likelihood": {"name": "bernoulli"},
        "pooling": "evidence",
        "d": 0.0,
        "alpha": 0.01,
        "seed": 0,
        "independent": False,
        "task_incremental": None,
        "storage": "exact",
        "priors": [entry(1)],
        "posteriors": [entry(2)],
        "tasks": [task()],
        "metadata": {},
    }
    for name, value in changes.items():
        inner, _, key = name.partition("__")
        if key:
            contents[inner] = {**contents[inner], key: value}
        else:
            contents[name] = value
    return Manifest.model_validate_json(json.dumps(contents))


# Of each bound, the last value that is taken and the first that is not.
BOUNDS: list[tuple[str, list[Any], list[Any]]] = [
    ("alpha", [1e-12, 1 - 1e-12], [0.0, 1.0, -0.1, 1.1]),
    ("d", [0.0, 1e300], [-1e-300]),
    ("seed", [-(2**63), 2**64 - 1], [-(2**63) - 1, 2**64]),
    ("task_incremental", [1, 2**16, None], [0, 2**16 + 1]),
    ("network__dimension", [1, 2**24 // 3], [0, 2**24 // 3 + 1, 2**28 + 1]),
    ("network__fingerprint", ["0" * 64], ["0" * 63, "0" * 65, "G" * 64]),
    (
        "network__specification",
        [None, {"hidden": [1] * 256}, {"x": "y" * (2**16 - 9)}],
        [{"hidden": [1] * 257}, {"a": {"b": [[1] * 257]}}, {"x": "y" * (2**16 - 8)}],
    ),
    ("priors", [[entry(1, 1)]], [[], [entry(1, 0)], [entry(1, -1)]]),
    ("version", ["1", "x" * 100], ["", "x" * 101]),
    ("storage", ["float16"], ["", "x" * 101]),
    ("pooling", ["x"], ["", "x" * 101]),
    ("pooling_settings", [{}, {"a": 1, "b": 0.5, "c": "x", "d": None}], [{"a": [1]}, {"": 1}]),
    (
        "inference",
        [{"name": "x", "settings": {str(i): i for i in range(100)}}],
        [{"name": "x", "settings": {str(i): i for i in range(101)}}, {"name": "", "settings": {}}],
    ),
    (
        "likelihood",
        [
            {"name": "gaussian", "settings": {"noise": 0.5}},
            {"name": "poisson", "settings": {}},
        ],
        [
            {"name": "gaussian", "noise": 0.0},
            {"name": "gaussian", "noise": -1.0},
            {"name": "gaussian"},
            {"name": "gaussian", "noise": 0.5, "settings": {"noise": 0.5}},
            {"name": "bernoulli", "noise": 0.5},
            {"name": "categorical", "noise": 0.5},
            {"name": "auto"},
        ],
    ),
    ("encoder", [None, {}, {"kind": "tabular", "columns": ["a"]}], [[], "tabular"]),
    ("moments", [[], [None], [entry(3)]], [[None, None], [entry(3), entry(4)], [3]]),
    ("format", [3], [0, 1, 2, 4, "3", 2.5]),
    (
        "tasks",
        [
            [task(distances=[0.0], samples=2**53 - 1, updates=2**53 - 1)],
            [task(), task("b", posteriors=[0], priors=[0], pointers=[True])],
        ],
        [
            [task(samples=2**53)],
            [task(updates=2**53)],
            [task(samples=-1)],
            [task(updates=-1)],
            [task(distances=[-1e-300])],
            [task(posteriors=[1])],
            [task(posteriors=[-1])],
            [task(priors=[0])],
            [task(pointers=[True])],
            [task(), task("b", posteriors=[1], pointers=[True])],
            [task(), task("b", priors=[1], pointers=[True])],
            [task(), task()],
            [task(), task("b", posteriors=[1])],
            [],
        ],
    ),
]


@pytest.mark.parametrize(("name", "good", "bad"), BOUNDS, ids=[bound[0] for bound in BOUNDS])
def test_numbers_are_taken_up_to_their_bounds(name: str, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        encoded = manifest(**{name: value}).encode()
        assert parse_manifest(encoded, "it") == manifest(**{name: value})
    for value in bad:
        with pytest.raises(ValidationError):
            manifest(**{name: value})


@pytest.mark.parametrize("name", ["priors", "inference", "pooling", "d", "independent"])
def test_settings_are_left_open_only_where_nothing_was_learnt(name: str) -> None:
    fresh = {"tasks": [], "posteriors": [], "likelihood": {"name": "auto"}}
    assert getattr(manifest(**fresh, **{name: None}), name) is None
    with pytest.raises(ValidationError, match=f"{name} was left open"):
        manifest(**{name: None})


def test_a_learner_with_everything_open() -> None:
    fresh = manifest(
        tasks=[],
        posteriors=[],
        likelihood={"name": "auto"},
        **dict.fromkeys(["priors", "inference", "pooling", "d", "independent"]),
    )
    assert parse_manifest(fresh.encode(), "it") == fresh
    assert fresh.names == {}
    with pytest.raises(ValidationError, match="still to be chosen"):
        manifest(tasks=[], posteriors=[], pooling=None, pooling_settings={"x": 1})
    with pytest.raises(ValidationError, match="still to be chosen"):
        manifest(tasks=[], posteriors=[], likelihood={"name": "auto", "settings": {"x": 1}})


def test_as_many_priors_and_tasks_as_can_be_used() -> None:
    most = manifest(priors=[entry(1)] * 2**10, tasks=[], posteriors=[])
    assert len(most.priors or ()) == 2**10
    with pytest.raises(ValidationError, match="at most 1024"):
        manifest(priors=[entry(1)] * (2**10 + 1), tasks=[], posteriors=[])


def test_files_of_every_kind_are_named_once() -> None:
    frozen = {"frozen": entry(4), "fingerprint": "f" * 64, "dimension": 2, "specification": None}
    found = manifest(moments=[entry(3)], network=frozen, priors=[entry(2)]).names
    assert found == {
        f"posteriors/{2:064x}.safetensors": FileEntry(**entry(2)),
        f"network/{4:064x}.safetensors": FileEntry(**entry(4)),
        f"moments/{3:064x}.safetensors": FileEntry(**entry(3)),
    }


@pytest.mark.parametrize("described", [True, False])
def test_what_is_declared_is_bounded_by_what_is_stored(described: bool) -> None:
    """A few bytes stand for at most 2^24 numbers; files of more bytes for as many more."""

    def network(dimension: int) -> dict[str, Any]:
        specification = {"kind": "linear"} if described else None
        return {
            "specification": specification,
            "fingerprint": "f" * 64,
            "dimension": dimension,
            "frozen": None,
        }

    largest = 2**24 // (2 + described)
    manifest(network=network(largest))
    with pytest.raises(ValidationError, match="larger than what is stored"):
        manifest(network=network(largest + 1))
    manifest(network=network(2**28), posteriors=[entry(2, 2**30)])
    with pytest.raises(ValidationError, match="less than or equal to 268435456"):
        manifest(network=network(2**28 + 1), posteriors=[entry(2, 2**31)])
    enough = (2 + described) * (largest + 1)
    manifest(network=network(largest + 1), posteriors=[entry(2, enough - 100)])
    with pytest.raises(ValidationError, match="larger than what is stored"):
        manifest(network=network(largest + 1), posteriors=[entry(2, enough - 101)])


def test_a_posterior_has_no_more_bytes_than_a_dense_one() -> None:
    most = 16 * 2 * 4 + 2**16
    manifest(posteriors=[entry(2, most)])
    with pytest.raises(ValidationError, match="larger than a posterior can be"):
        manifest(posteriors=[entry(2, most + 1)])


def test_sizes_of_files_stay_below_a_terabyte() -> None:
    FileEntry(**entry(1, 2**40 - 1))
    for size in (2**40, 0):
        with pytest.raises(ValidationError):
            FileEntry(**entry(1, size))


def test_bases_come_before_what_is_built_on_them() -> None:
    first, second = entry(1), entry(2)
    manifest(posteriors=[{**second, "base": first["sha256"]}])
    for base in (second["sha256"], entry(3)["sha256"]):
        with pytest.raises(ValidationError, match="does not come before"):
            manifest(posteriors=[{**second, "base": base}])


LOSSY: dict[str, Any] = {
    "a lone surrogate": "\udcff",
    "a surrogate in a key": {"\ud800": 1},
    "two hundred levels": nested(200),
    "thousands of levels": nested(5000),
    "more digits than are read": 10**5000,
    "infinity": float("inf"),
    "no number": float("nan"),
    "a tuple": (1, 2),
    "bytes": b"x",
    "a key that is no text": {1: 2},
    "too much": "x" * LARGEST_MANIFEST,
}


@pytest.mark.parametrize("value", LOSSY.values(), ids=LOSSY)
def test_metadata_that_would_not_return_is_refused_before_anything_is_written(
    value: Any, tmp_path: Path
) -> None:
    learner = learn(make("dense"), "dense", "a")
    learner.save(tmp_path / "old")
    before = files(tmp_path / "old")
    learner.metadata = {"x": value}
    for folder in ("new", "old"):
        with pytest.raises(ibcl.StoreError, match=r"cannot be saved.*\.$"):
            learner.save(tmp_path / folder)
    assert files(tmp_path / "old") == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["\udcff", "film\ud83d", "b\udc80.csv"])
def test_task_names_that_would_not_return_are_never_saved(name: str, tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense", "a")
    learner.save(tmp_path)
    before = files(tmp_path)
    learner.autosave = tmp_path
    with pytest.raises(ValueError, match="name"):
        learner.learn(inputs(), inputs()[:, 0] > 0, task=name)
    assert learner.tasks == ("a",)
    assert files(tmp_path) == before


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=3), inner)
    ),
    max_leaves=10,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(metadata=st.dictionaries(st.text(max_size=3), plain, max_size=3))
def test_whatever_is_saved_returns_unchanged(metadata: dict[str, Any], tmp_path: Path) -> None:
    learner = make("dense")
    learner.metadata = metadata
    folder = tmp_path / "kb"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        learner.save(folder)
    except ibcl.StoreError:
        assert not folder.exists()
        text = repr(metadata)
        assert any(part in text for part in ("\\ud", "inf", "nan"))
    else:
        assert repr(load(folder).metadata) == repr(metadata)


def test_files_are_compared_with_their_declared_sizes_before_anything_is_built(
    tmp_path: Path,
) -> None:
    """Declaring posteriors of gigabytes that are not there does not buy a network of gigabytes."""
    learn(make("mean-field"), "mean-field", "a").save(tmp_path)

    def swell(contents: dict[str, Any]) -> None:
        contents["network"]["dimension"] = 2**28
        contents["network"]["specification"] = ibcl.networks.linear(2).specification
        contents["network"]["specification"]["inputs"] = 2**28 - 1
        for posterior in contents["posteriors"]:
            posterior["bytes"] = 2**39

    rewrite(tmp_path, swell)
    with pytest.raises(ibcl.StoreError, match="bytes instead of"):
        load(tmp_path)
    rewrite(tmp_path, lambda c: [p.update(bytes=100) for p in c["posteriors"]])
    with pytest.raises(ibcl.StoreError, match="larger than what is stored"):
        load(tmp_path)


def test_a_file_named_many_times_is_unfolded_once(tmp_path: Path) -> None:
    learn(make("independent tasks"), "independent tasks", "a").save(tmp_path)

    def repeat(contents: dict[str, Any]) -> None:
        first = contents["tasks"][0]
        contents["tasks"] = [{**first, "name": f"t{i}", "posteriors": [i]} for i in range(50)]
        contents["posteriors"] = contents["posteriors"] * 50

    rewrite(tmp_path, repeat)
    stored = load(tmp_path).knowledge.stored
    assert len(stored) == 50
    assert len({id(posterior) for posterior in stored}) == 1
