"""A model alone in a file: it predicts the same, and says where it comes from."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learners import KINDS, Normalised, inputs, learn, make
from lossy import nested
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import ibcl
from ibcl.store.models import _checksum


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_predicts_the_same(kind: str, tmp_path: Path) -> None:
    learner = learn(make(kind), kind, "ab")
    model = learner.model([0.3, 0.7])
    model.save(tmp_path / "models" / "m.safetensors")
    network = Normalised(shift=0.0) if kind == "own module" else None
    loaded = ibcl.load_model(tmp_path / "models" / "m.safetensors", network=network)
    x = inputs(20, seed=4)
    assert torch.equal(loaded.predict(x, task="b"), model.predict(x, task="b"))
    assert torch.equal(loaded.outputs(x, task="b"), model.outputs(x, task="b"))
    assert loaded.preference == model.preference
    for use in (
        lambda: loaded.region,
        lambda: loaded.credal_bounds(x, task="a"),
        lambda: loaded.uncertainty(x, task="a"),
        lambda: loaded.predict(x, samples=2, task="a"),
    ):
        with pytest.raises(ValueError, match="mean model only"):
            use()


def test_the_file_is_a_plain_state_dict(tmp_path: Path) -> None:
    model = learn(make("mean-field"), "mean-field").model("a=0.5,b=0.5,c=0")
    model.save(tmp_path / "m.safetensors")
    module = ibcl.networks.mlp(4, hidden=[3], activation="tanh")
    module.load_state_dict(load_file(tmp_path / "m.safetensors"))
    x = inputs()
    assert torch.allclose(module(x), model.outputs(x)[0], atol=1e-6)


def test_it_says_where_it_comes_from(tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense", "ab")
    learner.save(tmp_path / "kb")
    model = learner.model([0.25, 0.75])
    learn(learner, "dense", "c")
    model.save(tmp_path / "m.safetensors")
    with safe_open(tmp_path / "m.safetensors", "pt") as file:
        said = json.loads(file.metadata()["ibcl"])
    revision = json.loads((tmp_path / "kb" / "manifest.json").read_text())["checksum"]
    assert said["knowledge"] == revision
    assert said["preference"] == {"a": 0.25, "b": 0.75}
    assert said["pooling"] == "evidence"
    assert said["network"]["kind"] == "linear"


def test_a_loaded_model_saves_to_the_same_bytes(tmp_path: Path) -> None:
    learn(make("regression"), "regression").model([0.2, 0.3, 0.5]).save(tmp_path / "one")
    ibcl.load_model(tmp_path / "one").save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_learning_more_does_not_change_a_model() -> None:
    learner = learn(make("dense"), "dense", "a")
    model, same = learner.model([1.0]), learner.model([1.0])
    expected = same.predict_proba(inputs(), samples=3)
    learn(learner, "dense", "b")
    assert torch.equal(model.predict_proba(inputs(), samples=3), expected)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.safetensors"
    learn(make("regression"), "regression", "ab").model([0.5, 0.5]).save(path)
    return path


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_or_missing_byte_is_noticed_or_harmless(
    data: st.DataObject, saved: Path, tmp_path: Path
) -> None:
    whole = saved.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    mask = data.draw(st.integers(0, 255))
    flipped = whole[:place] + bytes([whole[place] ^ mask]) + whole[place + 1 :]
    (tmp_path / "m").write_bytes(flipped if mask else whole[:place])
    x = inputs()
    try:
        found = ibcl.load_model(tmp_path / "m").predict(x)
    except ibcl.StoreError:
        return
    assert torch.equal(found, ibcl.load_model(saved).predict(x))


def test_other_files_are_refused(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ibcl.StoreError, match="Cannot read"):
        ibcl.load_model(tmp_path / "nowhere")
    with pytest.raises(ibcl.StoreError, match=r"Cannot read|not a plain file"):
        ibcl.load_model(tmp_path)
    save_file({"weight": torch.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(ibcl.StoreError, match="not a model of ibcl"):
        ibcl.load_model(tmp_path / "foreign")
    with pytest.raises(ibcl.StoreError, match="does not fit its network"):
        ibcl.load_model(saved, network=ibcl.networks.linear(3))
    tensors = load_file(saved)
    with safe_open(saved, "pt") as file:
        said = json.loads(file.metadata()["ibcl"])
    said["format"] = 4
    save_file(tensors, tmp_path / "newer", metadata={"ibcl": json.dumps(said)})
    with pytest.raises(ibcl.StoreError, match="format 4"):
        ibcl.load_model(tmp_path / "newer")


def test_a_model_file_carries_the_learners_metadata(tmp_path):
    learner = ibcl.IBCL(ibcl.networks.linear(2), inference=ibcl.DenseVI())
    learner.learn([[0.0, 1.0], [1.0, 0.0]], [0, 1], task="a")
    learner.metadata["classes"] = ["no", "yes"]
    learner.model([1.0]).save(tmp_path / "model.safetensors")
    loaded = ibcl.load_model(tmp_path / "model.safetensors")
    assert loaded.provenance()["metadata"] == {"classes": ["no", "yes"]}


LOSSY: dict[str, Any] = {
    "a lone surrogate": "\udcff",
    "a surrogate in a key": {"\ud800": 1},
    "two hundred levels": nested(200),
    "hundreds of levels": nested(450),
    "thousands of levels": nested(5000),
    "more digits than are read": 10**5000,
    "infinity": float("inf"),
    "a tuple": (1, 2),
    "a key that is no text": {1: 2},
    "what cannot be copied": threading.Lock(),
}


@pytest.mark.parametrize("value", LOSSY.values(), ids=LOSSY)
def test_metadata_that_would_not_return_is_refused_and_the_old_file_kept(
    value: Any, tmp_path: Path
) -> None:
    learner = learn(make("dense"), "dense", "a")
    learner.metadata = {"x": value}
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(ibcl.StoreError, match=r"cannot be saved.*\.$"):
        learner.model([1.0]).save(tmp_path / "m")
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m").read_bytes() == b"old"


@pytest.mark.parametrize("value", [*LOSSY.values()][:-1], ids=[*LOSSY][:-1])
@pytest.mark.parametrize("part", ["metadata", "choices", "samples"])
def test_a_model_of_any_provenance_is_read_back_before_it_is_written(
    part: str, value: Any, tmp_path: Path
) -> None:
    """Whatever made the model: its file is never one that cannot be opened again."""
    model = learn(make("dense"), "dense", "a").model([1.0])
    known = model.provenance()
    model.provenance = lambda: known | {part: {"x": value}}
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(ibcl.StoreError, match=r"cannot be saved.*\.$"):
        model.save(tmp_path / "m")
    assert (tmp_path / "m").read_bytes() == b"old"


def test_a_preference_of_names_that_would_not_return_is_refused(tmp_path: Path) -> None:
    model = learn(make("dense"), "dense", "a").model([1.0])
    model.preference = {"\udcff": 1.0}  # type: ignore[assignment]
    with pytest.raises(ibcl.StoreError, match="cannot be saved"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_a_likelihood_that_nobody_could_read_is_refused(tmp_path: Path) -> None:
    class Unregistered(ibcl.Poisson):
        name = "nobody's"

    model = learn(make("dense"), "dense", "a").model([1.0])
    model.predictive.likelihood = Unregistered()
    with pytest.raises(ibcl.StoreError, match="cannot be saved"):
        model.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(exclude_categories=()), max_size=4),
    number=st.floats() | st.integers(),
)
def test_whatever_a_model_file_takes_returns_unchanged(
    text: str, number: float, saved: Path, tmp_path: Path
) -> None:
    model = ibcl.load_model(saved)
    known = model.provenance()
    model.provenance = lambda: known | {"metadata": {"x": [text, number, {text: -0.0}]}}
    try:
        model.save(tmp_path / "m")
    except ibcl.StoreError:
        return
    assert repr(ibcl.load_model(tmp_path / "m").provenance()) == repr(model.provenance())


def test_a_routed_model_whose_parts_do_not_fit_is_refused(tmp_path: Path) -> None:
    """Each part changed in turn, under a checksum that is right."""
    path = tmp_path / "routed"
    x = torch.cat([inputs(30, seed=seed) + 4 * seed for seed in range(3)])
    learner = ibcl.IBCL(ibcl.networks.linear(x.shape[1], 4), [1.0], pooling="routed1")
    for number in range(3):
        own = slice(30 * number, 30 * (number + 1))
        learner.learn(x[own], torch.arange(30) % 2 + number, task=f"task {number}")
    model = learner.model([0.5, 0.5, 0.0])
    model.save(path)
    tensors = load_file(path)
    with safe_open(path, "pt") as file:
        said = json.loads(file.metadata()["ibcl"])
    said.pop("checksum")

    def load_with(**changes: torch.Tensor) -> ibcl.Model:
        changed = {name.replace("__", "."): value.clone() for name, value in changes.items()}
        parts = {**tensors, **changed}
        sealed = {**said, "checksum": _checksum(parts, said)}
        save_file(parts, tmp_path / "changed", metadata={"ibcl": json.dumps(sealed)})
        return ibcl.load_model(tmp_path / "changed")

    assert torch.equal(load_with().predict_proba(x), model.predict_proba(x))
    heads, seen = tensors["heads"], tensors["seen"]
    for reason, changes in [
        ("what its tasks have seen", {"seen": seen[0]}),
        ("what its tasks have seen", {"seen": seen[:2]}),
        ("what its tasks have seen", {"seen": seen.long()}),
        ("its heads do not fit", {"heads": heads[:1]}),
        ("its heads do not fit", {"heads": heads[:, 1:]}),
        ("its heads do not fit", {"heads": torch.where(heads == heads.max(), torch.nan, heads)}),
        ("of different tasks", {"weights": tensors["weights"][:2]}),
        ("what its tasks have seen", {"gate__task": torch.zeros_like(tensors["gate.task"])}),
        ("also holds other", {"other": heads}),
        ("not finite", {"gate__means": tensors["gate.means"] * torch.nan}),
    ]:
        with pytest.raises(ibcl.StoreError, match=reason):
            load_with(**changes)
