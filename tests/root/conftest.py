"""What tests of whole worlds share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worlds import Command


@pytest.fixture
def command(tmp_path: Path) -> Command:
    """The ``fabric`` command in an empty directory."""
    return Command(tmp_path)


@pytest.fixture(scope="module")
def shared_command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """One for all tests of a module."""
    return Command(tmp_path_factory.mktemp("command"))
