"""The explorer in a real browser: drag, type, compare, infer, download, and a growing base."""

from __future__ import annotations

import numpy as np
import pytest
from browsers import CONTRAST, OUTSIDE, browser, serving, until, width
from served_bases import TASKS, films, grown

import ibcl
from ibcl.serve import Settings, create_app
from ibcl.serve.page_files import FILES, page_file


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return grown(tmp_path_factory.mktemp("page") / "movies.ibcl", 2)


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def opened(base, downloads):
    tables = {}
    for task in TASKS:
        frame, labels = films(task, 120, seed=7)
        tables[task] = base.parent / f"{task}.csv"
        frame.assign(verdict=labels).to_csv(tables[task], index=False)
    app = create_app(Settings(base, poll=0.05, validation=tables, label="verdict"))
    with browser(downloads) as driver, serving(app) as url:
        yield driver, url


@pytest.fixture
def page(opened):
    driver, url = opened
    width(driver, 1200)
    driver.get(url)
    until(lambda: "Weighted" in text(driver, "#summary"))
    settled(driver)
    yield driver
    faults = [entry for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]
    assert faults == []


def settled(driver):
    """Wait until the page has shown everything it was asked for."""
    script = "return document.querySelector('main').ariaBusy"
    until(lambda: driver.execute_script(script) == "false")


def choose(driver, preset):
    """Press one of the buttons of preferences."""
    find(driver, "#presets button")[preset].click()
    settled(driver)


def find(driver, selector):
    return driver.find_elements("css selector", selector)


def texts(driver, selector):
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
    return driver.execute_script(script, selector)


def text(driver, selector):
    return texts(driver, selector)[0]


def weights(driver, place="#sliders"):
    script = "return [...document.querySelectorAll(arguments[0])].map((e) => Number(e.value))"
    return driver.execute_script(script, f"{place} input[type=number]")


def scores(driver, place="#sliders"):
    return texts(driver, f"{place} .score")


def expected(base, shares, written="{:.1f}%"):
    """Return what the library measures, as the page writes it."""
    learner = ibcl.load(base)
    model = learner.model(shares)
    shown = []
    for task in learner.tasks:
        frame, labels = films(task, 120, seed=7)
        shown.append(round(100 * np.mean(model.predict(frame) == np.array(labels)), 1))
    return [written.format(value) for value in shown]


def test_the_page_is_light_and_loads_nothing_from_elsewhere():
    contents = "".join(page_file(name) for name in FILES)
    assert len(contents.encode()) < 300_000
    assert "://" not in contents.replace("http://www.w3.org/2000/svg", "")


def test_it_shows_what_the_library_measures(page, base):
    assert weights(page) == [50, 50]
    assert scores(page) == expected(base, [0.5, 0.5])
    assert {"sci-fi", "horror", "now"} <= set(texts(page, "#front text"))


def test_dragging_a_slider_moves_the_others_and_the_scores(page, base):
    from selenium.webdriver import ActionChains

    (slider, _) = find(page, "#sliders input[type=range]")
    right = slider.size["width"] // 2 + 20
    ActionChains(page).click_and_hold(slider).move_by_offset(right, 0).release().perform()
    until(lambda: weights(page) == [100, 0])
    until(lambda: scores(page) == expected(base, [1.0, 0.0]))
    assert '"sci-fi": 1' in text(page, "#code")


def test_typing_a_weight_and_the_keyboard_alone(page, base):
    from selenium.webdriver import Keys

    (number, _) = find(page, "#sliders input[type=number]")
    number.send_keys(Keys.CONTROL, "a")
    number.send_keys("25")
    until(lambda: weights(page) == [25, 75])
    until(lambda: scores(page) == expected(base, [0.25, 0.75]))
    number.send_keys(Keys.TAB)
    focused = page.switch_to.active_element
    assert focused.get_attribute("type") == "range"
    focused.send_keys(Keys.HOME)
    until(lambda: weights(page) == [100, 0])
    page.execute_script("document.querySelector('#presets button').focus()")
    page.switch_to.active_element.send_keys(Keys.ENTER)
    until(lambda: weights(page) == [50, 50])


def test_two_preferences_are_compared(page, base):
    find(page, "#compare")[0].click()
    choose(page, 1)
    assert weights(page) == [100, 0]
    assert weights(page, "#sliders-second") == [50, 50]
    measured = (expected(base, shares, "{:.1f}%") for shares in ([1.0, 0.0], [0.5, 0.5]))
    wanted = list(zip(*measured, strict=True))
    columns = (texts(page, f"#comparison tbody td:nth-child({n})")[:2] for n in (4, 5))
    assert list(zip(*columns, strict=True)) == wanted
    assert {"A", "B"} <= set(texts(page, "#front text"))
    find(page, "#compare")[0].click()
    assert not find(page, "#second")[0].is_displayed()


def test_a_preference_is_found_from_rows(page):
    boxes, tasks = find(page, "#examples input[type=checkbox]"), texts(page, "#examples button")
    for box, task in zip(boxes, tasks, strict=True):
        if task == "horror":
            box.click()
    find(page, "#infer")[0].click()
    until(lambda: "From 4 examples" in text(page, "#inferred"))
    assert weights(page)[1] > 80
    settled(page)
    find(page, "details summary")[0].click()
    find(page, "#own-rows")[0].send_keys("year,minutes,mood\n" + "-2,0,grim\n" * 6)
    find(page, "#infer-own")[0].click()
    until(lambda: "From 6 examples" in text(page, "#inferred"))
    assert weights(page)[0] > 80


def test_the_gate_follows_an_input(page):
    year = find(page, "#fields input")[0]
    year.clear()
    year.send_keys("50")
    until(lambda: "unlike all of them" in text(page, "#gate-summary"))
    year.send_keys("x")
    until(lambda: "50x" in text(page, "#gate-summary"))
    settled(page)
    # The browser notes the refusal that the page has just explained.
    page.get_log("browser")


def test_model_and_code_are_downloaded_and_work(page, base, downloads, monkeypatch):
    choose(page, 2)
    find(page, "#download")[0].click()
    path = until(lambda: [p for p in downloads.glob("*.safetensors") if p.stat().st_size])[0]
    frame, _ = films("horror", 9, seed=4)
    wanted = ibcl.load(base).model([0.0, 1.0]).predict(frame)
    assert (ibcl.load_model(path).predict(frame) == wanted).all()
    find(page, "#download-code")[0].click()
    code = until(lambda: [p for p in downloads.glob("*.py") if p.stat().st_size])[0]
    monkeypatch.chdir(base.parent)
    names: dict = {}
    exec(code.read_text(), names)
    assert (names["model"].predict(frame) == wanted).all()


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("pixels", [400, 1200])
def test_nothing_is_cut_off_and_everything_is_readable(page, pixels, dark):
    width(page, pixels, dark)
    until(lambda: find(page, "#examples tbody tr"))
    find(page, "#compare")[0].click()
    until(lambda: len(find(page, "#comparison tbody tr")) == 3)
    until(lambda: page.execute_script(OUTSIDE) == [])
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert page.execute_script(CONTRAST) == []
    unlabelled = page.execute_script(
        "return [...document.querySelectorAll('input, select, textarea')].filter((e) => "
        "!e.labels?.length && !e.getAttribute('aria-label')).map((e) => e.outerHTML)"
    )
    assert unlabelled == []


def test_a_base_that_grows_while_the_page_is_open(page, base):
    choose(page, 1)
    grown(base, 3)
    until(lambda: "has learnt romance" in text(page, "#news"))
    assert weights(page) == [100, 0, 0]
    until(lambda: scores(page) == expected(base, [1.0, 0.0, 0.0]))
    assert text(page, "#task-count") == "3 tasks"
    find(page, "#compare")[0].click()
    until(lambda: len(find(page, "#version-second option")) == 2)
    page.execute_script(
        "const s = document.querySelector('#version-second'); s.selectedIndex = 0;"
        "s.dispatchEvent(new Event('change'))"
    )
    until(lambda: texts(page, "#comparison tbody td:nth-child(5)")[2:3] == ["–"])
