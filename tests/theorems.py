"""What must hold, as assertions written once and applied to every family, rule and method."""

import math

import numpy as np
import torch

import ibcl
from ibcl.gaussians import (
    BlockDiagonalGaussian,
    DenseGaussian,
    DiagonalGaussian,
    Gaussian,
    IndependentGaussian,
    LowRankGaussian,
)

FAMILIES = ["diagonal", "dense", "low_rank", "block_diagonal", "independent"]


def random_gaussian(kind: str, dimension: int, seed: int) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(dimension, generator=generator, dtype=torch.float64)
    if kind == "diagonal":
        std = 0.2 + torch.rand(dimension, generator=generator, dtype=torch.float64)
        return DiagonalGaussian(mean, std)
    if kind == "dense":
        return DenseGaussian(mean, _positive_definite(generator, dimension))
    if kind == "low_rank":
        spread = 0.5 + torch.rand(dimension, generator=generator, dtype=torch.float64)
        columns = torch.randn(dimension, 1 + seed % 2, generator=generator, dtype=torch.float64)
        return LowRankGaussian(mean, spread, columns)
    if kind == "block_diagonal":
        size = next(size for size in (2, 3, 1) if dimension % size == 0)
        # The same blocks for every seed, so that sums stay in the family.
        order = torch.randperm(dimension, generator=torch.Generator().manual_seed(dimension))
        positions = order.reshape(-1, size)
        blocks = [_positive_definite(generator, size) for _ in positions]
        return BlockDiagonalGaussian(mean, torch.stack(blocks), positions)
    assert kind == "independent"
    half = dimension // 2
    sizes = {"diagonal": half, "dense": dimension - half} if half else {"dense": dimension}
    return IndependentGaussian([random_gaussian(k, n, seed + 7) for k, n in sizes.items()])


def _positive_definite(generator: torch.Generator, dimension: int) -> torch.Tensor:
    root = torch.randn(dimension, dimension, generator=generator, dtype=torch.float64)
    return root @ root.T / dimension + 0.5 * torch.eye(dimension)


def random_knowledge(
    kind: str, tasks: int = 3, priors: int = 1, dimension: int = 4, independent: bool = True
) -> ibcl.KnowledgeBase:
    """A knowledge base whose posteriors are sharper than their priors, as real ones are."""
    zeros = torch.zeros(dimension).double()
    initial = [
        DiagonalGaussian(zeros, torch.full((dimension,), 3.0 + j).double()) for j in range(priors)
    ]
    knowledge = ibcl.KnowledgeBase(initial, d=0, independent=independent)
    for task in range(tasks):
        posteriors = []
        for j, prior in enumerate(knowledge.next_priors()):
            factor = random_gaussian(kind, dimension, seed=100 * task + j)
            product = prior.natural_parameters() + factor.natural_parameters()
            posteriors.append(product.gaussian())
        knowledge.add(f"task{task}", posteriors)
    return knowledge


def moments(q: Gaussian) -> tuple[torch.Tensor, torch.Tensor]:
    return q.mean.double(), q.dense().covariance


def assert_same_gaussian(left: Gaussian, right: Gaussian, tolerance: float = 1e-8) -> None:
    for ours, theirs in zip(moments(left), moments(right), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


def assert_vertex_identity(knowledge: ibcl.KnowledgeBase, rule: str) -> None:
    """With one prior, all weight on a task gives back that task's posterior, bit for bit."""
    for position, task in enumerate(knowledge.tasks):
        q = ibcl.pool(knowledge, np.eye(len(knowledge.tasks))[position], rule)
        (posterior,) = knowledge.extremes(task)
        assert isinstance(q, Gaussian)
        assert q.equal(posterior)


def assert_linear_in_preference(knowledge: ibcl.KnowledgeBase, rule: str) -> None:
    """The mean of q_w moves linearly along a line of preferences."""
    left, right = ibcl.sample_preferences(len(knowledge.tasks), 2, seed=5)
    ends = [ibcl.pool(knowledge, w, rule).mean.double() for w in (left, right)]
    middle = ibcl.pool(knowledge, 0.3 * left + 0.7 * right, rule).mean.double()
    torch.testing.assert_close(middle, 0.3 * ends[0] + 0.7 * ends[1])


def assert_uniform_evidence_is_sequential_bayes(knowledge: ibcl.KnowledgeBase) -> None:
    """The uniform preference multiplies every likelihood once: the chain's last posterior."""
    tasks = len(knowledge.tasks)
    q = ibcl.pool(knowledge, np.full(tasks, 1 / tasks), "evidence")
    assert_same_gaussian(q, knowledge.extremes(knowledge.tasks[-1])[0], tolerance=1e-9)


def assert_region_coverage(q, alpha: float, draws: int = 10_000) -> None:
    """The region holds 1 − α of the mass, within one point, on draws it has not seen."""
    region = ibcl.HighestDensityRegion(q, alpha, seed=0)
    inside = region.contains(q.sample(draws, torch.Generator().manual_seed(12345)))
    assert abs(float(inside.double().mean()) - (1 - alpha)) < 0.01


def assert_dedup_within_d(knowledge: ibcl.KnowledgeBase, learnt: dict[str, list[Gaussian]]) -> None:
    """Every learnt posterior is stored, or within d of the stored one that stands for it."""
    scale = math.sqrt(knowledge.dimension)
    for record in knowledge.records:
        for posterior, extreme, pointer in zip(
            learnt[record.name], knowledge.extremes(record.name), record.pointers, strict=True
        ):
            distance = posterior.wasserstein(extreme) / scale
            assert (distance < knowledge.d) if pointer else (extreme is posterior)


def answer(model: ibcl.Model, x, samples: int = 0):
    """What a model answers by: class probabilities, or expected values as a matrix."""
    if model.likelihood.classification:
        return model.predict_proba(x, samples)
    return model.predict(x, samples).reshape(len(x), -1)


def assert_credal_bounds_contain_predictions(learner: ibcl.IBCL, x, samples: int = 0) -> None:
    """Whatever the rule and the preference, the prediction lies between its own bounds."""
    tasks = len(learner.tasks)
    for weights in (*np.eye(tasks), *ibcl.sample_preferences(tasks, 3, seed=4)):
        model = learner.model(weights)
        lower, upper = model.credal_bounds(x, samples)
        found = answer(model, x, samples)
        assert lower.shape == upper.shape == found.shape
        assert bool((lower <= found).all())
        assert bool((found <= upper).all())


def assert_vertex_is_the_tasks_own_posterior(learner: ibcl.IBCL, x) -> None:
    """All weight on a task: its posterior's parameters and answers, bit for bit, unrouted."""
    for position, task in enumerate(learner.tasks):
        vertex = np.eye(len(learner.tasks))[position]
        model = learner.model(vertex)
        (posterior,) = learner.knowledge.extremes(task)
        assert torch.equal(model.theta, posterior.mean)
        assert model.distribution.equal(posterior)
        assert torch.equal(model.routing(x), torch.as_tensor(vertex).expand(len(x), -1).to(x))


def assert_same_predictions(ours: ibcl.IBCL, theirs: ibcl.IBCL, x) -> None:
    """The same answers to every preference, bit for bit, and the same routes."""
    assert ours.tasks == theirs.tasks
    for weights in (*np.eye(len(ours.tasks)), *ibcl.sample_preferences(len(ours.tasks), 3, seed=2)):
        left, right = ours.model(weights), theirs.model(weights)
        assert torch.equal(answer(left, x), answer(right, x))
        for bound, other in zip(left.credal_bounds(x), right.credal_bounds(x), strict=True):
            assert torch.equal(bound, other)
        if ours.pooling == "routed":
            assert torch.equal(left.routing(x), right.routing(x))
            assert torch.equal(left.novelty(x), right.novelty(x))
