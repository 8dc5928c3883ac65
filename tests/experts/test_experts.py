"""Experts: a task's own estimator behind the gate, and all that stays as it is without one."""

import logging
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import ibcl
from ibcl.experts import (
    EXPERTS,
    Auto,
    Expert,
    ExpertPart,
    Fitted,
    as_expert,
    posterior_share,
    skops_files,
)
from ibcl.experts.estimators import Estimator
from ibcl.tasks import as_task

pytest.importorskip("skops")
NAMES = ["near", "far"]


def tables(rows: int = 120, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two tasks in different places; their labels are stripes: trees learn them, heads cannot."""
    random = np.random.default_rng(seed)
    found = []
    for place, sign in ((0.0, 1), (6.0, -1)):
        x = random.normal(size=(rows, 2))
        y = (np.sign(np.sin(4 * x[:, 0])) == sign).astype(int)
        found.append((x + place, y))
    return found


def learner(expert: object, **settings: object) -> ibcl.IBCL:
    learner = ibcl.IBCL(ibcl.networks.linear(2), expert=expert, **settings)
    for name, (x, y) in zip(NAMES, tables(), strict=True):
        learner.learn(x, y, task=name)
    return learner


@pytest.fixture(scope="module")
def trees() -> ibcl.IBCL:
    return learner(DecisionTreeClassifier(max_depth=4, random_state=0), calibration=0.2)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.1], [1.0, 0.0]])
def test_answers_are_the_experts_own_mixed_by_the_gate(weights):
    taught = learner(DecisionTreeClassifier(max_depth=4, random_state=0))
    fresh = np.concatenate([x for x, _ in tables(30, seed=1)])
    model = taught.model(weights)
    expected = np.zeros((len(fresh), 2))
    for number, (x, y) in enumerate(tables()):
        alone = DecisionTreeClassifier(max_depth=4, random_state=0).fit(x.astype(np.float32), y)
        share = model.routing(fresh)[:, [number]]
        expected += share * alone.predict_proba(fresh.astype(np.float32))
    assert np.allclose(model.predict_proba(fresh), expected, atol=1e-5)
    assert np.allclose(taught.predict_many(fresh, [weights])[0], expected, atol=1e-5)


def test_trees_learn_what_their_heads_cannot(trees):
    model, heads = trees.model([0.5, 0.5]), learner(None).model([0.5, 0.5])
    for x, y in tables(200, seed=2):
        assert (model.predict(x) == y).mean() > 0.85
        assert (heads.predict(x) == y).mean() < 0.75


def test_a_stored_learner_answers_the_same_and_goes_on_with_its_experts(trees, tmp_path):
    (x, y), _ = tables(40, seed=3)
    trees.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base")
    for weights in ([0.3, 0.7], [0.0, 1.0]):
        before, after = (each.model(weights).predict_proba(x) for each in (trees, again))
        assert np.array_equal(before, after)
    again.learn(x, y, task="third")
    assert ExpertPart.kind in again.knowledge.parts[2]
    assert again.given.expert == trees.given.expert


def test_an_expert_is_forgotten_and_merged_with_its_task(trees):
    (x, _), (far, labels) = tables(30, seed=4)
    kept = ibcl.IBCL.from_state(trees.state)
    kept.forget("near")
    assert np.array_equal(kept.model("far").predict_proba(x), trees.model([0, 1]).predict_proba(x))
    other = ibcl.IBCL(
        ibcl.networks.linear(2),
        priors=trees.knowledge.priors,
        expert=trees.given.expert,
        calibration=0.2,
    )
    other.learn(far, labels, task="other")
    united = ibcl.merge(trees, other)
    assert [ExpertPart.kind in parts for parts in united.knowledge.parts] == [True] * 3
    alone = other.model("other").predict_proba(x)
    assert np.array_equal(united.model([0, 0, 1]).predict_proba(x), alone)


def test_bounds_sets_novelty_and_preferences_need_no_parameters(trees):
    (x, y), _ = tables(60, seed=5)
    model = trees.model([0.5, 0.5])
    bounds, answers = model.credal_bounds(x), model.predict_proba(x)
    assert (bounds.lower <= answers + 1e-9).all()
    assert (answers <= bounds.upper + 1e-9).all()
    total, within, between = model.uncertainty(x)
    assert np.allclose(total, within + between, atol=1e-9)
    assert model.predict_set(x).shape == (60, 2)
    assert trees.infer_preference(x, y)["near"] > 0.9
    assert (model.novelty(x + 100) > model.novelty(x)).all()


def test_what_an_expert_cannot_do_is_refused_in_a_sentence(trees, tmp_path):
    (x, y), _ = tables(20, seed=6)
    model = trees.model([0.5, 0.5])
    for ask in (
        lambda: model.region,
        lambda: model.distribution,
        lambda: model.predict(x, samples=3),
        model.module,
        lambda: model.save(tmp_path / "model.safetensors"),
    ):
        with pytest.raises(ValueError, match=r"^Experts answer for some of these tasks.*\.$"):
            ask()
    with pytest.raises(ValueError, match="cannot take further batches"):
        trees.extend(x, y, task="near")


def test_replace_fits_the_expert_anew():
    taught = learner(DecisionTreeClassifier(max_depth=4))
    (x, y), _ = tables(80, seed=7)
    taught.replace(x, 1 - y, task="near")
    assert (taught.model("near").predict(x) == 1 - y).mean() > 0.9


def test_auto_gives_boosting_the_share_that_held_out_rows_say(caplog):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    labels = {
        "line": x @ [1.0, -2.0, 0.5] > 0,
        "chequered": np.sign(x[:, 0] * x[:, 1]) > 0,
    }
    taught = ibcl.IBCL(ibcl.networks.linear(3), expert="auto")
    with caplog.at_level(logging.INFO, logger="ibcl"):
        for name, y in labels.items():
            taught.learn(x, y, task=name)
    shares = [getattr(p.get(ExpertPart.kind), "share", 0.0) for p in taught.knowledge.parts]
    assert shares[0] < 0.3
    assert shares[1] > 0.8
    assert "share of boosting in chequered" in caplog.text
    fresh = random.normal(size=(300, 3))
    right = np.sign(fresh[:, 0] * fresh[:, 1]) > 0
    assert (taught.model("chequered").predict(fresh) == right).mean() > 0.85


@pytest.mark.parametrize("pooling", ["routed", "routed1"])
def test_an_expert_beside_the_head_has_its_share_of_the_answer(pooling):
    (x, y), _ = tables(200)
    taught = ibcl.IBCL(ibcl.networks.linear(2), expert="auto", pooling=pooling)
    taught.learn(x, y, task="only")
    head = ibcl.IBCL(ibcl.networks.linear(2), pooling=pooling)
    head.learn(x, y, task="only")
    part = taught.knowledge.parts[0][ExpertPart.kind]
    boosting = HistGradientBoostingClassifier(
        random_state=0, early_stopping=False, max_iter=part.fitted.estimator.n_iter_
    ).fit(x.astype(np.float32), y)
    assert 0.5 < part.share < 1
    expected = part.share * boosting.predict_proba(x.astype(np.float32))
    expected += (1 - part.share) * head.model("only").predict_proba(x)
    assert np.allclose(taught.model("only").predict_proba(x), expected, atol=1e-5)
    assert np.allclose(taught.predict_many(x, [[1.0]])[0], expected, atol=1e-5)


@given(st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_the_share_is_the_mean_of_its_posterior(rows, seed):
    random = np.random.default_rng(seed)
    expert, head = random.dirichlet([1, 1], size=(2, rows))
    y = random.integers(0, 2, size=rows)

    def density(share: float) -> float:
        chances = share * expert[np.arange(rows), y] + (1 - share) * head[np.arange(rows), y]
        return float(np.prod(2 * chances)) * (1 - share) ** 2

    whole = integrate.quad(density, 0, 1)[0]
    mean = integrate.quad(lambda share: share * density(share), 0, 1)[0] / whole
    own, rest = (torch.from_numpy(each[np.arange(rows), y]) for each in (expert, head))
    assert posterior_share(own, rest, True, torch.ones(rows)) == pytest.approx(mean, abs=1e-3)


def test_weights_count_rows_where_shares_are_found():
    random = np.random.default_rng(0)
    own, rest = torch.from_numpy(random.uniform(size=(2, 6)))
    counts = torch.tensor([1, 2, 3, 1, 2, 3])
    often = posterior_share(
        own.repeat_interleave(counts), rest.repeat_interleave(counts), True, torch.ones(12)
    )
    assert posterior_share(own, rest, True, counts) == pytest.approx(often)


def test_classes_that_a_task_has_not_seen_have_no_probability():
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 2))
    taught = ibcl.IBCL(ibcl.networks.linear(2, 4), expert=DecisionTreeClassifier(max_depth=3))
    taught.learn(x, (x[:, 0] > 0).astype(int), task="low")
    taught.learn(x + 9, 2 + (x[:, 0] > 0).astype(int), task="high")
    assert not taught.model("low").predict_proba(x)[:, 2:].any()
    assert (taught.model([0.5, 0.5]).predict(x + 9) >= 2).all()


def test_values_have_experts_too():
    random = np.random.default_rng(0)
    x = random.uniform(-2, 2, size=(200, 1))
    y = np.sign(np.sin(4 * x[:, 0]))
    estimator = ibcl.IBCLRegressor("linear", expert=DecisionTreeRegressor(min_samples_leaf=5))
    estimator.fit(x, 5 + 3 * y)
    answers, spread = estimator.predict(x, return_std=True)
    assert np.abs(answers - (5 + 3 * y)).mean() < 0.5
    assert np.isfinite(spread).all()


def test_the_estimator_takes_boosting_and_frames_wider_than_its_random_features():
    random = np.random.default_rng(0)
    x = random.normal(size=(80, 800))
    y = np.where(x[:, 0] * x[:, 1] > 0, "same", "other")
    estimator = ibcl.IBCLClassifier(expert=DecisionTreeClassifier(), width=8).fit(x, y)
    assert (estimator.predict(x) == y).all()
    assert estimator.learner_.network.specification["kind"] == "linear"


@pytest.mark.parametrize("weights", [None, np.repeat([1.0, 2.0], 60)])
def test_weights_reach_the_expert(weights):
    (x, y), _ = tables()
    taught = ibcl.IBCL(ibcl.networks.linear(2), expert=DecisionTreeClassifier(max_depth=1))
    taught.learn(x, y, task="only", sample_weight=weights)
    alone = DecisionTreeClassifier(max_depth=1, random_state=0)
    alone.fit(x.astype(np.float32), y, sample_weight=weights)
    expected = alone.predict_proba(x.astype(np.float32))
    assert np.allclose(taught.model("only").predict_proba(x), expected, atol=1e-5)


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(max_iter=3),
        make_pipeline(StandardScaler(), LogisticRegression()),
    ],
)
def test_estimators_come_back_from_their_bytes(estimator):
    (x, y), _ = tables()
    data = as_task(x, y)
    part = ExpertPart(Estimator(estimator).fit(data, 2, 0), 2)
    again = ExpertPart.decode(part.encode())
    assert again.encode() == part.encode()
    assert torch.equal(again.answers(data.x), part.answers(data.x))
    assert part.nbytes == len(part.encode())


@pytest.mark.slow
def test_the_same_estimator_has_the_same_bytes_in_any_process(tmp_path):
    program = (
        "import sys, numpy as np\n"
        "from sklearn.ensemble import HistGradientBoostingClassifier as Boosting\n"
        "from ibcl.experts.estimators import Estimator\n"
        "from ibcl.tasks import as_task\n"
        "x = np.random.default_rng(0).normal(size=(80, 2))\n"
        "data = as_task(x, x[:, 0] > 0)\n"
        "fitted = Estimator(Boosting(max_iter=3)).fit(data, 2, 0)\n"
        "open(sys.argv[1], 'wb').write(fitted.encode())\n"
    )
    files = [tmp_path / "one", tmp_path / "two"]
    for file in files:
        subprocess.run([sys.executable, "-c", program, str(file)], check=True)
    one, two = (file.read_bytes() for file in files)
    assert one == two


def test_bytes_that_are_no_expert_or_not_trusted_are_refused(monkeypatch):
    (x, y), _ = tables()
    tree = DecisionTreeClassifier(max_depth=1)
    part = ExpertPart(Estimator(tree).fit(as_task(x, y), 2, 0), 2)
    for data in (b"", b"{}\n", b'{"columns": 0, "expert": "scikit-learn"}\n', b"[]\nabc"):
        with pytest.raises(ValueError, match="no expert of a task"):
            ExpertPart.decode(data)
    with pytest.raises(ValueError, match="no estimator that skops wrote"):
        ExpertPart.decode(part.encode()[:-40])
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        ExpertPart.decode(part.encode().replace(b'"share": 1.0', b'"share": 1.5'))
    monkeypatch.setattr(skops_files, "TRUSTED", set())
    with pytest.raises(ValueError, match="not trusted"):
        ExpertPart.decode(part.encode())


def test_experts_that_cannot_be_are_refused():
    (x, y), _ = tables(20)
    for expert, said in (
        (7, "expert must be 'auto'"),
        (DecisionTreeClassifier, "expert must be 'auto'"),
    ):
        with pytest.raises(ValueError, match=said):
            ibcl.IBCL(ibcl.networks.linear(2), expert=expert)
    for expert, settings, said in (
        (Perceptron(), {}, "predict_proba"),
        (HistGradientBoostingRegressor(), {}, "predict_proba"),
        (DecisionTreeClassifier(), {"likelihood": "gaussian"}, "need a regressor"),
        (DecisionTreeClassifier(), {"pooling": "evidence"}, "use pooling='routed'"),
        (DecisionTreeClassifier(max_depth=-1), {}, "cannot learn this task"),
    ):
        taught = ibcl.IBCL(ibcl.networks.linear(2), expert=expert, **settings)
        with pytest.raises(ValueError, match=said):
            taught.learn(x, y, task="only")
        assert not taught.tasks
    blind = ibcl.IBCL(ibcl.networks.random_features(2, 8), expert=DecisionTreeClassifier())
    with pytest.raises(ValueError, match="skip=True"):
        blind.learn(x, y, task="only")


def test_what_could_not_be_read_back_is_refused_when_it_is_learnt():
    (x, y), _ = tables()
    taught = ibcl.IBCL(ibcl.networks.linear(2), expert=KNeighborsClassifier())
    with pytest.raises(ValueError, match=r"KNeighborsClassifier cannot be kept: .*not trusted"):
        taught.learn(x, y, task="only")
    assert not taught.tasks


def test_expected_counts_are_never_negative():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2))
    taught = ibcl.IBCL(ibcl.networks.linear(2), likelihood="poisson", expert=Ridge())
    taught.learn(x, random.poisson(np.exp(2 * x[:, 0] - 2)), task="only")
    assert taught.knowledge.parts[0][ExpertPart.kind].answers(torch.tensor(x)).min() < 0
    assert taught.model("only").predict(x).min() >= 0
    assert taught.predict_many(x, [[1.0]]).min() >= 0


@pytest.mark.parametrize("expert", ["auto", DecisionTreeClassifier(max_depth=4)])
def test_a_base_that_forgot_a_task_is_the_one_that_never_knew_it(expert):
    taught = learner(expert)
    taught.forget("near")
    never = ibcl.IBCL(ibcl.networks.linear(2), expert=expert)
    x, y = tables()[1]
    never.learn(x, y, task="far")
    assert np.array_equal(taught.model("far").predict_proba(x), never.model("far").predict_proba(x))
    assert taught.knowledge.parts[0].keys() == never.knowledge.parts[0].keys()
    for kind, part in taught.knowledge.parts[0].items():
        assert part.encode() == never.knowledge.parts[0][kind].encode()


class Constant(Expert):
    """An expert from outside that always says the share of ones."""

    name = "constant"

    def fit(self, data, classes, seed):
        """Take the average."""
        return Known(float(data.y.float().mean()))

    def description(self):
        """Nothing to say."""
        return {}

    @classmethod
    def from_description(cls, description):
        """Nothing to read."""
        assert description == {}
        return cls()

    @classmethod
    def decode(cls, data):
        """Read the share."""
        return Known(float(data))


class Known(Fitted):
    """The share of ones."""

    name = "constant"

    def __init__(self, share: float) -> None:
        self.share = share

    def answers(self, x):
        """Return the same for all."""
        return torch.tensor([[1 - self.share, self.share]]).expand(len(x), 2)

    def encode(self):
        """Write the share."""
        return repr(self.share).encode()


def test_an_expert_from_outside_needs_one_line(monkeypatch, tmp_path):
    taught = learner(Constant())
    (x, y), _ = tables()
    assert np.allclose(taught.model("near").predict_proba(x)[:, 1], y.mean())
    with pytest.raises(ibcl.StoreError, match=r"add it to ibcl\.experts\.EXPERTS"):
        taught.save(tmp_path / "base")
    monkeypatch.setitem(EXPERTS, "constant", f"{__name__}:Constant")
    taught.save(tmp_path / "base")
    again = ibcl.load(tmp_path / "base")
    assert np.allclose(again.model("near").predict_proba(x)[:, 1], y.mean())


def test_auto_is_described():
    assert Auto.from_description(Auto(0.4).description()) == Auto(0.4)
    assert as_expert("auto") == Auto()
    with pytest.raises(ValueError, match="held_out alone"):
        Auto.from_description({})
    with pytest.raises(ValueError, match="between 0 and 1"):
        Auto(1.5)
