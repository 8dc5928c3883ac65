"""How fast: ratios of two things measured in the same run, on one thread.

    make speed
    python timings/speed.py [--json] [--quick]

Times on a shared machine are noisy, so what counts is the processor time of this process, the two
sides of every ratio are measured in turns, each side's fastest of several rounds is taken, and the
machine's load is printed beside the table.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

import ibcl
from ibcl.inference.mean_field import MeanFieldVI, _Optimisation
from ibcl.likelihoods import Bernoulli
from ibcl.networks import FlatNetwork, linear, mlp
from ibcl.settings import Settings
from ibcl.state import State
from ibcl.tasks import TaskData

INPUTS, HIDDEN, BATCH, SAMPLES = 512, 64, 32, 1000
X = torch.randn(SAMPLES, INPUTS, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] + 0.5 * torch.randn(SAMPLES, generator=torch.Generator().manual_seed(1)) > 0).float()


def seconds(function: Callable[[], object], repeat: int) -> float:
    begin = time.process_time()
    for _ in range(repeat):
        function()
    return (time.process_time() - begin) / repeat


def in_turns(
    left: Callable[[], object], right: Callable[[], object], repeat: int, rounds: int
) -> tuple[float, float]:
    """Fastest time of each side over several rounds, the sides taking turns."""
    left(), right()
    times = [(seconds(left, repeat), seconds(right, repeat)) for _ in range(rounds)]
    return min(time for time, _ in times), min(time for _, time in times)


def deterministic_update() -> Callable[[], object]:
    network = mlp(INPUTS, hidden=HIDDEN)
    adam = torch.optim.Adam(network.parameters(), lr=1e-3)
    x, y = X[:BATCH], Y[:BATCH]

    def update() -> None:
        adam.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(network(x)[:, 0], y)
        loss.backward()
        adam.step()

    return update


def mean_field_update(priors: int) -> Callable[[], object]:
    network = FlatNetwork(mlp(INPUTS, hidden=HIDDEN))
    shape = (priors, network.dimension)
    state = _Optimisation(network, Bernoulli(), SAMPLES, torch.zeros(shape), torch.full(shape, 2.5))
    generator = torch.Generator().manual_seed(0)
    state.start(network.initial_parameters(generator).expand(shape), torch.full(shape, 0.05))
    x, y = X[:BATCH], Y[:BATCH]
    return lambda: state.step(x, y, None, 1e-3, generator)


def pyro_update() -> Callable[[], object]:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    from pyro.nn import PyroModule, PyroSample

    pyro.clear_param_store()
    layers = PyroModule[nn.Sequential](
        PyroModule[nn.Linear](INPUTS, HIDDEN), nn.ReLU(), PyroModule[nn.Linear](HIDDEN, 1)
    )
    for layer in (layers[0], layers[2]):
        for name, value in list(layer.named_parameters()):
            prior = dist.Normal(0.0, 2.5).expand(value.shape).to_event(value.dim())
            setattr(layer, name, PyroSample(prior))

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        logits = layers(x)[:, 0]
        with pyro.plate("data", SAMPLES, subsample=x):
            pyro.sample("y", dist.Bernoulli(logits=logits), obs=y)

    guide = AutoDiagonalNormal(model, init_scale=0.05)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 1e-3}), Trace_ELBO())
    return lambda: svi.step(X[:BATCH], Y[:BATCH])


def dense_inference() -> Callable[[], object]:
    network = FlatNetwork(linear(INPUTS))
    prior = ibcl.DiagonalGaussian(
        torch.zeros(network.dimension), torch.full((network.dimension,), 2.5)
    )
    data = TaskData(X, Y)
    return lambda: ibcl.DenseVI().infer(network, Bernoulli(), [prior], data)


def knowledge_of_ten_tasks() -> ibcl.IBCL:
    network = FlatNetwork(mlp(INPUTS, hidden=HIDDEN))
    generator = torch.Generator().manual_seed(0)
    shape = (network.dimension,)
    prior = ibcl.DiagonalGaussian(torch.zeros(shape), torch.full(shape, 2.5))
    knowledge = ibcl.KnowledgeBase([prior], d=0.0, independent=False)
    for task in range(10):
        mean = torch.randn(shape, generator=generator)
        std = 0.01 + torch.rand(shape, generator=generator)
        knowledge.add(f"task {task}", [ibcl.DiagonalGaussian(mean, std)])
    settled = Settings(
        (prior,), MeanFieldVI(), "wasserstein", 0.0, likelihood=Bernoulli(), independent=False
    )
    return ibcl.IBCL.from_state(State(network, knowledge, settled, settled))


def measure(quick: bool) -> list[dict[str, object]]:
    """Measure everything.

    Parameters
    ----------
    quick
        Once each and in small, to see that it runs; the figures then mean nothing.
    """
    repeat, rounds, few_rounds = (1, 1, 1) if quick else (40, 9, 3)
    updates, users = (5, 512) if quick else (1000, 10_000)
    rows: list[dict[str, object]] = []

    def add(what: str, value: float, unit: str, target: str, reached: bool) -> None:
        rows.append(
            {"what": what, "measured": value, "unit": unit, "target": target, "reached": reached}
        )

    ours, pyro = in_turns(mean_field_update(1), pyro_update(), repeat, rounds)
    add("one MeanFieldVI update: Pyro's SVI takes", pyro / ours, "x", ">= 8", pyro / ours >= 8)
    ours, plain = in_turns(mean_field_update(1), deterministic_update(), repeat, rounds)
    add(
        "one MeanFieldVI update / one Adam update", ours / plain, "x", "<= 2.5", ours <= 2.5 * plain
    )
    seven, one = in_turns(mean_field_update(7), mean_field_update(1), repeat, rounds)
    add("one update of m = 7 priors / m = 1", seven / one, "x", "<= 5", seven <= 5 * one)
    update = deterministic_update()
    dense, adam = in_turns(
        dense_inference(), lambda: [update() for _ in range(updates)], 1, few_rounds
    )
    add(
        "DenseVI, 1,000 x 512 / 1,000 Adam updates",
        dense / adam,
        "x",
        "< 1",
        dense < adam,
    )

    learner = knowledge_of_ten_tasks()
    preferences = ibcl.sample_preferences(10, users)
    stacked = learner.knowledge.stacked_means.reshape(10, -1)
    weights = torch.as_tensor(preferences, dtype=torch.float32)

    def generate() -> None:
        for _ in learner.models(preferences):
            pass

    def product() -> None:
        for begin in range(0, len(weights), 256):
            weights[begin : begin + 256] @ stacked

    ours, bare = in_turns(generate, product, 1, few_rounds)
    add(
        "10,000 preferences to models / bare product",
        ours / bare,
        "x",
        "<= 1.5",
        ours <= 1.5 * bare,
    )
    preference = dict(zip(learner.tasks, preferences[0], strict=True))
    times = [seconds(lambda: learner.model(preference), repeat) for _ in range(few_rounds)]
    single = min(times) * 1e3
    add("one learner.model(preference), wasserstein", single, "ms", "< 1", single < 1)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print figures for programs")
    parser.add_argument("--quick", action="store_true", help="only see that it runs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    before = os.getloadavg()[0]
    rows = measure(arguments.quick)
    load = f"load {before:.1f} before, {os.getloadavg()[0]:.1f} after, {os.cpu_count()} cores"
    if arguments.json:
        print(json.dumps({"load": load, "rows": rows}, indent=2))
        return
    title = f"512-64-1, batch 32, float32, one thread; {load}"
    table = Table("what", "measured", "target", "", title=title)
    for row in rows:
        value = f"{row['measured']:.2f} {row['unit']}"
        table.add_row(
            str(row["what"]), value, str(row["target"]), "yes" if row["reached"] else "no"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
