"""Tests of the commands in virtual time. None needs root; the kernel is built, once, if this machine has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from fabric.virtual import kernel
from tests.virtual.command import HERE, VirtualCommand


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the kernel, if tests here are to be run: no test's time limit fits the minutes that it takes."""
    if session.config.option.collectonly or not any(HERE in item.path.parents for item in session.items):
        return
    with session.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        if kernel.find() is None:
            print("\nbuilding the guest kernel; this takes minutes, once")
            kernel.build(lambda text: print(f"  {text}", flush=True))


@pytest.fixture
def command(tmp_path: Path) -> VirtualCommand:
    """The command in an empty directory."""
    return _command(tmp_path)


@pytest.fixture(scope="module")
def shared_command(tmp_path_factory: pytest.TempPathFactory) -> VirtualCommand:
    """One for all tests of a module."""
    return _command(tmp_path_factory.mktemp("virtual"))


def _command(directory: Path) -> VirtualCommand:
    made = VirtualCommand(directory / "here", directory / "temporary")
    made.here.mkdir()
    made.temporary.mkdir()
    return made
