"""n-step transitions against the sums written out, and the ring that holds them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ibcl.rl.replay import MultiStep, Replay


@given(
    copies=st.integers(1, 3),
    length=st.integers(1, 9),
    steps=st.integers(1, 4),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=60, deadline=None)
def test_every_step_becomes_one_transition_that_ends_in_time(copies, length, steps, seed):
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(length, copies, 2)).astype(np.float32)
    terminated = rng.random((length, copies)) < 0.2
    truncated = ~terminated & (rng.random((length, copies)) < 0.2)
    discount = 0.5
    multi_step = MultiStep(steps, discount)
    replay = Replay(1000, features=2, actions=1, rewards=(steps, 2), tasks=1)
    for t in range(length):
        label = np.stack([np.full(copies, t), np.arange(copies)], axis=1).astype(np.float32)
        rows = multi_step.push(
            label,
            10 * label[:, :1],
            rewards[t],
            label + np.array([1, 0]),
            terminated[t],
            truncated[t],
            np.ones((copies, 1), np.float32),
        )
        replay.add(rows)
    seen = replay._rows[: len(replay)]
    expected = 0
    for copy in range(copies):
        for start in range(length):
            end = start
            while end < length and end - start < steps - 1:
                if terminated[end, copy] or truncated[end, copy]:
                    break
                end += 1
            if end >= length:
                continue
            expected += 1
            (row,) = seen[(seen[:, 0] == start) & (seen[:, 1] == copy)]
            earned = np.zeros((steps, 2), np.float32)
            earned[: end - start + 1] = rewards[start : end + 1, copy]
            np.testing.assert_array_equal(row[2], 10 * start)
            np.testing.assert_array_equal(row[3 : 3 + 2 * steps], earned.ravel())
            after = row[3 + 2 * steps :]
            assert after[0] == end + 1
            assert after[2] == discount ** (end - start + 1)
            assert bool(after[3]) == bool(terminated[end, copy])
    assert len(replay) == expected


def test_the_oldest_rows_are_overwritten_and_the_rest_sampled_evenly():
    replay = Replay(10, features=1, actions=1, rewards=(1, 2), tasks=1)
    rows = np.repeat(np.arange(25, dtype=np.float32)[:, None], 8, axis=1)
    for part in np.split(rows, [3, 9, 21]):
        replay.add(part)
    drawn = replay.sample(20_000, np.random.default_rng(0)).features[:, 0]
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == list(range(15, 25))
    assert np.abs(counts / 2000 - 1).max() < 0.1


def test_a_stored_replay_continues_as_it_was():
    first = Replay(4, features=1, actions=1, rewards=(1, 2), tasks=1)
    first.add(np.arange(48, dtype=np.float32).reshape(6, 8))
    second = Replay(4, features=1, actions=1, rewards=(1, 2), tasks=1)
    second.load(first.state())
    for replay in (first, second):
        replay.add(np.full((1, 8), -1, dtype=np.float32))
    draws = [replay.sample(50, np.random.default_rng(1)) for replay in (first, second)]
    for ours, theirs in zip(*draws, strict=True):
        np.testing.assert_array_equal(ours, theirs)
