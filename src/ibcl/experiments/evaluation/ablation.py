"""Ablations: the paper's and ours, as lists of runs of the same protocol.

Each run carries a label ``knob=value``; its other settings are the benchmark's chosen ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ibcl.experiments import benchmarks as known
from ibcl.experiments.evaluation.charts import ALONG
from ibcl.experiments.evaluation.contenders import Contender, contender
from ibcl.experiments.evaluation.protocol import Protocol
from ibcl.experiments.evaluation.runs import Cell

Variant = tuple[str, Contender, Protocol, int]
"""A label, who runs, how they are evaluated, and with how many samples in memory."""

_MEAN_MODELS = Protocol(samples=0, evaluate_after="last")
_MEMORY, _SMALL = 500, 50
_ALPHAS = (0.01, 0.1, 0.25)
_FEW = ("routed", "ibcl_evidence", "ibcl", "oracle", "derpp", "vcl")
"""Contenders that stand for the others where all of them would be too many."""


def thresholds(benchmark: str) -> Iterable[Variant]:
    """d: the paper's three values, and a wider range on both scales."""
    for d in (0.0, 0.008, 0.010, 0.012, 0.02, 0.05, 0.1, 0.5):
        yield f"d={d:g}", contender("ibcl", benchmark).changed(d=d), _MEAN_MODELS, 0
    for d in (0.0, 0.0001, 0.0003, 0.001, 0.003, 0.008, 0.010, 0.012):
        yield f"d_norms={d:g}", contender("ibcl_norms", benchmark).changed(d=d), _MEAN_MODELS, 0


def significance(benchmark: str) -> Iterable[Variant]:
    """α by the definition, and the inverted per-coordinate variant, labelled as such."""
    for alpha in _ALPHAS:
        chosen = contender("ibcl", benchmark).changed(alpha=alpha)
        yield f"alpha={alpha:g}", chosen, Protocol(samples=20, evaluate_after="last"), 0
        inverted = Protocol(samples=20, inverted=True, evaluate_after="last")
        yield f"inverted_alpha={alpha:g}", chosen, inverted, 0


def significance_fronts(benchmark: str) -> Iterable[Variant]:
    """α on five preferences over the first two tasks, the best of 200 drawn models."""
    shared = {"family": "five", "samples": 200, "tasks": 2, "evaluate_after": "last"}
    for alpha in _ALPHAS:
        chosen = contender("ibcl", benchmark).changed(alpha=alpha)
        yield f"alpha_front={alpha:g}", chosen, Protocol(**shared), 0  # type: ignore[arg-type]
        inverted = Protocol(**shared, inverted=True)  # type: ignore[arg-type]
        yield f"inverted_alpha_front={alpha:g}", chosen, inverted, 0


def along_tasks(benchmark: str) -> Iterable[Variant]:
    """The paper's methods and ours asked after every task, with the memory of its first table."""
    for name in ("routed", "ibcl", "oracle", "gem", "agem", "der", "vcl"):
        yield ALONG, contender(name, benchmark, _SMALL), Protocol(samples=0), _SMALL


def prior_sizes(benchmark: str) -> Iterable[Variant]:
    """Standard deviation of the one prior."""
    for std in (0.25, 2.5, 25.0):
        for name in ("ibcl", "ibcl_evidence"):
            chosen = contender(name, benchmark).changed(prior_std=std)
            yield f"prior_std={std:g}", chosen, _MEAN_MODELS, 0


def prior_numbers(benchmark: str) -> Iterable[Variant]:
    """Number of priors, with the paper's standard deviations."""
    for n in (1, 3, 5, 7):
        stds = [2.5 + 0.5 * (k - n // 2) for k in range(n)]
        chosen = contender("ibcl", benchmark).changed(prior_std=stds)
        yield f"priors={n}", chosen, _MEAN_MODELS, 0


def pooling(benchmark: str) -> Iterable[Variant]:
    """Pooling rule times covariance, all with a linear head and independent tasks.

    The mean of a mixture is the barycentre's, so that mean models tell only two rules apart.
    """
    diagonal, dense = contender("ibcl", benchmark), contender("ibcl_evidence", benchmark)
    shared = {
        "prior_std": dense.options["prior_std"],
        "feature_norm": dense.feature_norm,
        "independent": True,
        "d": 0.0,
    }
    for rule in ("wasserstein", "evidence"):
        chosen = diagonal.changed(network="linear", pooling=rule, **shared)
        yield f"pooling={rule}, diagonal", chosen, _MEAN_MODELS, 0
        yield f"pooling={rule}, dense", dense.changed(pooling=rule, **shared), _MEAN_MODELS, 0


def preference_numbers(benchmark: str) -> Iterable[Variant]:
    """Cost of so many preferences, over the first two tasks."""
    for n in (1, 10, 100, 1000):
        protocol = Protocol(preferences=n, samples=0, tasks=2)
        for name in _FEW:
            yield f"preferences={n}", contender(name, benchmark, _MEMORY), protocol, _MEMORY


def orders(benchmark: str) -> Iterable[Variant]:
    """The tasks in the benchmark's order and in three random ones."""
    for order in range(4):
        for name in ("routed", "ibcl", "oracle", "derpp"):
            protocol = Protocol(samples=0, order=order, evaluate_after="last")
            yield f"order={order}", contender(name, benchmark, _MEMORY), protocol, _MEMORY


def memories(benchmark: str) -> Iterable[Variant]:
    """How many samples per task rehearsal keeps."""
    for memory in (10, 50, 200, 500):
        for name in ("gem", "agem", "der", "derpp", "vcl", "class_rehearsal"):
            yield f"memory={memory}", contender(name, benchmark, memory), _MEAN_MODELS, memory


def storages(benchmark: str) -> Iterable[Variant]:
    """How the evidence is kept between tasks: in full, rounded, or as its leading eigenvectors."""
    for storage in ("exact", "float16", "eigenvectors:128", "eigenvectors:64"):
        for name in ("ibcl_evidence", "routed"):
            chosen = contender(name, benchmark).changed(storage=storage)
            yield f"storage={storage}", chosen, _MEAN_MODELS, 0


def fronts(benchmark: str) -> Iterable[Variant]:
    """Trade-offs along the simplex of the first two tasks."""
    protocol = Protocol(family="grid", samples=0, tasks=2)
    for name in ("routed", "ibcl", "oracle", "derpp"):
        yield "front=first two tasks", contender(name, benchmark, _MEMORY), protocol, _MEMORY


ABLATIONS: dict[str, Callable[[str], Iterable[Variant]]] = {
    "d": thresholds,
    "alpha": significance,
    "alpha-front": significance_fronts,
    "along": along_tasks,
    "prior-size": prior_sizes,
    "prior-number": prior_numbers,
    "pooling": pooling,
    "preferences": preference_numbers,
    "order": orders,
    "memory": memories,
    "front": fronts,
    "storage": storages,
}


STUDY_NAMES = ("detection", "bounds", "inferred", "calibration")
"""Studies beside the protocol; see `ibcl.experiments.evaluation.studies`."""

_STUDIED = "routed"


def ablation_cells(
    names: Sequence[str],
    benchmarks: Sequence[str],
    seeds: Sequence[int],
    backbone: str | None = None,
) -> list[Cell]:
    """List the runs of these ablations.

    Examples
    --------
    >>> cells = ablation_cells(["prior-number"], ["digits"], seeds=[0])
    >>> [cell.label for cell in cells]
    ['priors=1', 'priors=3', 'priors=5', 'priors=7']
    >>> ablation_cells(["beta"], ["digits"], seeds=[0])
    Traceback (most recent call last):
    ...
    ValueError: Unknown ablation 'beta'; known are d, alpha, alpha-front, along, prior-size, \
prior-number, pooling, preferences, order, memory, front, storage, detection, bounds, inferred, \
calibration.
    """
    known_names = [*ABLATIONS, *STUDY_NAMES]
    wanted = known_names if "all" in names else list(names)
    for name in wanted:
        if name not in known_names:
            raise ValueError(f"Unknown ablation {name!r}; known are {', '.join(known_names)}.")
    cells = []
    for seed in seeds:
        for benchmark in benchmarks:
            uses_backbone = known.registered(benchmark).backbone
            image = backbone if uses_backbone else None
            for name in wanted:
                if name in STUDY_NAMES:
                    chosen = contender(_STUDIED, benchmark)
                    cells.append(Cell(benchmark, chosen, seed, Protocol(), 0, image, study=name))
                    continue
                for label, chosen, protocol, memory in ABLATIONS[name](benchmark):
                    kept = memory if chosen.rehearses else 0
                    cells.append(Cell(benchmark, chosen, seed, protocol, kept, image, label))
    return cells
