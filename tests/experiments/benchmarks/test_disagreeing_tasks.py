"""Benchmarks whose tasks disagree: the same classes, in other pairs."""

import pytest
from typer.testing import CliRunner

from ibcl.cli import app
from ibcl.experiments.benchmarks import (
    BENCHMARKS,
    celeba_contradicting,
    cifar100,
    cifar100_similar_pairs,
    tiny_imagenet,
    tiny_imagenet_similar_pairs,
)
from ibcl.experiments.methods import METHODS


def classes_of(description):
    return [name for task in description.tasks for group in task.classes for name in group]


@pytest.mark.parametrize(
    ("similar", "plain"),
    [(cifar100_similar_pairs, cifar100), (tiny_imagenet_similar_pairs, tiny_imagenet)],
)
def test_similar_pairs_are_the_plain_benchmarks_classes_paired_anew(similar, plain):
    found, wanted = classes_of(similar.DESCRIPTION), classes_of(plain.DESCRIPTION)
    assert sorted(found) == sorted(wanted)
    assert len(set(found)) == 20
    pairs, before = ({frozenset(t.classes) for t in m.DESCRIPTION.tasks} for m in (similar, plain))
    assert not pairs & before


def test_contradicting_attributes_share_their_faces_and_are_balanced():
    description = celeba_contradicting.DESCRIPTION
    assert description.balance
    assert len({task.label for task in description.tasks}) == 10
    assert all(not task.where for task in description.tasks)


@pytest.mark.parametrize("command", ["bench", "tune", "ablate"])
def test_help_names_every_benchmark_there_is(command):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "4000"}).output
    for name in BENCHMARKS:
        assert name in shown
    if command != "ablate":
        for name in METHODS:
            assert name in shown
