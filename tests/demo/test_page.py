from __future__ import annotations

import base64
import re
import shutil
import subprocess

import numpy as np
import pytest

from ibcl.demo.explorer import explorer_data
from ibcl.demo.growth import growth
from ibcl.demo.page import page
from ibcl.demo.uncertainty import doubts

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")


@pytest.fixture(scope="module")
def html(results, digits):
    return page(results, growth(digits), doubts(results.ways[0].learner, digits))


def test_the_page_loads_nothing_from_elsewhere(html):
    tags = re.findall(r"<(?:script|link|img|iframe|source)\b[^>]*>", html.split("<body>")[1])
    assert all("src=" not in tag and "href=" not in tag for tag in tags)
    assert html.count("<link") == 1
    assert '<link rel="icon" href="data:,">' in html
    assert len(html.encode()) < 10_000_000


def test_the_page_says_what_was_measured(html, results):
    best = results.ways[0]
    assert f"{results.weighted(best.accuracy).mean():.1%}" in html
    for result in results.ways:
        assert f"{result.coverage:.1%}" in html
    assert "$" not in re.sub(r"<script.*?</script>", "", html, flags=re.S)


def decode(text, kind="<f4"):
    return np.frombuffer(base64.b64decode(text), dtype=kind).astype(float)


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.1], [0.0, 1.0]])
def test_what_the_page_computes_with_gives_the_learners_model(results, digits, weights):
    learner = results.ways[0].learner
    data = explorer_data(learner, digits)
    size = data["dimension"]
    precision = data["priorPrecision"] * np.eye(size)
    linear = np.zeros(size)
    for weight, triangle, vector in zip(weights, data["precisions"], data["linears"], strict=True):
        lower = np.zeros((size, size))
        lower[np.tril_indices(size)] = decode(triangle)
        symmetric = lower + lower.T - np.diag(np.diag(lower))
        precision += len(weights) * weight * symmetric
        linear += len(weights) * weight * decode(vector)
    theta = np.linalg.solve(precision, linear)
    expected = learner.model(weights).theta.numpy()
    assert np.allclose(theta, expected, rtol=1e-2, atol=1e-2 * abs(expected).max())


@pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to open the page with")
def test_a_browser_makes_the_same_models(html, results, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(html, encoding="utf-8")
    options = (
        "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
        "--disable-component-update --disable-sync --virtual-time-budget=10000 --dump-dom"
    )
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    printed = subprocess.run(
        [CHROMIUM, *options.split(), profile, path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    shown = re.findall(r'<output class="accuracy">([\d.]+)%</output>', printed)
    assert shown == [f"{100 * value:.1f}" for value in results.ways[0].accuracy[0]]
    assert printed.count('class="main-svg"') >= 4
