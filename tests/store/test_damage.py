"""Damaged, foreign and hostile folders: one sentence, and never anything else."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from learners import Contents, assert_same_learner, learn, load, make, rewrite
from safetensors.torch import save as save_tensors

import ibcl


def assert_refused(folder: Path, reason: str | None = None) -> None:
    """Loading fails with a `StoreError` of one line that is a sentence."""
    with pytest.raises(ibcl.StoreError, match=reason) as caught:
        ibcl.load(folder)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text


def replace_posterior(folder: Path, data: bytes, position: int = 0, **changes: str | None) -> None:
    """Put other bytes in a posterior's place, with the right name and size."""
    name = hashlib.sha256(data).hexdigest()
    save = json.loads((folder / "manifest.json").read_text())["save"]
    (folder / "posteriors" / f"{name}-{save}.safetensors").write_bytes(data)

    def change(contents: Contents) -> None:
        contents["posteriors"][position].update(sha256=name, bytes=len(data), **changes)

    rewrite(folder, change)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ibcl.IBCL]:
    """A knowledge base with compact posteriors and frozen features."""
    folder = tmp_path_factory.mktemp("saved") / "kb"
    learn(make("regression"), "regression", "ab").save(folder, storage="float16")
    return folder, load(folder)


@pytest.fixture
def folder(saved: tuple[Path, ibcl.IBCL], tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved[0], tmp_path / "kb"))


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_changed_or_missing_byte_is_noticed_or_harmless(
    data: st.DataObject, saved: tuple[Path, ibcl.IBCL]
) -> None:
    folder, learner = saved
    path = data.draw(st.sampled_from(sorted(p for p in folder.rglob("*") if p.is_file())))
    assume(path.name != ".lock")
    whole = path.read_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        changed = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(changed + whole[place + 1 :])
    else:
        path.write_bytes(whole[:place])
    try:
        assert_same_learner(load(folder), learner, predictions=False)
    except ibcl.StoreError:
        pass
    finally:
        path.write_bytes(whole)


def test_intact_folders_open(folder: Path, saved: tuple[Path, ibcl.IBCL]) -> None:
    rewrite(folder, dict)
    assert_same_learner(load(folder), saved[1])


def test_what_is_not_a_knowledge_base(tmp_path: Path) -> None:
    assert_refused(tmp_path / "nowhere", "does not exist")
    assert_refused(tmp_path, "not a knowledge base")
    manifest = tmp_path / "manifest.json"
    for text in ("", "{", "[]", "null", '"kind"', "{}", '{"name": "a web app"}', "[" * 10**5):
        manifest.write_text(text)
        assert_refused(tmp_path)
    manifest.write_bytes(b"\xff\xfe\x00")
    assert_refused(tmp_path, "not JSON")
    assert_refused(manifest, "no manifest.json")
    manifest.unlink()
    os.mkfifo(manifest)
    assert_refused(tmp_path, "not a plain file")


def test_a_newer_format_says_so(folder: Path) -> None:
    rewrite(folder, lambda contents: contents.update(format=4, novelty={"x": 1}))
    assert_refused(folder, "format 4.*upgrade ibcl")


def test_a_missing_file_is_named(folder: Path) -> None:
    next(folder.glob("network/*")).unlink()
    assert_refused(folder, "network.*is missing")


def task(contents: Contents, number: int = 1) -> Contents:
    found: Contents = contents["tasks"][number]
    return found


HOSTILE: dict[str, Callable[[Contents], Any]] = {
    "path traversal": lambda c: c["posteriors"][0].update(sha256="../../../../etc/passwd"),
    "path traversal, padded": lambda c: c["posteriors"][0].update(sha256="../" * 21 + "x"),
    "uppercase hash": lambda c: c["priors"][0].update(sha256="A" * 64),
    "absurd size": lambda c: c["posteriors"][0].update(bytes=10**18),
    "negative size": lambda c: c["posteriors"][0].update(bytes=-1),
    "smaller size": lambda c: c["posteriors"][0].update(bytes=10),
    "unknown base": lambda c: c["posteriors"][0].update(base="0" * 64),
    "circular base": lambda c: c["posteriors"][0].update(base=c["posteriors"][0]["sha256"]),
    "later base": lambda c: c["posteriors"][0].update(base=c["posteriors"][-1]["sha256"]),
    "no priors": lambda c: c.update(priors=[]),
    "one prior less": lambda c: c["priors"].pop(),
    "many priors": lambda c: c.update(priors=c["priors"] * 1000),
    "position out of range": lambda c: task(c).update(posteriors=[2, 10**6]),
    "negative position": lambda c: task(c).update(posteriors=[2, -1]),
    "position as text": lambda c: task(c).update(posteriors=["2", "3"]),
    "position as truth": lambda c: task(c, 0).update(posteriors=[False, True]),
    "pointer to itself": lambda c: task(c, 0).update(pointers=[True, True]),
    "prior from the future": lambda c: task(c, 0).update(priors=[2, 3]),
    "too few entries": lambda c: task(c).update(distances=[]),
    "posterior not used": lambda c: c["tasks"].pop(),
    "task twice": lambda c: task(c).update(name=task(c, 0)["name"]),
    "task with comma": lambda c: task(c).update(name="a=1,b"),
    "task without name": lambda c: task(c).update(name=""),
    "task not text": lambda c: task(c).update(name=3),
    "negative distance": lambda c: task(c).update(distances=[-1.0, None]),
    "negative updates": lambda c: task(c).update(updates=-1),
    "tasks without likelihood": lambda c: c.update(likelihood={"name": "auto", "noise": None}),
    "unknown likelihood": lambda c: c.update(likelihood={"name": "cauchy"}),
    "no noise": lambda c: c["likelihood"].update(noise=0.0),
    "unknown pooling": lambda c: c.update(pooling="__import__('os')"),
    "alpha": lambda c: c.update(alpha=1.0),
    "d": lambda c: c.update(d=-0.1),
    "seed": lambda c: c.update(seed="0"),
    "huge seed": lambda c: c.update(seed=2**64),
    "storage": lambda c: c.update(storage="pickle"),
    "unknown field": lambda c: c.update(command="rm"),
    "missing field": lambda c: c.pop("network"),
    "format": lambda c: c.update(format="1"),
    "older format": lambda c: c.update(format=0),
    "metadata": lambda c: c.update(metadata=[]),
    "unknown inference": lambda c: c.update(inference={"name": "os.system", "settings": {}}),
    "unknown setting": lambda c: c["inference"]["settings"].update(__class__="x"),
    "setting of wrong type": lambda c: c["inference"]["settings"].update(max_iterations=1e3),
    "setting out of range": lambda c: c["inference"]["settings"].update(tolerance=-1.0),
    "unknown network": lambda c: c["network"]["specification"].update(kind="eval"),
    "unknown option": lambda c: c["network"]["specification"].update(code="1"),
    "absurd network": lambda c: c["network"]["specification"].update(width=2**40),
    "huge network": lambda c: c["network"]["specification"].update(width=2**24),
    "empty network": lambda c: c["network"]["specification"].update(width=0),
    "network of text": lambda c: c["network"]["specification"].update(width="6"),
    "endless network": lambda c: c["network"]["specification"].update(hidden=[1] * 10**5),
    "network missing": lambda c: c["network"].update(specification=None),
    "other network": lambda c: c["network"]["specification"].update(width=7),
    "other features": lambda c: c["network"]["specification"].update(scale=1e9),
    "dimension": lambda c: c["network"].update(dimension=8),
    "absurd dimension": lambda c: c["network"].update(dimension=2**62),
    "posterior as frozen state": lambda c: c["network"].update(
        frozen={**c["posteriors"][0], "base": None}
    ),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_hostile_manifests_are_refused(change: Callable[[Contents], Any], folder: Path) -> None:
    rewrite(folder, change)
    assert_refused(folder)


def test_depth_and_length_of_manifests_are_bounded(folder: Path) -> None:
    text = (folder / "manifest.json").read_text()
    deep = "[" * 5000 + "]" * 5000
    (folder / "manifest.json").write_text(text.replace('"metadata": {}', f'"metadata": {deep}'))
    assert_refused(folder)
    with (folder / "manifest.json").open("w") as file:
        file.truncate(2**33)
    assert_refused(folder, "at most")


MEAN, EYE = torch.zeros(7), torch.eye(7)
BAD_TENSORS = {
    "nothing": {},
    "other names": {"weights": MEAN},
    "not finite": {"mean": MEAN.log(), "precision": EYE},
    "std of zero": {"mean": MEAN, "std": MEAN},
    "negative std": {"mean": MEAN, "std": MEAN - 1},
    "std not a number": {"mean": MEAN, "std": MEAN / 0},
    "shorter": {"mean": torch.zeros(6), "std": torch.ones(6)},
    "different lengths": {"mean": MEAN, "std": torch.ones(6)},
    "matrix as mean": {"mean": EYE, "std": EYE},
    "not symmetric": {"mean": MEAN, "precision": EYE + EYE.roll(1)},
    "not positive definite": {"mean": MEAN, "precision": -EYE},
    "precision not finite": {"mean": MEAN, "precision": EYE / 0},
    "whole numbers": {"mean": MEAN.long(), "std": MEAN.long() + 1},
    "complex": {"mean": MEAN.to(torch.complex64), "std": MEAN + 1},
    "short triangle": {"mean": MEAN, "scale": MEAN + 1, "triangle": torch.zeros(27).half()},
    "triangle not finite": {
        "mean": MEAN,
        "scale": MEAN + 1,
        "triangle": torch.full((28,), torch.inf).half(),
    },
    "negative remainder": {
        "mean": MEAN,
        "scale": MEAN + 1,
        "factor": EYE[:, :2].contiguous(),
        "remainder": MEAN - 3,
    },
    "short eigenvectors": {
        "mean": MEAN,
        "scale": MEAN + 1,
        "factor": torch.zeros(3, 2),
        "remainder": MEAN,
    },
}


@pytest.mark.parametrize("tensors", BAD_TENSORS.values(), ids=BAD_TENSORS)
def test_bad_posteriors_are_refused(tensors: dict[str, torch.Tensor], folder: Path) -> None:
    own = {name: tensor.clone() for name, tensor in tensors.items()}
    replace_posterior(folder, save_tensors(own))
    assert_refused(folder, "not valid")


class Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("exploited",)


def test_nothing_is_ever_executed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    replace_posterior(folder, pickle.dumps(Exploit()))
    assert_refused(folder, "not valid")
    (folder / "manifest.json").write_bytes(pickle.dumps(Exploit()))
    assert_refused(folder)
    assert not (tmp_path / "exploited").exists()


@pytest.mark.parametrize("diagonal", [0.0, 1.0])
def test_a_compact_posterior_never_becomes_a_matrix_of_terabytes(
    diagonal: float, tmp_path: Path
) -> None:
    """A few directions stay a few directions, or, without a diagonal of their own, are refused."""
    dimension = 2**20
    learner = ibcl.IBCL(
        ibcl.networks.linear(dimension - 1), [1.0], ibcl.MeanFieldVI(), "wasserstein", 0.0
    )
    knowledge = ibcl.KnowledgeBase(learner.knowledge.priors, d=0.0)
    spread = torch.rand(dimension) + 1
    knowledge.add("a", [ibcl.DiagonalGaussian(torch.zeros(dimension), spread)])
    learner.restore(knowledge, ibcl.Bernoulli())
    learner.save(tmp_path)
    vector = torch.ones(dimension)
    parts = {
        "mean": vector,
        "scale": vector,
        "remainder": diagonal * vector,
        "factor": vector[:, None],
    }
    replace_posterior(
        tmp_path,
        save_tensors({name: value.clone().contiguous() for name, value in parts.items()}),
        family=None,
    )
    if diagonal:
        (posterior,) = ibcl.load(tmp_path).knowledge.stored
        assert posterior.nbytes < 100 * dimension
    else:
        assert_refused(tmp_path, "too large")
