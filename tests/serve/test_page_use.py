"""The explorer as people meet it: no rows to measure on, odd values, tokens and faults."""

from __future__ import annotations

import contextlib

import numpy as np
import pandas as pd
import pytest
from browsers import OUTSIDE, browser, serving, until, width
from served_bases import films

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.tabular import Schema

CODES = ["0x1F", "1e5", "Infinity", "a, b"]


def rows(count: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    generator = np.random.default_rng(seed)
    frame = pd.DataFrame({"size": generator.normal(size=count)})
    frame["code"] = generator.choice(CODES, count)
    right = (frame["code"] == CODES[0]) | (frame["code"] == CODES[3])
    return frame, np.where(right ^ (frame["size"] > 1.5), "yes", "no")


def learnt(folder, tasks: int) -> ibcl.IBCL:
    frame, labels = rows(120)
    schema = Schema.fit(frame, labels)
    learner = ibcl.IBCL(ibcl.networks.linear(schema.width), encoder=schema)
    for number in range(tasks):
        learner.learn(frame.assign(size=frame["size"] + number), labels, task=f"task {number}")
    learner.save(folder)
    return learner


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("downloads")) as driver:
        yield driver


@contextlib.contextmanager
def page(driver, settings, pixels=1200):
    app = create_app(settings)
    with serving(app) as url:
        width(driver, pixels)
        driver.get_log("browser")
        driver.get(url)
        yield app.state.service
        # It would ask for a service that is no longer there.
        driver.get("about:blank")


def find(driver, selector):
    return driver.find_elements("css selector", selector)


def text(driver, selector):
    return driver.execute_script(
        "return document.querySelector(arguments[0]).textContent", selector
    )


def fill(driver, selector, value):
    script = (
        "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event('input'));"
    )
    driver.execute_script(script, selector, value)


def test_without_rows_to_measure_on_nothing_is_wrong(driver, tmp_path):
    learnt(tmp_path / "codes.ibcl", 2)
    with page(driver, Settings(tmp_path / "codes.ibcl")):
        until(lambda: "Prediction" in text(driver, "#gate-summary"))
        assert "--validation" in text(driver, "#summary")
        assert not find(driver, "#news")[0].is_displayed()
        assert not find(driver, "#infer")[0].is_displayed()
        assert not find(driver, "#front-x")[0].is_displayed()
        assert [each for each in driver.get_log("browser") if each["level"] == "SEVERE"] == []


@pytest.mark.parametrize("code", CODES)
def test_a_category_that_looks_like_a_number_is_itself(driver, tmp_path, code):
    learner = learnt(tmp_path / "codes.ibcl", 2)
    row = pd.DataFrame({"size": [0.5], "code": [code]})
    expected = learner.model([0.5, 0.5]).predict_proba(row)[0].max()
    with page(driver, Settings(tmp_path / "codes.ibcl")):
        until(lambda: "Prediction" in text(driver, "#gate-summary"))
        fill(driver, "[data-column=size]", "0.5")
        fill(driver, "[data-column=code]", code)
        until(lambda: f"({round(100 * expected, 1):g}%)" in text(driver, "#gate-summary"))
        assert "Never seen" not in text(driver, "#gate-summary")
        fill(driver, "[data-column=code]", "another")
        until(lambda: "the value of code" in text(driver, "#gate-summary"))


def test_rows_of_ones_own_are_read_as_csv_is(driver, tmp_path):
    learner = learnt(tmp_path / "codes.ibcl", 2)
    frame, labels = rows(12, seed=1)
    frame = frame.assign(size=frame["size"].round(3) + 1)
    expected = learner.infer_preference(frame, labels)["task 1"]
    with page(driver, Settings(tmp_path / "codes.ibcl")):
        until(lambda: "Prediction" in text(driver, "#gate-summary"))
        fill(driver, "#own-rows", frame.assign(label=labels).to_csv(index=False))
        driver.execute_script("document.getElementById('infer-own').click()")
        until(lambda: f"task 1 {round(100 * expected, 1):g}%" in text(driver, "#inferred"))
        fill(driver, "#own-rows", "size,code\n1,a, b\n")
        driver.execute_script("document.getElementById('infer-own').click()")
        until(lambda: "3 values for 2 columns" in text(driver, "#inferred"))


def test_many_tasks_are_chosen_from_a_list(driver, tmp_path):
    learnt(tmp_path / "codes.ibcl", 12)
    for pixels in (400, 1200):
        with page(driver, Settings(tmp_path / "codes.ibcl"), pixels):
            until(lambda: "Prediction" in text(driver, "#gate-summary"))
            assert len(find(driver, "#presets button")) == 1
            script = (
                "const list = document.querySelector('#presets select'); list.value = '3';"
                "list.dispatchEvent(new Event('change'));"
                "const fields = [...document.querySelectorAll('#sliders [type=number]')];"
                "return fields.map((field) => Number(field.value))"
            )
            assert driver.execute_script(script) == [100.0 * (k == 3) for k in range(12)]
            assert driver.execute_script(OUTSIDE) == []


def test_a_fault_that_is_over_is_no_longer_shown(driver, base, tmp_path):
    frame, labels = films("sci-fi", 60, seed=7)
    frame.assign(verdict=labels).to_csv(tmp_path / "rows.csv", index=False)
    settings = Settings(base, validation={"sci-fi": tmp_path / "rows.csv"}, label="verdict")
    with page(driver, settings) as service:
        until(lambda: "Weighted" in text(driver, "#summary"))
        stored = service.settings.folder / "preferences.sqlite"
        stored.rename(stored.with_suffix(".away"))
        until(lambda: "cannot be used" in text(driver, "#news"))
        stored.with_suffix(".away").rename(stored)
        until(lambda: not find(driver, "#news")[0].is_displayed())


def test_whoever_asks_too_often_gets_the_last_answer_all_the_same(driver, base, tmp_path):
    frame, labels = films("sci-fi", 60, seed=7)
    frame.assign(verdict=labels).to_csv(tmp_path / "rows.csv", index=False)
    tables = {"sci-fi": tmp_path / "rows.csv", "horror": tmp_path / "rows.csv"}
    with page(driver, Settings(base, validation=tables, label="verdict", rate=4.0)):
        until(lambda: find(driver, "#presets button"))
        for preset in (1, 2, 0, 2, 1) * 3:
            find(driver, "#presets button")[preset].click()
        model = ibcl.load(base).model([1.0, 0.0])
        score = 100 * np.mean(model.predict(frame) == np.array(labels))
        until(lambda: f"{score:.1f}%" in text(driver, "#sliders .score"))
        until(
            lambda: (
                driver.execute_script("return document.querySelector('main').ariaBusy") == "false"
            )
        )
        assert not find(driver, "#news")[0].is_displayed()


def test_what_is_no_token_is_said_and_a_token_opens_the_page(driver, base):
    app = create_app(Settings(base))
    token = app.state.service.tokens.issue()
    with serving(app) as url:
        width(driver, 1200)
        driver.get(url)
        until(lambda: find(driver, "#token-form")[0].is_displayed())
        for value, said in (("“abc”", "no token"), (token[:-1] + "é", "no token"), ("x", "valid")):
            fill(driver, "#token", value)
            find(driver, "#token-form button")[0].click()
            until(lambda said=said: said in text(driver, "#news"))
        fill(driver, "#token", token)
        find(driver, "#token-form button")[0].click()
        until(lambda: "Prediction" in text(driver, "#gate-summary"))
        assert not find(driver, "#news")[0].is_displayed()
        assert not find(driver, "#token-form")[0].is_displayed()
        driver.execute_script("sessionStorage.clear()")


@pytest.mark.parametrize(
    "name", ["constructor", "__proto__", "<img src=x onerror=\"document.title='run'\">", "$choose"]
)
def test_names_are_text_and_nothing_else(driver, tmp_path, name):
    learner = learnt(tmp_path / "codes.ibcl", 2)
    frame, labels = rows(40, seed=2)
    frame.assign(verdict=labels).to_csv(tmp_path / "rows.csv", index=False)
    tables = {"task 0": tmp_path / "rows.csv"}
    with page(driver, Settings(tmp_path / "codes.ibcl", validation=tables, label="verdict")):
        until(lambda: "Weighted" in text(driver, "#summary"))
        find(driver, "#presets button")[1].click()
        learner.learn(frame, labels, task=name)
        learner.save(tmp_path / "codes.ibcl")
        until(lambda: len(find(driver, "#sliders .slider")) == 3)
        until(lambda: name in text(driver, "#news"))
        assert text(driver, "#sliders .slider:last-child .name") == name
        assert text(driver, "#sliders .slider:last-child .score") == "–"
        fields = find(driver, "#sliders [type=number]")
        assert [field.get_property("value") for field in fields] == ["100", "0", "0"]
        assert driver.title == "ibcl explorer"
        assert [each for each in driver.get_log("browser") if each["level"] == "SEVERE"] == []
