"""A real Chromium for the tests of pages, and a service for it to look at."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
DRIVER = shutil.which("chromedriver")


@contextmanager
def browser(downloads: Path) -> Iterator[Any]:
    """Start Chromium without a window."""
    pytest.importorskip("selenium", reason="Chromium is driven by the package 'selenium'")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("there is no Chromium with its driver to open the page with")
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.add_argument("--safebrowsing-disable-download-protection")
    options.add_experimental_option(
        "prefs", {"download.default_directory": str(downloads), "safebrowsing.enabled": True}
    )
    driver = Chrome(options=options, service=ChromeService(DRIVER))
    driver.set_script_timeout(30)
    yield driver
    driver.quit()


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Run a service in a thread and give its address."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    port = server.servers[0].sockets[0].getsockname()[1]
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join()


def until(condition: Any, seconds: float = 30.0) -> Any:
    """Wait until something holds, and return what it was."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def width(driver: Any, pixels: int, dark: bool = False) -> None:
    """Show pages at a width, in light or dark."""
    size = {"width": pixels, "height": 900, "deviceScaleFactor": 1, "mobile": pixels < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


OUTSIDE = """
const hidden = '.scroll, pre, [hidden], thead, details:not([open]) > :not(summary)';
return [...document.body.querySelectorAll('*')].filter((element) => {
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0 && !element.closest(hidden)
    && (box.right > innerWidth + 1 || box.left < -1);
}).map((element) => element.outerHTML.slice(0, 80));
"""
"""Elements that are cut off at the sides."""

CONTRAST = """
const rgb = (text) => text.match(/[\\d.]+/g).slice(0, 3).map(Number);
const linear = (c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
const luminance = ([r, g, b]) =>
  0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const background = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = getComputedStyle(e).backgroundColor;
    if (!colour.includes(', 0)') && colour !== 'transparent') return rgb(colour);
  }
  return [255, 255, 255];
};
const ratio = (element) => {
  const text = luminance(rgb(getComputedStyle(element).color));
  const behind = luminance(background(element));
  return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
};
return [...document.querySelectorAll('p, h1, h2, td, th, button, label, .chip, output')]
  .filter((element) => element.offsetParent && element.textContent.trim() && !element.disabled)
  .map((element) => [ratio(element), element.outerHTML.slice(0, 80)])
  .filter(([found]) => found < 4.5);
"""
"""Texts with less contrast than the Web Content Accessibility Guidelines ask for."""
