"""Writers without locks that stop anywhere, for any time: no base is damaged, no save is lost."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learners import inputs, make
from turns import Killed, Writer, stepping, take_turns

import ibcl
from ibcl.store.objects import connect
from ibcl.store.storage import LocalFolder

Place = Callable[[], str]


@pytest.fixture(scope="module", autouse=True)
def no_locks() -> Iterator[None]:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "flock", refuse)
        yield


@pytest.fixture(scope="module", params=["folder", "memory"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Makes places that all hold the same knowledge base of the tasks a and b."""
    base = tmp_path_factory.mktemp("base")
    learner = make("independent tasks", priors=[2.5])
    for task in "ab":
        add(learner, task)
    learner.save(base / "kb")

    def new() -> str:
        name = uuid.uuid4().hex
        if request.param == "folder":
            return str(shutil.copytree(base / "kb", base / name))
        url = f"memory://{name}/kb"
        for path in (base / "kb").rglob("*"):
            if path.is_file() and path.name != ".lock":
                connect(url).put(str(path.relative_to(base / "kb")), path.read_bytes())
        return url

    return new


def add(learner: ibcl.IBCL, task: str) -> None:
    """Add a task whose posterior follows from its name, as if it had been learnt."""
    x = inputs(10, features=5, seed=ord(task)).double()
    posterior = ibcl.DenseGaussian(x.mean(0), torch.eye(5).double() + x.T @ x)
    before = learner.knowledge
    knowledge = ibcl.KnowledgeBase(before.priors, before.d, independent=before.independent)
    knowledge.restore(before.stored, before.records, before.moments)
    knowledge.add(task, [posterior], samples=10)
    learner.restore(knowledge, ibcl.Bernoulli())


class Changes:
    """What writers were told is saved: tasks learnt and tasks forgotten."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.learnt, self.forgotten, self.refused = {"a", "b"}, set[str](), 0

    def adding(self, task: str) -> Callable[[], None]:
        return lambda: self._repeat(lambda learner: add(learner, task), {task}, set())

    def forgetting(self, task: str) -> Callable[[], None]:
        return lambda: self._repeat(lambda learner: learner.forget(task), set(), {task})

    def restoring(self, task: str) -> Callable[[], None]:
        """Forget a task and learn it again from the same data, which gives the same contents."""

        def work() -> None:
            self.forgetting(task)()
            self.adding(task)()

        return work

    def _repeat(self, change: Callable[[ibcl.IBCL], None], new: set[str], gone: set[str]) -> None:
        for _ in range(3):
            learner = ibcl.load(self.place)
            change(learner)
            try:
                learner.save(self.place)
            except ibcl.store.ChangedSinceError:
                self.refused += 1
                continue
            self.learnt = (self.learnt | new) - gone
            self.forgotten = (self.forgotten | gone) - new
            return

    def check(self) -> None:
        """The base opens, with what was saved, and holds nothing else."""
        learner = ibcl.load(self.place)
        assert set(learner.tasks) == self.learnt
        assert learner.model([1 / len(learner.tasks)] * len(learner.tasks))
        # A killed writer's files are gone after the next save, those of the others at once.
        self.check_files()

    def check_files(self) -> None:
        contents = self.contents()
        manifest = json.loads(contents.pop("manifest.json"))
        card = contents.pop("README.md").decode()
        assert set(contents) == set(manifest["files"])
        for task in "abce":
            assert (f"| {task} |" in card) == (task in self.learnt), card

    def contents(self) -> dict[str, bytes]:
        if self.place.startswith("memory:"):
            objects = connect(self.place)
            return {name: objects.read(name) for name in objects.names()}
        folder = Path(self.place)
        assert not list(folder.glob(".ibcl-*"))
        return {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path.name != ".lock"
        }


RIVALS: dict[str, Callable[[Changes], list[Callable[[], None]]]] = {
    "another task": lambda it: [it.adding("c"), it.adding("e")],
    "the task that is forgotten": lambda it: [it.forgetting("b"), it.adding("e")],
    "the same task": lambda it: [it.adding("c"), it.restoring("b")],
    "what is being removed": lambda it: [it.forgetting("b"), it.restoring("a")],
}


@pytest.mark.parametrize("rivals", RIVALS)
def test_a_writer_that_stops_before_any_step_and_goes_on_later(rivals: str, place: Place) -> None:
    """At each step in turn, while another writer does all of its work; neither loses a save."""
    step, finished, refused = 0, False, 0
    while not finished:
        changes = Changes(place())
        slow, quick = RIVALS[rivals](changes)
        with stepping():
            writer = Writer(slow)
            for _ in range(step):
                if writer.running:
                    writer.step()
            finished = not writer.running
            quick()
            writer.finish()
        if writer.error is not None:
            raise writer.error
        changes.check()
        refused += changes.refused
        step += 1
    assert step > 10
    assert refused > 0


@pytest.mark.parametrize("rivals", ["another task", "what is being removed"])
def test_a_writer_that_ends_at_any_step_leaves_a_base_and_nothing_for_long(
    rivals: str, place: Place
) -> None:
    step, finished = 0, False
    while not finished:
        changes = Changes(place())
        slow, quick = RIVALS[rivals](changes)
        with stepping():
            writer = Writer(slow)
            for _ in range(step):
                if writer.running:
                    writer.step()
            finished = not writer.running
            if writer.running:
                writer.step(alive=False)
                assert isinstance(writer.error, Killed)
        # Killed after its save, and before it could say so.
        changes.learnt = set(ibcl.load(changes.place).tasks)
        quick()
        ibcl.load(changes.place).save(changes.place)
        changes.check()
        step += 1


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=st.lists(st.integers(0, 2), max_size=60), first=st.booleans())
def test_a_file_is_replaced_once_whoever_stops_where(
    turns: list[int], first: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = LocalFolder(tmp_path_factory.mktemp("replaced"), ())
    version = None if first else folder.replace("file", b"before", None)
    done: list[bytes] = []

    def replacing(data: bytes) -> Callable[[], None]:
        def work() -> None:
            with suppress(ibcl.store.ChangedSinceError):
                folder.replace("file", data, version)
                done.append(data)

        return work

    with stepping():
        take_turns([replacing(data) for data in (b"one", b"two", b"three")], turns)
    assert len(done) <= 1
    found = {path.name: path.read_bytes() for path in folder.folder.iterdir()}
    expected = done[0] if done else b"before"
    assert found == ({"file": expected} if done or not first else {})


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    turns=st.lists(st.integers(0, 2), max_size=400),
    tasks=st.permutations(["add c", "add e", "forget a", "restore b"]),
)
def test_writers_in_any_order_of_steps(turns: list[int], tasks: list[str], place: Place) -> None:
    changes = Changes(place())
    ways = {"add": changes.adding, "forget": changes.forgetting, "restore": changes.restoring}
    works = [ways[what.split()[0]](what.split()[1]) for what in tasks[:3]]
    with stepping():
        take_turns(works, turns)
    changes.check()


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(turns=st.lists(st.integers(0, 1), max_size=200), overwrite=st.booleans())
def test_of_two_first_saves_one_is_told_that_it_is_there(
    turns: list[int], overwrite: bool, place: Place
) -> None:
    target = place() + "-new"
    saved: list[str] = []

    def first(task: str) -> Callable[[], None]:
        learner = make("independent tasks", priors=[2.5])
        add(learner, task)

        def work() -> None:
            try:
                learner.save(target, overwrite=overwrite)
            except (ibcl.store.ChangedSinceError, ibcl.store.OccupiedError):
                return
            saved.append(task)

        return work

    with stepping():
        take_turns([first("c"), first("e")], turns)
    assert len(saved) == 1 or (overwrite and len(saved) == 2)
    (found,) = ibcl.load(target).tasks
    assert found in saved
    changes = Changes(target)
    changes.learnt = {found}
    changes.check()
