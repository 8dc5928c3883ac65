"""Parts are apart, drawn class by class, by seed, and the same for every task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ibcl.experiments.benchmarks.benchmark import Part
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import Table
from ibcl.experiments.benchmarks.row_selection import Selection, hold_out, select


def _description(*tasks: TaskDescription) -> BenchmarkDescription:
    return BenchmarkDescription(name="b", numbers=("x",), label="c", tasks=tasks)


def _table(**columns: Sequence[object]) -> Table:
    size = len(next(iter(columns.values())))
    arrays = {name: np.array(values) for name, values in columns.items()}
    return Table(arrays, np.zeros((size, 1), np.float32))


PAIR = TaskDescription(name="t", classes=(("a",), ("b",)))


@given(
    seed=st.integers(0, 10**6),
    sizes=st.tuples(st.integers(12, 40), st.integers(12, 40)),
    validation=st.sampled_from([1, 5, 0.1, 0.25]),
    test=st.sampled_from([2, 6, 0.2, 0.5]),
)
def test_parts_divide_every_class(
    seed: int, sizes: tuple[int, int], validation: int | float, test: int | float
) -> None:
    table = _table(c=["a"] * sizes[0] + ["b"] * sizes[1] + ["other"] * 3)
    selection = select(_description(PAIR), PAIR, table, "train")
    missing: dict[Part, int | float] = {"test": test, "validation": validation}
    parts = hold_out(_description(PAIR), [selection], missing, seed)
    rows = [parts[part][0].rows for part in ("train", "validation", "test")]
    assert sorted(np.concatenate(rows).tolist()) == list(range(sum(sizes)))
    for part, amount in missing.items():
        for label, size in enumerate(sizes):
            expected = amount if isinstance(amount, int) else round(amount * size)
            assert (parts[part][0].labels == label).sum() == expected


def test_seed_decides_the_draw() -> None:
    table = _table(c=["a", "b"] * 30)
    selection = select(_description(PAIR), PAIR, table, "train")

    def validation_rows(seed: int) -> list[int]:
        parts = hold_out(_description(PAIR), [selection], {"validation": 10}, seed)
        rows: list[int] = parts["validation"][0].rows.tolist()
        return rows

    assert validation_rows(3) == validation_rows(3)
    assert validation_rows(3) != validation_rows(4)


def test_a_later_task_does_not_change_an_earlier_one() -> None:
    table = _table(c=["a", "b", "d", "e"] * 30)
    second = TaskDescription(name="u", classes=(("d",), ("e",)))
    selections = [select(_description(PAIR, second), t, table, "train") for t in (PAIR, second)]
    alone = hold_out(_description(PAIR), selections[:1], {"test": 0.3}, 0)
    both = hold_out(_description(PAIR, second), selections, {"test": 0.3}, 0)
    np.testing.assert_array_equal(alone["test"][0].rows, both["test"][0].rows)


@given(st.integers(0, 10**6), st.lists(st.tuples(st.booleans(), st.booleans()), min_size=20))
def test_no_task_trains_on_what_another_is_tested_on(
    seed: int, attributes: list[tuple[bool, bool]]
) -> None:
    tasks = [TaskDescription(name=name, label=name) for name in ("p", "q")]
    table = _table(p=[a for a, _ in attributes], q=[b for _, b in attributes])
    description = _description(*tasks)
    selections = [select(description, task, table, "train") for task in tasks]
    parts = hold_out(description, selections, {"test": 0.2, "validation": 0.2}, seed)
    trained = set(np.concatenate([s.rows for s in parts["train"]]).tolist())
    for part in ("validation", "test"):
        held: list[Selection] = parts[part]
        assert trained.isdisjoint(np.concatenate([s.rows for s in held]).tolist())


def test_later_tasks_draw_only_what_their_classes_lack() -> None:
    first = TaskDescription(name="p", where={"old": (True,)})
    second = TaskDescription(name="q")
    table = _table(c=[0, 1] * 20 + [2] * 10, old=[True] * 40 + [False] * 10)
    description = _description(first, second)
    selections = [select(description, task, table, "train") for task in (first, second)]
    test = hold_out(description, selections, {"test": 4}, 0)["test"]
    assert np.bincount(test[0].labels).tolist() == [4, 4]
    assert np.bincount(test[1].labels).tolist() == [4, 4, 4]


def test_several_classes_share_a_label_and_others_are_left_out() -> None:
    task = TaskDescription(name="t", classes=(("a", "b"), ("d",)))
    chosen = select(_description(task), task, _table(c=["d", "a", "x", "b"]), "train")
    assert chosen.rows.tolist() == [0, 1, 3]
    assert chosen.labels.tolist() == [1, 0, 0]


def test_conditions_restrict_the_rows() -> None:
    task = TaskDescription(name="t", where={"year": (2001, 2002)}, classes=(("a",), ("b",)))
    table = _table(c=["a", "a", "b", "b"], year=[2000, 2001, 2002, 2003])
    assert select(_description(task), task, table, "train").rows.tolist() == [1, 2]


def test_class_that_is_not_there() -> None:
    with pytest.raises(ValueError, match=r"class 'b' of task 't' is not in .* has a, d$"):
        select(_description(PAIR), PAIR, _table(c=["a", "d"]), "test")


def test_condition_that_nothing_meets() -> None:
    task = TaskDescription(name="t", where={"c": ("z",)})
    with pytest.raises(ValueError, match="no row of the train part meets the conditions of task"):
        select(_description(task), task, _table(c=["a", "d"]), "train")


@pytest.mark.parametrize("labels", [["a", "b"], [0.5, 1.0], [-1, 1], [float("nan"), 1.0]])
def test_labels_that_are_not_numbered(labels: list[object]) -> None:
    task = TaskDescription(name="t")
    with pytest.raises(ValueError, match=r"must hold 0, 1, \.\.\. or true and false"):
        select(_description(task), task, _table(c=labels), "train")


def test_class_too_small_to_hold_out_of() -> None:
    table = _table(c=["a"] * 100 + ["b"] * 60)
    selection = select(_description(PAIR), PAIR, table, "train")
    with pytest.raises(ValueError, match="'a' of task 't' has 100 rows, too few to hold out 100"):
        hold_out(_description(PAIR), [selection], {"validation": 100}, 0)
