"""The pictures of the page of concepts, each computed by the library: ``docs/pictures/*.svg``."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

import ibcl
from ibcl.experiments.evaluation.style import DASHES, MARKERS, PALETTE, SETTINGS
from ibcl.gaussians import DenseGaussian, Gaussian

FOLDER = Path(__file__).parent / "pictures"
NAMES = ("sci-fi", "documentary", "comedy")
Array = NDArray[np.float64]


def task_data(number: int) -> tuple[Array, NDArray[np.int64]]:
    """Points in the plane around the task's own place, and the labels of its own rule."""
    generator = np.random.default_rng(number)
    angle = 2 * np.pi * number / 3 + 0.5
    x = generator.normal(1.6 * np.array([np.cos(angle), np.sin(angle)]), 0.7, size=(150, 2))
    direction = np.array([np.cos(angle + 1.1), np.sin(angle + 1.1)])
    noisy = x @ direction + 0.3 * generator.normal(size=len(x))
    return x, (noisy > (x @ direction).mean()).astype(np.int64)


def learnt(**settings: object) -> ibcl.IBCL:
    """A learner of the three tasks."""
    learner = ibcl.IBCL(ibcl.networks.linear(2), priors=[3.0], **settings)  # type: ignore[arg-type]
    for number, name in enumerate(NAMES):
        learner.learn(*task_data(number), task=name)
    return learner


def ellipse(axis: Axes, q: Gaussian, position: int, label: str | None = None) -> None:
    """Draw the 95 % region of the two weights of a head."""
    covariance = torch.linalg.inv(q.dense().precision).numpy()[:2, :2]
    factor = np.linalg.cholesky(covariance)
    turn = np.linspace(0, 2 * np.pi, 100)
    path = q.mean[:2].double().numpy()[:, None] + 2.45 * factor @ np.stack(
        [np.cos(turn), np.sin(turn)]
    )
    axis.plot(*path, color=PALETTE[position], linestyle=DASHES[position % 4])
    axis.plot(*q.mean[:2].numpy(), MARKERS[position], color=PALETTE[position], label=label)


def draw_task() -> Figure:
    """Three tasks arrive one after another."""
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.4), sharex=True, sharey=True)
    for number, axis in enumerate(axes):
        x, y = task_data(number)
        for label in (0, 1):
            axis.scatter(
                *x[y == label].T, s=9, marker=MARKERS[label], color=PALETTE[label], alpha=0.7
            )
        axis.set(title=f"{number + 1}. {NAMES[number]}", aspect="equal", xlabel="input 1")
    axes[0].set_ylabel("input 2")
    return figure


def draw_preference() -> Figure:
    """The simplex, and three preferences in it."""
    figure, axis = plt.subplots(figsize=(4.2, 3))
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])
    axis.fill(*corners.T, color=PALETTE[5], alpha=0.2)
    for corner, name, place in zip(corners, NAMES, ("right", "left", "center"), strict=True):
        axis.annotate(
            name, corner, ha=place, va="bottom" if place == "center" else "top", xytext=(0, 4),
            textcoords="offset points",
        )  # fmt: skip
    users = {"Ann": (0.8, 0.1, 0.1), "Ben": (0.1, 0.45, 0.45), "Eve": (1 / 3, 1 / 3, 1 / 3)}
    for position, (user, weights) in enumerate(users.items()):
        place = np.array(weights) @ corners
        axis.plot(*place, MARKERS[position], color=PALETTE[position])
        text = f"{user} ({', '.join(f'{weight:.2g}' for weight in weights)})"
        axis.annotate(text, place, xytext=(6, -3), textcoords="offset points")
    axis.set(aspect="equal", xlim=(-0.25, 1.3), ylim=(-0.12, 1.0))
    axis.axis("off")
    return figure


def draw_knowledge_base() -> Figure:
    """What is kept: a posterior per task, around which the credal set is spanned."""
    figure, axis = plt.subplots(figsize=(4.4, 3))
    knowledge = learnt().knowledge
    means = np.array([q.mean[:2].numpy() for q in knowledge.stored])
    axis.fill(*means.T, color="grey", alpha=0.15)
    for position, (name, q) in enumerate(zip(NAMES, knowledge.stored, strict=True)):
        ellipse(axis, q, position, name)
    axis.set(xlabel="weight of input 1", ylabel="weight of input 2")
    axis.legend(frameon=False, title="posterior of")
    return figure


def draw_pooling() -> Figure:
    """Three ways to combine two posteriors into one distribution, at equal weights."""
    first = DenseGaussian([-1.0, 0.0], [[6.0, 2.0], [2.0, 1.5]])
    second = DenseGaussian([1.0, 0.6], [[1.5, -0.8], [-0.8, 5.0]])
    knowledge = ibcl.KnowledgeBase(
        [DenseGaussian([0.0, 0.0], np.eye(2) / 9)], 0.0, independent=True
    )
    knowledge.add("a", [first])
    knowledge.add("b", [second])
    grid = np.linspace(-3.5, 3.5, 121)
    points = np.stack(np.meshgrid(grid, grid), -1)
    figure, axes = plt.subplots(1, 3, figsize=(7, 2.6), sharey=True)
    for axis, rule in zip(axes, ("mixture", "wasserstein", "evidence"), strict=True):
        q = ibcl.pool(knowledge, [0.5, 0.5], rule)
        density = q.log_prob(torch.tensor(points)).exp().numpy()
        axis.contourf(grid, grid, density, 7, cmap="Greys", alpha=0.7)
        ellipse(axis, first, 0)
        ellipse(axis, second, 1)
        axis.set(title=rule, aspect="equal", xlabel="parameter 1")
        axis.grid(visible=False)
    axes[0].set_ylabel("parameter 2")
    return figure


def draw_routing() -> Figure:
    """Shares of two tasks along a line, for three preferences."""
    generator = np.random.default_rng(0)
    learner = ibcl.IBCL(ibcl.networks.linear(1), priors=[3.0])
    for name, centre in (("a", -1.0), ("b", 1.0)):
        x = generator.normal(centre, 0.7, size=(200, 1))
        learner.learn(x, (x[:, 0] > centre).astype(int), task=name)
    line = np.linspace(-3, 3, 201)[:, None]
    figure, axis = plt.subplots(figsize=(5, 2.7))
    for position, weight in enumerate((0.9, 0.5, 0.1)):
        shares = learner.model({"a": weight, "b": 1 - weight}).routing(line)
        axis.plot(line, shares[:, 0], color=PALETTE[position], linestyle=DASHES[position])
        axis.annotate(
            f"w = ({weight:g}, {1 - weight:g})", (1.75, 0.9 - 0.12 * position),
            color=PALETTE[position],
        )  # fmt: skip
        middle = int(np.abs(shares[:, 0] - 0.9 + 0.12 * position).argmin())
        axis.plot(
            [line[middle, 0], 1.7], [0.915 - 0.12 * position] * 2, color=PALETTE[position],
            linewidth=0.5, linestyle="dotted",
        )  # fmt: skip
    for centre, name in ((-1.0, "task a"), (1.0, "task b")):
        axis.annotate(f"inputs of {name}", (centre, -0.02), ha="center", va="top")
    axis.set(xlabel="input", ylabel="share of task a", ylim=(-0.12, 1.05))
    return figure


def draw_region() -> Figure:
    """The highest density region, and the box of intervals that it is not."""
    q = DenseGaussian([0.0, 0.0], [[2.0, 1.6], [1.6, 2.0]])
    region = ibcl.HighestDensityRegion(q, alpha=0.05)
    draws = q.sample(600, torch.Generator().manual_seed(0))
    inside = region.contains(draws).numpy()
    figure, axis = plt.subplots(figsize=(4.2, 3))
    axis.scatter(*draws[inside].T.numpy(), s=5, color=PALETTE[0], alpha=0.6)
    axis.scatter(*draws[~inside].T.numpy(), s=14, marker="x", color=PALETTE[1])
    ellipse(axis, q, 0)
    half = 1.96 * torch.linalg.inv(q.precision).diagonal().sqrt().numpy()
    corners = half[:, None] * np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]])
    axis.plot(*corners, color="grey", linestyle="dotted")
    axis.annotate("box of\n95 % intervals", (half[0], half[1] - 0.6), xytext=(4, 0),
                  textcoords="offset points", color="grey")  # fmt: skip
    share = f"region: {inside.mean():.1%} of 600 draws"
    axis.set(xlabel="parameter 1", ylabel="parameter 2", title=share, aspect="equal")
    return figure


def draw_credal_bounds() -> Figure:
    """Lower and upper probabilities along a line."""
    generator = np.random.default_rng(1)
    x = generator.uniform(-3, 3, size=(120, 1))
    learner = ibcl.IBCL(ibcl.networks.linear(1), priors=[3.0], pooling="evidence")
    for name, boundary in (("a", -1.0), ("b", 1.0)):
        y = generator.random(120) < 1 / (1 + np.exp(-3 * (x[:, 0] - boundary)))
        learner.learn(x, y.astype(int), task=name)
    line = np.linspace(-3, 3, 201)[:, None]
    model = learner.model({"a": 0.6, "b": 0.4})
    lower, upper = (bound[:, 1] for bound in model.credal_bounds(line))
    figure, axis = plt.subplots(figsize=(5, 2.7))
    axis.fill_between(line[:, 0], lower, upper, color=PALETTE[5], alpha=0.4)
    prediction = model.predict_proba(line)[:, 1]
    axis.plot(line, prediction, color="black")
    for text, values, level, offset in (
        ("upper", upper, 0.6, (-36, 6)),
        ("lower", lower, 0.3, (14, -12)),
        ("prediction, w = (0.6, 0.4)", prediction, 0.75, (30, -22)),
    ):
        place = int(np.abs(values - level).argmin())
        axis.annotate(
            text, (line[place, 0], values[place]), xytext=offset, textcoords="offset points",
            arrowprops={"arrowstyle": "-", "linewidth": 0.6},
        )  # fmt: skip
    axis.set(xlabel="input", ylabel="probability of class 1")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "task": draw_task,
    "preference": draw_preference,
    "knowledge-base": draw_knowledge_base,
    "pooling": draw_pooling,
    "routing": draw_routing,
    "region": draw_region,
    "credal-bounds": draw_credal_bounds,
}


def main(folder: Path) -> None:
    """Draw all of them."""
    folder.mkdir(exist_ok=True)
    plt.rcParams.update(SETTINGS | {"figure.constrained_layout.use": True})
    for name, draw in PICTURES.items():
        figure = draw()
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
