"""Has each worker of xdist collect only the files that it is handed.

To import all test files and make items of all their tests takes ten seconds, in each worker again. So a worker collects
two items of each file, which cost nothing: the first makes and runs the file's tests, the second keeps the worker busy
until it is handed its next file, for xdist's workers run an item only once they know the one after it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from fabric.garbage import uncollected
from tests.side_by_side import Kind, kind_of

_BY_FILE = "by_file"
"""What the session says to a worker that is to do so."""


def is_by_file(config: pytest.Config) -> bool:
    """Return whether a session hands out whole files."""
    return config.getoption("dist", "no") == "loadfile" and not any("::" in argument for argument in config.args)


class HandedFile(pytest.File):
    """A file that a worker may be handed."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield what stands for its tests, and their end."""
        yield TestsOfFile.from_parent(self, name="tests")
        yield EndOfFile.from_parent(self, name="end")


class _Standing(pytest.Item):
    """What stands for the tests of a file until they are run: their time limits are their own, their marks known."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_marker(pytest.mark.timeout(0))
        if (kind := kind_of(self.path)) is not Kind.NEITHER:
            self.add_marker(kind.value)

    def runtest(self) -> None:
        """Do nothing."""


class TestsOfFile(_Standing):
    """The tests of a file, which are made when they are to be run."""

    __test__ = False

    def made(self) -> list[pytest.Item]:
        """Import the file and return its tests, as a session that collects it. What it cannot import is reported."""
        assert self.parent is not None
        module: pytest.Module = pytest.Module.from_parent(self.parent.parent, path=self.path)
        with uncollected():
            items = list(self.session.genitems(module))
            self.config.hook.pytest_collection_modifyitems(session=self.session, config=self.config, items=items)
        return items

    def run(self, after: pytest.Item | None) -> None:
        """Run the tests of the file one after the other, each in this item's place: xdist looks there for it."""
        items, place = self.made(), self.session.items.index(self)
        for item, following in zip(items, [*items, after][1:], strict=False):
            self.session.items[place] = item
            self.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.session.shouldfail or self.session.shouldstop:
                break
        self.session.items[place] = self


class EndOfFile(_Standing):
    """What is left to do of a file when its tests are over, and the next file is known: end the fixtures of directories
    that the two do not have in common."""

    def run(self, after: pytest.Item | None) -> None:
        """Do so, as after a test."""
        runtestprotocol(self, log=False, nextitem=after)


class HandedFiles:
    """The plugin of a worker."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> HandedFile:
        """Collect what stands for a file's tests in place of them."""
        return HandedFile.from_parent(parent, path=module_path)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        """Leave out none of them: which tests are asked for is known once they are made."""
        standing = [item for item in items if isinstance(item, _Standing)]
        yield
        if standing:
            items[:] = standing

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run what an item stands for."""
        if isinstance(item, TestsOfFile | EndOfFile):
            item.run(nextitem)
            return True
        return None


class HandingOut:
    """The plugin of the session that has workers."""

    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker."""
        node.workerinput[_BY_FILE] = True


def register(config: pytest.Config) -> None:
    """Have workers of a session do so, or this one, if it is a worker's."""
    if getattr(config, "workerinput", {}).get(_BY_FILE):
        config.pluginmanager.register(HandedFiles())
    elif is_by_file(config):
        config.pluginmanager.register(HandingOut())
