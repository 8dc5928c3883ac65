"""Faults at every step of saving: nothing is lost, nothing stays, and trying again succeeds."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Killed, disk, fault, full, used
from learners import assert_same_learner, files, learn, load, make

import ibcl
from ibcl import store
from ibcl.files import UNSAFE, is_temporary
from ibcl.store import Contents


def merged() -> ibcl.IBCL:
    one, other = make("independent tasks", priors=[2.5]), make("independent tasks", priors=[2.5])
    return ibcl.merge(learn(one, "independent tasks", "a"), learn(other, "independent tasks", "b"))


@pytest.fixture(scope="module")
def union() -> ibcl.IBCL:
    return merged()


@pytest.fixture(scope="module")
def first() -> ibcl.IBCL:
    return learn(make("regression"), "regression", "a")


@pytest.mark.parametrize("name", ["union", "first"])
@pytest.mark.parametrize("error", [full, KeyboardInterrupt, Killed])
def test_a_first_save_that_ends_anywhere_succeeds_when_repeated(
    error: Callable[[], BaseException],
    name: str,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    learner: ibcl.IBCL = request.getfixturevalue(name)
    step, finished, states, reasons = 0, False, set(), set()
    while not finished:
        folder = tmp_path / f"{step}" / "kb"
        try:
            with fault(step, error) as calls, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.save(folder)
            finished = len(calls) <= step
            found = store.contents(folder)
            assert found is Contents.KNOWLEDGE_BASE
        except (ibcl.StoreError, KeyboardInterrupt, Killed) as problem:
            found = store.contents(folder)
            assert found is not Contents.FOREIGN
            if isinstance(problem, ibcl.StoreError):
                reasons.add(str(problem).rpartition(": ")[2])
                assert not set(files(folder) if folder.exists() else ())
        states.add(found)
        assert store.exists(folder) == (found is Contents.KNOWLEDGE_BASE)
        # Another process, which knows nothing of the first one, says the same again.
        again = load(folder) if store.exists(folder) else learner
        learner.revisions.clear()
        again.save(folder)
        assert_same_learner(load(folder), learner, predictions=False)
        assert not [path for path in folder.rglob("*") if is_temporary(path.name)]
        step += 1
    assert step > 15
    assert Contents.KNOWLEDGE_BASE in states
    assert reasons == ({"No space left on device."} if error is full else set())
    assert error is not Killed or {Contents.EMPTY, Contents.UNFINISHED} < states


@pytest.mark.parametrize("error", [full, KeyboardInterrupt, Killed])
def test_a_later_save_that_ends_anywhere_is_as_before_or_done(
    error: Callable[[], BaseException], tmp_path: Path
) -> None:
    original = tmp_path / "original"
    learn(make("independent tasks"), "independent tasks", "ab").save(original)
    before = files(original)
    expected = load(original)
    expected.forget("a")
    learn(expected, "independent tasks", "c")
    expected.save(tmp_path / "expected")
    after = files(tmp_path / "expected")
    step, finished = 0, False
    while not finished:
        folder = Path(shutil.copytree(original, tmp_path / f"{step}"))
        learner = load(folder)
        learner.restore(expected.knowledge, expected.likelihood)
        try:
            with fault(step, error) as calls, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                learner.save(folder)
            finished = len(calls) <= step
            assert files(folder)["manifest.json"] == after["manifest.json"]
        except ibcl.StoreError:
            assert files(folder) == before
        except (KeyboardInterrupt, Killed):
            assert files(folder)["manifest.json"] in (
                before["manifest.json"],
                after["manifest.json"],
            )
        opened = load(folder)
        if opened.tasks == expected.tasks:
            assert_same_learner(opened, expected, predictions=False)
        opened.restore(expected.knowledge, expected.likelihood)
        opened.save(folder)
        assert files(folder) == after
        step += 1
    assert step > 10


def test_on_a_full_disk_nothing_stays_and_forgetting_makes_room(tmp_path: Path) -> None:
    made = make("independent tasks", network=ibcl.networks.linear(50))
    learner = learn(made, "independent tasks", "")
    x = {name: ibcl.sample_preferences(50, 30, seed=i) for i, name in enumerate("abc")}
    for name in "ab":
        learner.learn(x[name], x[name][:, 0] > 0.02, task=name)
    learner.save(tmp_path)
    learner.autosave = tmp_path
    before, taken = files(tmp_path), used(tmp_path)
    manifest = len(before["manifest.json"])
    for room in (0, 10, 1000, 5000, manifest + 100):
        with (
            disk(tmp_path, taken + room),
            pytest.raises(ibcl.StoreError, match=r"No space left on device\.$"),
        ):
            learner.learn(x["c"], x["c"][:, 0] > 0.02, task="c")
        assert files(tmp_path) == before
        assert learner.tasks == ("a", "b")
    with disk(tmp_path, taken + manifest + 100):
        learner.forget("a")
    assert load(tmp_path).tasks == ("b",)
    assert used(tmp_path) < taken
    with disk(tmp_path, taken + manifest):
        learner.learn(x["c"], x["c"][:, 0] > 0.02, task="c")
    assert load(tmp_path).tasks == ("b", "c")


def folders_refuse(patch: pytest.MonkeyPatch, number: int, before: int) -> None:
    """Let the system refuse to sync folders, after so many times."""
    sync, done = os.fsync, []

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            done.append(1)
            if len(done) > before:
                raise OSError(number, os.strerror(number))
        sync(descriptor)

    patch.setattr(os, "fsync", refuse)


def test_once_the_manifest_is_replaced_saving_has_succeeded(tmp_path: Path) -> None:
    """Whichever sync of a folder fails, success is reported exactly where the new state is."""
    outcomes = []
    for before in range(8):
        folder = tmp_path / f"{before}"
        learn(make("independent tasks"), "independent tasks", "a").save(folder)
        learner = load(folder, autosave=True)
        with pytest.MonkeyPatch.context() as patch:
            folders_refuse(patch, errno.EIO, before)
            try:
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    learn(learner, "independent tasks", "b")
                outcomes.append("warned" if caught else "quiet")
                assert not caught or "was written, but" in str(caught[0].message)
                assert load(folder).tasks == learner.tasks == ("a", "b")
            except ibcl.StoreError:
                outcomes.append("failed")
                assert load(folder).tasks == learner.tasks == ("a",)
        learner.save(folder)
    assert {"failed", "warned", "quiet"} == set(outcomes)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_syncing_folders(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders_refuse(monkeypatch, number, 0)
    learner = learn(make("dense"), "dense", "a")
    with pytest.raises(ibcl.StoreError, match=rf"cannot make a rename last.*{UNSAFE}=1"):
        learner.save(tmp_path / "kb")
    assert not store.exists(tmp_path / "kb")
    monkeypatch.setenv(UNSAFE, "1")
    learner.save(tmp_path / "kb")
    assert_same_learner(load(tmp_path / "kb"), learner)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EINVAL])
def test_a_file_system_without_locks(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    learner = learn(make("dense"), "dense", "a")
    learner.save(tmp_path / "kb")
    assert_same_learner(load(tmp_path / "kb"), learner)
    # Without locks a writer that was overtaken still notices.
    other = load(tmp_path / "kb")
    learn(other, "dense", "b").save(tmp_path / "kb")
    with pytest.raises(store.ChangedSinceError):
        learner.save(tmp_path / "kb")


def test_a_lock_that_may_not_be_taken_is_no_missing_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setenv(UNSAFE, "1")
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(ibcl.StoreError, match="Cannot lock"):
        make("dense").save(tmp_path / "kb")
