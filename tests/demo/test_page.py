from __future__ import annotations

import base64
import re

import numpy as np
import pytest
from browsers import CONTRAST, OUTSIDE, browser, width

from ibcl.demo.disagreement import Disagreement, disagreement
from ibcl.demo.explorer import explorer_data
from ibcl.demo.growth import growth
from ibcl.demo.page import page
from ibcl.demo.tasks import digit_tasks
from ibcl.demo.uncertainty import doubts


@pytest.fixture(scope="module")
def trade():
    """Return all ten digits' two questions."""
    return disagreement(digit_tasks(seed=0))


@pytest.fixture(scope="module")
def html(results, digits, trade):
    learner = results.ways[0].learner
    return page(results, growth(digits), doubts(learner, digits), trade)


def test_the_page_loads_nothing_from_elsewhere_and_is_light(html):
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html.split("<body>")[1])
    assert all("src=" not in tag and "href=" not in tag for tag in tags)
    assert html.count("<link") == 1
    assert '<link rel="icon" href="data:,">' in html
    assert len(html.encode()) < 2_000_000


def test_the_page_says_what_was_measured(html, results):
    best = results.ways[0]
    assert best.way.pooling == "routed"
    assert f"{results.weighted(best.accuracy).mean():.1%}" in html
    for result in results.ways:
        assert f"{result.coverage:.1%}" in html
    assert "$" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)


def test_where_tasks_disagree_a_preference_decides(trade):
    # At a vertex a question is answered as well as one can; it costs what the other contradicts.
    assert trade.own[0, 0] > 0.85
    assert trade.own[-1, 1] > 0.85
    assert np.all(np.abs(trade.own[[0, -1], [1, 0]] - 0.6) < 0.1)
    assert np.all(np.diff(trade.own[:, 1]) > -0.05)
    gain = Disagreement.weighted(trade.own) - Disagreement.weighted(trade.uniform)
    assert gain[[0, -1]].min() > 0.05


def decode(text, rows):
    return np.frombuffer(base64.b64decode(text), dtype="<f4").astype(float).reshape(rows, -1)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.1], [0.0, 1.0]])
def test_what_the_page_computes_with_gives_the_learners_model(results, digits, weights):
    learner = results.ways[0].learner
    data = explorer_data(learner, digits)
    for position, task in enumerate(digits.tasks):
        size = task.test.size
        if max(weights) == 1:
            odd = decode(data["vertices"][position], size)[:, int(np.argmax(weights))]
        else:
            shares = np.exp(decode(data["scores"][position], size)) * weights
            heads = decode(data["heads"][position], size)
            odd = (shares * heads).sum(1) / shares.sum(1)
        expected = learner.model(weights).predict_proba(task.test.x)[:, 1]
        assert np.allclose(odd, expected, atol=1e-5)


@pytest.fixture(scope="module")
def opened(html, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    (folder / "page.html").write_text(html, encoding="utf-8")
    with browser(folder) as driver:
        width(driver, 1200)
        driver.get((folder / "page.html").as_uri())
        yield driver
        assert [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"] == []


def texts(driver, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    return driver.execute_script(script, selector)


def shown(driver):
    return texts(driver, "#sliders .score")


def percent(values):
    return [f"{100 * value:.1f}%" for value in values]


def test_a_browser_makes_the_same_models(opened, results):
    best = results.ways[0]
    opened.find_elements("css selector", "#presets button")[0].click()
    assert shown(opened) == percent(best.accuracy[0])
    opened.find_elements("css selector", "#presets button")[1].click()
    assert shown(opened) == percent(best.front[0])
    assert len(opened.find_elements("css selector", ".figure > svg")) == 6


def test_weights_always_sum_to_one_hundred_per_cent(opened):
    from selenium.webdriver import Keys

    for slider in opened.find_elements("css selector", "#sliders input[type=range]"):
        slider.send_keys(Keys.HOME)
        weights = opened.execute_script(
            "return [...document.querySelectorAll('#sliders input[type=number]')]"
            ".map((e) => Number(e.value))"
        )
        assert sum(weights) == pytest.approx(100, abs=0.2)
        assert "% right" in texts(opened, "#summary")[0]


def test_wrong_images_say_what_they_are_and_what_they_were_taken_for(opened):
    opened.find_elements("css selector", "#presets button")[1].click()
    captions = texts(opened, "#wrong figcaption")
    assert captions
    for caption in captions:
        match = re.fullmatch(r"\d-vs-\d: (even|odd), taken for (even|odd) \([\d.]+%\)", caption)
        assert match
        assert match[1] != match[2]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("pixels", [400, 1200])
def test_nothing_is_cut_off_and_everything_is_readable(opened, pixels, dark):
    width(opened, pixels, dark)
    assert opened.execute_script(OUTSIDE) == []
    assert opened.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert opened.execute_script(CONTRAST) == []
    behind = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", behind)[:3])) < 200) == dark
