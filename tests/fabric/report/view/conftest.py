"""A browser for all tests of pages."""

from tests.browser import chromium

__all__ = ["chromium"]
