"""Tests of the commands in virtual time. None needs root."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.virtual.command import VirtualCommand


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
