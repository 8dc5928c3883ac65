"""One way to write files: the old one or the new one, never anything else, and nothing beside."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest
from faults import Killed, disk, fault, full
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learners import make

import ibcl
from ibcl.errors import ExistsError, reason
from ibcl.files import UNSAFE, atomic_output, is_temporary, write_atomically


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("overwrite", [True, False])
@pytest.mark.parametrize("error", [full, KeyboardInterrupt, Killed])
def test_a_fault_at_any_step_leaves_the_old_file_or_the_new_one(
    error: type[BaseException], overwrite: bool, tmp_path: Path
) -> None:
    target = tmp_path / "file"
    old, new = {"file": b"old"} if overwrite else {}, {"file": b"new" * 1000}
    step, finished, sentences = 0, False, set()
    while not finished:
        for path in tmp_path.iterdir():
            path.unlink()
        if overwrite:
            target.write_bytes(b"old")
        try:
            with fault(step, error) as calls, warnings.catch_warnings(record=True):
                warnings.simplefilter("always")
                write_atomically(target, b"new" * 1000, overwrite=overwrite)
            finished = len(calls) <= step
            left = {n: c for n, c in contents(tmp_path).items() if not is_temporary(n)}
            assert left == new
            assert len(contents(tmp_path)) == 1 or calls[step] == "unlink"
        except ibcl.StoreError as problem:
            sentences.add(str(problem))
            assert contents(tmp_path) == old
        except (KeyboardInterrupt, Killed):
            left = {n: c for n, c in contents(tmp_path).items() if not is_temporary(n)}
            assert left in (old, new)
            if error is KeyboardInterrupt:
                assert len(contents(tmp_path)) <= 1
        step += 1
    assert step > 4
    full_disk = {f"Cannot write {target}: No space left on device."}
    assert sentences == (full_disk if error is full else set())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=300), lengths=st.lists(st.integers(1, 50), min_size=1))
def test_writes_that_the_system_cuts_short_are_continued(
    data: bytes, lengths: list[int], tmp_path: Path
) -> None:
    write, turn = os.write, iter(lengths * len(data or b"x"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", lambda file, rest: write(file, rest[: next(turn)]))
        write_atomically(tmp_path / "file", data)
    assert contents(tmp_path) == {"file": data}


def test_targets_that_are_no_plain_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"years of work")
    (tmp_path / "link").symlink_to("precious")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "dangling", "folder", "pipe"):
        before = (tmp_path / name).lstat()
        with pytest.raises(ibcl.StoreError, match=r"symbolic link|folder|not a plain file"):
            write_atomically(tmp_path / name, b"new")
        with (
            pytest.raises(ibcl.StoreError, match=r"symbolic link|folder|not a plain file"),
            atomic_output(tmp_path / name, force=True),
        ):
            pass
        assert (tmp_path / name).lstat().st_ino == before.st_ino
    with pytest.raises(ibcl.StoreError, match="not a plain file"):
        write_atomically(Path(os.devnull), b"new")
    assert (tmp_path / "precious").read_bytes() == b"years of work"
    assert not (tmp_path / "nowhere").exists()
    assert len(list(tmp_path.iterdir())) == 5


def test_a_file_that_is_there_is_kept_unless_asked(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with atomic_output(target) as path:
        path.write_text("first")
    with (
        pytest.raises(ExistsError, match="exists already"),
        atomic_output(target) as path,
    ):
        path.write_text("second")
    with pytest.raises(ExistsError, match="exists already"):
        write_atomically(target, b"second", overwrite=False)
    assert contents(tmp_path) == {"table.csv": b"first"}
    with atomic_output(target, force=True) as path:
        path.write_text("second")
    assert contents(tmp_path) == {"table.csv": b"second"}


def test_a_file_that_appears_in_the_meantime_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "table.csv"
    with pytest.raises(ExistsError), atomic_output(target):
        target.write_text("theirs")
    assert contents(tmp_path) == {"table.csv": b"theirs"}


def test_without_hard_links_new_files_are_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no hard links here")

    monkeypatch.setattr(os, "link", unsupported)
    write_atomically(tmp_path / "file", b"new", overwrite=False)
    with pytest.raises(ExistsError):
        write_atomically(tmp_path / "file", b"newer", overwrite=False)
    assert contents(tmp_path) == {"file": b"new"}


def test_tables_are_whole_or_as_before(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": range(500)})
    for name in ("table.csv", "table.csv.gz", "table.parquet"):
        target = tmp_path / name
        write = frame.to_parquet if name.endswith("parquet") else frame.to_csv
        with atomic_output(target) as path:
            write(path, index=False)
        read = pd.read_parquet if name.endswith("parquet") else pd.read_csv
        pd.testing.assert_frame_equal(read(target), frame)
        with pytest.raises(ZeroDivisionError), atomic_output(target, force=True) as path:
            write(path, index=1 // 0)
        pd.testing.assert_frame_equal(read(target), frame)
    assert len(list(tmp_path.iterdir())) == 3


def test_what_fails_inside_says_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(b"old")
    with (
        pytest.raises(ibcl.StoreError, match=r"old: No space left on device\.$"),
        atomic_output(tmp_path / "old", force=True),
    ):
        raise OSError(errno.ENOSPC)
    with disk(tmp_path, 100), pytest.raises(ibcl.StoreError, match="No space left"):
        write_atomically(tmp_path / "old", bytes(1000))
    with pytest.raises(ibcl.StoreError, match="No such file or directory"):
        write_atomically(tmp_path / "nowhere" / "file", b"")
    assert contents(tmp_path) == {"old": b"old"}


@given(number=st.sampled_from(sorted(errno.errorcode)))
def test_every_error_of_the_system_has_words(number: int) -> None:
    for error in (OSError(number), OSError(number, None), OSError(number, "x", "file")):
        assert reason(error) == os.strerror(number).rstrip(".")


def test_errors_without_a_number_keep_their_text() -> None:
    assert reason(OSError("Could not\nwrite.")) == "Could not write"
    assert reason(OSError()) == "OSError"


def test_permissions_of_a_replaced_file_stay(tmp_path: Path) -> None:
    target = tmp_path / "secret"
    target.write_bytes(b"old")
    target.chmod(0o600)
    write_atomically(target, b"new")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("number", "unsafe", "warned"),
    [
        (errno.EIO, "", True),
        (errno.EIO, "1", True),
        (errno.EINVAL, "", False),
        (errno.ENOTSUP, "1", False),
    ],
)
def test_a_folder_that_cannot_be_synced_is_no_failure_after_the_file_is_there(
    number: int, unsafe: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        sync(descriptor)

    monkeypatch.setenv(UNSAFE, unsafe)
    monkeypatch.setattr(os, "fsync", refuse)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        write_atomically(tmp_path / "file", b"new")
    assert contents(tmp_path) == {"file": b"new"}
    assert [bool("was written" in str(w.message)) for w in caught] == [True] * warned


def test_nothing_is_written_among_a_knowledge_bases_files(tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    make("dense").save(folder)
    for place in (folder / "m", folder / "posteriors" / "m", folder / "manifest.json"):
        with pytest.raises(ibcl.StoreError, match="inside the knowledge base"):
            write_atomically(place, b"")
    write_atomically(tmp_path / "m", b"")


def test_long_names_can_be_written(tmp_path: Path) -> None:
    for name in ("a" * 255, f"a.{'b' * 253}", "é" * 127):
        write_atomically(tmp_path / name, b"new")
    assert len(list(tmp_path.iterdir())) == 3


def test_writing_needs_none_of_the_heavy_libraries() -> None:
    program = (
        "import sys, ibcl.files, ibcl.names, ibcl.errors; "
        "assert not {'torch', 'numpy', 'pandas', 'pydantic'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
