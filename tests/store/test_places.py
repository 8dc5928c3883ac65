"""Folders with links, pipes and other people's files: nothing outside changes, nothing hangs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from learners import assert_same_learner, files, learn, load, make

import ibcl
from ibcl import store
from ibcl.store import Contents


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "kb"
    learn(make("regression"), "regression", "a").save(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "kb"))


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """Files of somebody else, some of which look like ours; they stay as they are."""
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    (outside / "thesis").write_bytes(b"years of work")
    (outside / "folder" / f"{'0' * 64}.safetensors").write_bytes(b"other years of work")
    before = files(outside)
    yield outside
    assert files(outside) == before


def move_out(path: Path, outside: Path) -> None:
    """Put a link in the place of a file or folder, to where it is now."""
    target = shutil.move(path, outside.with_name(f"moved-{path.name}"))
    path.symlink_to(target)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("name", ["manifest.json", ".lock", "posteriors"])
def test_what_is_a_link_is_neither_followed_nor_replaced(
    name: str, overwrite: bool, folder: Path, precious: Path
) -> None:
    learner = learn(load(folder), "regression", "b")
    path = folder / name
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.symlink_to(precious / ("folder" if name == "posteriors" else "thesis"))
    with pytest.raises(ibcl.StoreError, match=name):
        learner.save(folder, overwrite=overwrite)
    assert path.is_symlink()


@pytest.mark.parametrize("name", ["posteriors", "network", "moments"])
@pytest.mark.parametrize("new", [False, True])
def test_linked_subfolders_lose_nothing(
    name: str, new: bool, folder: Path, precious: Path, tmp_path: Path
) -> None:
    learner = learn(load(folder), "regression", "b")
    if new:
        folder = tmp_path / "new"
        folder.mkdir()
    shutil.rmtree(folder / name, ignore_errors=True)
    (folder / name).symlink_to(precious / "folder")
    with pytest.raises(ibcl.StoreError, match=name):
        learner.save(folder)
    assert store.contents(folder) is (Contents.FOREIGN if new else Contents.KNOWLEDGE_BASE)


@pytest.mark.parametrize("name", ["posteriors", "network"])
def test_a_posterior_behind_a_link_out_of_the_folder_is_not_read(
    name: str, folder: Path, precious: Path
) -> None:
    for path in ((folder / name), next((folder / name).iterdir())):
        copy = Path(shutil.copytree(folder, folder.with_name(f"copy-{path.name[:10]}")))
        move_out(copy / path.relative_to(folder), precious)
        with pytest.raises(ibcl.StoreError, match=r"leads out of .*it is not read\.$"):
            load(copy)


def test_a_manifest_behind_a_link_is_read_only_inside(folder: Path, precious: Path) -> None:
    move_out(folder / "manifest.json", precious)
    with pytest.raises(ibcl.StoreError, match="leads out"):
        load(folder)
    (folder / "manifest.json").unlink()
    (folder / "manifest.json").symlink_to("manifest.json")
    with pytest.raises(ibcl.StoreError, match="cannot be read"):
        load(folder)


def test_links_to_and_inside_a_folder_are_fine(folder: Path) -> None:
    whole = load(folder)
    link = folder.with_name("link")
    link.symlink_to(folder)
    file = next((folder / "posteriors").iterdir())
    file.rename(folder / "posteriors" / "elsewhere")
    file.symlink_to("elsewhere")
    assert_same_learner(load(link), whole, predictions=False)
    file.unlink()
    (folder / "posteriors" / "elsewhere").rename(file)
    learner = load(link)
    learn(learner, "regression", "b").save(folder)
    assert load(link).tasks == ("a", "b")


PIPES = ("manifest.json", ".lock", "posteriors", "network", "moments")


@pytest.mark.parametrize("name", PIPES)
def test_pipes_never_hang(name: str, folder: Path, tmp_path: Path) -> None:
    learner = load(folder)
    for place in (folder, tmp_path / "new"):
        place.mkdir(exist_ok=True)
        path = place / name
        if path.is_dir():
            shutil.rmtree(path)
        path.unlink(missing_ok=True)
        os.mkfifo(path)
        with pytest.raises(ibcl.StoreError, match=name):
            learner.save(place)
        expected = name == "manifest.json" or place == folder
        assert store.contents(place) is (Contents.KNOWLEDGE_BASE if expected else Contents.FOREIGN)
    if name in ("manifest.json", "posteriors", "network"):
        with pytest.raises(ibcl.StoreError):
            load(folder)


def test_a_pipe_in_a_posteriors_place(folder: Path) -> None:
    learner = load(folder)
    file = next((folder / "posteriors").iterdir())
    file.unlink()
    os.mkfifo(file)
    os.mkfifo(folder / "posteriors" / f"{'1' * 64}-{'5' * 16}.safetensors")
    with pytest.raises(ibcl.StoreError, match="damaged"):
        load(folder)
    # What cannot be read is written again, under a name of its own; the pipes stay.
    learner.save(folder)
    assert_same_learner(load(folder), learner, predictions=False)
    assert file.is_fifo()


def test_a_pipe_as_the_whole_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kb")
    for use in (load, make("dense").save):
        with pytest.raises(ibcl.StoreError):
            use(tmp_path / "kb")
    assert store.contents(tmp_path / "kb") is Contents.FOREIGN
    assert store.contents(Path(os.devnull)) is Contents.FOREIGN


def test_cleaning_removes_nothing_foreign(folder: Path, precious: Path) -> None:
    inside = folder / "posteriors"
    (inside / f"{'1' * 64}-{'5' * 16}.safetensors").symlink_to(precious / "thesis")
    (inside / f"{'2' * 64}-{'5' * 16}.safetensors").mkdir()
    (inside / f"{'3' * 64}.txt").write_text("mine")
    (inside / ".ibcl-notes.tmp").write_text("mine")
    foreign = {path for path in inside.iterdir() if path.name not in load_names(folder)}
    assert len(foreign) == 4
    (inside / f"{'4' * 64}-{'5' * 16}.safetensors").write_text("nobody's")
    learn(load(folder), "regression", "b").save(folder)
    left = {path for path in inside.iterdir() if path.name not in load_names(folder)}
    assert left == foreign


def load_names(folder: Path) -> set[str]:
    text = (folder / "manifest.json").read_text()
    return {path.name for path in (folder / "posteriors").iterdir() if path.name in text}


@pytest.mark.parametrize(
    ("fill", "expected"),
    [
        (lambda _: None, Contents.EMPTY),
        (lambda f: f.mkdir(), Contents.EMPTY),
        (lambda f: (f / "posteriors").mkdir(parents=True), Contents.EMPTY),
        (lambda f: (f.mkdir(), (f / ".lock").touch()), Contents.UNFINISHED),
        (lambda f: (f.mkdir(), (f / f".ibcl-{'a' * 32}.tmp.json").touch()), Contents.UNFINISHED),
        (lambda f: (f.mkdir(), (f / ".ibcl-a.tmp").touch()), Contents.FOREIGN),
        (lambda f: f.write_text("a file"), Contents.FOREIGN),
        (lambda f: (f / "posteriors" / "x").mkdir(parents=True), Contents.FOREIGN),
        (lambda f: (f / "images").mkdir(parents=True), Contents.FOREIGN),
        (lambda f: (f.mkdir(), (f / "manifest.json").write_text("{")), Contents.KNOWLEDGE_BASE),
        (lambda f: (f.mkdir(), (f / "manifest.json").write_text("[]")), Contents.FOREIGN),
        (lambda f: (f.mkdir(), (f / "manifest.json").write_text("{}")), Contents.FOREIGN),
        (lambda f: make("dense").save(f), Contents.KNOWLEDGE_BASE),
        (lambda f: f.symlink_to("nowhere"), Contents.FOREIGN),
    ],
)
def test_what_a_folder_holds(
    fill: Callable[[Path], object], expected: Contents, tmp_path: Path
) -> None:
    folder = tmp_path / "kb"
    fill(folder)
    assert store.contents(folder) is expected
    assert store.exists(folder) == (expected in (Contents.KNOWLEDGE_BASE, Contents.FOREIGN))
    # Saving for the first time agrees.
    if store.exists(folder):
        with pytest.raises(ibcl.StoreError):
            make("dense").save(folder)
    else:
        make("dense").save(folder)
        assert load(folder).tasks == ()


def test_a_subfolder_that_is_a_file(folder: Path) -> None:
    shutil.rmtree(folder / "posteriors")
    (folder / "posteriors").write_text("")
    with pytest.raises(ibcl.StoreError, match="is missing"):
        load(folder)


def test_names_from_a_folder_are_shown_escaped(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[31m\n").touch()
    with pytest.raises(ibcl.StoreError) as caught:
        make("dense").save(tmp_path)
    assert str(caught.value).isprintable()


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_read(folder: Path) -> None:
    learner = load(folder)
    folder.chmod(0)
    try:
        for use in (load, learner.save):
            with pytest.raises(ibcl.StoreError, match="Permission denied"):
                use(folder)
    finally:
        folder.chmod(0o755)


@pytest.mark.parametrize("place", ["inner", "posteriors/inner"])
def test_no_knowledge_base_is_saved_inside_another(tmp_path: Path, place: str) -> None:
    """It would be foreign there, so that the outer one could not be saved any more."""
    outer = learn(make("dense"), "dense", "a")
    outer.save(tmp_path / "kb")
    with pytest.raises(ibcl.StoreError, match="inside the knowledge base"):
        make("dense").save(tmp_path / "kb" / place)
    learn(outer, "dense", "b").save(tmp_path / "kb")
