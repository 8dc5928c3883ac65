"""What every method behind the one interface must do."""

import numpy as np
import pytest
import torch

from ibcl import networks
from ibcl.experiments.methods import METHODS, Baseline, Method, create, options
from ibcl.experiments.methods.checked import CheckedMethod
from ibcl.tasks import TaskData, as_task

BASELINES = [n for n, entry in METHODS.items() if issubclass(entry.method, Baseline)]
CLOSED_FORMS = [
    n
    for n, entry in METHODS.items()
    if issubclass(entry.method, CheckedMethod) and not issubclass(entry.method, Baseline)
]
LINEAR_ONLY = [n for n in BASELINES if METHODS[n].network == "linear"]
REHEARSAL = [n for n in BASELINES if METHODS[n].rehearses]
PER_PREFERENCE = [n for n in BASELINES if METHODS[n].keeps_all_data or METHODS[n].rehearses]
PREFERENCES = {
    1: np.ones((1, 1)),
    2: np.array([[0.5, 0.5], [0.9, 0.1], [0.3, 0.7], [1.0, 0.0]]),
    3: np.array([[0.2, 0.3, 0.5], [0.0, 1.0, 0.0], [0.6, 0.1, 0.3], [1 / 3, 1 / 3, 1 / 3]]),
}


def small(name, network=None, **settings):
    if "epochs" in options(name):
        settings = {"epochs": 2, "batch_size": 16, **settings}
    if "width" in options(name):
        settings = {"width": 20, **settings}
    hidden = "epochs" in options(name) and name not in LINEAR_ONLY
    usual = networks.mlp(3, hidden=4) if hidden else networks.linear(3)
    return create(name, network or usual, **settings)


def run(method, tasks, preferences=PREFERENCES):
    for k, task in enumerate(tasks, 1):
        method.learn(f"task {k}", task, None, preferences[k])
    return method


@pytest.mark.parametrize("name", BASELINES + CLOSED_FORMS)
def test_keeps_the_interface(name, three_tasks):
    method = small(name)
    assert isinstance(method, Method)
    assert METHODS[method.name].method is METHODS[name].method
    assert method.updates == 0
    assert method.stored_bytes == 0
    run(method, three_tasks)
    logits = method.predict_logits(three_tasks[0].x.numpy())
    assert logits.shape == (4, 48, 1)
    assert bool(torch.isfinite(logits).all())
    assert not logits.requires_grad


@pytest.mark.parametrize("name", BASELINES)
def test_the_same_seed_gives_the_same_result_and_another_does_not(name, three_tasks):
    torch.manual_seed(0)
    first = run(small(name, seed=5), three_tasks).predict_logits(three_tasks[0].x)
    torch.manual_seed(1)
    torch.rand(3)
    same = run(small(name, seed=5), three_tasks).predict_logits(three_tasks[0].x)
    other = run(small(name, seed=6), three_tasks).predict_logits(three_tasks[0].x)
    assert torch.equal(first, same)
    assert not torch.allclose(first, other)


@pytest.mark.parametrize(
    "build", [lambda: networks.mlp(3, hidden=4), lambda: networks.random_features(3, width=4)]
)
@pytest.mark.parametrize("name", BASELINES + CLOSED_FORMS)
def test_a_batched_run_is_each_preference_alone(name, build, three_tasks):
    if name == "regmean" and networks.FlatNetwork(build()).linear_layers() is None:
        pytest.skip("merges networks of linear layers only")
    if name == "map_oracle" and not networks.FlatNetwork(build()).is_linear:
        pytest.skip("is exact for linear heads only")
    if name == "pooled_ridge" and not networks.FlatNetwork(build()).is_linear:
        pytest.skip("regresses on fixed features only")
    together = run(small(name, build()), three_tasks[:2])
    logits = together.predict_logits(three_tasks[2].x)
    for k, preference in enumerate(PREFERENCES[2]):
        alone = run(small(name, build()), three_tasks[:2], {**PREFERENCES, 2: preference[None]})
        # All preferences are solved together to a tolerance, the others coordinate by coordinate.
        exact = (
            {"rtol": 1e-2, "atol": 1e-2} if name == "map_oracle" else {"rtol": 1e-4, "atol": 1e-5}
        )
        torch.testing.assert_close(alone.predict_logits(three_tasks[2].x)[0], logits[k], **exact)


@pytest.mark.parametrize("name", BASELINES)
def test_updates_are_the_papers_count(name, three_tasks):
    memory, epochs, batch, n = 16, 3, 16, 48
    extra = {"memory": memory} if "memory" in options(name) else {}
    method = small(name, epochs=epochs, batch_size=batch, **extra)
    for i in (1, 2, 3):
        before = method.updates
        method.learn(f"task {i}", three_tasks[i - 1], None, PREFERENCES[i])
        models = len(PREFERENCES[i])
        if METHODS[name].keeps_all_data:
            expected = models * i * n * epochs / batch
        elif METHODS[name].rehearses:
            expected = models * (n + (i - 1) * memory) * epochs / batch
        else:
            expected = n * epochs / batch
        assert method.updates - before == expected


def test_stored_bytes_are_what_is_kept(three_tasks):
    network, dimension, tasks, width = networks.mlp(3, hidden=4), 21, 3, 3
    sample, model = (width + 1) * 4, dimension * 4
    expected = {
        "fine_tuning": model,
        "oracle": tasks * 48 * sample,
        "convex_combination": tasks * model,
        "convex_combination_shared_start": tasks * model,
        "gem": tasks * 10 * sample + model,
        "agem": tasks * 10 * sample + model,
        "der": tasks * 10 * (sample + 4) + model,
        "derpp": tasks * 10 * (sample + 4) + model,
        "vcl": tasks * 10 * sample + 2 * model,
        "l2p": tasks * 2 * 20 * width * 4 + model,
        "fisher_merging": tasks * 2 * model,
        "regmean": tasks * (model + (3 * 3 + 4 * 4) * 4),
        "mats": tasks * (4 * 4 + 4 * 4 * 8),
        "ties": tasks * model + model,
        "online_ewc": 2 * model,
    }
    for name, nbytes in expected.items():
        extra = {"memory": 10} if "memory" in options(name) else {}
        head = None if name in LINEAR_ONLY else network
        assert run(small(name, head, **extra), three_tasks).stored_bytes == nbytes, name


def tensors_of(value, seen):
    """Every tensor that an object holds, whatever it keeps it in."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_of(part, seen)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_of(part, seen)
    elif hasattr(value, "__dict__"):
        yield from tensors_of(vars(value), seen)


@pytest.mark.parametrize("name", BASELINES + CLOSED_FORMS)
def test_nothing_is_counted_that_is_not_there(name, three_tasks):
    method = small(name)
    assert method.stored_bytes == 0
    for k, task in enumerate(three_tasks, 1):
        method.learn(f"task {k}", task, None, PREFERENCES[k])
        held = {t.untyped_storage().data_ptr(): t for t in tensors_of(method, set())}
        assert 0 < method.stored_bytes <= sum(t.untyped_storage().nbytes() for t in held.values())


@pytest.mark.parametrize("name", REHEARSAL)
def test_memory_is_samples_of_the_task_without_repeats(name, three_tasks):
    method = run(small(name, memory=10), three_tasks)
    for task, memory in zip(three_tasks, method.memories, strict=True):
        assert memory.size == 10
        rows = [int((task.x == x).all(1).nonzero()[0, 0]) for x in memory.x]
        assert len(set(rows)) == 10
        assert torch.equal(task.y[rows].float(), memory.y)
    assert run(small(name, memory=500), three_tasks[:1]).memories[0].size == 48


@pytest.mark.parametrize("name", PER_PREFERENCE)
def test_a_vertex_preference_solves_its_own_task(name, noisy_task):
    # Two tasks that contradict each other: only the preference can say which one to solve.
    tasks = [noisy_task([3.0, 0.0], seed=0, noise=0.1), noisy_task([-3.0, 0.5], seed=1, noise=0.1)]
    method = small(name, networks.linear(2), epochs=60, learning_rate=0.1)
    method.learn("first", tasks[0], None, [[1.0]])
    method.learn("second", tasks[1], None, np.eye(2))
    for k, task in enumerate(tasks):
        answers = method.predict_logits(task.x)[:, :, 0] > 0
        right = (answers == task.y.bool()).float().mean(1)
        assert right[k] > 0.9
        assert right[1 - k] < 0.5


@pytest.mark.parametrize("name", PER_PREFERENCE)
def test_more_weight_means_less_loss(name, three_tasks):
    method = small(name, networks.linear(3), epochs=60, learning_rate=0.02)
    method.learn("first", three_tasks[0], None, [[1.0]])
    grid = np.linspace(0.05, 0.95, 7)
    method.learn("second", three_tasks[1], None, np.stack([grid, 1 - grid], 1))
    losses = [
        method.loss(method.predict_logits(task.x), task.y.float()).mean(1)
        for task in three_tasks[:2]
    ]
    assert float(losses[0][0]) > float(losses[0][-1])
    assert float(losses[1][0]) < float(losses[1][-1])


@pytest.mark.parametrize("name", BASELINES)
def test_learns_classes_and_real_values_too(name):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 3))
    tasks = [as_task(x, rng.integers(0, 3, 40)), as_task(x + 1, rng.integers(0, 3, 40))]
    classes = run(small(name, networks.linear(3, outputs=3)), tasks)
    assert classes.predict_logits(x).shape == (4, 40, 3)
    tasks = [as_task(x, rng.normal(size=(40, 2))), as_task(x, rng.normal(size=(40, 2)))]
    values = run(small(name, networks.linear(3, outputs=2)), tasks)
    assert values.predict_logits(x).shape == (4, 40, 2)


def test_unknown_names_and_settings_are_refused():
    with pytest.raises(ValueError, match=r"Unknown method 'gme'; known are routed, .*oracle"):
        create("gme", networks.linear(3))
    with pytest.raises(ValueError, match="oracle has no setting memory; it takes epochs"):
        create("oracle", networks.linear(3), memory=50)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("epochs", 0),
        ("epochs", 2.5),
        ("batch_size", -1),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("weight_decay", -0.1),
        ("weight_decay", float("inf")),
        ("memory", 0),
        ("seed", -1),
        ("alpha", -1.0),
    ],
)
def test_bad_settings_are_refused(setting, value):
    with pytest.raises(ValueError, match=f"{setting} must be"):
        create("der", networks.linear(3), **{setting: value})


def test_vcl_is_regularised_by_its_prior_only():
    with pytest.raises(ValueError, match="vcl takes no weight_decay"):
        create("vcl", networks.linear(3), weight_decay=0.1)


@pytest.mark.parametrize("name", BASELINES + CLOSED_FORMS)
def test_bad_input_is_refused_and_leaves_no_trace(name, three_tasks):
    method = small(name)
    with pytest.raises(ValueError, match=f"{name} has not learnt a task yet"):
        method.predict_logits(three_tasks[0].x)
    run(method, three_tasks[:1])
    updates, before = method.updates, method.predict_logits(three_tasks[0].x)
    second = three_tasks[1]
    with pytest.raises(ValueError, match="has been learnt already"):
        method.learn("task 1", second, None, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="has 1 weights, but there are 2 tasks"):
        method.learn("task 2", second, None, [[1.0]])
    with pytest.raises(ValueError, match="must sum to 1"):
        method.learn("task 2", second, None, [[0.8, 0.3]])
    with pytest.raises(ValueError, match="must be finite and not negative"):
        method.learn("task 2", second, None, [[1.2, -0.2]])
    with pytest.raises(ValueError, match="at least one preference"):
        method.learn("task 2", second, None, np.empty((0, 2)))
    with pytest.raises(ValueError, match="does not accept inputs of shape"):
        method.learn("task 2", TaskData(second.x[:, :2], second.y), None, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="but the labels hold"):
        method.learn("task 2", TaskData(second.x, second.y + 3), None, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="missing or not finite"):
        method.learn("task 2", TaskData(second.x * torch.nan, second.y), None, [[0.5, 0.5]])
    assert method.updates == updates
    assert torch.equal(method.predict_logits(three_tasks[0].x), before)
    method.learn("task 2", second, None, [[0.5, 0.5]])
    assert method.tasks == ["task 1", "task 2"]
