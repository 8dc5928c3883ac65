"""One truth at every front door: command line, library, exported models and estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes
from sklearn.metrics import r2_score

import ibcl as library


def homes(seed: int, n: int = 90) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "area": generator.normal(80, 20, n),
            "town": generator.choice(["Oslo", "Rome", "Lima"], n),
            "garden": generator.random(n) < 0.5,
            "floor": generator.integers(0, 5, n).astype(float),
        }
    )
    frame["price"] = 2.0 * frame["area"] + 30 * (frame["town"] == "Rome") + 10 * seed
    frame["price"] += 5 * generator.normal(size=n)
    frame["kind"] = pd.cut(frame["price"], [-1e9, 140, 180, 1e9], labels=["low", "mid", "high"])
    frame["kind"] = frame["kind"].astype(str)
    frame.loc[generator.random(n) < 0.2, "area"] = np.nan
    frame.loc[generator.random(n) < 0.1, "town"] = None
    return frame


@pytest.mark.parametrize("label", ["kind", "price"])
def test_every_front_door_gives_the_same_answer_for_every_row(succeed, label):
    columns = ["area", "town", "garden", "floor"]
    options = ("--width", 32, *(("--regression",) if label == "price" else ()))
    for task, seed in (("north", 0), ("south", 1)):
        homes(seed)[[*columns, label]].to_csv(f"{task}.csv", index=False)
        succeed("learn", "kb", f"{task}.csv", "--label", label, *(options if seed == 0 else ()))
    new = homes(2)
    new.loc[0, "town"] = "Atlantis"
    new.loc[1, "floor"] = np.nan
    # Another order of columns, some more of them, and another kind of file.
    shuffled = new[["floor", "kind", "garden", "town", "area"]].assign(more="x")
    shuffled.to_parquet("new.parquet")
    wanted = "north=0.3,south=0.7"
    arguments = ("kb", "new.parquet", "--preference", wanted, "--bounds", "--output", "out.parquet")
    succeed("predict", *arguments)
    printed = pd.read_parquet("out.parquet")

    model = library.load("kb").model(wanted)
    succeed("generate", "kb", "--preference", wanted, "--output", "model.safetensors")
    exported = library.load_model("model.safetensors")
    kind = library.IBCLRegressor if label == "price" else library.IBCLClassifier
    estimator = kind(width=32)
    for task in ("north", "south"):
        frame = pd.read_csv(f"{task}.csv")
        estimator.partial_fit(frame[columns], frame[label], task=task)
    for answer in (
        model.predict(shuffled),
        exported.predict(shuffled),
        estimator.predict(shuffled[columns], preference=wanted),
    ):
        np.testing.assert_array_equal(answer, printed["prediction"])
    lower, upper = model.credal_bounds(shuffled)
    if label == "price":
        np.testing.assert_array_equal(np.ravel(lower), printed["lower"])
        assert (printed["lower"] <= printed["prediction"]).all()
        assert (printed["prediction"] <= printed["upper"]).all()
        return
    for column, name in enumerate(("high", "low", "mid")):
        probabilities = printed[f"probability_{name}"]
        for answer in (
            model.predict_proba(shuffled),
            exported.predict_proba(shuffled),
            estimator.predict_proba(shuffled[columns], preference=wanted),
        ):
            np.testing.assert_array_equal(answer[:, column], probabilities)
        np.testing.assert_array_equal(upper[:, column], printed[f"upper_{name}"])
        assert (printed[f"lower_{name}"] <= probabilities).all()
        assert (probabilities <= printed[f"upper_{name}"]).all()


def test_regression_on_the_diabetes_data_is_the_estimators(succeed):
    frame = load_diabetes(as_frame=True).frame
    train, test = frame.iloc[:300], frame.iloc[300:]
    train.to_csv("train.csv", index=False)
    test.to_csv("test.csv", index=False)
    succeed("learn", "kb", "train.csv", "--label", "target", "--regression")
    succeed(
        "predict", "kb", "test.csv", "--preference", "train", "--uncertainty", "--output", "o.csv"
    )
    printed = pd.read_csv("o.csv")
    regressor = library.IBCLRegressor().fit(train.drop(columns="target"), train["target"])
    mean, std = regressor.predict(test.drop(columns="target"), return_std=True)
    np.testing.assert_allclose(printed["prediction"], mean, rtol=1e-12)
    np.testing.assert_allclose(np.sqrt(printed["total_uncertainty"]), std, rtol=1e-12)
    score = succeed("score", "kb", "test.csv", "--label", "target", "--preference", "train")
    assert score["scores"][0]["r2"] == pytest.approx(r2_score(test["target"], mean))
    # As good as it should be: Bayesian linear regression has 0.50 here.
    assert score["scores"][0]["r2"] > 0.45
    assert 0.92 < (abs(test["target"] - mean) < 1.96 * std).mean() < 0.99


@pytest.mark.parametrize("network", ["linear", "random_features"])
def test_counts_are_the_estimators(succeed, network):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(300, 2))
    frame = pd.DataFrame(x, columns=["u", "v"])
    frame["visits"] = generator.poisson(np.exp(1 + 0.5 * x[:, 0]))
    frame.to_csv("shop.csv", index=False)
    read = pd.read_csv("shop.csv")
    arguments = ("--label", "visits", "--likelihood", "poisson", "--network", network)
    succeed("learn", "kb", "shop.csv", *arguments)
    wanted = ("--preference", "shop", "--uncertainty", "--bounds", "--output", "out.parquet")
    succeed("predict", "kb", "shop.csv", *wanted)
    printed = pd.read_parquet("out.parquet")
    regressor = library.IBCLRegressor(network, likelihood="poisson")
    regressor.fit(read[["u", "v"]], read["visits"], task="shop")
    rates, std = regressor.predict(read[["u", "v"]], return_std=True)
    np.testing.assert_array_equal(printed["prediction"], rates)
    np.testing.assert_array_equal(np.sqrt(printed["total_uncertainty"]), std)
    np.testing.assert_array_equal(printed["lower"], regressor.credal_bounds(read[["u", "v"]])[0])
    assert np.corrcoef(np.log(rates), x[:, 0])[0, 1] > 0.95
    assert rates.mean() == pytest.approx(frame["visits"].mean(), rel=0.05)


def test_a_knowledge_base_made_in_python_is_one_for_the_command_line(succeed):
    from ibcl.tabular import Schema, make_head

    frame = homes(0)
    x, y = frame.drop(columns=["price", "kind"]), frame["kind"]
    schema = Schema.fit(x, y)
    learner = library.IBCL(make_head("linear", schema.width, 3), encoder=schema)
    learner.learn(x, y, task="north")
    learner.save("kb")
    frame.to_csv("south.csv", index=False)
    succeed("learn", "kb", "south.csv", "--label", "kind")
    rows = succeed("predict", "kb", "south.csv", "--preference", "0.5,0.5")["predictions"]
    expected = library.load("kb").model([0.5, 0.5]).predict(x)
    assert [row["prediction"] for row in rows] == expected.tolist()


def test_weights_of_rows_and_classes(succeed):
    frame = homes(0)
    frame["count"] = np.arange(len(frame)) % 3 + 1
    frame.to_csv("weighted.csv", index=False)
    frame.loc[np.repeat(frame.index, frame["count"])].to_csv("repeated.csv", index=False)
    features = ("--features", "area,town,floor", "--network", "linear")
    learnt = ("--label", "kind", "--task", "t", *features)
    succeed("learn", "weighted", "weighted.csv", *learnt, "--sample-weight", "count")
    succeed("learn", "repeated", "repeated.csv", *learnt)
    answers = [library.load(kb).model("t").predict_proba(frame) for kb in ("weighted", "repeated")]
    np.testing.assert_allclose(*answers, rtol=1e-5)
    succeed("learn", "balanced", "weighted.csv", *learnt, "--class-weight", "balanced")
    balanced = library.load("balanced").model("t").predict_proba(frame)
    assert abs(balanced - answers[0]).max() > 1e-3


def test_a_task_extended_and_a_task_replaced(succeed, knowledge_base, sun, rain):
    def answers(folder: object) -> np.ndarray:
        return library.load(folder).model("sun").predict_proba(pd.read_csv(sun))

    before = answers(knowledge_base)
    pd.read_parquet(rain).to_csv("wrong.csv", index=False)
    arguments = ("learn", knowledge_base, "wrong.csv", "--label", "verdict", "--task", "sun")
    extended = succeed(*arguments, "--extend")
    assert extended["samples"] == 160
    assert extended["tasks"] == ["sun", "rain"]
    assert abs(answers(knowledge_base) - before).max() > 0.01
    arguments = ("learn", knowledge_base, sun, "--label", "verdict", "--task", "sun")
    assert succeed(*arguments, "--replace")["samples"] == 80
    np.testing.assert_allclose(answers(knowledge_base), before, atol=1e-6)
