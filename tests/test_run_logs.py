"""Logs are told every figure, and nothing depends on the packages behind them."""

import pickle
from importlib.util import find_spec

import pytest

from ibcl.engines import LocalEngine
from ibcl.experiments.evaluation.metrics import average_per_task
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import cells_of, read_runs, run_with_progress
from ibcl.run_logs import LOGS, run_log


class Recording:
    def __init__(self):
        self.told = []

    def log(self, run, step, figures):
        self.told.append((run, step, dict(figures)))


def test_a_log_is_told_the_accuracy_after_every_task(tmp_path):
    log = Recording()
    protocol = Protocol(samples=0, tasks=2, preferences=2)
    cells = cells_of(["digits"], ["fine_tuning"], [0], families=["uniform"], protocol=protocol)
    run_with_progress(cells, tmp_path, LocalEngine(1), log)
    found = average_per_task(read_runs(tmp_path))
    expected = [
        (cells[0].name, task, {f"accuracy/{selection}": value})
        for task, selection, value in zip(
            found["task"], found["selection"], found["value"], strict=True
        )
    ]
    assert log.told == expected
    assert [step for _, step, _ in log.told] == [1, 2]
    # What is finished is not run, and not told, again.
    run_with_progress(cells, tmp_path, LocalEngine(1), log)
    assert log.told == expected


def test_without_a_log_nothing_is_made():
    assert run_log(None) is None


@pytest.mark.parametrize("name", LOGS)
def test_a_package_that_is_missing_is_named_before_the_work(name):
    if find_spec(name) is not None:
        pytest.skip(f"{name} is installed")
    with pytest.raises(ImportError, match=f"pip install {name}"):
        run_log(name)


def test_tensorboard_shows_what_it_was_told(tmp_path):
    pytest.importorskip("tensorboard", reason="TensorBoard is not a dependency")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = run_log(f"tensorboard:{tmp_path}")
    log.log("one", 1, {"accuracy": 0.5})
    # As in a process of its own.
    pickle.loads(pickle.dumps(log)).log("two", 3, {"accuracy": 0.75})
    for run, step, value in (("one", 1, 0.5), ("two", 3, 0.75)):
        events = EventAccumulator(str(tmp_path / run))
        events.Reload()
        assert [(event.step, event.value) for event in events.Scalars("accuracy")] == [
            (step, value)
        ]


def test_mlflow_gets_every_figure_and_bad_addresses_are_refused_at_once(tmp_path):
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed.")
    address = f"sqlite:///{tmp_path}/runs.db"
    log = run_log(f"mlflow:{address}")
    for step, value in enumerate((1.5, 2.5)):
        log.log("first", step, {"accuracy": value})
    log.log("second", 0, {"accuracy": 3.0})
    client = mlflow.MlflowClient(address)
    experiment = client.get_experiment_by_name("ibcl").experiment_id
    found = {
        run.info.run_name: [
            (each.step, each.value)
            for each in client.get_metric_history(run.info.run_id, "accuracy")
        ]
        for run in client.search_runs([experiment])
    }
    assert found == {"first": [(0, 1.5), (1, 2.5)], "second": [(0, 3.0)]}
    with pytest.raises(ValueError, match="does not take the address"):
        run_log("mlflow:nonsense://nowhere")
