"""Everything from many threads at once: each answer is the single-threaded one, bit for bit."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import numpy as np
import pytest
import torch

import ibcl
from kinds import learner, probes, task, taught, teach
from theorems import answer

X = probes(24)
# Threads ask for so long, and on a busy machine until there are so many answers.
SECONDS, ANSWERS = 0.5, 20
PREFERENCES = [[1.0, 0.0, 0.0], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5], [0.6, 0.1, 0.3]]
CASES = [
    ("binary", "routed"),
    ("binary", "evidence"),
    ("different classes", "routed"),
    ("mlp", "routed"),
    ("mlp", "wasserstein"),
    ("module", "mixture"),
]
Question = Callable[[ibcl.IBCL], Any]


def flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, np.ndarray):
        return [torch.from_numpy(value)] if value.dtype.kind in "fiub" else [value.tolist()]
    if isinstance(value, ibcl.Preference):
        return [torch.as_tensor(value.vector())]
    return [part for element in value for part in flat(element)]


def same(ours: Any, theirs: Any) -> bool:
    pairs = zip(flat(ours), flat(theirs), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def questions(kind: str, rule: str) -> list[Question]:
    """Calls that only read, each with one right answer."""
    x, y = task(kind, 0, size=9, seed=2)
    found: list[Question] = [
        lambda k: k.predict_many(X, np.array(PREFERENCES)),
        lambda k: k.predict_many(X[:3], ["a", "b"]),
    ]
    if rule == "routed" or kind == "binary":
        found += [lambda k: k.infer_preference(x), lambda k: k.infer_preference(x, y)]
    for w in PREFERENCES:
        found += [
            lambda k, w=w: answer(k.model(w), X),
            lambda k, w=w: answer(k.model(w), X, 3),
            lambda k, w=w: k.model(w).credal_bounds(X),
            lambda k, w=w: k.model(w).uncertainty(X[:5], samples=4),
            lambda k, w=w: k.model(w).module()(X).detach(),
        ]
    return found


def ask_from_many_threads(
    ask: Iterable[Callable[[], Any]], expected: list[Any], others: Iterable[Callable[[], Any]] = ()
) -> None:
    """Ask again and again from six threads, while others do something else."""
    asked, counts = list(ask), [0] * 6
    stop = threading.Event()

    def keep_asking(thread: int) -> None:
        for number in cycle(np.random.default_rng(thread).permutation(len(asked)).tolist()):
            if stop.is_set():
                return
            assert same(asked[number](), expected[number]), number
            counts[thread] += 1

    def keep_doing(act: Callable[[], Any]) -> None:
        while not stop.is_set():
            act()

    with ThreadPoolExecutor(12) as pool:
        running = [pool.submit(keep_asking, thread) for thread in range(6)]
        running += [pool.submit(keep_doing, act) for act in others]
        end = time.monotonic() + SECONDS
        while time.monotonic() < end or sum(counts) <= ANSWERS:
            if any(job.done() for job in running):
                break
            time.sleep(0.01)
        stop.set()
        for job in running:
            job.result()


@pytest.mark.parametrize(("kind", "rule"), CASES)
def test_answers_do_not_depend_on_who_else_asks(kind, rule, tmp_path):
    """One model each, shared by all threads, while the learner is saved."""
    learnt = teach(learner(kind, rule), kind)
    asked = questions(kind, rule)
    expected = [question(learnt) for question in asked]
    fresh = copy.deepcopy(learnt)  # Nothing of it has been computed before the threads start.
    shared = {tuple(w): fresh.model(w) for w in PREFERENCES}
    asked_of_models = [lambda w=w: answer(shared[tuple(w)], X) for w in PREFERENCES]
    ask_from_many_threads(
        [*(lambda q=q: q(fresh) for q in asked), *asked_of_models],
        [*expected, *(answer(learnt.model(w), X) for w in PREFERENCES)],
        [lambda: fresh.save(tmp_path / "one"), lambda: fresh.save(tmp_path / "two")],
    )
    if kind != "module":
        again = ibcl.load(tmp_path / "one").model(PREFERENCES[1])
        assert torch.equal(answer(again, X), answer(shared[0.2, 0.3, 0.5], X))
    fresh.forget("c")
    fresh.learn(*task(kind, 2), task="again")
    fresh.save(tmp_path / "one")


@pytest.mark.parametrize(("kind", "rule"), [CASES[0], CASES[2], CASES[3], CASES[5]])
def test_answers_hold_while_the_learner_learns_and_forgets(kind, rule, tmp_path):
    """States and models taken before answer as before; what is published is always complete."""
    changing = teach(learner(kind, rule), kind, "ab")
    other = task(kind, 2, size=20)
    state, models = changing.state, [changing.model(w) for w in ([0.3, 0.7], [1.0, 0.0])]
    reference = taught(kind, rule)
    untouched = teach(learner(kind, rule), kind, "ab")
    expected = [answer(untouched.model(w), X) for w in ([0.3, 0.7], [1.0, 0.0])]

    def change() -> None:
        changing.learn(*other, task="c")
        changing.extend(*other, task="c")
        changing.save(tmp_path / "saved", overwrite=True)
        changing.forget("c")

    # What the states that are published one after another answer for the first task alone.
    complete = [answer(untouched.model([1.0, 0.0]), X)]
    untouched.learn(*other, task="c")
    complete.append(answer(untouched.model([1.0, 0.0, 0.0]), X))
    untouched.extend(*other, task="c")
    complete.append(answer(untouched.model([1.0, 0.0, 0.0]), X))

    def whole() -> bool:
        """Tasks come and go, and every state that is seen is one of those that were published."""
        now = changing.state
        vector = np.eye(len(now.knowledge.tasks))[0]
        seen = answer(ibcl.IBCL.from_state(now).model(vector), X)
        return any(torch.equal(seen, known) for known in complete)

    asked = [lambda m=m: answer(m, X) for m in models]
    asked += [lambda: answer(ibcl.IBCL.from_state(state).model([0.3, 0.7]), X)]
    asked += [lambda: torch.tensor(whole())]
    ask_from_many_threads(asked, [*expected, expected[0], torch.tensor(True)], [change])
    if changing.tasks == ("a", "b", "c"):
        changing.forget("c")
    assert changing.tasks == ("a", "b")
    assert torch.equal(answer(changing.model([0.3, 0.7]), X), expected[0])
    changing.learn(*task(kind, 2), task="c")
    assert torch.equal(
        answer(changing.model([0.2, 0.3, 0.5]), X), answer(reference.model([0.2, 0.3, 0.5]), X)
    )
    changing.save(tmp_path / "saved", overwrite=True)


def test_learners_do_not_disturb_each_other():
    """Tasks learnt in several threads at once are those learnt one after another."""
    expected = {kind: taught(kind).model([0.2, 0.3, 0.5]) for kind in ("binary", "mlp", "module")}

    def one(kind: str) -> bool:
        found = teach(learner(kind), kind)
        return torch.equal(found.model([0.2, 0.3, 0.5]).theta, expected[kind].theta)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(one, [*expected] * 2))


def test_tasks_learnt_by_many_threads_are_all_known():
    shared = learner("binary")
    tasks = {f"t{number}": task("binary", number % 3, seed=number) for number in range(8)}
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: shared.learn(*tasks[name], task=name), tasks))
    assert sorted(shared.tasks) == sorted(tasks)
    alone = learner("binary")
    for name in shared.tasks:
        alone.learn(*tasks[name], task=name)
    weights = ibcl.sample_preferences(8, 1)[0]
    assert torch.equal(answer(shared.model(weights), X), answer(alone.model(weights), X))


@pytest.mark.parametrize("regression", [False, True])
def test_estimators_answer_the_same_from_any_thread(regression):
    kind = "regression" if regression else "binary"
    estimator = ibcl.IBCLRegressor() if regression else ibcl.IBCLClassifier()
    for number in range(2):
        x, y = task(kind, number)
        estimator.partial_fit(x.numpy(), y.numpy(), task=f"t{number}")
    rows = X.numpy()
    asked = [lambda: estimator.predict(rows)]
    for w in ([0.3, 0.7], [1.0, 0.0], [0.5, 0.5]):
        asked.append(lambda w=w: estimator.predict(rows, preference=w))
        if not regression:
            asked.append(lambda w=w: estimator.predict_proba(rows, preference=w))
    expected = [question() for question in asked]
    ask_from_many_threads(asked, expected)
    estimator.partial_fit(task(kind, 2).x.numpy(), task(kind, 2).y.numpy(), task="t2")
