"""GEM's step satisfies its constraints, and is the closest one that does; A-GEM's likewise."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import minimize

from ibcl import networks
from ibcl.experiments.methods.agem import AGEM, conflict
from ibcl.experiments.methods.gem import GEM, multipliers
from ibcl.experiments.methods.rehearsal import Pool

numbers = st.integers(-40, 40).map(lambda value: value / 10)


@st.composite
def gradient_and_references(draw):
    dimension, references = draw(st.integers(1, 6)), draw(st.integers(1, 5))
    return (
        draw(arrays(np.float64, dimension, elements=numbers)),
        draw(arrays(np.float64, (references, dimension), elements=numbers)),
    )


def project(gradient, references):
    both = np.vstack([gradient, references])
    every = np.ones((1, len(references)), dtype=bool)
    return gradient + multipliers((both @ both.T)[None], every)[0] @ references


@settings(deadline=None, max_examples=150)
@given(gradient_and_references())
def test_gem_step_satisfies_every_constraint(case):
    gradient, references = case
    assert (references @ project(gradient, references) >= -1e-6).all()


@settings(deadline=None, max_examples=60)
@given(gradient_and_references())
def test_gem_step_is_the_closest_that_satisfies_them(case):
    gradient, references = case
    found = minimize(
        lambda z: 0.5 * np.sum((z - gradient) ** 2),
        np.zeros_like(gradient),
        jac=lambda z: z - gradient,
        constraints={"type": "ineq", "fun": lambda z: references @ z, "jac": lambda _: references},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    ours = project(gradient, references)
    # The set is convex, so the closest point is unique: equal distance means the same point.
    distance = np.linalg.norm(ours - gradient)
    assert distance <= np.linalg.norm(found.x - gradient) + 1e-5


@settings(deadline=None, max_examples=60)
@given(gradient_and_references(), st.integers(0, 2**31))
def test_no_random_vector_that_satisfies_them_is_closer(case, seed):
    gradient, references = case
    ours = project(gradient, references)
    rng = np.random.default_rng(seed)
    candidates = ours + rng.normal(size=(500, len(gradient))) * rng.exponential(0.5, (500, 1))
    feasible = candidates[(candidates @ references.T >= 0).all(1)]
    distances = np.linalg.norm(feasible - gradient, axis=1)
    assert (distances >= np.linalg.norm(ours - gradient) - 1e-6).all()


def test_gem_leaves_a_gradient_without_conflict_alone():
    products = np.array([[2.0, 1.0, 0.0], [1.0, 3.0, -1.0], [0.0, -1.0, 4.0]])
    assert multipliers(products[None], np.array([[True, True]])).tolist() == [[0.0, 0.0]]


def test_gem_copes_with_references_that_repeat_or_vanish():
    gradient = np.array([1.0, -1.0])
    references = np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_allclose(project(gradient, references), [1.0, 0.0], atol=1e-9)


def test_gem_holds_back_only_for_tasks_with_weight():
    products = np.array([[1.0, -1.0, -0.5], [-1.0, 2.0, 0.0], [-0.5, 0.0, 1.0]])
    both = np.stack([products, products])
    found = multipliers(both, np.array([[False, True], [False, False]]))
    np.testing.assert_allclose(found, [[0.0, 0.5], [0.0, 0.0]], atol=1e-9)


@settings(deadline=None, max_examples=150)
@given(gradient_and_references())
def test_agem_is_its_formula_and_never_conflicts(case):
    gradient, references = case
    g, g_ref = torch.tensor(gradient), torch.tensor(references[0])
    both = torch.stack([g, g_ref])
    projected = g + conflict((both @ both.T)[None]) * g_ref
    if g @ g_ref < 0:
        torch.testing.assert_close(projected, g - (g @ g_ref) / (g_ref @ g_ref) * g_ref)
        assert float(projected @ g_ref) >= -1e-9
    else:
        assert torch.equal(projected, g)


@settings(deadline=None, max_examples=60)
@given(gradient_and_references())
def test_gem_with_one_reference_is_agem(case):
    gradient, references = case
    both = torch.tensor(np.vstack([gradient, references[:1]]))
    ours = conflict((both @ both.T)[None]) * both[1]
    np.testing.assert_allclose(project(gradient, references[:1]), both[0] + ours, atol=1e-6)


def explicit_gradients(method, theta, tasks):
    gradients = []
    for task in tasks:
        leaf = theta.clone().requires_grad_()
        loss = method.loss(method.network(leaf, task.x), task.y.float()).mean()
        gradients.append(torch.autograd.grad(loss, leaf)[0])
    return torch.stack(gradients)


@pytest.mark.parametrize("build", [lambda: networks.mlp(3, hidden=4), lambda: networks.linear(3)])
def test_gem_training_steps_along_the_projected_weighted_gradient(build, noisy_task):
    # Tasks that contradict each other, and a full batch, so that every gradient is exact.
    tasks = [noisy_task(d, n=12, seed=k) for k, d in enumerate([[3, 0, 0], [0, 3, 0], [-3, -3, 0]])]
    method = GEM(build(), memory=12, reference=12)
    for task in tasks:
        method._checked(task)
    pool = Pool([task._replace(y=task.y.float()) for task in tasks])
    weights = torch.tensor([[0.1, 0.1, 0.8], [0.0, 0.2, 0.8], [0.6, 0.3, 0.1]]).repeat(4, 1)
    generator = torch.Generator().manual_seed(0)
    thetas = torch.randn(12, method.network.dimension, generator=generator)
    rule = method.direction(pool, weights, generator)
    steps = rule(thetas, torch.arange(pool.size), 0)
    changed = 0
    for theta, w, step in zip(thetas, weights, steps, strict=True):
        references = explicit_gradients(method, theta, tasks)
        gradient = w @ references
        constraining = references[:-1][w[:-1] > 0].double().numpy()
        expected = project(gradient.double().numpy(), constraining)
        np.testing.assert_allclose(step.numpy(), expected, rtol=1e-3, atol=1e-4)
        assert (constraining @ step.double().numpy() >= -1e-4).all()
        changed += not np.allclose(step.numpy(), gradient.numpy(), atol=1e-3)
    assert changed, "no preference was projected: the case does not test the projection"


def test_agem_training_step_does_not_conflict_with_its_reference(noisy_task):
    # One remembered sample: every reference batch is that sample, whatever is drawn.
    old, new = noisy_task([3, 0], n=1, seed=0), noisy_task([-3, 0], n=20, seed=1)
    method = AGEM(networks.linear(2), memory=1)
    method._checked(new)
    pool = Pool([task._replace(y=task.y.float()) for task in (old, new)])
    weights = torch.tensor([[0.05, 0.95], [0.95, 0.05]])
    generator = torch.Generator().manual_seed(0)
    thetas = torch.randn(2, 3, generator=generator)
    rows = torch.arange(1, 21)
    steps = method.direction(pool, weights, generator)(thetas, rows, 0)
    for theta, w, step in zip(thetas, weights, steps, strict=True):
        g_ref, g_new = explicit_gradients(method, theta, [old, new])
        g = w[1] * 21 / 20 * g_new
        expected = g - min(0.0, float(g @ g_ref)) / (g_ref @ g_ref) * g_ref
        torch.testing.assert_close(step, expected, rtol=1e-4, atol=1e-5)
        assert float(step @ g_ref) >= -1e-5


def test_agem_is_not_held_back_by_a_reference_that_vanishes():
    """g_ref so small that its square is 0 in float32, while its product with g is not."""
    products = torch.tensor([[[1.0, -1e-30], [-1e-30, 0.0]]])
    assert conflict(products).tolist() == [0.0]


def test_gem_leaves_a_diverged_model_alone_and_still_corrects_the_others():
    sound = [[2.0, -2.0], [-2.0, 4.0]]
    products = np.array([[[np.nan, np.inf], [np.inf, 1.0]], sound])
    found = multipliers(products, np.ones((2, 1), dtype=bool))
    np.testing.assert_allclose(found, [[0.0], [0.5]], atol=1e-12)
