"""A browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from selenium import webdriver

from tests.browser import started


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    """One for all tests of a worker, each in a tab of its own: to start it takes as long as most of them."""
    with started() as driver:
        yield driver
