"""Tests of the qdisc in virtual time. None needs root; kernel and module are built, once, if this machine has none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric.world.kernel_api import modules
from fabric.world.virtual import kernel
from tests.vl.guest import end_guests

HERE = Path(__file__).parent


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build what is missing, if tests here are to be run: no test's time limit fits the minutes that it may take."""
    if session.config.option.collectonly or not any(HERE in item.path.parents for item in session.items):
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        found = kernel.find()
        if found is None:
            print("\nbuilding the guest kernel; this takes minutes, once")
            kernel.build(lambda text: print(f"  {text}", flush=True))
        else:
            modules.build(found.directory.name, found.module_command)


@pytest.fixture(autouse=True, scope="module")
def guests() -> Iterator[None]:
    """End, with the tests of a file, the guests that they had."""
    yield
    end_guests()
