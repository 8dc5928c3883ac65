"""A method and a benchmark registered from outside: nothing else has to know them."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from ibcl.cli import app
from ibcl.experiments import benchmarks, methods
from ibcl.experiments.benchmarks import BenchmarkRegistration
from ibcl.experiments.benchmarks.assembly import assemble
from ibcl.experiments.benchmarks.description import BenchmarkDescription, TaskDescription
from ibcl.experiments.benchmarks.raw_tables import Table
from ibcl.experiments.methods import Range, Registration
from ibcl.experiments.methods.checked import CheckedMethod


class Constant(CheckedMethod):
    """Answers with the share of ones it was last shown, times a factor."""

    name = "constant"

    def __init__(self, network, *, factor=1.0, **settings):
        super().__init__(network, **settings)
        self.factor, self.answer, self.asked = factor, 0.0, 0

    def absorb(self, current, preferences):
        self.answer, self.asked = float(current.y.mean()), len(preferences)

    def predict_logits(self, x):
        return torch.full((self.asked, len(x), 1), self.factor * (self.answer - 0.5))

    @property
    def stored_bytes(self):
        return 8


def load(settings):
    rng = np.random.default_rng(settings.seed)
    columns = {"group": np.repeat(["a", "b"], 60), "label": np.tile([0, 1], 60)}
    description = BenchmarkDescription(
        name="our own/benchmark",
        numbers=("x", "y"),
        label="label",
        tasks=tuple(TaskDescription(name=g, where={"group": g}) for g in "ab"),
    )
    table = Table(columns, rng.normal(size=(120, 2)).astype(np.float32))
    return assemble(description, {"train": table}, "made up", settings)


@pytest.fixture
def registered():
    # The registries are the ones everybody sees; what is added here is taken out again.
    methods.register(
        Registration(
            "constant",
            "the constant",
            Constant,
            "one model",
            "linear",
            settings={"factor": 2.0},
            space={"factor": Range(0.1, 10.0)},
        )
    )
    benchmarks.register(
        BenchmarkRegistration("our own/benchmark", "our benchmark", load, memories=(5,))
    )
    yield
    del methods.METHODS["constant"], benchmarks.BENCHMARKS["our own/benchmark"]


@pytest.mark.usefixtures("registered")
@pytest.mark.slow
def test_a_new_method_and_benchmark_go_through_bench_tune_and_report(tmp_path):
    runner = CliRunner()
    folder = str(tmp_path / "runs")
    one = ["--processes", "1"]
    which = ["our own/benchmark", "-m", "constant,derpp"]
    result = runner.invoke(app, ["bench", *which, "--samples", "0", *one, "--output", folder])
    assert result.exit_code == 0, result.output
    assert "our" in result.output
    result = runner.invoke(app, ["report", folder, "--output", str(tmp_path / "page")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "page" / "report.html").read_text()
    assert "the constant" in page
    assert "our benchmark" in page
    assert "DER++, 5 per task" in page
    assert list((tmp_path / "page" / "figures").glob("metrics-our-own-benchmark-*.png"))
    arguments = ["tune", "our own/benchmark", "-m", "constant", "--trials", "3", *one]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 0, result.output
    assert "factor = " in result.output


def test_registrations_are_checked():
    with pytest.raises(ValueError, match="There is a method 'gem' already"):
        methods.register(methods.registered("gem"))
    with pytest.raises(ValueError, match="group is one of IBCL, all data"):
        methods.register(Registration("new", "new", Constant, "magic", "linear"))
    with pytest.raises(ValueError, match="new has no setting speed"):
        methods.register(
            Registration("new", "new", Constant, "one model", "linear", settings={"speed": 1})
        )
    with pytest.raises(ValueError, match="there is a benchmark 'digits' already"):
        benchmarks.register(benchmarks.registered("digits"))


def test_every_space_can_be_searched_from_its_own_start():
    """The settings before tuning are within the space, so that the first trial is theirs."""
    for entry in methods.METHODS.values():
        for name, values in entry.space.items():
            start = entry.feature_norm if name == "feature_norm" else entry.settings.get(name)
            if start is None:
                assert name == "weight_decay", (entry.name, name)
            elif isinstance(values, Range):
                assert values.low <= start <= values.high, (entry.name, name)
            else:
                assert start in values, (entry.name, name)
