"""Saving and loading: nothing is lost, nothing is overwritten, nothing stays that is forgotten."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from faults import used
from filelock import FileLock
from learners import KINDS, Normalised, assert_same_learner, files, learn, load, make
from safetensors.torch import save as save_tensors

import ibcl
from ibcl import store
from ibcl.inference import InferenceResult
from ibcl.networks import FlatNetwork
from ibcl.store import description, posteriors
from ibcl.store import storage as store_storage
from ibcl.store.description import restore_frozen
from ibcl.store.storage import LocalFolder


@pytest.mark.parametrize("kind", KINDS)
def test_loading_gives_back_the_learner_bit_for_bit(kind: str, tmp_path: Path) -> None:
    learner = learn(make(kind), kind)
    learner.metadata = {"columns": ["z", "a"], "nested": {"z": None, "a": [1, 2.5, True]}}
    learner.save(tmp_path / "kb")
    assert_same_learner(load(tmp_path / "kb", kind), learner)


@pytest.mark.parametrize("kind", KINDS)
def test_learning_goes_on_after_loading_as_without_a_break(kind: str, tmp_path: Path) -> None:
    learn(make(kind), kind, "ab").save(tmp_path)
    assert_same_learner(learn(load(tmp_path, kind), kind, "c"), learn(make(kind), kind, "abc"))


def test_pointers_survive(tmp_path: Path) -> None:
    learner = learn(make("mean-field"), "mean-field")
    assert any(any(record.pointers) for record in learner.knowledge.records)
    learner.save(tmp_path)
    assert load(tmp_path).knowledge.report() == learner.knowledge.report()


def test_a_learner_without_tasks_and_with_gaussian_priors(tmp_path: Path) -> None:
    prior = ibcl.DenseGaussian(torch.arange(5.0), 2 * torch.eye(5) + 0.5)
    diagonal = ibcl.DiagonalGaussian(torch.arange(5.0), torch.arange(1.0, 6.0))
    learner = make("dense", priors=[prior, diagonal, 0.7], likelihood="gaussian")
    learner.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.likelihood == learner.likelihood == "gaussian"
    assert_same_learner(loaded, learner)


def test_order_of_metadata_is_kept(tmp_path: Path) -> None:
    learner = make("dense")
    learner.metadata = {"z": 1, "a": {"y": 1, "b": 2}}
    learner.save(tmp_path)
    assert json.dumps(load(tmp_path).metadata) == json.dumps(learner.metadata)


def test_saving_again_writes_only_what_is_new(tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense", "ab")
    learner.save(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("posteriors/*")}
    for path in before:
        os.utime(path, ns=(0, 0))
    learn(learner, "dense", "c").save(tmp_path)
    untouched = [path for path in tmp_path.glob("posteriors/*") if path.stat().st_mtime_ns == 0]
    assert set(untouched) == set(before)
    assert len(list(tmp_path.glob("posteriors/*"))) == len(before) + 1


@pytest.mark.parametrize("kind", ["routed", "regression"])
def test_saving_a_task_encodes_lists_and_writes_that_task_only(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    learn(make(kind), kind, "ab").save(tmp_path)
    before = files(tmp_path)
    learner = learn(load(tmp_path), kind, "c")
    encoded: list[int] = []
    listed: list[int] = []
    names = LocalFolder.names

    def encode(tensors: dict[str, torch.Tensor]) -> bytes:
        encoded.append(1)
        return save_tensors(tensors)

    def listing(self: LocalFolder) -> dict[str, int | None]:
        listed.append(1)
        return names(self)

    for module in (description, posteriors):
        monkeypatch.setattr(module, "save", encode)
    monkeypatch.setattr(LocalFolder, "names", listing)
    learner.save(tmp_path)
    new = files(tmp_path).keys() - before.keys()
    assert new
    # Once for its hash and once to be written; and what the network holds, which may change.
    assert len(encoded) <= 2 * len(new) + 1
    assert len(listed) == 1


def test_the_same_learner_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        learn(make("regression"), "regression").save(tmp_path / name)
    assert files(tmp_path / "one") == files(tmp_path / "two")


@pytest.mark.parametrize("storage", ["exact", "float16", "eigenvectors:2"])
@pytest.mark.parametrize("kind", ["dense", "regression", "mean-field"])
def test_loading_and_saving_again_changes_no_byte(kind: str, storage: str, tmp_path: Path) -> None:
    learn(make(kind), kind).save(tmp_path / "one", storage=storage)
    before = files(tmp_path / "one")
    loaded = load(tmp_path / "one")
    loaded.save(tmp_path / "one")
    loaded.save(tmp_path / "two")
    assert files(tmp_path / "one") == files(tmp_path / "two") == before
    assert_same_learner(load(tmp_path / "two"), loaded)


def test_what_is_forgotten_is_gone_from_disk(tmp_path: Path) -> None:
    learner = learn(make("independent tasks"), "independent tasks")
    learner.save(tmp_path)
    before = files(tmp_path)
    learner.forget("b")
    learner.save(tmp_path)
    assert len(files(tmp_path)) == len(before) - 1
    learn(make("independent tasks"), "independent tasks", "ac").save(tmp_path.with_name("never"))
    assert files(tmp_path.with_name("never")) == files(tmp_path)


def test_the_size_is_what_the_folder_holds(tmp_path: Path) -> None:
    learn(make("regression"), "regression").save(tmp_path)
    assert store.size(tmp_path).total == used(tmp_path)


def test_a_knowledge_base_is_not_overwritten_by_another_learner(tmp_path: Path) -> None:
    learn(make("dense"), "dense", "a").save(tmp_path)
    other = learn(make("dense"), "dense", "b")
    with pytest.raises(store.OccupiedError, match=r"not loaded from.*overwrite it\.$"):
        other.save(tmp_path)
    assert load(tmp_path).tasks == ("a",)
    other.save(tmp_path, overwrite=True)
    assert load(tmp_path).tasks == ("b",)
    other.save(tmp_path)


def test_a_change_by_somebody_else_is_not_lost(tmp_path: Path) -> None:
    learn(make("dense"), "dense", "a").save(tmp_path)
    first, second = load(tmp_path), load(tmp_path)
    learn(first, "dense", "b").save(tmp_path)
    learn(second, "dense", "c")
    with pytest.raises(store.ChangedSinceError, match=r"changed since.*load it again"):
        second.save(tmp_path)
    assert load(tmp_path).tasks == ("a", "b")


@pytest.mark.parametrize("overwrite", [False, True])
def test_folders_with_other_things_are_left_alone(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ibcl.StoreError, match=r"holds thesis\.tex"):
        make("dense").save(tmp_path, overwrite=overwrite)
    with pytest.raises(ibcl.StoreError, match="is a file"):
        make("dense").save(tmp_path / "thesis.tex", overwrite=overwrite)
    assert files(tmp_path) == {"thesis.tex": b"years of work"}


def test_only_own_files_are_removed(tmp_path: Path) -> None:
    learn(make("dense"), "dense", "a").save(tmp_path)
    (tmp_path / "posteriors" / "notes.txt").write_text("mine")
    (tmp_path / "posteriors" / f"{'0' * 64}-{'0' * 16}.safetensors").write_text("half a file")
    (tmp_path / f".ibcl-{'0' * 32}.tmp").mkdir()
    (tmp_path / f".ibcl-{'0' * 32}.tmp" / "new").write_text("half a manifest")
    loaded = load(tmp_path)
    loaded.save(tmp_path)
    names = {path.name for path in tmp_path.glob("posteriors/*")}
    assert "notes.txt" in names
    assert not any(name.startswith("0" * 64) for name in names)
    assert not list(tmp_path.glob(".ibcl-*"))


def test_overwriting_heals_damage(tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense")
    learner.save(tmp_path)
    for path in (*tmp_path.glob("posteriors/*"), tmp_path / "manifest.json"):
        path.write_bytes(b"damaged")
    with pytest.raises(store.OccupiedError, match=r"damaged.*overwrite it\.$"):
        learner.save(tmp_path)
    learner.save(tmp_path, overwrite=True)
    assert_same_learner(load(tmp_path), learner)


def test_autosave_saves_after_every_task(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "kb"
    learner = make("dense", autosave=folder)
    assert not folder.exists()
    for tasks in ("a", "b"):
        learn(learner, "dense", tasks)
        assert_same_learner(load(folder), learner)
    learner.forget("b")
    assert load(folder).tasks == ("a",)
    learn(load(folder, autosave=True), "dense", "c")
    assert load(folder).tasks == ("a", "c")


def test_autosave_refuses_before_the_work_and_undoes_nothing_else(tmp_path: Path) -> None:
    learn(make("dense"), "dense", "a").save(tmp_path)
    with pytest.raises(ibcl.StoreError, match="not loaded from"):
        make("dense", autosave=tmp_path)
    learner = load(tmp_path, autosave=True)
    learn(load(tmp_path, autosave=True), "dense", "b")
    with pytest.raises(ibcl.StoreError, match="changed since"):
        learn(learner, "dense", "c")
    with pytest.raises(ibcl.StoreError, match="changed since"):
        learner.forget("a")
    assert learner.tasks == ("a",)


def test_a_failed_save_is_as_if_nothing_had_been_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interrupted at any step of writing, disk and memory are as before (or the disk has it)."""
    learn(make("regression"), "regression", "a").save(tmp_path)
    after = learn(make("regression"), "regression", "ab").knowledge.records
    sync = os.fsync
    finished, step = False, 0
    while not finished:
        calls = 0

        def interrupt(descriptor: int, limit: int = step) -> None:
            nonlocal calls
            if calls == limit:
                raise KeyboardInterrupt
            calls += 1
            sync(descriptor)

        learner = load(tmp_path, autosave=True)
        before = learner.knowledge.records
        assert before in (after[:1], after)
        if before == after:
            learner.forget("b")
            before = after[:1]
        monkeypatch.setattr(os, "fsync", interrupt)
        try:
            learn(learner, "regression", "b")
            finished = True
        except KeyboardInterrupt:
            assert learner.knowledge.records == before
        monkeypatch.undo()
        step += 1
    assert step > 6
    assert load(tmp_path).knowledge.records == after


def test_a_second_writer_waits_or_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = make("dense")
    learner.save(tmp_path)
    monkeypatch.setattr(store_storage, "LOCK_SECONDS", 0.05)
    with FileLock(tmp_path / ".lock"):
        with pytest.raises(store.BusyError, match="written by another process"):
            learner.save(tmp_path)
        assert load(tmp_path).tasks == ()
    learner.save(tmp_path)


def test_a_reader_overtaken_by_a_writer_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = learn(make("independent tasks"), "independent tasks")
    writer.save(tmp_path)
    read, overtaken = LocalFolder.read, []

    def read_late(self: LocalFolder, name: str, largest: int) -> bytes:
        if name.startswith("posteriors/") and not overtaken:
            overtaken.append(True)
            writer.forget("c")
            writer.save(tmp_path)
        return read(self, name, largest)

    monkeypatch.setattr(LocalFolder, "read", read_late)
    assert_same_learner(load(tmp_path), writer)


def test_an_own_module_is_asked_for_and_checked(tmp_path: Path) -> None:
    learn(make("own module"), "own module", "a").save(tmp_path)
    with pytest.raises(ibcl.StoreError, match="give that module as network="):
        ibcl.load(tmp_path)
    with pytest.raises(ibcl.StoreError, match="does not fit the network given"):
        ibcl.load(tmp_path, network=ibcl.networks.linear(4))
    loaded = ibcl.load(tmp_path, network=Normalised(shift=-1.0))
    assert torch.equal(loaded.network.template.get_buffer("shift"), torch.full((4,), 0.5))


def test_another_network_of_the_same_shape_is_refused(tmp_path: Path) -> None:
    make("mean-field").save(tmp_path)
    with pytest.raises(ibcl.StoreError, match="was not learnt with the network given"):
        ibcl.load(tmp_path, network=ibcl.networks.mlp(4, hidden=[3], activation="relu"))


class Guess:
    def infer(self, *arguments: object, **settings: object) -> InferenceResult:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"inference": Guess()}, "Guess cannot be saved"),
        ({"metadata": {"x": float("nan")}}, "cannot be saved"),
        ({"metadata": {"x": object()}}, "cannot be saved"),
        ({"metadata": {1: "x"}}, "cannot be saved"),
        ({"storage": "zip"}, "storage must be"),
        ({"storage": "eigenvectors:0"}, "storage must be"),
        ({"storage": "eigenvectors:"}, "storage must be"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_anything_is_written(
    changes: dict[str, object], reason: str, tmp_path: Path
) -> None:
    given = {name: value for name, value in changes.items() if name in ("inference", "seed")}
    learner = make("dense", **given)
    for name in changes.keys() - given.keys():
        setattr(learner, name, changes[name])
    with pytest.raises(ValueError, match=reason):
        learner.save(tmp_path / "kb")
    assert not (tmp_path / "kb").exists()


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        (None, "not by None"),
        (5, "not by 5"),
        (b"kb", "not by b'kb'"),
        ("a\0b", "holds no NUL"),
        (Path("a\0b"), "holds no NUL"),
    ],
)
def test_what_names_no_file_is_refused_in_a_sentence(path: Any, reason: str) -> None:
    learner = make("dense")
    model = learn(learner, "dense", "a").model([1.0])
    uses: list[Callable[[], object]] = [
        lambda: learner.save(path),
        lambda: ibcl.load(path),
        lambda: store.contents(path),
        lambda: model.save(path),
        lambda: ibcl.load_model(path),
    ]
    for use in uses:
        with pytest.raises(ibcl.StoreError, match=reason):
            use()


def test_only_learners_and_models_are_saved_as_such(tmp_path: Path) -> None:
    learner: Any = make("dense")
    with pytest.raises(ValueError, match="Only a model can be saved as one, not IBCL"):
        store.save_model(learner, tmp_path / "model")
    assert not any(tmp_path.iterdir())


def test_predictions_of_a_loaded_learner_on_disk_read_only(tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense")
    learner.save(tmp_path)
    (tmp_path / ".lock").unlink()
    for path in (*tmp_path.rglob("*"), tmp_path):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        assert_same_learner(load(tmp_path), learner)
        assert not (tmp_path / ".lock").exists()
    finally:
        for path in (tmp_path, *tmp_path.rglob("*")):
            path.chmod(0o755)


@pytest.mark.parametrize("change", [lambda t: t.double(), lambda t: t[:-1]])
def test_a_buffer_of_another_type_or_of_another_shape_does_not_fit(change):
    network = FlatNetwork(ibcl.networks.random_features(3, width=4))
    tensors = network.frozen_state
    name = next(iter(tensors))
    with pytest.raises(ValueError, match=f"the buffer {name} has another shape or type"):
        restore_frozen(network, {**tensors, name: change(tensors[name])})
    restore_frozen(network, tensors)
