"""Knowledge bases in memory and in a real S3 server, also with rivals and killed writers."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import fsspec
import pytest
import torch
from learners import KINDS, SAVE, assert_same_learner, files, learn, make, said
from s3_buckets import new_bucket, start_server
from typer.testing import CliRunner

import ibcl
from ibcl import store
from ibcl.cli import app
from ibcl.store.objects import connect
from ibcl.store.storage import as_url


def contents(url: str) -> dict[str, bytes]:
    """All objects below a URL, whichever save wrote each of them."""
    place = connect(url)
    return {SAVE.sub("", key): said(key, place.read(key)) for key in place.names()}


@pytest.fixture(params=["memory", "s3"])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/kb"
    return new_bucket(request.getfixturevalue("endpoint"), monkeypatch)


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    return new_bucket(endpoint, monkeypatch)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "own module"])
def test_what_is_loaded_is_what_was_saved(kind: str, tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    learner = learn(make(kind), kind, "ab")
    learner.save(url)
    learner.save(tmp_path / "kb")
    assert_same_learner(ibcl.load(url), learner)
    assert store.size(url) == store.size(tmp_path / "kb")
    assert contents(url) == files(tmp_path / "kb")


def test_saving_loading_and_going_on(url: str, tmp_path: Path) -> None:
    assert store.contents(url) is store.Contents.EMPTY
    learner = learn(make("routed"), "routed", "a")
    learner.save(url)
    assert store.contents(url) is store.Contents.KNOWLEDGE_BASE
    again = ibcl.load(url, autosave=True)
    learn(again, "routed", "bc")
    local = learn(make("routed"), "routed")
    assert_same_learner(ibcl.load(url), local)
    again.forget("b")
    local.forget("b")
    local.save(tmp_path / "kb")
    assert contents(url) == files(tmp_path / "kb")
    assert ibcl.load(Path(url)).tasks == ("a", "c")


def test_the_command_line_takes_urls(url: str, tmp_path: Path) -> None:
    table = tmp_path / "task.csv"
    table.write_text("a,b,y\n" + "\n".join(f"{n},{-n % 7},{n % 2}" for n in range(30)))
    for arguments in (
        ["learn", url, str(table), "--label", "y", "--width", "8"],
        ["show", url],
        ["score", url, str(table), "--label", "y", "--preference", "task"],
    ):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert ibcl.load(url).tasks == ("task",)
    assert not [path for path in Path().iterdir() if path.name.endswith(":")]


def test_what_is_in_memory_is_where_fsspec_looks() -> None:
    name = uuid.uuid4().hex
    make("dense").save(f"memory://{name}")
    assert fsspec.filesystem("memory").exists(f"/{name}/manifest.json")


def test_a_learner_from_elsewhere_does_not_replace_it(url: str) -> None:
    learn(make("dense"), "dense", "a").save(url)
    with pytest.raises(ibcl.store.OccupiedError, match=r"\(a\)"):
        make("dense").save(url)
    first, second = ibcl.load(url), ibcl.load(url)
    learn(first, "dense", "b").save(url)
    with pytest.raises(ibcl.store.ChangedSinceError):
        learn(second, "dense", "c").save(url)
    assert ibcl.load(url).tasks == ("a", "b")


def test_nothing_foreign_is_touched(url: str) -> None:
    connect(url).put("thesis.txt", b"mine")
    with pytest.raises(ibcl.StoreError, match=r"thesis\.txt"):
        make("dense").save(url)
    assert connect(url).names() == ["thesis.txt"]


def test_damage_is_one_sentence(url: str) -> None:
    learn(make("dense"), "dense", "a").save(url)
    name = next(key for key in connect(url).names() if key.startswith("posteriors/"))
    data = connect(url).read(name)
    for damaged in (data[:-1], data + b"!", data[:-1] + bytes([data[-1] ^ 1])):
        connect(url).put(name, damaged)
        with pytest.raises(ibcl.StoreError, match="damaged"):
            ibcl.load(url)
    connect(url).remove(name)
    with pytest.raises(ibcl.StoreError, match="missing"):
        ibcl.load(url)
    with pytest.raises(ibcl.StoreError, match="does not exist"):
        ibcl.load(f"{url}-nowhere")


def test_of_rivals_one_wins_each_round_and_nothing_is_lost(url: str) -> None:
    make("independent tasks").save(url)
    won: list[str] = []
    problems: list[BaseException] = []

    def add(name: str) -> None:
        x = torch.randn(20, 4, generator=torch.Generator().manual_seed(len(name)))
        while True:
            learner = ibcl.load(url)
            learner.learn(x, x[:, 0] > 0, task=name)
            try:
                learner.save(url)
            except (ibcl.store.ChangedSinceError, ibcl.store.BusyError):
                continue
            except BaseException as error:
                problems.append(error)
            won.append(name)
            return

    rivals = [threading.Thread(target=add, args=("x" * n,)) for n in range(1, 4)]
    for rival in rivals:
        rival.start()
    for rival in rivals:
        rival.join()
    assert not problems
    assert ibcl.load(url).tasks == tuple(won)
    assert len(won) == 3


WRITER = """
import sys, torch, ibcl
url = sys.argv[1]
learner = ibcl.load(url, autosave=True)
print("ready", flush=True)
number = len(learner.tasks)
while True:
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(number))
    learner.learn(x, x[:, 0] > 0, task=f"task {number}")
    number += 1
    print(number, flush=True)
    if number % 3 == 0:
        learner.forget(learner.tasks[0])
"""


def test_a_killed_writer_leaves_what_it_had_finished(s3: str) -> None:
    make("independent tasks").save(s3)
    writer = subprocess.Popen([sys.executable, "-c", WRITER, s3], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    assert writer.stdout.readline() == "ready\n"
    acknowledged = int(writer.stdout.readline())
    time.sleep(0.05)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    acknowledged = max([acknowledged, *map(int, writer.stdout.read().split())])
    learner = ibcl.load(s3)
    assert max(int(task.split()[1]) for task in learner.tasks) >= acknowledged - 1
    model = learner.model([1 / len(learner.tasks)] * len(learner.tasks))
    assert torch.isfinite(model.outputs(torch.randn(5, 4))).all()
    # The next writer takes over, and leaves nothing of the killed one.
    learner.save(s3)
    learner.save(f"{s3}-copy")
    assert contents(s3) == contents(f"{s3}-copy")


def test_a_store_that_ignores_conditions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    server, endpoint = start_server("ignore")
    try:
        url = new_bucket(endpoint, monkeypatch)
        with pytest.raises(ibcl.StoreError, match="ignores conditions"):
            make("dense").save(url)
        assert connect(url).names() == []
    finally:
        server.kill()
        server.wait()


def test_storage_without_conditions_is_read_and_not_written(tmp_path: Path) -> None:
    learner = learn(make("dense"), "dense", "a")
    learner.save(tmp_path / "kb")
    archive = shutil.make_archive(str(tmp_path / "archive"), "zip", tmp_path, "kb")
    url = f"zip://kb::file://{archive}"
    found = ibcl.load(url)
    assert_same_learner(found, learner)
    with pytest.raises(ibcl.StoreError, match="can be read, but not written"):
        learn(found, "dense", "b").save(url)


def test_a_scheme_nobody_knows_is_one_sentence() -> None:
    for use in (ibcl.load, make("dense").save):
        with pytest.raises(ibcl.StoreError, match="nonsense"):
            use("nonsense://kb")


@pytest.mark.parametrize("path", ["file:///kb", "FILE://kb", "memory://", "s3:///kb"])
def test_what_only_looks_like_a_place_makes_no_folder_of_that_name(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for use in (ibcl.load, make("dense").save):
        with pytest.raises(ibcl.StoreError, match="names no place"):
            use(path)
    assert list(tmp_path.iterdir()) == []


def test_schemes_are_told_in_any_case() -> None:
    make("dense").save(f"MEMORY://{uuid.uuid4().hex}/Films")
    assert as_url("S3://Bucket/Films") == "s3://Bucket/Films"


def test_a_server_that_does_not_answer_is_one_sentence() -> None:
    pytest.importorskip("aiohttp", reason="fsspec reads http by the package 'aiohttp'")
    with pytest.raises(ibcl.StoreError, match=r"http://127\.0\.0\.1:1/kb.* cannot be read"):
        make("dense").save("http://127.0.0.1:1/kb")


def test_a_models_file_goes_to_no_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = learn(make("dense"), "dense", "a").model([1.0])
    for place in ("s3://bucket/model.safetensors", Path("s3://bucket/model.safetensors")):
        with pytest.raises(ibcl.StoreError, match="written on this machine"):
            model.save(place)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "path", ["kb", "/kb", "a:b", "s3:/bucket/kb", "./s3://x", "C:/kb", Path("a/s3:/b")]
)
def test_paths_stay_paths(path: str | Path) -> None:
    assert as_url(path) is None
