"""Properties of the small parts: fitting, feedback, batching, drift, limits."""

from __future__ import annotations

import asyncio
import math
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.preference import follow
from ibcl.serve import fitting, lineage
from ibcl.serve.batching import Batcher
from ibcl.serve.drift import Drift
from ibcl.serve.errors import ApiError
from ibcl.serve.exports import Exports
from ibcl.serve.protection import RateLimit

TASKS = ["a", "b", "c", "d", "e"]


@st.composite
def weightings(draw):
    """Return a preference over some of the tasks."""
    tasks = draw(st.lists(st.sampled_from(TASKS), min_size=1, unique=True))
    values = draw(st.lists(st.integers(0, 9), min_size=len(tasks), max_size=len(tasks)))
    total = sum(values)
    if not total:
        values, total = [1] * len(tasks), len(tasks)
    return {task: value / total for task, value in zip(tasks, values, strict=True)}


@given(weightings(), st.lists(st.sampled_from(TASKS), min_size=1, unique=True), st.floats(0, 0.99))
def test_a_stored_preference_always_fits_or_is_refused(weights, tasks, share):
    remaining = sum(weights.get(task, 0) for task in tasks)
    if remaining == 0 and (share == 0 or set(tasks) <= set(weights)):
        with pytest.raises(ApiError, match="gone"):
            fitting.stored(weights, tasks, share)
        return
    fitted = fitting.stored(weights, tasks, share)
    assert list(fitted.weights) == tasks
    assert math.fsum(fitted.weights.values()) == pytest.approx(1)
    assert min(fitted.weights.values()) >= 0
    assert set(fitted.filled) == set(tasks) - set(weights)
    assert set(fitted.dropped) == set(weights) - set(tasks)
    known = [t for t in tasks if weights.get(t, 0) > 0]
    for one, other in pairwise(known):
        ratio = fitted.weights[one] / fitted.weights[other]
        assert ratio == pytest.approx(weights[one] / weights[other])


@given(weightings())
def test_what_fits_exactly_is_left_exactly_as_it_was(weights):
    tasks = list(weights)
    assert fitting.stored(weights, tasks, 0.3) == (weights, {}, {})
    assert fitting.given(weights, tasks) == (weights, {}, {})


def densities(counts, sure=0.999):
    """Return log densities of examples that almost certainly come from one task each."""
    rows = np.repeat(np.eye(len(counts)), counts, axis=0)
    return np.log(rows * sure + (1 - rows) * (1 - sure))


def test_feedback_that_is_certain_counts_examples():
    found = follow(None, densities([6, 3, 1]), ["a", "b", "c"], 1.0)
    expected = (np.array([6, 3, 1]) + 1 / 3) / 11
    assert list(found.weights.values()) == pytest.approx(expected, abs=0.01)


def test_without_forgetting_batches_do_not_matter_where_examples_are_certain():
    tasks, everything = ["a", "b"], densities([7, 5], sure=1 - 1e-9)
    at_once = follow(None, everything, tasks, 1.0)
    in_parts = None
    for row in everything:
        in_parts = follow(in_parts and in_parts.counts, row[None], tasks, 1.0)
    assert in_parts.weights == pytest.approx(at_once.weights, abs=1e-6)


def test_forgetting_bounds_what_can_be_known():
    """With a factor γ old examples are worth at most 1/(1 − γ) together."""
    state = None
    for _ in range(500):
        state = follow(state and state.counts, densities([1, 0]), ["a", "b"], 0.9)
    assert sum(state.counts.values()) == pytest.approx(1 / (1 - 0.9) + 1, rel=1e-3)


@given(st.integers(0, 5), st.integers(1, 4))
def test_examples_nobody_explains_say_nothing(count, tasks):
    names = TASKS[:tasks]
    found = follow(None, np.full((count, tasks), -np.inf), names, 0.9)
    assert list(found.weights.values()) == pytest.approx([1 / tasks] * tasks)


def test_more_examples_are_surer():
    few, many = (follow(None, densities([n, n]), ["a", "b"], 1.0) for n in (3, 300))
    assert many.std["a"] < few.std["a"] / 5


def batched(items, **options):
    """Hand in items at once; return their results and the batches they came in."""
    batches = []

    def work(batch):
        batches.append(list(batch))
        return [ValueError(str(item)) if item < 0 else item * 10 for item in batch]

    async def run():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(work, executor, **options)
            waiting = [batcher.submit(item) for item in items]
            return await asyncio.gather(*waiting, return_exceptions=True)

    return asyncio.run(run()), batches


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-3, 20), max_size=40), st.integers(1, 10))
def test_everybody_gets_their_own_result(items, largest):
    results, batches = batched(items, largest=largest, size=abs)
    assert [item for batch in batches for item in batch] == items
    for batch in batches:
        assert len(batch) == 1 or sum(map(abs, batch)) <= largest
    for item, result in zip(items, results, strict=True):
        if item < 0:
            assert isinstance(result, ValueError)
        else:
            assert result == item * 10


def test_those_who_ask_at_once_share_a_batch():
    _, batches = batched(range(50))
    assert len(batches) == 1


def test_too_much_at_once_is_refused_and_not_forgotten():
    results, _ = batched(range(20), waiting=5)
    refused = [result for result in results if isinstance(result, ApiError)]
    assert len(refused) == 15
    assert {refusal.status for refusal in refused} == {503}


def test_work_that_fails_altogether_fails_for_all_of_its_batch_and_no_other():
    async def run():
        def work(batch):
            if 13 in batch:
                raise RuntimeError("no")
            return batch

        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(work, executor)
            first = await asyncio.gather(
                batcher.submit(13), batcher.submit(1), return_exceptions=True
            )
            return first, await batcher.submit(2)

    first, second = asyncio.run(run())
    assert [type(result) for result in first] == [RuntimeError, RuntimeError]
    assert second == 2


def test_a_caller_who_has_gone_is_not_worked_for():
    seen = []

    async def run():
        with ThreadPoolExecutor(1) as executor:
            batcher = Batcher(lambda batch: seen.extend(batch) or batch, executor, wait=0.05)
            gone = asyncio.create_task(batcher.submit(1))
            await asyncio.sleep(0)
            gone.cancel()
            return await batcher.submit(2)

    assert asyncio.run(run()) == 2
    assert seen == [2]


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_drift_is_a_total_variation(tasks, seed):
    generator = np.random.default_rng(seed)
    drift = Drift(fast=10, slow=1000)
    for _ in range(5):
        drift.see(generator.dirichlet(np.ones(tasks), 20))
        assert 0 <= drift.value <= 1
        assert drift.recent.sum() == pytest.approx(1)


def test_a_rate_limit_holds_over_time():
    now = [0.0]
    limit = RateLimit(10.0, clock=lambda: now[0])
    allowed = 0
    for _ in range(1000):
        allowed += limit.allows("ann")
        now[0] += 0.01
    assert allowed == pytest.approx(10 * 10 + 20, abs=2)
    assert limit.allows("bob")


def exported(keys, **options):
    """Ask for the files of all keys at once; return what came of them and what was made."""
    made, at_once, most = [], [0], [0]

    def make(key):
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        time.sleep(0.002)
        at_once[0] -= 1
        made.append(key)
        if key < 0:
            raise ValueError(str(key))
        return b"x" * key

    async def run():
        exports = Exports(**options)
        asked = (exports.get(key, lambda key=key: make(key)) for key in keys)
        results = await asyncio.gather(*asked, return_exceptions=True)
        again = await asyncio.gather(
            *(exports.get(key, lambda key=key: make(key)) for key in keys), return_exceptions=True
        )
        exports.close()
        return results, again

    return *asyncio.run(run()), made, most[0]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(-2, 9), min_size=1, max_size=12))
def test_exports_are_made_one_at_a_time_and_once(keys):
    results, again, made, most = exported(keys)
    assert most == 1
    for key, *found in zip(keys, results, again, strict=True):
        for result in found:
            assert isinstance(result, ValueError) if key < 0 else result == b"x" * key
    # What failed is tried again, and what was made is not made again.
    assert all(made.count(key) == (1 if key >= 0 else 2) for key in set(keys))


def test_exports_beyond_a_bound_are_refused_for_now():
    results, _, made, _ = exported(range(1, 9), waiting=3)
    refused = [result for result in results if isinstance(result, ApiError)]
    assert len(refused) == 5
    assert {(error.status, error.retry_after > 0) for error in refused} == {(503, True)}
    assert made[:3] == [1, 2, 3]


def test_exports_are_remembered_up_to_a_size():
    _, _, made, _ = exported([4, 5, 6], remembered=10)
    assert len(made) > 3


@given(
    st.lists(st.sampled_from(TASKS), min_size=1, unique=True),
    st.lists(st.sampled_from(TASKS), unique=True),
    st.lists(st.sampled_from(TASKS), unique=True),
)
def test_tasks_go_on_until_they_are_forgotten(first, forgotten, learnt):
    """Whatever is forgotten and learnt in between, what stays is itself, and nothing else is."""
    before = {task: f"first {task}" for task in first}
    staying = [task for task in first if task not in forgotten]
    between = lineage.following(before, staying)
    after = lineage.following(between, [*staying, *(t for t in learnt if t not in staying)])
    for task, identity in after.items():
        assert (identity == before.get(task)) == (task in staying)
    assert len(set(after.values())) == len(after)
