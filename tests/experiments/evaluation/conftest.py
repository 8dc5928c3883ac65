"""Tables and runs the evaluation's tests share."""

import itertools

import pandas as pd
import pytest
import torch

from ibcl.experiments.evaluation.metrics import RUN


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch, tmp_path):
    torch.set_num_threads(1)
    monkeypatch.delenv("IBCL_DATA", raising=False)
    monkeypatch.setenv("IBCL_CACHE", str(tmp_path / "cache"))


def table_of(accuracies, weights, **run):
    """Make a protocol's table by hand.

    ``accuracies[i][k][j]`` and ``weights[i][k][j]`` are of task i+1, preference k and task j+1.
    """
    constants = dict.fromkeys(RUN, "") | {
        "benchmark": "toy",
        "metric": "accuracy",
        "method": "ibcl",
        "memory": 0,
        "preferences": "uniform",
        "selection": "mean",
        "seed": 0,
        "updates": 100,
        "bytes": 1000,
        "posteriors": 1,
        "seconds": 0.5,
        "total_updates": 100,
        "total_seconds": 0.5,
    }
    rows = []
    for i, per_preference in enumerate(accuracies):
        for k, j in itertools.product(range(len(per_preference)), range(i + 1)):
            value = per_preference[k][j]
            rows.append(
                constants
                | {"task_seen": i + 1, "preference": k, "task_tested": j + 1}
                | {"weight": weights[i][k][j], "accuracy": value}
                | {"balanced_accuracy": value / 2, "calibration_error": 1 - value}
                | run
            )
    return pd.DataFrame(rows)


@pytest.fixture(name="table_of")
def _table_of():
    return table_of
