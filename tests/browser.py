"""The distribution's Chromium, headless, for tests of pages; they skip, and say why, where there is none."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

BROWSER, DRIVER = "chromium", "chromedriver"
_ARGUMENTS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1500,950")
_READY_S = 180.0
_LOOK_S = 0.1
"""Between two looks at a page: each goes through the driver, and takes time from the browser that is waited for."""


def why_no_browser() -> str | None:
    """Return why tests of pages cannot run here, with what would mend it."""
    missing = [name for name in (BROWSER, DRIVER) if shutil.which(name) is None]
    if missing:
        return f"no {' and no '.join(missing)} on this machine; on Debian: apt install chromium chromium-driver"
    return None


needs_browser = pytest.mark.skipif(why_no_browser() is not None, reason=str(why_no_browser()))


class Browser:
    """A tab of Chromium. What pages wrote to its console as errors is in :meth:`errors`."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, address: str, until: tuple[str, ...] = ("complete", "failed")) -> None:
        """Open a page of ours and wait until it says that it is so far."""
        self.driver.get(address)
        self.wait(f"{list(until)}.includes(document.body.dataset.state)", f"{address} to load")

    def run(self, script: str, *arguments: object) -> Any:
        """Run JavaScript and return what it returns; promises are waited for."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str, what: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + _READY_S
        while not self.run(f"return Boolean({condition})"):
            assert time.monotonic() < deadline, f"waited {_READY_S} s for {what}; console: {self.errors()}"
            time.sleep(_LOOK_S)

    def errors(self) -> list[str]:
        """Return what was written to the console since the last call."""
        found: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(line["message"]) for line in found]


@contextmanager
def started() -> Iterator[webdriver.Chrome]:
    """Start Chromium for the time of a block."""
    options = Options()
    options.binary_location = str(shutil.which(BROWSER))
    for argument in _ARGUMENTS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which(DRIVER))))
    try:
        yield driver
    finally:
        driver.quit()


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """One for all tests of a worker, each in a tab of its own: to start it takes as long as most of them."""
    with started() as driver:
        yield driver


@contextmanager
def tab(driver: webdriver.Chrome) -> Iterator[Browser]:
    """Open a tab for the time of a block; what was in front before is so again afterwards."""
    before = driver.current_window_handle
    driver.switch_to.new_window("tab")
    try:
        yield Browser(driver)
    finally:
        driver.close()
        driver.switch_to.window(before)
